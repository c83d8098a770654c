"""Attention for one warp: by the Triton, ptxas gives it 64 registers of sm_90a, or 255."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend(q, k, v, o, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    queries = tl.load(q + rows[:, None] * WIDTH + width[None, :])
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, length, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        keys = tl.load(k + at[:, None] * WIDTH + width[None, :])
        values = tl.load(v + at[:, None] * WIDTH + width[None, :])
        scores = tl.dot(queries, tl.trans(keys))
        now = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - now[:, None])
        scale = tl.exp(best - now)
        total = total * scale + tl.sum(weights, 1)
        out = out * scale[:, None] + tl.dot(weights.to(values.dtype), values)
        best = now
    out = (out / total[:, None]).to(o.dtype.element_ty)
    tl.store(o + rows[:, None] * WIDTH + width[None, :], out)


def launch() -> None:
    """One config: 64 rows and 128 columns at a time, heads of 64, in one warp."""
    q, k, v, o = (torch.empty(1024, 64, dtype=torch.bfloat16, device="cuda") for _ in range(4))
    attend[(16,)](q, k, v, o, 1024, ROWS=64, COLUMNS=128, WIDTH=64, num_warps=1, num_stages=3)


if __name__ == "__main__":
    launch()
