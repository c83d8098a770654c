"""What a GPU did with a cubin, as its machine tells. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.values.execution import SanitizerFacts
from harness.values.toolchain import EVIDENCE, GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """The GPU: `capability` is ten times the compute capability, `cuda` the newest that is driven.

    `driver` is the driver's version, `day` the date (UTC) there when it was launched; None where
    they are not known.
    """

    name: str
    capability: int
    cuda: str
    memory: int
    max_threads: int
    multiprocessors: int
    max_shared: int
    driver: str | None = None
    day: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardWrite:
    """Bytes that a run wrote before or behind a buffer: how many, the first and last by offset."""

    buffer: int
    side: Literal["before", "behind"]
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRun:
    """One run of one case; `case` is its number in the manifest.

    `buffers` are the sha256 of what they held afterwards, `glimpses` some of their bytes where the
    others do not come back, in hexadecimal digits. Of what was refused, or faulted, `call`,
    `code`, `name` and `words` are the driver's; `needs` is what it says of the entry, and the
    bytes of dynamic shared memory of the launch. Of an emulated run that faulted, `name` is the
    kind of the fault, `words` say where, and `call` is what stays the same of it in other cubins.
    """

    case: int
    run: int | None
    status: Literal["ended", "fault", "refused", "hang", "died"]
    buffers: tuple[str, ...] = ()
    guards: tuple[GuardWrite, ...] = ()
    glimpses: tuple[str, ...] = ()
    seconds: float | None = None
    needs: dict[str, int] = field(default_factory=dict)
    call: str = ""
    code: int = 0
    name: str = ""
    words: str = ""
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTimes:
    """Times of one case in the order of its runs; `words` say why there are none.

    `ms` are milliseconds, `sm_mhz` the clock beside each where it could be read.
    """

    case: int
    status: Literal["timed", "untimed"]
    ms: tuple[float, ...] = ()
    sm_mhz: tuple[int, ...] = ()
    words: str = ""


@dataclass(slots=True, kw_only=True)
class Measured:
    """The runs of one cubin; `words` name its ptxas and flags, `checks` come from sanitizers.

    `on` says what executed it, `instructions` how many (of all threads, in all runs) where they
    were counted, and `problem` why it could not be executed.
    """

    words: str
    on: str = GPU
    instructions: int | None = None
    problem: str | None = None
    runs: Sequence[GpuRun] = ()
    times: GpuTimes | None = None
    checks: Sequence[SanitizerFacts] = ()

    @property
    def how(self) -> str:
        """The word with which each statement of it begins."""
        return EVIDENCE[self.on]

    @property
    def ended(self) -> list[GpuRun]:
        """The runs that came to their end."""
        return [run for run in self.runs if run.status == "ended"]
