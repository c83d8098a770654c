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
    def facts(self) -> VerdictFacts:
        """Its row of `VERDICTS`."""
        return VERDICTS[self]

    @property
    def compiles(self) -> bool:
        """A kernel came out that does the work, as far as was tried: compiled, or executed too."""
        return self.facts.says is Says.WORKS

    @property
    def is_healthy(self) -> bool:
        """It compiles, and nothing is to be said against what came out."""
        return self.compiles and not self.facts.is_poor

    @property
    def fails(self) -> bool:
        """It is known not to work; what a limit of `triage` ended was not finished, and is not."""
        return self.facts.says is Says.FAILS

    @property
    def is_of_run(self) -> bool:
        """It is of PTX that was executed, or was to be."""
        return self.facts.is_of_run

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
        return self.facts.says is Says.NOTHING


class VerdictFacts(NamedTuple):
    """Of one verdict: what it says, and what commands and reports say of it.

    `gravity` orders what fails: more is graver, 0 is no failure. `does` ends a sentence about the
    kernel, or about its PTX where it `is_of_run` (`cubin_does`: about its cubin, where that is not
    the same). `expected` is what should happen instead. `is_poor`: it works, at a high cost.
    """

    says: Says
    does: str = ""
    gravity: int = 0
    is_of_run: bool = False
    is_poor: bool = False
    cubin_does: str = ""
    expected: str = ""

    @property
    def observed(self) -> str:
        """What the kernel does, as the end of a sentence: "compiles to PTX that traps"."""
        return f"compiles to PTX {self.does}" if self.is_of_run else self.does

    @property
    def launched(self) -> str:
        """The same where its cubin was executed: "assembles to a cubin that never ends"."""
        return f"assembles to a cubin {self.cubin_does or self.does}"


VERDICTS = {
    VerdictKind.OK: VerdictFacts(Says.WORKS),
    VerdictKind.SICK: VerdictFacts(
        Says.WORKS,
        "compiles to poor code",
        gravity=2,
        is_poor=True,
        expected="code without these costs",
    ),
    VerdictKind.TRAP_STUB: VerdictFacts(
        Says.FAILS,
        "compiles without an error to a kernel that only traps",
        gravity=5,
        expected="code that works, or an error when it is compiled",
    ),
    VerdictKind.OUT_OF_RESOURCES: VerdictFacts(
        Says.FAILS,
        "compiles without an error, but needs more than the target has",
        gravity=3,
        expected="an error when it is compiled, or code that fits",
    ),
    VerdictKind.REJECTED: VerdictFacts(
        Says.FAILS,
        "is rejected",
        gravity=1,
        expected="that it compiles, or that the message says what to change",
    ),
    VerdictKind.PASS_FAILURE: VerdictFacts(
        Says.FAILS, "makes a pass of the compiler fail", gravity=4
    ),
    VerdictKind.COMPILER_CRASH: VerdictFacts(Says.FAILS, "crashes the compiler", gravity=5),
    VerdictKind.PTXAS_ICE: VerdictFacts(
        Says.FAILS, "ends ptxas with an internal compiler error", gravity=5
    ),
    VerdictKind.PTXAS_ERROR: VerdictFacts(Says.FAILS, "is refused by ptxas", gravity=4),
    VerdictKind.TIMEOUT: VerdictFacts(Says.OUR_LIMIT, "does not finish compiling", gravity=3),
    VerdictKind.OUT_OF_MEMORY: VerdictFacts(
        Says.OUR_LIMIT, "takes more memory to compile than the machine has", gravity=3
    ),
    VerdictKind.UNSUPPORTED: VerdictFacts(Says.NOTHING),
    VerdictKind.INFRA: VerdictFacts(Says.NOTHING),
    VerdictKind.RIGHT: VerdictFacts(Says.WORKS, "that computes what it must", is_of_run=True),
    VerdictKind.AS_INTERPRETED: VerdictFacts(
        Says.WORKS, "that computes what Triton's interpreter does", is_of_run=True
    ),
    VerdictKind.CONSISTENT: VerdictFacts(
        Says.WORKS, "that computes what other configs of it do", is_of_run=True
    ),
    VerdictKind.RAN: VerdictFacts(Says.WORKS, "that comes to its end", is_of_run=True),
    VerdictKind.WRONG_RESULT: VerdictFacts(
        Says.FAILS,
        "that computes a wrong result",
        gravity=8,
        is_of_run=True,
        expected="the same result, whatever the number of stages and warps",
    ),
    VerdictKind.RACE: VerdictFacts(
        Says.FAILS,
        "with accesses that nothing orders",
        gravity=6,
        is_of_run=True,
        expected=(
            "a barrier, a fence or a wait between the two accesses; of lanes of one store, "
            "that one lane stores, or all the same"
        ),
    ),
    VerdictKind.NONDETERMINISTIC: VerdictFacts(
        Says.FAILS,
        "whose result depends on the schedule",
        gravity=7,
        is_of_run=True,
        cubin_does="whose result differs from run to run",
    ),
    VerdictKind.MEMORY_FAULT: VerdictFacts(
        Says.FAILS,
        "that accesses memory out of bounds or misaligned",
        gravity=8,
        is_of_run=True,
        cubin_does="that accesses memory out of bounds",
    ),
    VerdictKind.UNINITIALISED: VerdictFacts(
        Says.FAILS, "whose result depends on what nothing wrote", gravity=7, is_of_run=True
    ),
    VerdictKind.HANG: VerdictFacts(
        Says.FAILS, "that never comes to its end", gravity=8, is_of_run=True
    ),
    VerdictKind.LAUNCH_FAILED: VerdictFacts(
        Says.FAILS,
        "that traps",
        gravity=7,
        is_of_run=True,
        cubin_does="that cannot be launched, or traps",
    ),
    VerdictKind.NOT_RUN: VerdictFacts(Says.NOTHING, is_of_run=True),
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
