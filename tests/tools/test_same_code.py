"""What `triage run` executes is the PTX that `triage compile` judges; else it says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from conftest import Triage
from msgspec import structs

from harness.cells.places import CompileOptions, at_bench
from harness.cells.repros.find import find_kernels
from harness.cells.selection import select, small_launch
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Workbench
from harness.frontends.plan import Selection
from harness.frontends.registry import plan_launch
from harness.run.launch import NotRunError
from harness.run.launch_sources import lower_cell
from harness.store.store import Store
from harness.values.toolchain import TRITON

pytestmark = pytest.mark.tools

SMALLER = [
    repro.name
    for repro in find_kernels("*")
    if repro.check and repro.front_end == TRITON and not repro.ptx
]
QUICK = ("liger_geglu_fwd", "register_collapse")
OTHER = ("liger_layer_norm_bwd", "liger_rms_norm_bwd")
"""Those whose code has the number of rows of a program in it: so many rows take too long."""


async def _ptx(bench: Workbench, selection: Selection) -> dict[str, str]:
    """The sha256 of the PTX of each config; why there is none, where it does not compile."""
    plan = await plan_launch(bench, selection.place())
    found = {}
    async with bench.closing(plan.session):
        for cell in plan.cells:
            try:
                lowered = (await lower_cell(bench, cell)).artifacts["ptx"]
            except NotRunError as error:
                lowered = str(error)[:40]
            found[f"{cell.cell.launch.partition(':')[0]} {cell.cell.config.label}"] = lowered
    return found


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in SMALLER],
)
def test_the_small_launch_of_a_repro_is_of_the_code_that_is_judged(
    toolchain_cache: Path, tmp_path: Path, kernel: str
) -> None:
    assert toolchain_cache

    async def both() -> None:
        with Store.open(tmp_path) as store:
            async with at_bench(store, CompileOptions(jobs=2, command="test")) as bench:
                whole = select(SelectionOptions(kernel=kernel))
                whole = structs.replace(whole, targets=whole.targets[:1])
                launches = tuple(small_launch(whole, launch) for launch in whole.launches)
                small = structs.replace(whole, launches=launches)
                judged, executed = await _ptx(bench, whole), await _ptx(bench, small)
                assert (executed == judged) is (kernel not in OTHER)

    asyncio.run(both())


SCALED = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def launch(n=256, block=64):
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    scale[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
    return out
"""


@pytest.mark.parametrize(
    ("change", "is_other"), [(None, False), ("n=512", False), ("n=255", False), ("block=128", True)]
)
def test_a_size_that_makes_other_code_is_said(
    triage: Triage, change: str | None, is_other: bool
) -> None:
    (triage.folder / "scaled.py").write_text(SCALED)
    words = ["--set", change] if change else []
    done = triage("run", "scaled.py", "--sm", "80", "--triton", "3.6.0", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("other code than `compile` judges" in done.stdout) is is_other
    assert not is_other or f"{change}" in done.stdout
