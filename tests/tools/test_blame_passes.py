"""The pass of LLVM inside the real Triton that changes what is looked for."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path

import pytest

from harness.blame.grid import PairTrial
from harness.blame.passes import Looked, find_pass
from harness.cells.places import CompileOptions, at_bench
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench.bench import Kept
from harness.frontends.registry import front_end, plan_launch
from harness.judging.answers import VerdictAnswer
from harness.store.store import Store
from harness.values.outcome import Lowering

pytestmark = pytest.mark.tools

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def added(x, y, out):
    lanes = tl.arange(0, 128)
    left, right = tl.load(x + lanes), tl.load(y + lanes)
    tl.store(out + lanes, left + right)


def launch():
    x, y, out = (torch.ones(128, device="cuda") for _ in range(3))
    added[(1,)](x, y, out)
"""


async def searched(file: Path, home: Path, triton: str) -> tuple[PairTrial | None, list[str]]:
    """The first pass that makes the PTX shorter than it is without any; all programs, too."""
    programs: list[str] = []
    selection = select(SelectionOptions(kernel=str(file), sm=("80",), triton=(triton,)))
    with Store.open(home) as store:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:

            async def look(lowering: Kept[Lowering]) -> Looked:
                text = store.artifacts.get(lowering.artifacts["ptx"]).decode()
                programs.append(text)
                is_short = text.count("\n") < programs[0].count("\n")
                return (VerdictAnswer.SAME if is_short else VerdictAnswer.OK), "verdict", ""

            plan = await plan_launch(bench, selection.place())
            async with bench.closing(plan.session):
                trial = await find_pass(bench, plan.cells[0], "none", look)
                cell = plan.cells[0]
                assert cell.launch is not None
                assert cell.record is not None
                whole = await front_end("triton").lower_part(
                    bench, cell.launch, cell.record, ptxas=cell.seen_ptxas, passes=-1
                )
                if whole is not None:
                    programs.append(store.artifacts.get(whole.lowering.artifacts["ptx"]).decode())
    return trial, programs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "added.py"
    path.write_text(textwrap.dedent(KERNEL))
    return path


def test_the_pass_that_shortens_the_program_is_named(file: Path, tmp_path: Path) -> None:
    trial, programs = asyncio.run(searched(file, tmp_path / "home", "3.9.0"))
    assert trial is not None, [len(text) for text in programs]
    assert trial.after is VerdictAnswer.OK
    assert re.fullmatch(
        r"it works with the first \d+ of \d{3}, and fails with the next, .+ on .+", trial.label
    )
    assert len(programs) <= 11
    assert programs[-1].count("\n") < programs[0].count("\n")


def test_an_older_triton_cannot_be_told(file: Path, tmp_path: Path) -> None:
    trial, programs = asyncio.run(searched(file, tmp_path / "home", "3.6.0"))
    assert trial is None
    assert not programs
