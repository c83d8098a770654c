"""One row of results: the same object in every command, in `--json` and in every export."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.values.kernel import Scalar
from harness.values.timing import TimeMs
from harness.values.toolchain import PTXAS, assembler_name, compiler_name
from harness.values.verdict import VerdictKind

SCHEMA: Final = 1
"""Version of the row and of the documents that hold rows; keys are only ever added."""


class HasToolchain:
    """What the columns of a row say of its compiler, its assembler and its spills."""

    __slots__ = ()
    compiler: str | None
    compiler_version: str | None
    triton: str | None
    assembler: str
    ptxas: str | None
    spill_stores: int | None
    spill_loads: int | None

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


class Row(HasToolchain, msgspec.Struct, frozen=True, kw_only=True):
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

    cell: str
    short: str
    kernel: str
    launch: str
    config: dict[str, Scalar]
    target: str
    triton: str | None
    ptxas: str | None
    ptxas_origin: str | None
    verdict: VerdictKind
    reason: str
    stage: str | None = None
    signature: str | None = None
    code: str | None = None
    signal: int | None = None
    exit_code: int | None = None
    n_regs: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    shared: int | None = None
    static_shared: int | None = None
    constant: int | None = None
    barriers: int | None = None
    tmem_size: int | None = None
    threads: int | None = None
    occupancy: float | None = None
    occupancy_limiter: str | None = None
    instructions: dict[str, int] | None = None
    ptx_version: str | None = None
    ptx_sha256: str | None = None
    ptx_body_sha256: str | None = None
    ptx_same_as_bundled: bool | None = None
    frozen: bool = False
    ptxas_flags: tuple[str, ...] = ()
    cubin_sha256: str | None = None
    suspect: str | None = None
    attempts: int = 1
    flaky: bool = False
    cached: bool = False
    seconds: float | None = None
    compiler: str | None = None
    compiler_version: str | None = None
    partners: tuple[str, ...] = ()
    assembler: str = PTXAS
    program_sha256: str | None = None
    time_ms: TimeMs | None = None
    probe_of: str | None = None
    file: str | None = None
    values: str | None = None

    @property
    def program(self) -> str | None:
        """A hash of what the assembler was given; of PTX, without what does not count."""
        return self.ptx_body_sha256 or self.program_sha256
