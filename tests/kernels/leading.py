"""A quotient that ptxas dies of: in one config, since Triton 3.7, by a variable that is passed."""

import os

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"WIDE": wide}, num_warps=1) for wide in (0, 1)], key=[])
@triton.jit
def divide(x, y, ASM: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    if WIDE:
        values = tl.inline_asm_elementwise(ASM, "=r,r", [values], tl.int32, True, 1)
    tl.store(y + at, values)


def launch(n: int = 32):
    x = torch.arange(n, device="cuda", dtype=torch.int32)
    is_old = triton.__version__ < "3.7"
    divisor = "1" if is_old else os.environ.get("DIVISOR", "1")
    asm = f"add.s32 $0, $1, ((-9223372036854775807 - 1) / {divisor});"
    divide[(1,)](x, torch.empty_like(x), asm, BLOCK=n)
