"""The pass of the real Triton, or of the LLVM inside it, that changes what is looked for."""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.blame.compiler_passes import Looked, find_pass
from harness.blame.grid import PairTrial, Varied
from harness.cells.places import CompileOptions, at_bench
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Kept
from harness.frontends.registry import plan_launch
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


LOOP = """
import torch
import triton
import triton.language as tl


@triton.jit
def multiplied(x, y, out, n):
    rows = tl.arange(0, 32)
    tile = rows[:, None] * 32 + rows[None, :]
    total = tl.zeros((32, 32), tl.float32)
    for step in range(n):
        total += tl.dot(tl.load(x + step * 1024 + tile), tl.load(y + step * 1024 + tile))
    tl.store(out + tile, total)


def launch():
    x, y = (torch.ones(4096, dtype=torch.float16, device="cuda") for _ in range(2))
    multiplied[(1,)](x, y, torch.ones(1024, device="cuda"), 4, num_stages=3)
"""


async def searched(
    file: Path, home: Path, triton: str, over: Varied, fails: Callable[[list[str]], bool]
) -> tuple[PairTrial | None, list[str]]:
    """The first pass behind which the last of all programs so far fails; these programs, too."""
    programs: list[str] = []
    selection = select(SelectionOptions(kernel=str(file), sm=("80",), triton=(triton,)))
    with Store.open(home) as store:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:

            async def look(lowering: Kept[Lowering]) -> Looked:
                programs.append(store.artifacts.get(lowering.artifacts["ptx"]).decode())
                return (
                    (VerdictAnswer.SAME if fails(programs) else VerdictAnswer.OK),
                    "verdict",
                    "",
                )

            plan = await plan_launch(bench, selection.place())
            async with bench.closing(plan.session):
                return await find_pass(bench, plan.cells[0], "none", look, over), programs


def is_shorter(programs: list[str]) -> bool:
    return programs[-1].count("\n") < programs[0].count("\n")


def copies_ahead(programs: list[str]) -> bool:
    return "cp.async" in programs[-1]


def written(folder: Path, source: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(textwrap.dedent(source))
    return path


def test_the_pass_of_llvm_that_shortens_the_program_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, KERNEL)
    trial, programs = asyncio.run(
        searched(file, tmp_path / "home", "3.9.0", Varied.LLVM, is_shorter)
    )
    assert trial is not None, [len(text) for text in programs]
    assert trial.after is VerdictAnswer.OK
    assert re.fullmatch(
        r"it works with the first \d+ of \d{3}, and fails with the next, .+ on .+", trial.label
    )
    assert len(programs) <= 11
    assert any(is_shorter([programs[0], program]) for program in programs)


def test_the_llvm_of_an_older_triton_cannot_be_told(tmp_path: Path) -> None:
    file = written(tmp_path, KERNEL)
    trial, programs = asyncio.run(
        searched(file, tmp_path / "home", "3.6.0", Varied.LLVM, is_shorter)
    )
    assert trial is None
    assert not programs


@pytest.mark.parametrize("triton", [pytest.param("3.6.0", marks=pytest.mark.long), "3.9.0"])
def test_the_pass_of_triton_that_copies_ahead_is_named(tmp_path: Path, triton: str) -> None:
    file = written(tmp_path, LOOP)
    trial, programs = asyncio.run(
        searched(file, tmp_path / "home", triton, Varied.MLIR, copies_ahead)
    )
    assert trial is not None, [len(text) for text in programs]
    assert trial.after is VerdictAnswer.OK
    assert re.fullmatch(
        r"it works with the first \d+ of \d+, and fails with the next, "
        r"add_pipeline of make_ttgir; without that one alone it works",
        trial.label,
    )
    assert len(programs) <= 9


@pytest.mark.long
def test_what_needs_none_of_the_passes_of_triton_comes_about_elsewhere(tmp_path: Path) -> None:
    file = written(tmp_path, LOOP)
    trial, programs = asyncio.run(
        searched(file, tmp_path / "home", "3.9.0", Varied.MLIR, lambda _: True)
    )
    assert trial is not None
    assert trial.after is VerdictAnswer.SAME
    assert trial.label.startswith("without any of them it is the same: it comes about elsewhere")
    assert "add_convert_to_ttgpuir of make_ttgir" in trial.label
    assert len(programs) <= 13
