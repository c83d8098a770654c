"""What the emulator is given and what it answers: launches, schedules, limits, outcomes.

Sizes and offsets are in bytes unless a name says otherwise; grids, blocks and clusters are
(x, y, z).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

LARGEST_SIZES = {"block": (1024, 1024, 64), "grid": ((1 << 31) - 1, 65535, 65535)}
"""The largest sizes that a launch may have on any GPU, along x, y, z."""
MOST_THREADS = 1024
"""So many threads a block may have."""

FaultKind = Literal["memory_fault", "hang", "trap", "assertion"]
RaceKind = Literal["write-write", "write-read", "read-write", "lanes", "parted"]
RaceSpace = Literal["global", "shared", "local", "tensor_memory", "warp"]


class NotExecutable(Exception):  # noqa: N818 - an answer, not an error: it becomes `not_run`
    """The reason in one line; `unknown` are the opcodes that no row of the table knows."""

    def __init__(self, reason: str, unknown: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.unknown = unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """One buffer of global memory.

    `data` is a one-dimensional array of bytes; the machine copies it and never writes to it.
    `written`, where given, has one bool a byte: whether anything has written this byte before the
    launch. Without it every byte counts as written; an output that starts as garbage has it False.
    """

    name: str
    data: Bytes
    written: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """An argument by value: its bytes, little-endian, as wide as the parameter."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The address of a byte of an allocation, by its number in the launch."""

    allocation: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Null:
    """A pointer to nothing: address 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """What `cuTensorMapEncodeTiled` is given (CUDA driver API, "Tensor Map Object Management").

    Dimensions are innermost first. `element` is one of u8, u16, u32, s32, u64, s64, f16, f32, f64,
    bf16, f32_ftz, tf32, tf32_ftz. `sizes` and `box` are in elements; `strides` in bytes for every
    dimension but the innermost, so one fewer than `sizes`. `swizzle` is 0, 32, 64 or 128 bytes,
    `interleave` 0, 16 or 32 bytes. `nan_fill`: elements out of bounds are read as a NaN, not zero.
    """

    allocation: int
    offset: int = 0
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    nan_fill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMapArgument:
    """A tensor map, for a parameter of 128 bytes or for one that is a pointer to such."""

    tensor_map: TensorMap


Argument = Scalar | Pointer | Null | TensorMapArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """A cubin, and what `nvdisasm -c -hex` prints of it (options `-ndf`, `-g` may be added)."""

    elf: bytes
    listing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of an entry of a PTX module, or of a `cubin` where there is one.

    `entry` None is the only entry of the module. `arguments` are in the order of its parameters;
    trailing pointer parameters without an argument are null. `dynamic_shared` is the size of the
    `.extern .shared` array.
    """

    ptx: str = ""
    cubin: Cubin | None = None
    entry: str | None = None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared: int = 0
    allocations: tuple[Allocation, ...] = ()
    arguments: tuple[Argument, ...] = ()

    @property
    def threads(self) -> int:
        """How many threads a block has."""
        return math.prod(self.block)

    @property
    def cluster_size(self) -> int:
        """How many blocks a cluster has."""
        return math.prod(self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """In which order warps run and when asynchronous operations take effect.

    `lockstep`: all warps together. `first`, `last`, `random`: each warp runs to its next wait, the
    first, the last or a random one first; of a cubin, lanes that parted as well (`first`, `last`).
    Of unequal values that lanes of one store write to one place, that of the last lane stays; with
    `last` it is the one whose bits, as a number, are farthest from it.
    `early`: at issue; `late`: not before a wait orders it; `random`: anywhere between. `seed`
    decides what is random, `garbage` what registers and memory that nothing wrote hold. `resident`:
    no more blocks run at once, and one begins when another has ended, from the first one on, with
    `last` from the last one on; 0: all may run at once.
    """

    warps: Literal["lockstep", "first", "last", "random"] = "lockstep"
    completion: Literal["early", "late", "random"] = "early"
    seed: int = 0
    garbage: int = 0
    resident: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may cost: instructions are of threads; `max_memory` is in bytes.

    A run that takes more is not a hang: its outcome is `not_run`, with `is_out_of_budget`.
    Of a larger grid `max_ctas` CTAs are run, evenly spread from the first to the last (whole
    clusters), and the outcome says so.
    """

    max_instructions: int = 20_000_000_000
    max_ctas: int = 65_536
    max_memory: int = 1 << 30

    def sample(self, clusters: int, size: int = 1) -> list[int]:
        """Numbers of the clusters that run of a grid, each of `size` CTAs: all, or some of them."""
        most = max(1, self.max_ctas // size)
        if clusters <= most:
            return list(range(clusters))
        return [round(n * (clusters - 1) / max(1, most - 1)) for n in range(most)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What is looked for besides faults. `validity`: reads of what nothing wrote."""

    races: bool = False
    validity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An instruction, and `file:line` of the source where known.

    `ptx_line` is its line in the PTX (from 1). Of a cubin `sass_offset` is its first byte in the
    code of its function, and `ptx_line` is 0.
    """

    ptx_line: int = 0
    instruction: str
    source: str | None = None
    sass_offset: int | None = None

    @property
    def order(self) -> int:
        """Its line, or its offset: what sorts the places of one program."""
        return self.ptx_line if self.sass_offset is None else self.sass_offset

    @property
    def words(self) -> str:
        """`PTX line 7`, `SASS offset 0x01a0`."""
        if self.sass_offset is None:
            return f"PTX line {self.ptx_line}"
        return f"SASS offset {self.sass_offset:#06x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What ended the run: `what` is a sentence that says where and why."""

    kind: FaultKind
    what: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two accesses to the same bytes that nothing orders; at least one of them writes.

    `kind` is `write-write`, `write-read` or `read-write`, in the order of `first` and `second` as
    they ran; `lanes` are lanes of one store, which is `first` and `second`, that write unequal
    values to one address; `parted` are threads of a warp that need not have met again since a
    branch. `formal`: only the letter of the PTX ISA is broken, as where no proxy fence stands.
    `within_cta`: a read and a write of global memory by two warps of one CTA, which change places
    with the order in which warps run.
    """

    kind: RaceKind
    space: RaceSpace
    formal: bool
    first: Place
    second: Place
    what: str
    within_cta: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Uninitialised:
    """A read of bytes that nothing wrote, or of `lanes` that take no part; `count` threads did."""

    space: str
    place: Place
    count: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """Bytes of an allocation: its number in the launch, the first of them, and how many."""

    allocation: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLink:
    """An instruction that hands a difference on, and its value in either run.

    `thread` is its number in its block, None where a warp acts as one.
    """

    place: Place
    thread: int | None
    warp: int
    values: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInput:
    """Bytes of a buffer that a value is made of in one run (0 or 1), and not in the other.

    `spans` are ranges, each from its first byte to behind its last.
    """

    run: int
    allocation: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The way of a difference, from where it begins to an element. `why` says how it begins.

    Of two programs, `inputs` say it.

    `program` is the CTA (x, y, z). `not_run`: it cannot be traced, and why.
    """

    links: tuple[TraceLink, ...] = ()
    why: str = ""
    program: tuple[int, int, int] | None = None
    not_run: str | None = None
    inputs: tuple[TraceInput, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    `allocations` are the buffers afterwards, in the order of the launch. `not_run` says why nothing
    was executed (then all else is empty): an opcode that is not known, by its whole name, for
    instance; `unknown` lists all of these. `is_out_of_budget`: it was executed, and the budget was
    used up before its end; `needs` is an estimate of the instructions that it takes, where some
    blocks ended. `executed` counts instructions of threads; `ctas` those that ran, of `ctas_of` in
    the grid; `is_sample`: no more of them were meant to. `printed` is what threads printed, message
    by message, as much as is kept.
    """

    allocations: tuple[Allocation, ...] = ()
    faults: tuple[Fault, ...] = ()
    races: tuple[Race, ...] = ()
    uninitialised: tuple[Uninitialised, ...] = ()
    not_run: str | None = None
    executed: int = 0
    ctas: int = 0
    ctas_of: int = 0
    is_sample: bool = False
    is_ordered: bool = False
    is_out_of_budget: bool = False
    needs: int | None = None
    unknown: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
