"""What a worker process is asked to execute and what it answers, as JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from gpu_emulator.values import (
    Argument,
    Budget,
    Checks,
    Element,
    Fault,
    Null,
    Pointer,
    Race,
    Scalar,
    Schedule,
    TensorMapArgument,
    Uninitialised,
)

EMULATE = "emulate"
"""The message that asks the emulator's process for a job: its `folder` and `limits`."""

TRACE = "trace.json"
"""The file with the way of an element that was followed."""

PROGRESS = "progress"
"""The file in which a worker says how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBuffer:
    """A buffer of global memory: the sha256 of its bytes, or `size` bytes that nothing wrote.

    `unwritten`: it has bytes, and the kernel must not read them before it writes them.
    """

    name: str
    file: str | None = None
    size: int = 0
    unwritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """One argument: exactly one of these is set, none is a null pointer."""

    scalar: bytes | None = None
    pointer: Pointer | None = None
    tensor_map: TensorMapArgument | None = None

    @property
    def argument(self) -> Argument:
        """As the emulator takes it."""
        if self.scalar is not None:
            return Scalar(raw=self.scalar)
        return self.pointer or self.tensor_map or Null()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """One run of the job."""

    schedule: Schedule
    checks: Checks = field(default_factory=Checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """One launch with its PTX and buffers by their sha256, and the runs that it is to have.

    With a `cubin` its SASS is executed, by its `listing` (`list_cubin` in `frontends/assemble.py`),
    and there may be no PTX (an empty text).
    """

    ptx: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared: int
    buffers: tuple[JobBuffer, ...]
    arguments: tuple[Passed, ...]
    trials: tuple[RunTrial, ...] = ()
    budget: Budget = field(default_factory=Budget)
    cubin: str = ""
    listing: str = ""

    @property
    def files(self) -> set[str]:
        """The sha256 of all bytes that it needs besides the PTX."""
        return {*filter(None, (self.cubin, self.listing, *(b.file for b in self.buffers)))}


PTX, BESIDE = "kernel.ptx", "beside.ptx"
"""The files with the text of a launch, and of the one that it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorJob:
    """What a worker does with a launch; buffers and cubins are files `SHA256.bin` there.

    With an `element`, it is followed back to where the two runs first differ, and no more; with
    `beside`, the same launch of another program, to what it is made of in that and not in this.
    """

    emulation: Emulation
    element: Element | None = None
    beside: Emulation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of one run; `buffers` are the sha256 of the bytes afterwards, which are kept.

    All else is as in `gpu_emulator.values.Outcome`; `seconds` of wall time.
    """

    trial: RunTrial
    buffers: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    races: tuple[Race, ...] = ()
    uninitialised: tuple[Uninitialised, ...] = ()
    not_run: str | None = None
    is_out_of_budget: bool = False
    needs: int | None = None
    unknown: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    executed: int = 0
    ctas: int = 0
    ctas_of: int = 0
    is_sample: bool = False
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return not self.not_run and not self.faults

    @property
    def refusal(self) -> str | None:
        """Why it did not come to its end, and which option lets it; None where the program says."""
        if not self.is_out_of_budget:
            return self.not_run
        option = f"--max-instructions {self.needs}" if self.needs else "a larger --max-instructions"
        return f"not finished: {self.not_run}; run it with {option}" + (
            " (an estimate)" if self.needs else ""
        )


OF_OUTCOME = [own.name for own in fields(Ran) if own.name not in ("trial", "buffers", "seconds")]
"""The fields of a run that are those of the emulator's outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """The runs that came to an end; `problem` says why not all of them did."""

    runs: tuple[Ran, ...]
    problem: str | None = None
