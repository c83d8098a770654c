"""Raw evidence: how a process ended and what it left behind. Meaning is `judge`'s."""

from __future__ import annotations

import signal as signals
from typing import Any, Literal

import msgspec
from msgspec import structs


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one child ended.

    Exactly one of `exit_code` and `signal` is set. `timed_out`, `over_memory` and `flooded` say
    that *we* killed it, for the wall clock, resident memory or the size of what it wrote.
    Times are in seconds, `peak_rss` in bytes.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    over_memory: bool = False
    flooded: bool = False
    wall: float = 0.0
    cpu: float = 0.0
    peak_rss: int = 0

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.exit_code == 0

    @property
    def killed_by_us(self) -> bool:
        """It crossed one of our limits."""
        return self.timed_out or self.over_memory or self.flooded

    @property
    def words(self) -> str:
        """How it ended, as a shell user would say it."""
        if self.timed_out:
            return f"killed after {self.wall:.0f} s"
        if self.over_memory:
            return f"killed at {self.peak_rss / 2**30:.1f} GiB"
        if self.flooded:
            return "killed for writing more than a file may hold here"
        if self.signal is not None:
            return f"died by {signal_name(self.signal)}"
        return f"exit code {self.exit_code}"


class RaisedError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of a foreign compiler; `kinds` are the names of its classes, own first."""

    type: str
    kinds: tuple[str, ...]
    message: str
    traceback: str = ""
    line: int | None = None

    @property
    def words(self) -> str:
        """Its class, and the first line of what it says."""
        return f"{self.type}: {next(iter(self.message.splitlines()), '')[:300]}"


class LaunchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded launch with one config, as a capture tells of it.

    `key` names what Triton specialises on (source, argument kinds, options): equal keys compile to
    the same code. `grid` is in blocks, None where it is not known. `suspect` says in words
    what of the kernel's dimensions the config covers only partly; empty where nothing is suspect.
    `launch` is equal for the configs of one launch, among the records of a kernel.
    `views` are the arguments as `harness.values.execution.Argument` has them, and `storages` the
    bytes of the memory behind them; both empty where they are not known. `values`: the launch code
    had values, which torch (`computed`) or Triton's interpreter, too (`interpreted`) gave them.
    """

    key: str
    kernel: str
    config: dict[str, bool | int | float | str]
    autotuned: bool
    arguments: list[dict[str, object]]
    grid: list[int] | None
    file: str
    suspect: str = ""
    launch: int = 0
    views: list[dict[str, object]] = msgspec.field(default_factory=list)
    storages: list[int] = msgspec.field(default_factory=list)
    values: str = ""


class ModuleSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Modules that were looked for on a path (folders), and the file that each was found in."""

    path: tuple[str, ...]
    found: dict[str, str | None]


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What launch code read, by name, with what it found; None where nothing was there.

    `variables` holds hashes of values, `environment` the hash of all where all were read. `files`
    holds the sha256 of what was opened or imported, `kinds` what was only looked at (file with its
    size, or folder), `folders` hashes of listings. `unseen` says in words what it may have read
    besides: such a capture is not used again.
    """

    variables: dict[str, str | None] = msgspec.field(default_factory=dict)
    environment: str | None = None
    files: dict[str, str | None] = msgspec.field(default_factory=dict)
    kinds: dict[str, str | None] = msgspec.field(default_factory=dict)
    folders: dict[str, str | None] = msgspec.field(default_factory=dict)
    modules: tuple[ModuleSearch, ...] = ()
    unseen: tuple[str, ...] = ()


class TestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One test of a file of tests, and what it launched.

    `outcome` is how far it came: `to the end`, `until a value is needed`, `skipped (...)`. Of its
    `launches`, some were `refused`: how many, by the reason. `records` are the numbers of those of
    the capture that it launched.
    """

    name: str
    outcome: str
    line: int | None = None
    reason: str = ""
    launches: int = 0
    refused: dict[str, int] = {}
    records: tuple[int, ...] = ()


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch function launched, as one target would see it.

    `pruned` maps a kernel to (configs kept, configs declared); `dropped` counts launches over the
    limit; `ptxas` is the executable that this Triton picks for the target. `notes` say where a
    capture ends that has something, `passed_over` what launch code does with results in vain.
    `needs` says how to get the value that ended the launch code, or a test in it: `computed`
    or `interpreted`. One that `is_late` ended with its time, and is not kept. `tests` are those of
    a file of tests.
    """

    records: list[LaunchFacts]
    pruned: dict[str, tuple[int, int]]
    ptxas: str
    triton: str
    reads: Reads = msgspec.field(default_factory=Reads)
    dropped: int = 0
    error: RaisedError | None = None
    notes: list[str] = []
    passed_over: str = ""
    needs: Literal["", "computed", "interpreted"] = ""
    is_late: bool = False
    tests: tuple[TestFacts, ...] = ()


class Lowering(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence of lowering one config to PTX.

    `stage` is the last one entered; `seconds` are by stage; `flags` are those that this Triton
    would have passed to ptxas, `gpu_name` among them. Artifacts are kept beside, by role.
    """

    end: ProcessEnd
    stage: str
    error: RaisedError | None = None
    metadata: dict[str, object] = msgspec.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    attempts: int = 1
    log: str = ""


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence of one ptxas run: the command without its files, how it ended, what it printed.

    `metadata` is what was read off the files that it left besides the cubin.
    """

    end: ProcessEnd
    flags: tuple[str, ...]
    stdout: str
    stderr: str
    has_cubin: bool
    attempts: int = 1
    metadata: dict[str, object] = {}


def signal_name(number: int) -> str:
    """The name of a signal, as a shell says it; real-time signals have none but a number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        # Spelt as one word, since plain numbers are folded in signatures.
        return f"SIG{number}"


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of one kernel; None is unknown, never 0.

    Spills and `stack` are bytes per thread, called functions included (`spilling_callees` names
    those that spill), `shared` (static and dynamic together) and `static_shared` bytes per block,
    `constant` bytes, `tmem_columns` per block. `disagreements` says where two sources tell
    different numbers.
    """

    n_regs: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    shared: int | None = None
    static_shared: int | None = None
    constant: int | None = None
    barriers: int | None = None
    tmem_columns: int | None = None
    threads: int | None = None
    spilling_callees: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """Its numbers, by the names of a row's columns."""
        columns = structs.asdict(self)
        for name in ("spilling_callees", "disagreements"):
            del columns[name]
        columns["tmem_size"] = columns.pop("tmem_columns")
        return columns

    @property
    def spills(self) -> int | None:
        """Spill traffic: stores and loads together, bytes per thread."""
        if self.spill_stores is None or self.spill_loads is None:
            return None
        return self.spill_stores + self.spill_loads
