"""Programs for issues of tests, and an issue in its parts."""

from harness.verify.claims import IssueReading, read_claims
from harness.verify.programs import read_blocks

RELEASES = {
    "triton": ("3.2.0", "3.3.0", "3.3.1", "3.4.0", "3.5.0", "3.5.1", "3.6.0"),
    "ptxas": ("12.8.61", "12.8.93", "12.9.41", "12.9.86", "13.0.48", "13.0.88", "13.1.80"),
    "tilelang": ("0.1.8", "0.1.9"),
}
MODULES = {"triton": "triton", "tilelang": "tilelang"}
KERNEL = """\
import torch
import triton
import triton.language as tl

@triton.jit
def scale(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) * 2)

def run(n=64, num_warps=4):
    x = torch.ones(n, device="cuda")
    y = torch.empty_like(x)
    scale[(1,)](x, y, N=n, num_warps=num_warps)
    return y
"""
PTX = """\
.version 8.0
.target sm_90
.entry k(.param .u64 p)
{
  ret;
}
"""


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text}```\n"


def read(text: str) -> IssueReading:
    return read_claims(*read_blocks(text, MODULES), RELEASES)
