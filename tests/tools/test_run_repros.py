"""`triage run` on repros: with a reference of the author's, and with inputs of PTX."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

LAUNCH = """
import torch, triton, triton.language as tl

@triton.jit
def scale(x, out, total, n, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(out + offsets, values * factor, mask=offsets < n)
    tl.store(total, tl.sum(values))

def launch(n=48):
    x = torch.randn(n, device="cuda")
    out, total = torch.empty_like(x), torch.empty(1, device="cuda")
    scale[(1,)](x, out, total, n, 1.5, BLOCK=64)
    return out, total
"""
REFERENCE = """
import torch

def scaled(x, factor, n, BLOCK, **rest):
    assert (x.dtype, factor, n, BLOCK) == (torch.float64, 1.5, 48, 64)
    return {"out": x * factor}

def otherwise(x, out, **rest):
    return {"out": x + 1}

def failing(**rest):
    raise RuntimeError("no idea")
"""
REPRO = "kernel: scale\nlaunch: launch.py\ntriton: 3.6.0\ntargets: [sm_80]\nreference: {}\n"
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry square(.param .u64 p0, .param .u32 p1)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p0];
  ld.param.u32 %r1, [p1];
  mov.u32 %r2, %tid.x;
  mul.lo.s32 %r3, %r2, %r1;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r3;
  ret;
}
"""


def run(triage: Triage, *words: str, code: int) -> tuple[dict[str, Any], str]:
    done = triage("run", *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    [row] = msgspec.json.decode(done.stdout)["runs"]
    return row, done.stderr


def make(triage: Triage, name: str, **files: str) -> None:
    folder = triage.folder / "repros" / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(text)


@pytest.mark.long
def test_the_authors_reference_counts_before_all_others(module_triage: Triage) -> None:
    def referring_to(function: str, code: int) -> tuple[dict[str, Any], str]:
        (folder / "repro.yaml").write_text(REPRO.format(function))
        return run(module_triage, "--kernel", "scales", code=code)

    make(module_triage, "scales", launch__py=LAUNCH, reference__py=REFERENCE)
    folder = module_triage.folder / "repros" / "scales"
    row, _ = referring_to("scaled", code=0)
    assert row["run"] == "right"
    assert row["reference"] == "the repro's reference (torch, float64)"
    # What it says nothing of is told, and not compared.
    assert [(each["name"], each["differing"]) for each in row["outputs"]] == [
        ("out", 0),
        ("total", None),
    ]
    row, _ = referring_to("otherwise", code=1)
    assert row["run"] == "wrong_result"
    assert row["reference"] == "the repro's reference (torch, float64)"
    assert row["outputs"][0]["differing"] == 48
    # One that raises says nothing: the next in the order is asked.
    row, said = referring_to("failing", code=0)
    assert "failing raised RuntimeError: no idea" in said
    says = f"num_stages=1, num_warps=2 on sm_80 with Triton {row['triton']}, emulated"
    assert row["reference"] == says


def test_a_repro_of_ptx_brings_its_inputs(triage: Triage) -> None:
    yaml = (
        "kernel: square\nfiles: [case.ptx]\n"
        'inputs: {buffers: {out: "s32[32]"}, scalars: {by: 3}, block: 32, grid: "1"}\n'
    )
    make(triage, "squares", repro__yaml=yaml, case__ptx=PTX)
    row, said = run(triage, "--kernel", "squares", "--out", "after", code=0)
    assert "guessed" not in said
    assert row["run"] == "ran"
    assert (np.load(triage.folder / "after" / "out.npy") == 3 * np.arange(32)).all()
    # What is given on the command line counts.
    run(triage, "--kernel", "squares", "--scalar", "by=-2", "--out", "after", code=0)
    assert (np.load(triage.folder / "after" / "out.npy") == -2 * np.arange(32)).all()
