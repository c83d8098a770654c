"""`triage minimize --run`: candidates are executed, and what is left can be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import HERE, Triage

from harness.bisect.axes import plan_cells
from harness.cells.places import CompileOptions, open_bench
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.frontends.triton.source import TritonForm
from harness.io.processes.hub import Hub
from harness.minimize.executed.kernel_level import (
    ExecutedOracle,
    count_barriers,
    ir_form,
    source_form,
)
from harness.minimize.levels import export_source, ir_texts
from harness.minimize.reduction.fingerprint import Reaction
from harness.run.launch_sources import RecordedLaunch, small_selection
from harness.run.schedules import read_schedules, trials_of
from harness.store.store import Store

FORM = TritonForm(TRITON_FRONT_END)
pytestmark = pytest.mark.tools

REACHING = str(HERE / "kernels" / "reaching.py")
LARGE = ["--kernel", REACHING, "--sm", "80", "--config", "BLOCK=64,num_warps=1"]


async def react_to_five(home: Path) -> tuple[Reaction, ...]:
    """To a kernel that reaches beyond its buffers, one that reaches half as far, and its TTGIR.

    And held to themselves: one with tiles apart, and one whose threads write to one place.
    """
    asked = SelectionOptions(
        kernel=REACHING, sm=("80",), triton=("3.6.0",), config="BLOCK=64,num_warps=1"
    )
    selection = small_selection(select(asked))
    async with Hub() as hub:
        with Store.open(home) as store:
            bench = open_bench(hub, store, CompileOptions(jobs=2, timeout=120))
            [cell] = (await plan_cells(bench, selection, None)).cells
            source = RecordedLaunch(bench=bench, selection=selection, tell=lambda _: None)
            standalone = await export_source(bench, cell)
            assert cell.record is not None
            trials = trials_of(read_schedules("first/early"), races=False)
            oracle = ExecutedOracle(
                bench=bench,
                cell=cell,
                variant=await source.variant(cell.record),
                trials=trials,
                glance=trials,
                budget=source.budget,
                form=source_form(standalone.launch, FORM),
            )
            text = FORM.render(standalone)
            assert oracle.is_possible(text)
            # What it says of its arguments stays: the launch says it too.
            assert not oracle.is_possible(text.replace('["tt.divisibility", 16]', ""))
            assert not oracle.is_possible("import triton")
            # Without a barrier of its own a candidate may leave open what it computes.
            first, rest = text.split("    tl.store(", 1)
            ordered = f"{first}    tl.debug_barrier()\n    tl.store({rest}"
            barriers = count_barriers(ordered)
            assert barriers == 1
            form = source_form(standalone.launch, FORM, barriers)
            assert form.is_possible(ordered)
            assert not form.is_possible(text)
            half = text.replace("BLOCK + tl.arange", "(BLOCK // 2) + tl.arange")
            assert FORM.read(half) != FORM.read(text)
            [ttgir, *_] = await ir_texts(bench, cell)
            lowest = replace(oracle, form=ir_form(ttgir))
            assert not lowest.is_possible(ttgir.text.replace("%out:", "%other:"))
            apart = half.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK // 2)")
            held = replace(oracle, beside=cell.launch, is_free_of_races=True)
            return (
                await oracle.react(text, cell.compiler),
                await oracle.react(half, cell.compiler),
                await lowest.react(ttgir.text, cell.compiler),
                await held.react(apart, cell.compiler),
                await held.react(
                    apart.replace("out + offsets", "out + offsets // 2"), cell.compiler
                ),
            )


def test_a_candidate_is_executed_on_the_inputs_of_the_original(tmp_path: Path) -> None:
    reaches, stays, ttgir, apart, races = asyncio.run(react_to_five(tmp_path))
    assert (reaches.verdict, reaches.is_accepted) == ("memory_fault", False)
    assert reaches.key is not None
    assert "out of bounds" in reaches.reason
    assert (stays.verdict, stays.is_accepted, stays.key) == ("ran", True, None)
    assert (ttgir.verdict, ttgir.is_accepted) == ("memory_fault", False)
    assert "out of bounds" in ttgir.reason
    assert (apart.verdict, apart.is_accepted) == ("right", True)
    # What is right of a race is not known, so it is no smaller form of a wrong result.
    assert (races.verdict, races.is_accepted) == ("not_run", False)
    assert "has a race" in races.reason


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ptxas", "12.9.86"], "--ptxas does not apply to --run"),
        (["--while", "n_regs > 32"], "--while does not apply to --run"),
        (["--level", "config"], "--level config does not apply to --run"),
    ],
)
def test_what_does_not_go_with_executing(triage: Triage, words: list[str], said: str) -> None:
    done = triage("minimize", *LARGE, "--triton", "3.6.0", "--run", *words)
    assert done.returncode == 2
    assert said in done.stderr.strip().splitlines()[-1]


@pytest.mark.long
def test_what_is_left_shows_it_when_it_is_run(triage: Triage) -> None:
    words = ["--run", "--max-tries", "60", "--out", "least", "--json"]
    done = triage("minimize", *LARGE, "--triton", "3.6.0", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["level"]) == ("memory_fault", "source")
    assert found["run_command"] == "triage run --kernel kernel.py --sm sm_80 --triton 3.6.0"
    folder = triage.folder / "least"
    bin_folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    shown = subprocess.run(
        ["sh", "repro.sh"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "memory_fault" in (folder / "README.md").read_text() or "out of bounds" in shown.stdout
    assert "def launch(num_stages=" in (folder / "README.md").read_text()


@pytest.mark.long
def test_triton_s_ir_is_reduced_beside_what_is_right(triage: Triage) -> None:
    words = ["--run", "--level", "ttgir", "--max-tries", "200", "--out", "least", "--json"]
    done = triage("minimize", "--kernel", "late_use", "--triton", "3.5.0", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["level"]) == ("wrong_result", "ttgir")
    # What is wrong is done between TTIR and TTGIR: no Triton makes it right from there.
    assert (triage.folder / found["path"] / "min.ttir").is_file()
    assert found["lines"] < found["original"]["lines"]
    done = triage("run", "least/min.ptx", "--inputs", "least/launch.json", "--json")
    [row] = json.loads(done.stdout)["runs"]
    assert row["run_signature"] == found["signature"]
