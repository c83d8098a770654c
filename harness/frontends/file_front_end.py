"""What is alike for languages whose kernels are read from a file, in this process.

There is no launch code and no child that stays: a front end of theirs is a subclass that reads
files, says which configs their kernels have, and lowers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.frontends.back_end import PTXAS_BACK_END, BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.plan import CapturePlace, Plan, cells_of
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.values.kernel import LaunchSpec, Repro, Scalar
from harness.values.outcome import Capture, LaunchFacts, Lowering
from harness.values.toolchain import Assembler


def repro_of_file(
    kind: str, path: Path, kernel: str | None, *, name: str | None = None, launch: str = "file"
) -> Repro:
    """A file as a repro with one launch, the file itself; without a `name`, its path is one."""
    return Repro(
        name=name or str(path),
        kernel=kernel,
        folder=path.parent,
        file=path,
        launches=(LaunchSpec(name=launch, function=None, file=path),),
        compiler=kind,
    )


def injected_configs(file: Path, place: CapturePlace) -> dict[str, list[dict[str, Scalar]]]:
    """The configs that take the place of a file's own, by kernel: empty where none do."""
    code = LaunchCode(file=file, function=None, overrides={}, identity={"file": str(file)})
    injected = place.adapted(code).injected
    return {name: [dict(config) for config in configs] for name, configs in injected.items()}


def launch_of_file(key: str, kernel: str, config: Mapping[str, Scalar], file: Path) -> LaunchFacts:
    """A kernel of a file with one of its configs: it is launched with nothing that is known."""
    return LaunchFacts(
        key=key,
        kernel=kernel,
        config=dict(config),
        autotuned=bool(config),
        arguments=[],
        grid=None,
        file=str(file),
    )


def captured_file(
    place: CapturePlace,
    request: object,
    records: Sequence[LaunchFacts],
    *,
    key: str,
    ptxas: str = "",
) -> CapturedLaunch:
    """The launches of a file, as if they were captured; `ptxas` is the one of the compiler."""
    capture = Capture(records=list(records), pruned={}, ptxas=ptxas, triton="")
    evidence = Kept(value=capture, key=key, artifacts={}, cached=True)
    return CapturedLaunch(capture=evidence, compiler=place.compiler, request=request)


class FileFrontEnd(FrontEnd):
    """A front end of files: by default each holds one kernel, tuned over a list of configs.

    The request of a captured launch is then its target.
    """

    back_ends: tuple[BackEnd, ...] = (PTXAS_BACK_END,)

    def kernel_in(self, path: Path) -> tuple[str, Sequence[Mapping[str, Scalar]]]:
        """The kernel of a file, and its configs.

        Raises:
            UsageError: there is none.
        """
        raise NotImplementedError

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[Lowering, Mapping[str, bytes]]:
        """The evidence of lowering one config, and by its name what each stage wrote.

        Raises:
            InfrastructureError: the compiler could not be run.
        """
        raise NotImplementedError

    def launches_of(self, place: CapturePlace) -> list[LaunchFacts]:
        """One launch for each config."""
        file = place.selection.repro.file
        name, configs = self.kernel_in(file)
        text = file.read_text()
        return [
            launch_of_file(content_key(file=text, config=config), name, config, file)
            for config in injected_configs(file, place).get(name, configs)
        ]

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan | None:
        text = place.selection.repro.file.read_text()
        key = content_key(file=text, compiler=place.compiler.identity)
        captured = captured_file(place, place.target, self.launches_of(place), key=key)
        return cells_of(self.back_end(place.target), place, captured)

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        key = self.lowering_key(launch, record, ptxas)
        async with bench.once(key):
            if stored := bench.find("lower", key, Lowering):
                return stored
            lowering, files = await self.lowered(bench, launch, record)
            artifacts = {name: bench.store.artifacts.put(data) for name, data in files.items()}
            return bench.keep("lower", key, lowering, artifacts)

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        return content_key(
            kind=self.kind,
            compiler=launch.compiler.identity,
            record=record.key,
            target=str(launch.request),
        )
