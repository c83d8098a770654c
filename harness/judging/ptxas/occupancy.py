"""How many blocks of a kernel fit on one multiprocessor, as NVIDIA's calculator defines it.

Source: `cuda_occupancy.h` (`cudaOccMaxActiveBlocksPerMultiprocessor`), with the whole
carveout given to shared memory and the opt-in limit per block. The header does not know tensor
memory: that limit follows from the PTX ISA, `tcgen05.alloc`.
"""

from __future__ import annotations

import msgspec

from harness.values.limits import Limits

LIMITERS = ("registers", "shared", "tmem", "barriers", "warps", "blocks")
"""In the order in which a tie is named: what the kernel's code asks for before how it is launched,
before the cap that nothing but larger blocks can lift."""

_MIN_TMEM_COLUMNS = 32


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """How full one multiprocessor can get.

    `fraction` is resident warps over the most that the SM can hold (0.0 to 1.0).
    `limiter` is the first of `tied`, which names every limit that is equally tight, in the order
    of `LIMITERS`. Nothing fits where `blocks_per_sm` is 0: the launch would be refused.
    """

    fraction: float
    blocks_per_sm: int
    warps_per_sm: int
    limiter: str
    tied: tuple[str, ...]


def theoretical_occupancy(
    limits: Limits,
    *,
    n_regs: int,
    shared: int,
    threads_per_block: int,
    barriers: int | None = None,
    tmem_columns: int = 0,
) -> Occupancy:
    """Compute the occupancy of one kernel on one GPU.

    Args:
        limits: the GPU's limits.
        n_regs: registers per thread, as ptxas says.
        shared: bytes per block, static and dynamic together, without the reserved part.
        threads_per_block: threads of one block, all dimensions multiplied.
        barriers: named barriers that one block uses; None (not known: ptxas 11.7 does not print
            them) limits nothing.
        tmem_columns: columns of tensor memory that one block holds. `tcgen05.alloc` hands out
            powers of two from 32 on, so other numbers are rounded up.

    Raises:
        ValueError: a count is negative, or there are no threads.
    """
    if threads_per_block < 1 or min(n_regs, shared, barriers or 0, tmem_columns) < 0:
        raise ValueError("a block has at least one thread, and no resource is used less than 0")
    warps = _divide_up(threads_per_block, limits.warp_size)
    fits: dict[str, int | None] = {
        "registers": _by_registers(limits, n_regs, warps),
        "shared": _by_shared(limits, shared),
        "tmem": _by_tmem(limits, tmem_columns),
        "barriers": None,
        "warps": limits.max_warps_per_sm // warps,
        "blocks": limits.max_blocks_per_sm,
    }
    if barriers and limits.barriers_per_sm is not None:
        fits["barriers"] = limits.barriers_per_sm // barriers
        if barriers > limits.max_barriers:
            fits["barriers"] = 0
    if threads_per_block > limits.max_threads_per_block:
        fits["warps"] = 0
    blocks = min(count for count in fits.values() if count is not None)
    tied = tuple(name for name in LIMITERS if fits[name] == blocks)
    return Occupancy(
        fraction=blocks * warps / limits.max_warps_per_sm,
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        limiter=tied[0],
        tied=tied,
    )


def _by_registers(limits: Limits, n_regs: int, warps: int) -> int | None:
    if n_regs == 0:
        return None
    per_warp = _round_up(n_regs * limits.warp_size, limits.register_allocation_unit)
    if n_regs > limits.max_registers_per_thread:
        return 0
    # Warps do not share a partition's rest. This implies the check that the hardware makes at
    # launch (warps rounded up to whole partitions, times `per_warp`, within the block's limit).
    per_partition = limits.registers_per_sm // limits.warp_allocation_granularity // per_warp
    return per_partition * limits.warp_allocation_granularity // warps


def _by_shared(limits: Limits, shared: int) -> int | None:
    if shared > limits.max_shared_per_block:
        return 0
    allocated = _round_up(shared + limits.reserved_shared_per_block, limits.shared_allocation_unit)
    return limits.shared_per_sm // allocated if allocated else None


def _by_tmem(limits: Limits, columns: int) -> int | None:
    if columns == 0:
        return None
    allocated = max(_MIN_TMEM_COLUMNS, 1 << (columns - 1).bit_length())
    return limits.tensor_memory_columns // allocated


def _divide_up(value: int, unit: int) -> int:
    return -(-value // unit)


def _round_up(value: int, unit: int) -> int:
    return _divide_up(value, unit) * unit
