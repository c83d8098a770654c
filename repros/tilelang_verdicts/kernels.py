"""Kernels in TileLang that fail, or do not, by what they are launched with."""

import tilelang
import tilelang.language as T

CONFIGS = [
    {"block_k": block_k, "num_stages": num_stages} for block_k in (32, 128) for num_stages in (2, 6)
]


def build(m, n, k, block_m, block_n, block_k, num_stages, threads, inner, dtype):
    """A product of two matrices; `inner` is what the second tile takes for `block_k`."""

    @T.prim_func
    def matmul_kernel(
        A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), dtype)
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_m, block_k), dtype)
            B_shared = T.alloc_shared((inner, block_n), dtype)
            C_local = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, block_k), num_stages=num_stages):
                T.copy(A[by * block_m, ko * block_k], A_shared)
                T.copy(B[ko * block_k, bx * block_n], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_m, bx * block_n])

    return matmul_kernel


@tilelang.jit(out_idx=[-1])
def matmul(
    m,
    n,
    k,
    block_m=64,
    block_n=64,
    block_k=32,
    num_stages=2,
    threads=128,
    inner=None,
    dtype="float16",
):
    """Without a tuner."""
    return build(m, n, k, block_m, block_n, block_k, num_stages, threads, inner or block_k, dtype)


@tilelang.jit(out_idx=[-1], target="hip")
def matmul_hip(m, n, k):
    """For another target."""
    return build(m, n, k, 64, 64, 32, 2, 128, 32, "float16")


@tilelang.autotune(configs=CONFIGS)
@tilelang.jit(out_idx=[-1])
def tuned(m, n, k, block_k=32, num_stages=2):
    """With a tuner."""
    return build(m, n, k, 128, 128, block_k, num_stages, 128, block_k, "float16")


@tilelang.jit
def foreign(n, source):
    """Calls a function `other` that is CUDA C++ of its own."""

    @T.prim_func
    def foreign_kernel(A: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            T.import_source(source)
            for i in T.Parallel(128):
                A[bx * 128 + i] = T.call_extern("float32", "other", A[bx * 128 + i])

    return foreign_kernel


@tilelang.jit
def chained(n):
    """The sums of one product are copied into an operand of another, laid out by hand."""

    @T.prim_func
    def chained_kernel(A: T.Tensor((n, n), "float16"), B: T.Tensor((n, n), "float16")):
        with T.Kernel(1, threads=128):
            shared = T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({shared: tilelang.layout.Layout((64, 64), lambda i, j: (j, i))})
            T.copy(A[0, 0], shared)
            T.clear(sums)
            T.gemm(shared, shared, sums)
            T.copy(sums, B[0, 0])

    return chained_kernel
