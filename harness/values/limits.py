"""What one multiprocessor (SM) and one block may use, by compute capability.

Sources:
    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    `cuda_occupancy.h` of CUDA 13 (shipped inside Triton): granularities, sub-partitions, resident
    blocks, barriers. It has no case of its own for 8.7 and 8.8; both fall under "other 8.x".
    CCCL, `cuda/__device/arch_traits.h`: 8.8 equals 8.6, 10.3 equals 10.0, 12.1 equals 12.0.
    PTX ISA, "Tensor Memory": 512 columns; "bar": 16 named barriers per block.
    CUDA 13.0 release notes: 10.1 was renamed 11.0; both spellings are here.
    L2 caches: what CUDA itself says on the product, by `deviceQuery` or by
    `torch.cuda.get_device_properties` (V100, T4, A100, RTX 4090, H100; tmcdonell/cuda#77 for Orin,
    pytorch/ao#4002 for B200: 126.5 MiB, NVIDIA/nccl#1637 for RTX 5090), and published tables
    of GA102 (RTX 3090).
    NVIDIA's data sheets: the memory that a product is sold with.
"""

from __future__ import annotations

import msgspec

_KIB = 1024
_INTEGRATED = ("Jetson", "GB10")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one compute capability, and a product that has it.

    Shared memory is in bytes, registers are 32-bit registers, tensor memory is in columns.

    Attributes:
        capability: ten times the compute capability (100 is 10.0).
        max_registers_per_thread: what a program can name. `cuda_occupancy.h` says 256 from 7.0
            on, counting the zero register.
        register_allocation_unit: a warp's registers are rounded up to a multiple of this.
        warp_allocation_granularity: sub-partitions of the SM: warps and registers are spread
            over them, and the launch check rounds a block's warps up to a multiple of this.
        max_shared_per_block: most that a launch can opt into, static and dynamic together,
            without the reserved part.
        reserved_shared_per_block: what the driver adds to every block.
        shared_allocation_unit: a block's shared memory is rounded up to a multiple of this.
        tensor_memory_columns: per SM, shared by the resident blocks; 0 where there is none.
        max_barriers: named barriers that one block can use.
        barriers_per_sm: hardware barriers that the resident blocks share; None before 9.0, where
            the calculator lets barriers limit nothing.
        multiprocessors: of `product`; None where no product is known.
        product: the part that a pretend device poses as.
        memory: of `product`, in bytes as it is sold; None where it is sold in several sizes.
        l2_cache: of `product`, in bytes; None where no source is known.
        integrated: whether `product` shares the memory of its CPU; None where no product is known.
    """

    capability: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    shared_per_sm: int
    max_shared_per_block: int
    reserved_shared_per_block: int
    shared_allocation_unit: int
    barriers_per_sm: int | None
    tensor_memory_columns: int = 0
    multiprocessors: int | None = None
    product: str | None = None
    memory: int | None = None
    l2_cache: int | None = None
    integrated: bool | None = None
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    max_registers_per_thread: int = 255
    register_allocation_unit: int = 256
    warp_allocation_granularity: int = 4
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_barriers: int = 16

    @property
    def max_warps_per_sm(self) -> int:
        """Warps that can be resident at once."""
        return self.max_threads_per_sm // self.warp_size

    def registers_of_thread(self, threads: int) -> int:
        """The most registers that a thread can have in a block of so many threads."""
        unit = self.register_allocation_unit // self.warp_size
        most = self.registers_per_block // threads // unit * unit
        return min(most, self.max_registers_per_thread)


def _limits(
    capability: int,
    threads: int,
    blocks: int,
    shared_kib: int,
    barriers: int | None,
    columns: int,
    product: str | None,
    sms: int | None,
    gib: int | None,
    l2_kib: int | None,
) -> Limits:
    """One row of the table, with what follows from the generation."""
    reserved = _KIB if capability >= 80 else 0
    return Limits(
        capability=capability,
        max_threads_per_sm=threads,
        max_blocks_per_sm=blocks,
        shared_per_sm=shared_kib * _KIB,
        max_shared_per_block=shared_kib * _KIB - reserved,
        reserved_shared_per_block=reserved,
        shared_allocation_unit=128 if reserved else 256,
        barriers_per_sm=barriers and barriers * blocks,
        tensor_memory_columns=columns,
        multiprocessors=sms,
        product=product,
        memory=gib and gib << 30,
        l2_cache=l2_kib and l2_kib * _KIB,
        integrated=product.startswith(_INTEGRATED) if product else None,
    )


# Capability; threads and blocks of an SM, its shared memory in KiB, barriers of a block, columns of
# tensor memory; a product with its SMs, its memory in GiB and its L2 cache in KiB.
_TABLE = (
    (70, 2048, 32, 96, None, 0, "Tesla V100-SXM2", 80, None, 6144),
    (72, 2048, 32, 96, None, 0, "Jetson AGX Xavier", 8, None, None),
    (75, 1024, 16, 64, None, 0, "Tesla T4", 40, 16, 4096),
    (80, 2048, 32, 164, None, 0, "A100-SXM4", 108, None, 40960),
    (86, 1536, 16, 100, None, 0, "GeForce RTX 3090", 82, 24, 6144),
    (87, 1536, 16, 164, None, 0, "Jetson AGX Orin", 16, None, 4096),
    (88, 1536, 16, 100, None, 0, None, None, None, None),
    (89, 1536, 24, 100, None, 0, "GeForce RTX 4090", 128, 24, 73728),
    (90, 2048, 32, 228, 2, 0, "H100-SXM5", 132, 80, 51200),
    (100, 2048, 32, 228, 2, 512, "B200", 148, 180, 129536),
    (101, 1536, 24, 228, 1, 512, "Jetson AGX Thor", 20, None, None),
    (103, 2048, 32, 228, 2, 512, "B300", 148, None, None),
    (110, 1536, 24, 228, 1, 512, "Jetson AGX Thor", 20, None, None),
    (120, 1536, 24, 100, 1, 0, "GeForce RTX 5090", 170, 32, 98304),
    (121, 1536, 24, 100, 1, 0, "GB10", 48, 128, None),
)
_BY_CAPABILITY = {row[0]: _limits(*row) for row in _TABLE}

KNOWN_CAPABILITIES = tuple(sorted(_BY_CAPABILITY))


def limits_of(capability: int) -> Limits | None:
    """The limits of exactly this compute capability.

    Returns:
        None for a capability that is not in the table: "could not tell", never a neighbour's
        numbers. ptxas 13.5.37 already assembles for sm_107, of which nothing is published.
    """
    return _BY_CAPABILITY.get(capability)
