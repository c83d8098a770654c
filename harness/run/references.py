"""What the buffers of a launch must hold afterwards, and who says so.

First what the author of the repro says (`reference:`), and values that the launch code's own
assertions accept. Next, the kernel itself is the best judge of
its configs: without pipelining, on a target without
asynchronous engines, most of what compilers get wrong has no place to be; where other Tritons
agree that it is wrong even so, they count. Next comes Triton's interpreter. What executes the
cell's own instructions is not a reference: it agrees whatever they compute.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from packaging.version import Version

from gpu_emulator.ptx.text.facts import instructions_sha256
from gpu_emulator.values import Budget, Checks, Schedule
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.launch_code import capture_request
from harness.frontends.registry import front_end, interpreter_for
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.io.files.writing import scratch_disk
from harness.run.emulating import emulate
from harness.run.emulator_jobs import Emulated, Emulation, RunTrial
from harness.run.inputs import (
    PLAIN_TARGET,
    find_variant,
    launch_of,
    lower_record,
    record_like,
    recorded,
)
from harness.run.launch import Launch, NotRunError, Trusted, why_refused
from harness.values.errors import TriageError
from harness.values.execution import LaunchVariant
from harness.values.kernel import Scalar
from harness.values.limits import limits_of
from harness.values.outcome import LaunchFacts, Lowering, RaisedError
from harness.values.target import Target
from harness.values.toolchain import Compiler

# Triton copies to shared memory in this way where it pipelines loads, and nowhere else.
_COPIES = re.compile(r"\bcp\.async\.c[ag]\.")
# Triton's default, and what is left of most races with it.
_WARPS, _FEW_WARPS = 4, 2
# As many Tritons tell more than one.
_AGREEMENT = 2
_SCHEDULE = Schedule(warps="lockstep", completion="early")
# Twice, with other garbage: what depends on that is nothing to be held to. What nothing wrote does
# not: where the garbage is, it has to be known.
PLAIN_TRIALS = (
    RunTrial(schedule=_SCHEDULE),
    RunTrial(schedule=replace(_SCHEDULE, garbage=1), checks=Checks(validity=True)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Another:
    """Another compilation of a launch: what is None is that of the cell; `words` name it."""

    words: str
    target: Target | None = None
    compiler: Compiler | None = None
    options: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class References:
    """What the cells of one launch function and compiler are compared with.

    `records` are the cells: all that they are compared with is captured together. `reference` is
    the repro's own: a file and a function of it; `baseline` is another function. `others` are
    compilers that are asked besides, the newest first. `interpreter` is the one that interpreted
    the inputs.
    """

    bench: Workbench
    budget: Budget
    code: LaunchCode
    compiler: Compiler
    records: Sequence[LaunchFacts]
    reference: tuple[Path, str] | None
    baseline: str | None = None
    tell: Callable[[str], None]
    sessions: set[str] = field(default_factory=set)
    others: Sequence[Compiler] = ()
    interpreter: Compiler
    _captured: dict[tuple[Compiler, Target, str, str], CapturedLaunch | None] = field(
        default_factory=dict
    )
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def capture(self, compiler: Compiler, target: Target, code: LaunchCode) -> CapturedLaunch:
        """Capture launch code.

        Raises:
            TriageError: it cannot be captured so.
        """
        captured = await interpreter_for(compiler).capture(self.bench, code, target, compiler)
        self.sessions.add(captured.capture.key)
        return captured

    async def simpler(
        self, compiler: Compiler, target: Target, cell: LaunchFacts
    ) -> CapturedLaunch | None:
        """The launch code with the configs that cells of a kernel are compared with.

        None where it cannot be captured. A cell that is none of `records` is captured alone.
        """
        every = [record.config for record in self.records if record.kernel == cell.kernel]
        own = every if cell.config in every else [cell.config]
        async with self._lock:
            key = (compiler, target, cell.kernel, str(own))
            if key not in self._captured:
                configs: list[dict[str, Scalar]] = []
                for config in own:
                    simpler = simpler_configs(config)
                    configs += [plain for plain in simpler if plain not in configs]
                self._captured[key] = None
                if limits_of(target.capability):
                    with contextlib.suppress(TriageError):
                        code = self.code.with_configs(cell.kernel, configs)
                        self._captured[key] = await self.capture(compiler, target, code)
            return self._captured[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReferences:
    """What one cell is compared with: a config of a launch for a target, and its inputs."""

    references: References
    compiler: Compiler
    target: Target
    record: LaunchFacts
    variant: LaunchVariant

    @property
    def bench(self) -> Workbench:
        """Where everything is compiled and executed."""
        return self.references.bench

    async def hold(self, launch: Launch) -> Launch:
        """The launch of the cell, held to what is known of it."""
        shared, variant = self.references, self.variant
        trusted = await self.author()
        for assertion in variant.asserted:
            if assertion.holds and any(assertion.buffers):
                words = f"what the file's own assertion accepts ({assertion.where})"
                trusted.append(Trusted(words=words, buffers=assertion.buffers))
        ptx = self.bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
        instructions = instructions_sha256(ptx)
        own, is_clean = await self._plain(shared.compiler, instructions)
        others = [(await self._plain(compiler, instructions))[0] for compiler in shared.others]
        plain = prevailing(own, list(filter(None, others)))
        # What is pipelined as the cell is may be wrong as the cell is.
        if plain and not (plain.is_pipelined and variant.interpreted):
            trusted.append(plain)
        if variant.interpreted:
            trusted.append(_interpretation(shared.interpreter, variant))
        elif variant.interpreted_otherwise:
            # Configs of a tuner leave the same; but buffers of partial results may differ.
            trusted.append(
                Trusted(
                    words=f"the interpreter of {shared.interpreter.name}, with another config",
                    buffers=tuple(buffer.sha256 for buffer in variant.interpreted_otherwise),
                    may_differ=True,
                )
            )
        return replace(launch, trusted=tuple(trusted), is_clean=is_clean)

    async def hold_to_interpreters(self, launch: Launch, *, is_wrong: bool) -> Launch:
        """Held besides to what the interpreter of the cell's compiler makes of the same inputs.

        An interpreter may be wrong, too: it is not a judge of what other versions compute. Where a
        cell `is_wrong` by what was asked, the newest that is installed is heard, too.
        """
        shared, compilers = self.references, [self.compiler]
        if is_wrong:
            installed = await asyncio.to_thread(front_end(self.compiler.kind).installed)
            compilers += sorted(installed, key=lambda compiler: Version(compiler.version))[-1:]
        trusted = []
        for compiler in dict.fromkeys(compilers):
            if compiler == shared.interpreter:
                continue
            with contextlib.suppress(TriageError):
                inputs = await recorded(
                    self.bench,
                    shared.code,
                    compiler,
                    [self.record.kernel],
                    (PLAIN_TARGET,),
                    budget=shared.budget,
                    tell=shared.tell,
                )
                same = find_variant(inputs, self.record)
                if same and same.interpreted and same.buffers == self.variant.buffers:
                    trusted.append(_interpretation(compiler, same))
        return replace(launch, trusted=(*launch.trusted, *trusted))

    async def _plain(self, compiler: Compiler, instructions: str) -> tuple[Trusted | None, bool]:
        """What the plainest config that comes to other instructions than these leaves.

        And whether no garbage shows in it.
        """
        cell = (self.references.compiler, self.target, seen_by_compiler(self.record.config))
        for target in dict.fromkeys((PLAIN_TARGET, self.target)):
            for config in simpler_configs(self.record.config):
                if (compiler, target, config) == cell:
                    continue
                emulation = await self._emulated(compiler, target, config, instructions)
                if emulation is None:
                    continue
                emulated, is_pipelined = emulation
                first, second = emulated.runs
                if first.buffers != second.buffers:
                    return None, False
                trusted = Trusted(
                    words=_words(target, config, self.record, compiler, is_pipelined=is_pipelined),
                    buffers=first.buffers,
                    is_emulated=True,
                    is_sampled=True,
                    is_pipelined=is_pipelined,
                )
                return trusted, True
        return None, True

    async def beside(self, another: Another) -> Emulation:
        """Another PTX of the launch, on the same inputs.

        Raises:
            NotRunError: it cannot be compiled, or not launched so.
        """
        shared, kernel = self.references, self.record.kernel
        config, target = {**self.record.config, **another.options}, another.target or self.target
        compiler = another.compiler or shared.compiler
        try:
            if limits_of(target.capability) is None:
                raise NotRunError(f"the limits of {target} are not known")
            code = shared.code.with_configs(kernel, [config])
            captured = await shared.capture(compiler, target, code)
            launch = await self._launch(captured, config, PLAIN_TRIALS[:1])
            if launch is None:
                raise NotRunError("the launch cannot be given this config")
            return launch[0].emulation
        except TriageError as error:
            raise NotRunError(f"{another.words}: {error}") from error

    async def author(self) -> list[Trusted]:
        """What the repro's own reference says, if it has one: a torch function, in float64."""
        if self.references.reference is None:
            return []
        buffers = await self._computed(*self.references.reference, exact=True)
        return [Trusted(words=_WORDS, buffers=buffers, is_final=True)] if buffers else []

    async def baseline(self) -> tuple[str | None, ...]:
        """What the repro's other function computes, in the types of the tensors."""
        shared = self.references
        if shared.reference is None or shared.baseline is None:
            return ()
        return await self._computed(shared.reference[0], shared.baseline, exact=False)

    async def _computed(self, file: Path, function: str, *, exact: bool) -> tuple[str | None, ...]:
        shared, bench = self.references, self.bench
        if not file.is_file():
            shared.tell(f"no file {file}, of which the repro names a function as reference")
            return ()
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        described = msgspec.to_builtins(self.variant)
        key = content_key(
            kind="reference", file=sha256, function=function, exact=exact, variant=described
        )
        async with bench.once(key):
            stored = bench.find("reference", key, Referred)
            if stored is None:
                request = {
                    **capture_request(shared.code, PLAIN_TARGET).message(),
                    "file": str(file.resolve()),
                    "function": function,
                    "exact": exact,
                    "variant": described,
                }
                referred = await _run(bench, request, self.variant, shared.compiler)
                if error := referred.error:
                    shared.tell(f"{file}: {function} raised {error.words}")
                    return ()
                names = {name: name for name in referred.buffers if name}
                stored = bench.keep("reference", key, referred, names)
        return stored.value.buffers

    async def _launch(
        self, captured: CapturedLaunch, config: Mapping[str, Scalar], trials: Sequence[RunTrial]
    ) -> tuple[Launch, Kept[Lowering]] | None:
        """The launch with another config on the cell's inputs; None where it cannot be given it."""
        records, own = captured.capture.value.records, self.record
        record = record_like(records, own.kernel, own.arguments, config)
        if record is None:
            return None
        lowering = await lower_record(self.bench, captured, record)
        launch = launch_of(self.bench, lowering, self.variant)
        return launch.run_as(trials, self.references.budget), lowering

    async def _emulated(
        self, compiler: Compiler, target: Target, config: dict[str, Scalar], instructions: str
    ) -> tuple[Emulated, bool] | None:
        """What a config leaves on a target, if it is not another name for what the cell executes.

        And whether its loads are pipelined all the same: a loop may have stages of its own
        (`tl.range`). None, too, where it cannot be compiled or executed there.
        """
        captured = await self.references.simpler(compiler, target, self.record)
        if captured is None:
            return None
        try:
            compiled = await self._launch(captured, config, PLAIN_TRIALS)
            if compiled is None:
                return None
            launch, lowering = compiled
            ptx = self.bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
            limits = limits_of(target.capability)
            if instructions_sha256(ptx) == instructions or (
                target == self.target and why_refused(ptx, lowering.value, target, limits)
            ):
                return None
            emulated = (await emulate(self.bench, launch.emulation)).value
        except TriageError:
            return None
        is_whole = len(emulated.runs) == len(PLAIN_TRIALS) and all(
            ran.ended for ran in emulated.runs
        )
        return (emulated, bool(_COPIES.search(ptx))) if is_whole else None


def simpler_configs(config: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
    """The same tiles without pipelining; and so with another number of warps."""
    plain: dict[str, Scalar] = {**seen_by_compiler(config), "num_stages": 1}
    fewer = _FEW_WARPS if config.get("num_warps", _WARPS) != _FEW_WARPS else _WARPS
    return [plain, {**plain, "num_warps": fewer}]


def seen_by_compiler(config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A config without what only ptxas sees: the same instructions."""
    return {name: value for name, value in config.items() if name != "maxnreg"}


def prevailing(own: Trusted | None, others: Sequence[Trusted]) -> Trusted | None:
    """What the plain config of a kernel leaves, by its own compiler or by others.

    `own` is of the compiler of the cell, `others` are of other compilers, the newest first. Its own
    counts, unless it stands alone against at least two that agree with one another bit for bit:
    then all its configs may be wrong alike. Without its own, the newest of the most that agree.
    """
    groups: dict[tuple[str | None, ...], list[Trusted]] = {}
    for trusted in others:
        groups.setdefault(trusted.buffers, []).append(trusted)
    most = max(groups.values(), key=len, default=[])
    if own and (own.buffers in groups or len(most) < _AGREEMENT):
        return own
    if not most:
        return None
    first, *more = most
    also = f", and bit for bit by {len(more)} more" if more else ""
    return replace(first, words=f"{first.words}{also}")


def _interpretation(compiler: Compiler, variant: LaunchVariant) -> Trusted:
    buffers = tuple(buffer.sha256 for buffer in variant.interpreted)
    words = f"the interpreter of {compiler.name}"
    return Trusted(words=words, buffers=buffers, is_same_config=True, is_sampled=variant.is_sampled)


def _words(
    target: Target,
    config: Mapping[str, Scalar],
    record: LaunchFacts,
    compiler: Compiler,
    *,
    is_pipelined: bool,
) -> str:
    own = [
        f"{name}={value}"
        for name, value in config.items()
        if name == "num_stages" or record.config.get(name) != value
    ]
    still = " (pipelined all the same)" if is_pipelined else ""
    return f"{', '.join(own)}{still} on {target} with {compiler.name}, emulated"


REFERENCE_FILE = "reference.py"
"""Beside `repro.yaml`; its functions take the kernel's arguments by name."""

_WORDS = "the repro's reference (torch, float64)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """The buffers that the function says something of, by sha256; None for the others."""

    buffers: tuple[str | None, ...] = ()
    error: RaisedError | None = None


async def _run(
    bench: Workbench, request: dict[str, object], variant: LaunchVariant, compiler: Compiler
) -> Referred:
    artifacts, folder = bench.store.artifacts, bench.hub.new_folder("reference")
    try:
        with scratch_disk():
            (folder / "request.json").write_text(json.dumps(request))
            for buffer in variant.buffers:
                (folder / f"{buffer.sha256}.bin").write_bytes(artifacts.get(buffer.sha256))
        async with bench.slot():
            job = await interpreter_for(compiler).run_with_values(
                "reference", bench, compiler, folder, bench.limits
            )
        bench.cpu_seconds += job.end.cpu
        bench.hub.drop_folder(job.folder)
        try:
            referred = msgspec.json.decode((folder / "result.json").read_bytes(), type=Referred)
        except (OSError, msgspec.MsgspecError):
            message = f"its process: {job.end.words}"
            return Referred(error=RaisedError(type="Reference", kinds=(), message=message))
        for name in filter(None, referred.buffers):
            artifacts.put_file(folder / f"{name}.bin")
        return referred
    finally:
        bench.hub.drop_folder(folder)
