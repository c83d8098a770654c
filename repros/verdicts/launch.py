"""For each verdict that can be caused on purpose, the smallest launch that has it, and why.

Seen on Triton 3.6.0 to 3.9.0 with the ptxas that each bundles, where nothing else is said. The
target and the Triton that `repro.yaml` gives a kernel show its verdict.
"""

import kernels
import torch

_LOCAL_ARRAY = """{{
    .reg .b32 place;
    .local .align 4 .b8 own[{size}];
    mov.b32 place, own;
    st.local.b32 [place], $1;
    and.b32 $0, $1, {last};
    add.s32 place, place, $0;
    st.local.b32 [place], 0;
    ld.local.b32 $0, [own];
}}"""


def ok(*, n=4096, block=256):
    """`ok`, on every target: twice each element of a vector."""
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    kernels.double[(-(-n // block),)](x, out, n, BLOCK=block)
    return out


def sick_spills(*, rows=2, n=16384, num_warps=1):
    """`sick`: one warp holds a row of 16,384 values, 512 a thread, and a thread has 255 registers.

    ptxas gives up at 64 of them. Depends on `n / num_warps`: with 8 warps, 64 values a thread, nothing spills.
    """
    return _softmax(rows, n, num_warps=num_warps)


def sick_local_memory(*, size=2048):
    """`sick`: each thread has an array of `size` bytes, and indexes it by what it has loaded.

    Registers cannot be indexed, so the array is local memory; nothing spills.
    """
    return _assembly(_LOCAL_ARRAY.format(size=size, last=size - 4))


def sick_occupancy(*, block=32, block_k=128, k=1024, num_stages=8, num_warps=1):
    """`sick`: blocks of one warp, of which the shared memory of an SM has room for one.

    Seven stages of two 8 KiB tiles are 112 KiB; sm_80 has 164. With 3 stages, several blocks fit.
    """
    return _matmul(block, block_k, k, num_stages=num_stages, num_warps=num_warps)


def trap_stub(*, block_m=128, block_n=256, block_k=32, k=1024):
    """`trap_stub`: three sums of 256 columns do not fit into the 512 of tensor memory of sm_100a.

    Triton then makes a kernel that only traps, and says nothing. With `block_n=64` they fit;
    sm_90a keeps its sums in registers and has no tensor memory to run out of.
    """
    a = torch.randn(block_m, k, device="cuda").to(torch.float16)
    b = torch.randn(k, block_n, device="cuda").to(torch.float16)
    out = torch.empty(block_m, block_n, device="cuda")
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    kernels.accumulate[(1,)](a, b, out, k, **blocks, num_warps=4, num_stages=1)
    return out


def trap_stub_assume(*, n=128, least=256):
    """`trap_stub`, on every target: `tl.assume` promises LLVM what is false for this launch.

    Code that relies on it cannot be reached, so a trap is all that LLVM makes. With `least=128`
    the promise is kept.
    """
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    kernels.trust[(1,)](x, out, n, LEAST=least)
    return out


def out_of_resources_shared_memory(*, block=128, block_k=64, k=1024, num_stages=8):
    """`out_of_resources`: eight stages of two 16 KiB tiles are more shared memory than any SM has.

    Triton and ptxas are content; a launch would be refused. With 3 stages it fits.
    """
    return _matmul(block, block_k, k, num_stages=num_stages, num_warps=4)


def out_of_resources_threads(*, num_warps=64):
    """`out_of_resources`: 64 warps are 2,048 threads, and a block has at most 1,024."""
    n = 32 * num_warps
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    kernels.double[(1,)](x, out, n, BLOCK=n, num_warps=num_warps)
    return out


def out_of_resources_registers(*, rows=2, n=131072, num_warps=32, maxnreg=255):
    """`out_of_resources`: 1,024 threads have 64 registers each, but `maxnreg` lets ptxas take more.

    It takes what a row of 131,072 values needs, 128 a thread and more. With `maxnreg=64` the
    block fits (and spills).
    """
    return _softmax(rows, n, num_warps=num_warps, maxnreg=maxnreg)


def rejected(*, n=4096, block=96):
    """`rejected`, on every target: `tl.arange` takes powers of two only, and 96 is none."""
    return ok(n=n, block=block)


def pass_failure(*, block=64, block_k=64, k=1024, dtype="float64"):
    """`pass_failure`: the tensor cores of sm_100a multiply no doubles, but a pass of Triton tries.

    With `dtype=float16`, on sm_90a, and from Triton 3.8.0 on, it compiles.
    """
    return _matmul(block, block_k, k, dtype=getattr(torch, dtype), num_stages=1, num_warps=4)


def pass_failure_recovered(*, n=128, rounding="rtz"):
    """`pass_failure`, although the log says "LLVM ERROR": an exception came of it, no abort.

    There is no code for rounding towards zero (`rtz`) to an eight-bit float; for rounding to the
    nearest (`rtne`) there is.
    """
    x = torch.randn(n, device="cuda")
    out = torch.empty(n, device="cuda", dtype=torch.float8_e4m3fn)
    kernels.convert[(1,)](x, out, ROUNDING=rounding, BLOCK=n)
    return out


def compiler_crash(*, constraints="=r"):
    """`compiler_crash`: the constraints of the assembly leave out its operand, and LLVM aborts.

    Triton's process dies by SIGABRT. With `constraints==r,r` all is well.
    """
    return _assembly("mov.b32 $0, $1;", constraints)


def compiler_crash_exit(*, constraints="=x,r"):
    """`compiler_crash`: LLVM knows no register of kind `x`, and ends Triton's process by exit(1).

    From Triton 3.8.0 on LLVM only reports it, and Triton goes on without the code: `pass_failure`.
    """
    return _assembly("mov.b32 $0, $1;", constraints)


def compiler_crash_ptxas(*, divisor=-1):
    """`compiler_crash`: ptxas divides the least integer by -1 itself, and dies by SIGFPE.

    The quotient does not fit into 64 bits, so the processor refuses. It says nothing.
    """
    return _assembly(f"add.s32 $0, $1, ((-9223372036854775807 - 1) / {divisor});")


def ptxas_error(*, instruction="tanh.approx.bf16x2"):
    """`ptxas_error`: Triton passes assembly on unread, and sm_80 lacks the instruction.

    sm_90a has it.
    """
    return _assembly(f"{instruction} $0, $1;")


def timeout(*, steps=2000, n=128):
    """`timeout`: compile time grows faster than the steps of an unrolled loop.

    Of `--timeout` it depends where that ends: 250 steps take ten seconds or so, 500 half a minute.
    """
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    kernels.unroll[(1,)](x, out, STEPS=steps, BLOCK=n)
    return out


def out_of_memory(*, registers=400_000_000):
    """`out_of_memory`, with `--memory 1`: ptxas makes room for each register that is declared.

    It takes some eight bytes for each, used or not.
    """
    return _assembly(f"{{ .reg .b32 spare<{registers}>; mov.b32 $0, $1; }}")


def unsupported(*, n=4096, block=256):
    """`unsupported`: the kernel of `ok`, on a Triton that is older than the target.

    Triton 3.2.0 knows no sm_120a, 3.6.0 does.
    """
    return ok(n=n, block=block)


def _softmax(rows, n, **options):
    x = torch.randn(rows, n, device="cuda")
    out = torch.empty_like(x)
    kernels.softmax[(rows,)](x, out, n, BLOCK=1 << (n - 1).bit_length(), **options)
    return out


def _matmul(block, block_k, k, *, dtype=torch.float16, **options):
    a = torch.randn(block, k, device="cuda").to(dtype)
    b = torch.randn(k, block, device="cuda").to(dtype)
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    out = torch.empty(block, block, device="cuda", dtype=sums)
    kernels.matmul[(1,)](a, b, out, k, BLOCK=block, BLOCK_K=block_k, **options)
    return out


def _assembly(asm, constraints="=r,r"):
    x = torch.arange(128, device="cuda", dtype=torch.int32)
    out = torch.empty_like(x)
    kernels.assembly[(1,)](x, out, ASM=asm, CONSTRAINTS=constraints, BLOCK=128)
    return out
