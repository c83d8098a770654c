"""One row of results: the same object in every command, in `--json` and in every export."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.values.cell import executed_by, place_of
from harness.values.kernel import Config, Scalar
from harness.values.timing import TimeMs
from harness.values.toolchain import PTXAS, assembler_name, compiler_name
from harness.values.verdict import VerdictKind

SCHEMA: Final = 1
"""Version of the row and of the documents that hold rows; keys are only ever added."""


class CellNames(msgspec.Struct, frozen=True, kw_only=True):
    """What names a cell in every row, of a compile and of a run; see `Row`."""

    cell: str
    short: str
    kernel: str
    launch: str
    config: dict[str, Scalar]
    target: str
    triton: str | None


class Facts(CellNames, frozen=True, kw_only=True):
    """The part of a row that is compared, and read where the rest is not needed; see `Row`."""

    ptxas: str | None
    ptxas_origin: str | None
    verdict: VerdictKind
    reason: str
    stage: str | None = None
    signature: str | None = None
    signal: int | None = None
    attempts: int = 1
    flaky: bool = False
    n_regs: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    shared: int | None = None
    tmem_size: int | None = None
    occupancy: float | None = None
    occupancy_limiter: str | None = None
    frozen: bool = False
    cubin_sha256: str | None = None
    compiler: str | None = None
    compiler_version: str | None = None
    assembler: str = PTXAS
    time_ms: TimeMs | None = None
    file: str | None = None

    @property
    def tool(self) -> str:
        """What takes the program, for people: `ptxas 13.1.115`, `emulator`, or `no assembler`."""
        return assembler_name(self.assembler, self.ptxas)

    @property
    def compiler_name(self) -> str:
        """For people: `Triton 3.6.0`, or `raw PTX`."""
        return compiler_name(self.compiler, self.compiler_version)

    @property
    def spills(self) -> int | None:
        """Stores and loads together, in bytes per thread."""
        if self.spill_stores is None or self.spill_loads is None:
            return None
        return self.spill_stores + self.spill_loads

    @property
    def config_label(self) -> str:
        """The config, as in a cell id."""
        return Config.of(dict(self.config)).label

    @property
    def place(self) -> str:
        """Kernel, launch, config and target, as the cell's id begins with them."""
        return place_of(self.cell)

    @property
    def flags(self) -> str:
        """The flags of ptxas that the cell changes; empty for the defaults."""
        return self.cell.rpartition("/")[2].partition(",")[2]

    @property
    def is_executed(self) -> bool:
        """Whether it is of a run, and not of a compile."""
        return executed_by(self.cell) is not None

    @property
    def outcome(self) -> tuple[str, str | None]:
        """Verdict and signature: equal for the same failure."""
        return self.verdict, self.signature

    @property
    def is_flaky(self) -> bool:
        """Whether its own runs disagreed: repeated ones, or one that died and its repetition."""
        return self.flaky or (self.attempts > 1 and self.signal is None)


class BugFacts(Facts, frozen=True, kw_only=True):
    """The part of a row that bugs are derived from."""

    code: str | None = None
    cached: bool = False
    ptx_body_sha256: str | None = None
    probe_of: str | None = None


class Row(BugFacts, frozen=True, kw_only=True):
    """A cell with its verdict and numbers; what is not known is None, never 0.

    `stage` is where it went wrong, `signal` and `exit_code` how the compiler's process ended: ptxas
    where it ran, else the process in which Triton died; None where Triton raised an exception,
    since no process of the compiler's ended then. Spills and stack are bytes per thread, called
    functions included, `shared` bytes per block, `tmem_size` columns per block, `occupancy` a
    fraction (theoretical), `instructions` static counts by class, `seconds` wall time of lowering
    and assembling when they were run. `ptx_version` is the PTX's `.version`; `ptx_body_sha256`
    hashes the program without debug information and `.version`; `ptx_same_as_bundled` compares it
    with the one that Triton makes for the ptxas it bundles, and `frozen` says that it is that one.
    `suspect` is what reading the kernel's source finds wrong with the config. `compiler` is the
    kind of the compiler, None for raw PTX, and `compiler_version` its version, None where a file is
    passed on as it is; `triton` is that version where it is Triton. `partners` are the packages
    beside the compiler in its environment, as `NAME==VERSION`. `assembler` is the kind of the
    assembler, whose version is `ptxas` whatever its kind; it is `none`, and `ptxas` and
    `ptxas_origin` are None, where nothing assembles. `program_sha256` is what it was given, where
    that is not PTX. `time_ms` is how long it took on a GPU, where it was timed: a noisy number,
    unlike all others here. `probe_of` is the cell whose failure was followed to this one, a variant
    on another target or with other flags; None for what was selected. `file` is of a kernel that is
    named by a file: see `harness.values.cell.file_label`. `values`: the launch depends on values
    that were `computed` by torch on a CPU, or `interpreted` where kernels leave them.
    """

    exit_code: int | None = None
    static_shared: int | None = None
    constant: int | None = None
    barriers: int | None = None
    threads: int | None = None
    instructions: dict[str, int] | None = None
    ptx_version: str | None = None
    ptx_sha256: str | None = None
    ptx_same_as_bundled: bool | None = None
    ptxas_flags: tuple[str, ...] = ()
    suspect: str | None = None
    seconds: float | None = None
    partners: tuple[str, ...] = ()
    program_sha256: str | None = None
    values: str | None = None

    @property
    def program(self) -> str | None:
        """A hash of what the assembler was given; of PTX, without what does not count."""
        return self.ptx_body_sha256 or self.program_sha256
