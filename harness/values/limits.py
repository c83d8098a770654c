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

from dataclasses import dataclass

_KIB = 1024
_INTEGRATED = ("Jetson", "GB10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
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
    *,
    threads: int,
    blocks: int,
    shared_kib: int,
    barriers: int | None = None,
    columns: int = 0,
    product: str | None = None,
    sms: int | None = None,
    gib: int | None = None,
    l2_kib: int | None = None,
) -> Limits:
    """Fill in what follows from the generation; `barriers` is per resident block."""
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


_TABLE = (
    _limits(
        70, threads=2048, blocks=32, shared_kib=96, product="Tesla V100-SXM2", sms=80, l2_kib=6144
    ),
    _limits(72, threads=2048, blocks=32, shared_kib=96, product="Jetson AGX Xavier", sms=8),
    _limits(
        75, threads=1024, blocks=16, shared_kib=64, product="Tesla T4", sms=40, gib=16, l2_kib=4096
    ),
    _limits(
        80, threads=2048, blocks=32, shared_kib=164, product="A100-SXM4", sms=108, l2_kib=40960
    ),
    _limits(
        86,
        threads=1536,
        blocks=16,
        shared_kib=100,
        product="GeForce RTX 3090",
        sms=82,
        gib=24,
        l2_kib=6144,
    ),
    _limits(
        87, threads=1536, blocks=16, shared_kib=164, product="Jetson AGX Orin", sms=16, l2_kib=4096
    ),
    _limits(88, threads=1536, blocks=16, shared_kib=100),
    _limits(
        89,
        threads=1536,
        blocks=24,
        shared_kib=100,
        product="GeForce RTX 4090",
        sms=128,
        gib=24,
        l2_kib=73728,
    ),
    _limits(
        90,
        threads=2048,
        blocks=32,
        shared_kib=228,
        barriers=2,
        product="H100-SXM5",
        sms=132,
        gib=80,
        l2_kib=51200,
    ),
    _limits(
        100,
        threads=2048,
        blocks=32,
        shared_kib=228,
        barriers=2,
        columns=512,
        product="B200",
        sms=148,
        gib=180,
        l2_kib=129536,
    ),
    _limits(
        101,
        threads=1536,
        blocks=24,
        shared_kib=228,
        barriers=1,
        columns=512,
        product="Jetson AGX Thor",
        sms=20,
    ),
    _limits(
        103,
        threads=2048,
        blocks=32,
        shared_kib=228,
        barriers=2,
        columns=512,
        product="B300",
        sms=148,
    ),
    _limits(
        110,
        threads=1536,
        blocks=24,
        shared_kib=228,
        barriers=1,
        columns=512,
        product="Jetson AGX Thor",
        sms=20,
    ),
    _limits(
        120,
        threads=1536,
        blocks=24,
        shared_kib=100,
        barriers=1,
        product="GeForce RTX 5090",
        sms=170,
        gib=32,
        l2_kib=98304,
    ),
    _limits(
        121, threads=1536, blocks=24, shared_kib=100, barriers=1, product="GB10", sms=48, gib=128
    ),
)
_BY_CAPABILITY = {limits.capability: limits for limits in _TABLE}

KNOWN_CAPABILITIES = tuple(sorted(_BY_CAPABILITY))


def limits_of(capability: int) -> Limits | None:
    """The limits of exactly this compute capability.

    Returns:
        None for a capability that is not in the table: "could not tell", never a neighbour's
        numbers. ptxas 13.5.37 already assembles for sm_107, of which nothing is published.
    """
    return _BY_CAPABILITY.get(capability)
