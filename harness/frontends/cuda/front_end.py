"""CUDA C++ behind the door: see `harness.frontends.base`. Each config is one run of nvcc.

A file has no launch: what is compiled is every `__global__` function that it defines or
instantiates, with each combination of the values that it lists (see `source`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.bench.assemble import read_stream
from harness.bench.bench import Kept, content_key, has_died, still_valid
from harness.frontends.base import CapturedLaunch, LaunchCode
from harness.frontends.cuda.nvcc import (
    KIND,
    available_nvcc,
    environment_of,
    host_compiler,
    judge_nvcc,
    only_its_check_failed,
    tool_of,
)
from harness.frontends.cuda.source import (
    configs_of,
    display_name,
    kernels_in,
    read_source,
    sources_sha256,
)
from harness.frontends.planning import cells_of
from harness.frontends.ptxas_back_end import PTXAS_BACK_END
from harness.frontends.readings import read_stored
from harness.packages.versions import exact_version, select
from harness.processes.environment import plain_environment
from harness.processes.hub import scratch_disk
from harness.ptx.facts import PtxError, read_ptx
from harness.toolchains.environments import (
    compiler_in,
    environments_of,
    install_environment,
    planned_environment,
)
from harness.values.errors import CaptureError
from harness.values.kernel import LaunchSpec, Repro
from harness.values.outcome import Capture, LaunchFacts, Lowering
from harness.values.toolchain import BUNDLED

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.version import Version

    from harness.bench.bench import Sessions, Workbench
    from harness.frontends.base import Adapt, FrontEnd, Plan, PlannedLaunch, Selection
    from harness.frontends.readings import PtxReading
    from harness.processes.hub import Hub
    from harness.values.environment import Environment
    from harness.values.kernel import Config, Scalar
    from harness.values.target import Target
    from harness.values.toolchain import Assembler, Compiler
    from harness.values.verdict import Verdict

__all__ = ["CUDA_FRONT_END"]

_STAGE = "nvcc"
# As nvcc is called for a release build; line numbers tell where in the source PTX comes from.
_FLAGS = ("-O3", "-std=c++17", "-lineinfo", "-ptx")
_OUT = "kernel.ptx"


class _NoSessions:
    """Each compilation is a process of its own: nothing stays open."""

    async def close(self, key: str) -> None:
        """Nothing to end."""


class _CudaFrontEnd:
    kind = KIND
    title = KIND
    back_end = PTXAS_BACK_END
    suffixes: tuple[str, ...] = (".cu",)
    stages: tuple[str, ...] = (_STAGE, "ptx")
    options: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    interprets = False
    patches = False

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        configs_of(read_source(path), path)
        return Repro(
            name=str(path) if kernel is None else f"{path}::{kernel}",
            kernel=kernel,
            folder=path.parent,
            file=path,
            launches=(LaunchSpec(name="file", function=None, file=path),),
            compiler=KIND,
        )

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return available_nvcc(prereleases=prereleases)

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        exact = exact_version(spec)
        if exact is not None and self._installed(exact):
            return [exact]
        return select(
            available_nvcc(prereleases=prereleases), spec, what=KIND, prereleases=prereleases
        )

    def installed(self) -> list[Compiler]:
        return [compiler_in(each) for each in environments_of(KIND)]

    def _installed(self, version: Version | str) -> Compiler | None:
        """What is installed is used as it is: its partners were chosen then."""
        return next((each for each in self.installed() if each.version == str(version)), None)

    def environment(self, version: str) -> Environment:
        return environment_of(version)

    def install(self, version: Version | str) -> Compiler:
        return self._installed(version) or install_environment(environment_of(str(version)))

    def planned(self, version: Version | str) -> Compiler:
        return self._installed(version) or planned_environment(environment_of(str(version)))

    def default(self) -> Compiler:
        here = self.installed()
        return here[-1] if here else self.install(available_nvcc()[-1])

    def default_assembler(self) -> str:
        return BUNDLED

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> Sessions:  # noqa: ARG002
        return _NoSessions()

    async def plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan:
        configs = _configs(selection.repro, adapt)
        jobs = (
            _compiled(bench, selection.repro.file, config, target, compiler) for config in configs
        )
        done = await asyncio.gather(*jobs)
        return _planned(bench, selection, target, compiler, launch, configs, done, adapt is None)

    def stored_plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan | None:
        file, configs = selection.repro.file, _configs(selection.repro, adapt)
        done: list[Kept[Lowering]] = []
        for config in configs:
            kept = bench.read("lower", _key(file, config, target, compiler), Lowering)
            if kept is None:
                return None
            done.append(kept)
        return _planned(bench, selection, target, compiler, launch, configs, done, adapt is None)

    async def lower(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
    ) -> Kept[Lowering]:
        file, target, entries = launch.request
        whole = await _compiled(bench, file, record.config, target, launch.compiler)
        key = self.lowering_key(launch, record, ptxas)
        metadata: dict[str, object] = {"entry": entries.get(record.key)}
        lowering = replace(whole.value, metadata=metadata)
        kept = bench.keep("lower", key, lowering, whole.artifacts)
        return replace(kept, cached=whole.cached)

    def lowering_key(
        self,
        launch: CapturedLaunch,
        record: LaunchFacts,
        ptxas: Assembler,  # noqa: ARG002
    ) -> str:
        file, target, _ = launch.request
        return content_key(
            file=_key(file, record.config, target, launch.compiler), record=record.key
        )

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        entry = lowering.value.metadata.get("entry")
        return read_stored(bench, ptx, entry=str(entry) if entry else None)

    async def failing_pass(
        self,
        bench: Workbench,  # noqa: ARG002
        launch: CapturedLaunch,  # noqa: ARG002
        record: LaunchFacts,  # noqa: ARG002
        *,
        ptxas: Assembler,  # noqa: ARG002
        traps: bool,  # noqa: ARG002
    ) -> str | None:
        return None

    def built_with(self, compiler: Compiler) -> str | None:  # noqa: ARG002
        return None

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_nvcc(lowering)

    def install_line(self, version: str) -> str:
        pins = (str(pin) for pin in environment_of(version).pins)
        return f"pip install {' '.join(pins)}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:  # noqa: ARG002
        return f"nvcc {' '.join(_defines(config.as_dict()))}  # for {kernel}"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.identity, host_compiler(), _FLAGS]


def _configs(repro: Repro, adapt: Adapt | None) -> list[dict[str, Scalar]]:
    """The configs of a file, or those that take their place."""
    file = repro.file
    own = configs_of(read_source(file), file)
    if adapt is None:
        return own
    code = LaunchCode(
        file=file, function=None, overrides={}, paths=(), bare=(), identity={"file": str(file)}
    )
    injected = [dict(each) for found in adapt(code).injected.values() for each in found]
    return injected or own  # type: ignore[return-value]


def _defines(config: dict[str, Scalar]) -> tuple[str, ...]:
    return tuple(f"-D{name}={value}" for name, value in config.items())


def _key(file: Path, config: dict[str, Scalar], target: Target, compiler: Compiler) -> str:
    return content_key(
        sources=sources_sha256(file),
        config=config,
        target=str(target),
        compiler=compiler.identity,
        host=host_compiler(),
        flags=_FLAGS,
    )


async def _compiled(
    bench: Workbench, file: Path, config: dict[str, Scalar], target: Target, compiler: Compiler
) -> Kept[Lowering]:
    """One run of nvcc as far as PTX, kept by content; one that dies is run once more, alone."""
    key = _key(file, config, target, compiler)
    async with bench.once(key):
        kept = bench.find("lower", key, Lowering)
        if kept and still_valid(kept.value.end, bench.limits):
            return kept
        lowering, artifacts = await _run(bench, file, config, target, compiler, alone=False)
        if has_died(lowering.end):
            again, artifacts = await _run(bench, file, config, target, compiler, alone=True)
            lowering = replace(again, attempts=2)
        return bench.keep("lower", key, lowering, artifacts)


async def _run(
    bench: Workbench,
    file: Path,
    config: dict[str, Scalar],
    target: Target,
    compiler: Compiler,
    *,
    alone: bool,
) -> tuple[Lowering, dict[str, str]]:
    folder = bench.hub.new_folder("nvcc")
    argv: list[str | Path] = [tool_of(compiler, "nvcc"), *_FLAGS, f"-arch={target}"]
    argv += [*_defines(config), "-I", file.resolve().parent, file.resolve(), "-o", _OUT]
    env = {**plain_environment(), "TMPDIR": str(folder), "HOME": str(folder)}
    # A toolkit of the host's is none of this compiler's.
    env = {name: value for name, value in env.items() if not name.startswith(("CUDA", "NVCC"))}
    async with bench.slot(alone=alone):
        end = await bench.hub.execute(argv, folder=folder, limits=bench.limits, env=env)
    bench.cpu_seconds += end.cpu
    with scratch_disk():
        log = read_stream(folder / "stderr") + read_stream(folder / "stdout")
    artifacts = {"source": bench.store.artifacts.put_file(file)}
    has_ptx = (folder / _OUT).is_file()
    if has_ptx and only_its_check_failed(end, log):
        # What the PTX is worth is for the assembler to say, which is asked again.
        end = replace(end, exit_code=0)
    if end.ok and has_ptx:
        artifacts["ptx"] = bench.store.artifacts.put_file(folder / _OUT)
    bench.hub.drop_folder(folder)
    lowering = Lowering(
        end=end,
        stage="ptx" if "ptx" in artifacts else _STAGE,
        flags=("-v", f"--gpu-name={target}"),
        log=log,
    )
    return lowering, artifacts


def _planned(
    bench: Workbench,
    selection: Selection,
    target: Target,
    compiler: Compiler,
    launch: PlannedLaunch,
    configs: list[dict[str, Scalar]],
    done: list[Kept[Lowering]],
    is_own: bool,  # noqa: FBT001
) -> Plan:
    """A cell for each kernel of each config; one for a config of which nothing is left.

    Raises:
        CaptureError: the file holds no kernel, or not the one that is meant.
    """
    file = selection.repro.file
    # Of what nvcc refuses, the source names the kernels.
    defined = kernels_in(read_source(file)) or [selection.repro.kernel or file.stem]
    entries: dict[str, str | None] = {}
    records: list[LaunchFacts] = []
    for config, kept in zip(configs, done, strict=True):
        for name, entry in _kernels(bench, kept, defined):
            record = content_key(file=kept.key, kernel=name, entry=entry)
            entries[record] = entry
            records.append(
                LaunchFacts(
                    key=record,
                    kernel=name,
                    config=config,
                    autotuned=bool(config),
                    arguments=[],
                    grid=None,
                    file=str(file),
                )
            )
    if not records:
        raise CaptureError(f"{file}: it defines no __global__ function, and instantiates none")
    ptxas = str(tool_of(compiler, "ptxas"))
    capture = Capture(records=records, pruned={}, ptxas=ptxas, triton="")
    key = content_key(lowerings=[each.key for each in done])
    captured = CapturedLaunch(
        capture=Kept(value=capture, key=key, artifacts={}, cached=True),
        compiler=compiler,
        request=(file, target, entries),
    )
    plan = cells_of(selection, target, launch, captured, is_own=is_own)
    cells = (
        replace(cell, entry=entries[cell.record.key] if cell.record else None)
        for cell in plan.cells
    )
    return replace(plan, cells=tuple(cells))


def _kernels(
    bench: Workbench, kept: Kept[Lowering], otherwise: list[str]
) -> list[tuple[str, str | None]]:
    """The kernels in what nvcc left, by the name that is shown and the one in the PTX."""
    sha256 = kept.artifacts.get("ptx")
    if sha256 is None:
        return [(name, None) for name in otherwise]
    try:
        text = bench.store.artifacts.get(sha256).decode(errors="replace")
        entries = read_ptx(text).entries
    except PtxError:
        return []
    names = [display_name(entry) for entry in entries]
    return [
        (name if names.count(name) == 1 else entry, entry)
        for name, entry in zip(names, entries, strict=True)
    ]


CUDA_FRONT_END: FrontEnd = _CudaFrontEnd()
