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
from gpu_emulator.values import Budget, Schedule
from harness.frontends.base import LaunchCode
from harness.frontends.bench.bench import Workbench, content_key
from harness.frontends.launch_code import capture_request
from harness.frontends.registry import front_end, interpreter_for
from harness.frontends.sessions import CapturedLaunch
from harness.io.files.writing import scratch_disk
from harness.run.emulating import emulate
from harness.run.jobs import Emulated, Emulation, RunTrial
from harness.run.launch import Launch, Trusted
from harness.run.launching import NotRunError, launch_of, why_refused
from harness.run.recording import PLAIN_TARGET, find_variant, lower_record, record_like, recorded
from harness.values.errors import TriageError
from harness.values.execution import LaunchVariant
from harness.values.kernel import Repro, Scalar
from harness.values.limits import limits_of
from harness.values.outcome import LaunchFacts, ProcessEnd, RaisedError
from harness.values.target import Target
from harness.values.toolchain import Compiler

# Triton copies to shared memory in this way where it pipelines loads, and nowhere else.
_COPIES = re.compile(r"\bcp\.async\.c[ag]\.")
# Triton's default, and what is left of most races with it.
_WARPS, _FEW_WARPS = 4, 2
# As many Tritons tell more than one.
_AGREEMENT = 2
_SCHEDULE = Schedule(warps="lockstep", completion="early")
# Twice, with other garbage: what depends on that is nothing to be held to.
_TRIALS = (RunTrial(schedule=_SCHEDULE), RunTrial(schedule=replace(_SCHEDULE, garbage=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Another:
    """Another compilation of a launch: what is None is that of the cell; `words` name it."""

    words: str
    target: Target | None = None
    triton: Compiler | None = None
    options: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """What is held to references: a config of a launch, its inputs, and what it executes."""

    target: Target
    record: LaunchFacts
    variant: LaunchVariant
    instructions: str


@dataclass(slots=True, kw_only=True)
class References:
    """Finds what the cells of one launch function and Triton are compared with.

    `records` are the cells: all that they are compared with is captured together. `reference` is
    the repro's own: a file and a function of it. `others` are Tritons that are asked besides, the
    newest first. `interpreter` is the Triton that interpreted the inputs.
    """

    bench: Workbench
    budget: Budget
    code: LaunchCode
    triton: Compiler
    records: Sequence[LaunchFacts]
    reference: tuple[Path, str] | None
    tell: Callable[[str], None]
    sessions: set[str] = field(default_factory=set)
    others: Sequence[Compiler] = ()
    interpreter: Compiler
    _captured: dict[tuple[Compiler, Target, str], CapturedLaunch | None] = field(
        default_factory=dict
    )
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def hold(
        self, launch: Launch, target: Target, record: LaunchFacts, variant: LaunchVariant
    ) -> Launch:
        """The launch of one config on a target, held to what is known of it."""
        trusted = [*await self.author(variant), *_accepted(variant)]
        ptx = self.bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
        cell = _Cell(
            target=target, record=record, variant=variant, instructions=instructions_sha256(ptx)
        )
        own, is_clean = await self._plain(self.triton, cell)
        others = [(await self._plain(triton, cell))[0] for triton in self.others]
        plain = prevailing(own, [each for each in others if each])
        # What is pipelined as the cell is may be wrong as the cell is.
        if plain and not (plain.is_pipelined and variant.interpreted):
            trusted.append(plain)
        if variant.interpreted:
            trusted.append(_interpretation(self.interpreter, variant))
        return replace(launch, trusted=tuple(trusted), is_clean=is_clean)

    async def other_interpreters(
        self, triton: Compiler, record: LaunchFacts, variant: LaunchVariant, *, is_wrong: bool
    ) -> list[Trusted]:
        """What the interpreter of this Triton makes of the same inputs, if another's was asked.

        An interpreter may be wrong, too: it is not a judge of what other versions compute. Where a
        cell `is_wrong` by what was asked, the newest that is installed is heard, too.
        """
        asked = [triton]
        if is_wrong:
            installed = await asyncio.to_thread(front_end(triton.kind).installed)
            asked += sorted(installed, key=lambda compiler: Version(compiler.version))[-1:]
        others = []
        for other in dict.fromkeys(asked):
            if other == self.interpreter:
                continue
            with contextlib.suppress(TriageError):
                inputs = await recorded(
                    self.bench,
                    self.code,
                    other,
                    [record.kernel],
                    (PLAIN_TARGET,),
                    budget=self.budget,
                    tell=self.tell,
                )
                same = find_variant(inputs, record)
                if same and same.interpreted and same.buffers == variant.buffers:
                    others.append(_interpretation(other, same))
        return others

    async def _plain(self, triton: Compiler, cell: _Cell) -> tuple[Trusted | None, bool]:
        """What the plainest config that comes to other instructions than the cell leaves.

        And whether no garbage shows in it.
        """
        for place, config in self._places(cell.target, cell.record, triton):
            found = await self._emulated(triton, place, config, cell)
            if found is None:
                continue
            emulated, is_pipelined = found
            first, second = emulated.runs
            if first.buffers != second.buffers:
                return None, False
            trusted = Trusted(
                words=_words(place, config, cell.record, triton, is_pipelined=is_pipelined),
                buffers=first.buffers,
                is_emulated=True,
                is_pipelined=is_pipelined,
            )
            return trusted, True
        return None, True

    async def beside(
        self, target: Target, record: LaunchFacts, variant: LaunchVariant, another: Another
    ) -> Emulation:
        """Another PTX of a launch, on the same inputs.

        Raises:
            NotRunError: it cannot be compiled, or not launched so.
        """
        config, place = {**record.config, **another.options}, another.target or target
        compiler = another.triton or self.triton
        try:
            if limits_of(place.capability) is None:
                raise NotRunError(f"the limits of {place} are not known")
            code = self.code.with_configs(record.kernel, [config])
            captured = await interpreter_for(compiler).capture(self.bench, code, place, compiler)
            self.sessions.add(captured.capture.key)
            records = captured.capture.value.records
            like = record_like(records, record.kernel, record.arguments, config)
            if like is None:
                raise NotRunError("the launch cannot be given this config")
            lowering = await lower_record(self.bench, captured, like)
            return launch_of(self.bench, lowering, variant, _TRIALS[:1], self.budget).emulation
        except TriageError as error:
            raise NotRunError(f"{another.words}: {error}") from error

    async def author(self, variant: LaunchVariant) -> list[Trusted]:
        """What the repro's own reference says, if it has one."""
        if self.reference is None:
            return []
        file, function = self.reference
        try:
            found = await refer(
                self.bench,
                self.code,
                file=file,
                function=function,
                variant=variant,
                target=PLAIN_TARGET,
                triton=self.triton,
            )
        except NoReferenceError as error:
            self.tell(str(error))
            return []
        return [found]

    def _places(
        self, target: Target, record: LaunchFacts, triton: Compiler
    ) -> list[tuple[Target, dict[str, Scalar]]]:
        """Targets and configs to be compared with, the best first; never the cell itself."""
        return [
            (place, config)
            for place in dict.fromkeys((PLAIN_TARGET, target))
            for config in simpler_configs(record.config)
            if triton != self.triton or (place, config) != (target, seen_by_triton(record.config))
        ]

    async def _emulated(
        self, triton: Compiler, target: Target, config: dict[str, Scalar], cell: _Cell
    ) -> tuple[Emulated, bool] | None:
        """What a config leaves on a target, if it is not another name for what the cell executes.

        And whether its loads are pipelined all the same: a loop may have stages of its own
        (`tl.range`). None, too, where it cannot be compiled or executed there.
        """
        captured = await self._capture(triton, target, cell.record.kernel)
        if captured is None:
            return None
        records, own = captured.capture.value.records, cell.record
        like = record_like(records, own.kernel, own.arguments, config)
        if like is None:
            return None
        try:
            lowering = await lower_record(self.bench, captured, like)
            wanted = launch_of(self.bench, lowering, cell.variant, _TRIALS, self.budget).emulation
            ptx = self.bench.store.artifacts.get(wanted.ptx).decode(errors="replace")
            limits = limits_of(target.capability)
            if instructions_sha256(ptx) == cell.instructions or (
                target == cell.target and why_refused(ptx, lowering.value, target, limits)
            ):
                return None
            emulated = (await emulate(self.bench, wanted)).value
        except TriageError:
            return None
        is_whole = len(emulated.runs) == len(_TRIALS)
        is_fine = all(ran.ended for ran in emulated.runs)
        return (emulated, bool(_COPIES.search(ptx))) if is_whole and is_fine else None

    async def _capture(
        self, triton: Compiler, target: Target, kernel: str
    ) -> CapturedLaunch | None:
        """The launch code with the configs that cells of a kernel are compared with."""
        async with self._lock:
            key = (triton, target, kernel)
            if key in self._captured:
                return self._captured[key]
            wanted = [
                config
                for record in self.records
                if record.kernel == kernel
                for config in simpler_configs(record.config)
            ]
            distinct = [each for n, each in enumerate(wanted) if each not in wanted[:n]]
            code = self.code.with_configs(kernel, distinct)
            captured = None
            if limits_of(target.capability):
                with contextlib.suppress(TriageError):
                    captured = await interpreter_for(triton).capture(
                        self.bench, code, target, triton
                    )
                    self.sessions.add(captured.capture.key)
            self._captured[key] = captured
            return captured


def simpler_configs(config: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
    """The same tiles without pipelining; and so with another number of warps."""
    plain: dict[str, Scalar] = {**seen_by_triton(config), "num_stages": 1}
    fewer = _FEW_WARPS if config.get("num_warps", _WARPS) != _FEW_WARPS else _WARPS
    return [plain, {**plain, "num_warps": fewer}]


def seen_by_triton(config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A config without what only ptxas sees: the same instructions."""
    return {name: value for name, value in config.items() if name != "maxnreg"}


def prevailing(own: Trusted | None, others: Sequence[Trusted]) -> Trusted | None:
    """What the plain config of a kernel leaves, by its own compiler or by others.

    `own` is of the compiler of the cell, `others` are of other compilers, the newest first. Its own
    counts, unless it stands alone against at least two that agree with one another bit for bit:
    then all its configs may be wrong alike. Without its own, the newest of the most that agree.
    """
    groups: dict[tuple[str | None, ...], list[Trusted]] = {}
    for each in others:
        groups.setdefault(each.buffers, []).append(each)
    most = max(groups.values(), key=len, default=[])
    if own and (own.buffers in groups or len(most) < _AGREEMENT):
        return own
    if not most:
        return None
    first, *more = most
    also = f", and bit for bit by {len(more)} more" if more else ""
    return replace(first, words=f"{first.words}{also}")


def _interpretation(triton: Compiler, variant: LaunchVariant) -> Trusted:
    buffers = tuple(each.sha256 for each in variant.interpreted)
    return Trusted(words=f"the interpreter of {triton.name}", buffers=buffers)


def _accepted(variant: LaunchVariant) -> list[Trusted]:
    """What the launch left that an assertion of the launch code accepts."""
    return [
        Trusted(words=f"what the file's own assertion accepts ({each.where})", buffers=each.buffers)
        for each in variant.asserted
        if each.holds and any(each.buffers)
    ]


def reference_of(repro: Repro) -> tuple[Path, str] | None:
    """The file and the function of it that a repro names as its reference."""
    return (repro.folder / REFERENCE_FILE, repro.reference) if repro.reference else None


def _words(
    target: Target,
    config: Mapping[str, Scalar],
    record: LaunchFacts,
    triton: Compiler,
    *,
    is_pipelined: bool,
) -> str:
    own = [
        f"{name}={value}"
        for name, value in config.items()
        if name == "num_stages" or record.config.get(name) != value
    ]
    still = " (pipelined all the same)" if is_pipelined else ""
    return f"{', '.join(own)}{still} on {target} with {triton.name}, emulated"


# What a kernel must write, by the `reference:` of its repro: a torch function, in float64.

REFERENCE_FILE = "reference.py"
"""Beside `repro.yaml`; its functions take the kernel's arguments by name."""

_WORDS = "the repro's reference (torch, float64)"


class NoReferenceError(Exception):
    """The function could not say what is right; the message is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """The buffers that the function says something of, by sha256; None for the others."""

    buffers: tuple[str | None, ...] = ()
    error: RaisedError | None = None


async def refer(
    bench: Workbench,
    code: LaunchCode,
    *,
    file: Path,
    function: str,
    variant: LaunchVariant,
    target: Target,
    triton: Compiler,
) -> Trusted:
    """Run a function of `file` on the arguments of one launch; kept by content.

    Raises:
        NoReferenceError: it raised, or gave something else than tensors of the kernel.
        InfrastructureError: its process cannot be started.
    """
    if not file.is_file():
        raise NoReferenceError(f"no file {file}, of which the repro names a function as reference")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    described = msgspec.to_builtins(variant)
    key = content_key(kind="reference", file=sha256, function=function, variant=described)
    async with bench.once(key):
        kept = bench.find("reference", key, Referred)
        if kept is None:
            sent = {
                **capture_request(code, target).message(),
                "file": str(file.resolve()),
                "function": function,
                "variant": described,
            }
            found = await _run(bench, sent, variant, triton)
            if found.error:
                said = next(iter(found.error.message.splitlines()), "")[:300]
                raise NoReferenceError(f"{file}: {function} raised {found.error.type}: {said}")
            names = {name: name for name in found.buffers if name}
            kept = bench.keep("reference", key, found, names)
    return Trusted(words=_WORDS, buffers=kept.value.buffers, is_final=True)


async def _run(
    bench: Workbench, sent: dict[str, object], variant: LaunchVariant, triton: Compiler
) -> Referred:
    folder = bench.hub.new_folder("reference")
    try:
        with scratch_disk():
            (folder / "request.json").write_text(json.dumps(sent))
            for buffer in variant.buffers:
                data = bench.store.artifacts.get(buffer.sha256)
                (folder / f"{buffer.sha256}.bin").write_bytes(data)
        async with bench.slot():
            interpreter = interpreter_for(triton)
            done = await interpreter.run_reference(bench, triton, folder, bench.limits)
        bench.cpu_seconds += done.end.cpu
        bench.hub.drop_folder(done.folder)
        found = _read(folder, done.end)
        for name in filter(None, found.buffers):
            bench.store.artifacts.put_file(folder / f"{name}.bin")
        return found
    finally:
        bench.hub.drop_folder(folder)


def _read(folder: Path, end: ProcessEnd) -> Referred:
    try:
        return msgspec.json.decode((folder / "result.json").read_bytes(), type=Referred)
    except (OSError, msgspec.MsgspecError):
        message = f"its process: {end.words}"
        return Referred(error=RaisedError(type="Reference", kinds=(), message=message))
