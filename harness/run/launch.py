"""The one value of a run: a PTX, what it is launched with, and what its results are held to. Pure.

It is made once for a cell (`inputs.py` from launch code, `raw.py` from named inputs); the
emulator, a GPU, or whatever executes it takes it as it is, and the comparison holds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpu_emulator.ptx.text.facts import PtxError, read_ptx
from gpu_emulator.values import Budget, Schedule
from harness.judging.judge import CellEvidence, judge_fit
from harness.judging.ptxas.ptxas_log import PtxasLog
from harness.judging.ptxas.resources import combine
from harness.run.comparing import Array, as_tensor, rounding_of, tolerance_of
from harness.run.emulator_jobs import Emulated, Emulation, Ran, RunTrial
from harness.values.errors import UsageError
from harness.values.execution import Argument, ArgumentKind, Assertion
from harness.values.limits import Limits
from harness.values.outcome import Lowering
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, EVIDENCE, SASS

_MAXNREG = re.compile(r"\.maxnreg\s+(\d{1,18})")
_SIZED = re.compile(r"\.(?:req|max)ntid\s")
_ROUNDINGS = 4.0
"""Roundings that two right results may be apart: each of them, and what it is computed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """What the buffers must hold afterwards (sha256), and who says so; None: nothing of this one.

    `is_final`: a person says so, and who computes something else is wrong. Of the others, which
    come from compilers too, one that agrees is enough. `is_emulated`: it is another config of the
    kernel, by whose word alone a result is consistent, and no more. `is_sampled`: of a large grid
    it has run the same programs. `is_pipelined`: it comes from a compilation that is pipelined as
    the cell is; where the two differ, it does not say which of them is right. `may_differ`: what it
    does not agree with may be right all the same. `is_same_config`: it is the same config,
    interpreted: what agrees with it is as interpreted, and need not be right.
    """

    words: str
    buffers: tuple[str | None, ...]
    is_final: bool = False
    is_emulated: bool = False
    is_sampled: bool = False
    is_pipelined: bool = False
    may_differ: bool = False
    is_same_config: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One PTX and what it is launched with, as the emulator takes it; all bytes are artifacts.

    `tensors` are the arguments that are compared afterwards, `trusted` what they are held to, in
    the order of trust; `is_clean`: no reference depends on garbage. `types` are those that the PTX
    computes with, besides those of the arguments. `asserted` is what the launch code asserts.
    `formal`: a formal race (`RaceFacts`) is a race. With a `digest`,
    what the buffers hold afterwards is not known, but a digest of all of it or of windows.
    `resident` blocks at once are tried besides, 0 for none; `fits` of them are on the target, where
    that is known.
    `baseline` is what another implementation leaves, to whose error that of the launch is held.
    `emulator_is_right`: a cubin that does not leave what the emulated PTX leaves is wrong, though
    no other agrees with the emulator.
    """

    emulation: Emulation
    tensors: tuple[Argument, ...]
    trusted: tuple[Trusted, ...] = ()
    types: tuple[str, ...] = ()
    is_clean: bool = True
    asserted: tuple[Assertion, ...] = ()
    formal: bool = False
    digest: Literal["whole", "windows"] | None = None
    resident: int = 0
    fits: int | None = None
    baseline: tuple[str | None, ...] = ()
    emulator_is_right: bool = False

    def run_as(self, trials: Sequence[RunTrial], budget: Budget, *, formal: bool = False) -> Launch:
        """The launch with these runs, each within the budget."""
        emulation = replace(self.emulation, trials=tuple(trials), budget=budget)
        return replace(self, emulation=emulation, formal=formal)

    def with_fewer_blocks(self, fits: int | None) -> Launch:
        """The launch, run besides with as many blocks as fit at once, or all but one of them.

        They begin in the order of their numbers, and the other way round: CUDA leaves it open.
        """
        blocks = self.blocks
        resident = fits if fits and fits < blocks else blocks - 1
        if not resident:
            return self
        trials: tuple[RunTrial, ...] = (
            RunTrial(schedule=Schedule(warps="first", resident=resident)),
            RunTrial(schedule=Schedule(warps="last", resident=resident)),
        )
        # A fault of these ends all: that of the target goes first, another one last.
        trials = (
            (*trials, *self.emulation.trials)
            if resident == fits
            else (*self.emulation.trials, *trials)
        )
        emulation = replace(self.emulation, trials=trials)
        return replace(self, emulation=emulation, resident=resident, fits=fits)

    @property
    def blocks(self) -> int:
        """How many there are of it."""
        return math.prod(self.emulation.grid)

    def lacks_blocks(self, ran: Ran) -> bool:
        """Whether a run hangs that was tried with fewer blocks at once."""
        is_tried = bool(self.resident) and ran.trial.schedule.resident == self.resident
        return is_tried and any(fault.kind == "hang" for fault in ran.faults)

    @property
    def before(self) -> tuple[str, ...]:
        """The buffers at the start; empty texts where nothing wrote them."""
        return tuple(buffer.file or "" for buffer in self.emulation.buffers)

    @property
    def artifacts(self) -> set[str]:
        """The sha256 of all bytes that it is launched with and held to."""
        trusted = [reference.buffers for reference in self.trusted]
        asserted = [assertion.buffers for assertion in self.asserted]
        known = (self.before, self.baseline, *trusted, *asserted)
        return {name for buffers in known for name in buffers if name}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """What came of a launch: its runs, and the bytes of all buffers by sha256.

    `problem` says why not all of the runs came about.
    """

    launch: Launch
    ran: tuple[Ran, ...]
    contents: Mapping[str, bytes]
    problem: str | None = None

    @property
    def how(self) -> str:
        """The words with which each statement on it begins."""
        return EVIDENCE[SASS if self.launch.emulation.cubin else EMULATOR]

    @property
    def runs(self) -> tuple[Ran, ...]:
        """One for each schedule."""
        return tuple(ran for ran in self.ran if not ran.trial.schedule.garbage)

    @property
    def garbage(self) -> tuple[Ran, ...]:
        """Those that repeat one of `runs` with other garbage."""
        return tuple(ran for ran in self.ran if ran.trial.schedule.garbage)

    @property
    def tensors(self) -> list[Argument]:
        """Each view of a buffer once, by the name of the first argument that is it."""
        views: dict[object, Argument] = {}
        for tensor in tensors_of(self.launch.tensors):
            key = (tensor.buffer, tensor.offset, tensor.shape, tensor.strides, tensor.dtype)
            views.setdefault(key, tensor)
        return list(views.values())

    def values(self, tensor: Argument, buffers: Sequence[str | None]) -> Array:
        """The elements of a tensor, where the launch's buffers are these (sha256)."""
        return as_tensor(tensor, self.contents[buffers[tensor.buffer] or ""])

    def allowed(self, tensor: Argument) -> float:
        """How far values of a tensor may be apart."""
        return tolerance_of({*self.launch.types, tensor.dtype})

    @property
    def rounding(self) -> float:
        """How far apart values may be by a few roundings alone."""
        return _ROUNDINGS * rounding_of([*self.launch.types, *(t.dtype for t in self.tensors)])

    def is_rounding(self, asserted: Assertion) -> bool:
        """Whether rounding explains how far apart the tensors are that an assertion compares."""
        return asserted.relative is not None and asserted.relative <= self.rounding

    def held_to(self, *trusted: Trusted) -> RunEvidence:
        """The same runs, compared with these."""
        return replace(self, launch=replace(self.launch, trusted=trusted))


def evidence_of(launch: Launch, emulated: Emulated, get: Callable[[str], bytes]) -> RunEvidence:
    """What the emulator did with a launch, as it is judged; `get` has bytes by sha256.

    Raises:
        UnusableArtifactError: a buffer is damaged.
    """
    names = launch.artifacts.union(*(ran.buffers for ran in emulated.runs))
    contents = {"": b"", **{name: get(name) for name in names}}
    return RunEvidence(
        launch=launch, ran=emulated.runs, contents=contents, problem=emulated.problem
    )


def tensors_of(arguments: Sequence[Argument]) -> Iterator[Argument]:
    """All tensors and descriptors among arguments, those in tuples too."""
    for argument in arguments:
        if argument.kind is ArgumentKind.TUPLE:
            yield from tensors_of(argument.items)
        elif argument.kind in (ArgumentKind.TENSOR, ArgumentKind.DESCRIPTOR):
            yield argument


class NotRunError(UsageError):
    """A launch that cannot be executed, and why: a sentence for the user."""


class EmptyGridError(NotRunError):
    """A launch of no programs: Triton launches nothing, and nothing can go wrong."""


def why_refused(text: str, lowering: Lowering, target: Target, limits: Limits | None) -> str | None:
    """Why the target would refuse this launch; None where it would not, as far as the PTX tells.

    A kernel that was lowered to a trap is executed: that it traps is what there is to say of it.
    """
    try:
        facts = read_ptx(text)
    except PtxError:
        return None
    if facts.is_trap_stub:
        return None
    needs = combine(
        entry=facts.entry,
        log=PtxasLog(functions=(), messages=()),
        cubin=None,
        metadata=lowering.metadata,
        ptx=facts,
    )
    evidence = CellEvidence(target=target, lowering=lowering, resources=needs, limits=limits)
    verdict = judge_fit(evidence)
    return f"{verdict.kind.value}: it {verdict.reason}" if verdict else None


def may_lack_registers(text: str, block: Sequence[int], limits: Limits | None) -> bool:
    """Whether ptxas may give a block more registers than the target has, by what the PTX fixes.

    Where it knows the size of the block (`.reqntid`, `.maxntid`), ptxas leaves enough for each of
    its threads, unless `.maxnreg` allows more.
    """
    if limits is None:
        return False
    enough = limits.registers_of_thread(math.prod(block))
    match = _MAXNREG.search(text)
    if not match and _SIZED.search(text):
        return False
    most = limits.max_registers_per_thread
    return (min(int(match[1]), most) if match else most) > enough


def waits_for_others(ptx: str, entry: str) -> bool:
    """Whether blocks of an entry wait for what others write, as its text says."""
    try:
        return read_ptx(ptx, entry).waits
    except PtxError:
        return False


def effort_words(emulation: Emulation, ptx: str) -> str:
    """What is about to be executed: a loop makes it more, a branch less."""
    every, threads = math.prod(emulation.grid), math.prod(emulation.block)
    blocks = min(every, emulation.budget.max_ctas)
    try:
        once = read_ptx(ptx, emulation.entry).instructions * threads * blocks
    except PtxError:
        once = 0
    of = f" of {every:,}" if blocks < every else ""
    return (
        f"{blocks:,}{of} blocks of {threads:,} threads, {len(emulation.trials)} runs of about "
        f"{once:,} instructions each, loops counted once"
    )
