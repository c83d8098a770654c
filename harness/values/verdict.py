"""Verdicts: what an outcome means. Judged by `harness.judging.judge` from evidence alone."""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from typing import ClassVar, NamedTuple

import msgspec


class Says(StrEnum):
    """What a verdict says of the kernel."""

    WORKS = "works"
    FAILS = "fails"
    NOTHING = "nothing"
    OUR_LIMIT = "our limit"
    """A limit of `triage` ended the compiler: another limit may end it otherwise."""


class VerdictKind(StrEnum):
    """What a compile or a run means; "could not tell" is one of them, never a pass.

    Of runs, `right` agrees with something other than the same config of the kernel: what its author
    or the launch code says, or another config in Triton's interpreter. `as_interpreted` agrees with
    its own config in Triton's interpreter: the compiler did what the source says, whether or not
    that is right. `consistent` agrees with other compiled configs of the kernel alone. `ran` came
    to its end alike under all schedules, and there is nothing to compare it with.
    """

    # `VERDICTS`, below, has what is known of each.

    OK = "ok"
    SICK = "sick"
    TRAP_STUB = "trap_stub"
    OUT_OF_RESOURCES = "out_of_resources"
    REJECTED = "rejected"
    PASS_FAILURE = "pass_failure"  # noqa: S105 - of a compiler
    COMPILER_CRASH = "compiler_crash"
    PTXAS_ICE = "ptxas_ice"
    PTXAS_ERROR = "ptxas_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    INFRA = "infra"
    RIGHT = "right"
    AS_INTERPRETED = "as_interpreted"
    CONSISTENT = "consistent"
    RAN = "ran"
    WRONG_RESULT = "wrong_result"
    RACE = "race"
    NONDETERMINISTIC = "nondeterministic"
    MEMORY_FAULT = "memory_fault"
    UNINITIALISED = "uninitialised"
    HANG = "hang"
    LAUNCH_FAILED = "launch_failed"
    NOT_RUN = "not_run"

    @property
    def compiles(self) -> bool:
        """A kernel came out that does the work, as far as was tried: compiled, or executed too."""
        return VERDICTS[self].says is Says.WORKS

    @property
    def is_healthy(self) -> bool:
        """It compiles, and nothing is to be said against what came out."""
        return self.compiles and self is not VerdictKind.SICK

    @property
    def fails(self) -> bool:
        """It is known not to work; what a limit of `triage` ended was not finished, and is not."""
        return VERDICTS[self].says is Says.FAILS

    @property
    def is_of_run(self) -> bool:
        """It is of PTX that was executed, or was to be."""
        return VERDICTS[self].is_of_run

    @property
    def is_fine_run(self) -> bool:
        """It was executed, and nothing was found."""
        return self.compiles and self.is_of_run

    @property
    def is_failure(self) -> bool:
        """Whether a cell with this verdict has a bug.

        What is sick compiles, and does the work; what is unsupported was not tried. A limit of
        `triage` that ended a compiler may be the compiler's bug: a hang is one.
        """
        return not (self.compiles or self.tells_nothing)

    @property
    def tells_nothing(self) -> bool:
        """Says nothing of the kernel."""
        return VERDICTS[self].says is Says.NOTHING


class VerdictFacts(NamedTuple):
    """Of one verdict: what it says, its letter in the pages, and whether `triage run` gives it."""

    says: Says
    letter: str
    is_of_run: bool = False


VERDICTS = {
    VerdictKind.OK: VerdictFacts(Says.WORKS, "✓"),
    VerdictKind.SICK: VerdictFacts(Says.WORKS, "S"),
    VerdictKind.TRAP_STUB: VerdictFacts(Says.FAILS, "T"),
    VerdictKind.OUT_OF_RESOURCES: VerdictFacts(Says.FAILS, "R"),
    VerdictKind.REJECTED: VerdictFacts(Says.FAILS, "J"),
    VerdictKind.PASS_FAILURE: VerdictFacts(Says.FAILS, "P"),
    VerdictKind.COMPILER_CRASH: VerdictFacts(Says.FAILS, "C"),
    VerdictKind.PTXAS_ICE: VerdictFacts(Says.FAILS, "I"),
    VerdictKind.PTXAS_ERROR: VerdictFacts(Says.FAILS, "E"),
    VerdictKind.TIMEOUT: VerdictFacts(Says.OUR_LIMIT, "H"),
    VerdictKind.OUT_OF_MEMORY: VerdictFacts(Says.OUR_LIMIT, "M"),
    VerdictKind.UNSUPPORTED: VerdictFacts(Says.NOTHING, "U"),
    VerdictKind.INFRA: VerdictFacts(Says.NOTHING, "F"),
    VerdictKind.RIGHT: VerdictFacts(Says.WORKS, "G", is_of_run=True),
    VerdictKind.AS_INTERPRETED: VerdictFacts(Says.WORKS, "Q", is_of_run=True),
    VerdictKind.CONSISTENT: VerdictFacts(Says.WORKS, "K", is_of_run=True),
    VerdictKind.RAN: VerdictFacts(Says.WORKS, "N", is_of_run=True),
    VerdictKind.WRONG_RESULT: VerdictFacts(Says.FAILS, "W", is_of_run=True),
    VerdictKind.RACE: VerdictFacts(Says.FAILS, "A", is_of_run=True),
    VerdictKind.NONDETERMINISTIC: VerdictFacts(Says.FAILS, "D", is_of_run=True),
    VerdictKind.MEMORY_FAULT: VerdictFacts(Says.FAILS, "B", is_of_run=True),
    VerdictKind.UNINITIALISED: VerdictFacts(Says.FAILS, "V", is_of_run=True),
    VerdictKind.HANG: VerdictFacts(Says.FAILS, "X", is_of_run=True),
    VerdictKind.LAUNCH_FAILED: VerdictFacts(Says.FAILS, "L", is_of_run=True),
    VerdictKind.NOT_RUN: VerdictFacts(Says.NOTHING, "Z", is_of_run=True),
}
"""All that the commands treat alike by; what tells two verdicts apart is in `judging`."""


class Stage(str):
    """Where in the pipeline something happened; `launch` is what only a launch would show.

    `run` is the PTX, executed.

    Which stages there are between capture and PTX is a matter of the front end. Stages of one name
    are one object.
    """

    __slots__ = ()
    _known: ClassVar[dict[str, Stage]] = {}

    CAPTURE: ClassVar[Stage]
    TTIR: ClassVar[Stage]
    TTGIR: ClassVar[Stage]
    LLIR: ClassVar[Stage]
    PTX: ClassVar[Stage]
    CUBIN: ClassVar[Stage]
    LAUNCH: ClassVar[Stage]
    RUN: ClassVar[Stage]

    def __new__(cls, name: str) -> Stage:  # noqa: PYI034 - it is final
        """The stage of that name."""
        return cls._known.setdefault(name, super().__new__(cls, name))

    @classmethod
    def all(cls) -> tuple[Stage, ...]:
        """Those that were named so far, in that order: Triton's first."""
        return tuple(cls._known.values())

    @property
    def value(self) -> str:
        """Its name, as rows have it."""
        return str(self)


for _name in ("capture", "ttir", "ttgir", "llir", "ptx", "cubin", "launch", "run"):
    setattr(Stage, _name.upper(), Stage(_name))


_ASSERTION = re.compile(r"[\w.+-]+: Assertion `")


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprint of a failure; equal keys are the same bug."""

    stage: str
    kind: str
    failing_pass: str | None
    code: str | None
    template: str

    @property
    def key(self) -> str:
        """Twelve hex digits.

        An assertion is the same whether it ended the process, or MLIR recovered from it and says
        that a pass failed: only then a pass is named.
        """
        how: list[str | None] = [self.kind, self.failing_pass]
        if _ASSERTION.match(self.template):
            how = [None, None]
        parts = [self.stage, *how, self.code, self.template]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its reason in words; `stage` is where it went wrong, None when it did not."""

    kind: VerdictKind
    reason: str
    stage: Stage | None = None
    code: str | None = None
    signature: Signature | None = None


# From when on a kernel that assembles is called sick. Data: change it, re-judge the history.


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Spills are stores plus loads, stack is local memory; both in bytes per thread.

    1 KiB of spill traffic per thread is so much extra L1 traffic of each thread on every pass over
    the code; below it, what kernels spill is noise beside their loads (measured on an H200: the
    best config of the project's first kernel spills 1.6 KiB, the collapsed one 94 KiB and is 36x
    slower). Below `warps` resident on an SM, nothing hides a latency. `worse`: so many times the
    best toolchain's number is a regression that is worth following, the clearest first.
    """

    spill_bytes: int = 1024
    stack_bytes: int = 1024
    warps: int = 2
    worse: tuple[int, ...] = (5, 2)


DEFAULT_THRESHOLDS = Thresholds()
