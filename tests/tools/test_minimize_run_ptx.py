"""`triage minimize --run --level ptx`: PTX that goes wrong when it is executed, and less of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Triage

from harness.bisect.axes import plan_cells
from harness.cells.places import CompileOptions, open_bench
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.io.processes.hub import Hub
from harness.minimize.executed.ptx_level import RawCase, hold
from harness.minimize.ptx.reduce import count_unwritten
from harness.minimize.reduction.interest import PredicateAnswer
from harness.run.raw import RawInputs, read_buffer, read_launch
from harness.store.store import Store

pytestmark = pytest.mark.tools

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry neighbour(.param .u64 p_out, .param .u64 p_x, .param .u32 p_n)
{
  .reg .pred %p<4>;
  .reg .b32 %r<24>;
  .reg .f32 %f<16>;
  .reg .b64 %rd<12>;
  .shared .align 16 .b8 tile[512];
  ld.param.u64 %rd1, [p_out];
  ld.param.u64 %rd2, [p_x];
  ld.param.u32 %r1, [p_n];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd5, %r2, 4;
  add.s64 %rd6, %rd4, %rd5;
  ld.global.f32 %f1, [%rd6];
  mov.u32 %r3, tile;
  shl.b32 %r4, %r2, 2;
  add.s32 %r5, %r3, %r4;
  add.f32 %f3, %f1, 0f3F800000;
  st.shared.f32 [%r5], 0f00000000;
  bar.sync 0;
  st.shared.f32 [%r5], %f3;
  add.s32 %r6, %r2, 37;
  and.b32 %r7, %r6, 127;
  shl.b32 %r8, %r7, 2;
  add.s32 %r9, %r3, %r8;
  bar.sync 0; // between
  ld.shared.f32 %f4, [%r9];
  add.f32 %f5, %f4, %f1;
  add.s64 %rd7, %rd3, %rd5;
  st.global.f32 [%rd7], %f5;
  bar.sync 0; // before
  st.shared.f32 [%r9], %f5;
  bar.sync 0; // behind
  ld.shared.f32 %f8, [%r5];
  st.global.f32 [%rd7+512], %f8;
  ret;
}
"""
BETWEEN = "bar.sync 0; // between"
UNUSED = "and.b32 %r10, %r4, 0;\n  cvt.rn.f32.u32 %f4, %r10;"
RACES = PTX.replace(BETWEEN, "").replace("add.f32 %f5, %f4", f"{UNUSED}\n  add.f32 %f5, %f4")
BEYOND = PTX.replace("[%rd7+512]", "[%rd7+8192]")
UNWRITTEN = (
    PTX.replace("st.shared.f32 [%r5], 0f00000000;", "")
    .replace("st.shared.f32 [%r5], %f3;", "@%p0 st.shared.f32 [%r5], %f3;")
    .replace("mov.u32 %r3, tile;", "mov.u32 %r3, tile;\n  setp.lt.u32 %p0, %r2, 64;")
)
WAITS = PTX.replace(BETWEEN, "bar.sync 1, 256;")
BUFFERS = ("p_out=f32[256]", "p_x=f32[128]:random")


async def _asked(
    home: Path, text: str, others: Sequence[str], expected: tuple[tuple[str, str], ...] = ()
) -> tuple[str, list[PredicateAnswer]]:
    file = home / "case.ptx"
    file.write_text(text)
    selection = select(SelectionOptions(kernel=str(file), sm=("80",)))
    inputs = RawInputs(
        buffers=tuple(map(read_buffer, BUFFERS)),
        scalars=(("p_n", "128"),),
        block=(128, 1, 1),
        expected=expected,
        folder=home,
    )
    async with Hub() as hub:
        with Store.open(home / "store") as store:
            bench = open_bench(hub, store, CompileOptions(jobs=2, timeout=120))
            raw = RawCase.of(bench, selection, inputs)
            [cell] = (await plan_cells(bench, selection, None)).cells
            row = (await raw.evaluate(bench, cell)).row
            assert raw.case is not None
            held = await hold(bench, raw.case)
            assert not isinstance(held, str), held
            kept = len(list((home / "store").rglob("*")))
            predicate, _ = held
            if row.verdict == "uninitialised":
                predicate.unwritten = count_unwritten(text)
            said = [
                await predicate.ask(each)
                if predicate.is_possible(each)
                else PredicateAnswer(answer="impossible", reason="")  # type: ignore[arg-type]
                for each in (text, *others)
            ]
            assert len(list((home / "store").rglob("*"))) == kept, "candidates are not kept"
            return row.verdict, said


def asked(
    home: Path, text: str, *others: str, expected: tuple[tuple[str, str], ...] = ()
) -> tuple[str, list[str], list[str]]:
    """The verdict of a text, and what is said of it and of others beside it."""
    verdict, said = asyncio.run(_asked(home, text, others, expected))
    return (
        verdict,
        [str(each.answer.value) for each in said[:1]]
        + [getattr(each.answer, "value", each.answer) for each in said[1:]],
        [each.reason for each in said],
    )


def test_a_race_may_not_become_another_one(tmp_path: Path) -> None:
    verdict, said, reasons = asked(
        tmp_path,
        RACES,
        RACES.replace("st.global.f32 [%rd7+512], %f8;", ""),
        # Without this barrier, two accesses race that the original orders.
        RACES.replace("bar.sync 0; // behind", ""),
        RACES.replace("ld.shared.f32 %f4", "bar.sync 0;\n  ld.shared.f32 %f4"),
    )
    assert verdict == "race"
    assert said == ["same", "same", "other", "accepts"]
    assert reasons[2].startswith("nondeterministic")


def test_a_fault_stays_where_it_is(tmp_path: Path) -> None:
    verdict, said, reasons = asked(
        tmp_path,
        BEYOND,
        BEYOND.replace("ld.shared.f32 %f8, [%r5];", ""),
        BEYOND.replace("[%rd7+8192]", "[%rd7+8320]"),
        BEYOND.replace("add.s64 %rd7, %rd3, %rd5;", ""),
        PTX,
        BEYOND.replace(".param .u32 p_n", ".param .u64 p_n"),
    )
    assert verdict == "memory_fault"
    assert said == ["same", "same", "other", "other", "accepts", "impossible"]
    assert "another address" in reasons[2]


def test_a_wrong_value_is_held_to_its_bits(tmp_path: Path) -> None:
    right = np.full(256, 3.0, np.float32)
    np.save(tmp_path / "right.npy", right)
    verdict, said, reasons = asked(
        tmp_path,
        PTX,
        PTX.replace("add.f32 %f3, %f1, 0f3F800000;", "add.f32 %f3, %f1, 0f3F800001;"),
        # One element is followed: what the other half is stored by may go.
        PTX.replace("st.global.f32 [%rd7+512], %f8;", ""),
        PTX.replace("st.global.f32 [%rd7], %f5;", ""),
        PTX.replace("add.f32 %f5, %f4, %f1;", "mov.f32 %f5, 0f40400000;"),
        expected=(("p_out", "right.npy"),),
    )
    assert verdict == "wrong_result"
    assert said[0] == "same"
    assert "same" in said[2:4]
    assert "other" in said[2:4]
    assert said[4] in ("accepts", "other")
    assert "another value comes out" in reasons


def test_schedules_that_disagree_keep_both_values(tmp_path: Path) -> None:
    torn = PTX.replace(BETWEEN, "")
    verdict, said, _ = asked(
        tmp_path,
        torn,
        torn.replace("st.shared.f32 [%r5], 0f00000000;", "st.shared.f32 [%r5], 0f3F800000;"),
        PTX,
    )
    assert verdict == "nondeterministic"
    assert said[0] == "same"
    assert "same" not in said[1:]


def test_what_nothing_wrote_stays_memory(tmp_path: Path) -> None:
    verdict, said, _ = asked(
        tmp_path,
        UNWRITTEN,
        UNWRITTEN.replace("bar.sync 0; // behind", ""),
        # A register that nothing wrote is another bug.
        UNWRITTEN.replace("add.f32 %f3, %f1, 0f3F800000;", ""),
    )
    assert verdict == "uninitialised"
    assert (said[0], said[2]) == ("same", "impossible")


def test_who_waits_for_nobody_still_does(tmp_path: Path) -> None:
    verdict, said, _ = asked(tmp_path, WAITS, WAITS.replace("st.global.f32 [%rd7], %f5;", ""), PTX)
    assert verdict == "hang"
    assert said == ["same", "same", "accepts"]


@pytest.mark.long
def test_what_is_left_shows_it_in_its_folder(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(BEYOND)
    inputs = [word for each in BUFFERS for word in ("--buffer", each)]
    words = [
        *inputs,
        "--scalar",
        "p_n=128",
        "--block",
        "128",
        "--max-tries",
        "40",
        "--out",
        "least",
    ]
    done = triage("minimize", "case.ptx", "--run", *words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["level"]) == ("memory_fault", "ptx")
    assert found["run_command"] == "triage run min.ptx --inputs launch.json"
    assert found["instructions"] < found["original"]["instructions"]
    folder = triage.folder / "least"
    launch = read_launch((folder / "launch.json").read_bytes(), "launch.json")
    assert [each.file for each in launch.buffers] == ["buffer-0.npy", "buffer-1.npy"]
    bin_folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    shown = subprocess.run(
        ["sh", "repro.sh"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    text = (folder / "README.md").read_text()
    assert "`launch.json`, `buffer-N.npy`" in text
    assert "Executed, it goes wrong" in text
    assert "ptxas" not in text.partition("## How")[0]


def test_inputs_that_do_not_fit_are_one_clear_line(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(BEYOND)
    (triage.folder / "bad.json").write_text("{}")
    for words, said in (
        (["--inputs", "bad.json"], "no launch of `triage minimize --run`"),
        (["--inputs", "none.json"], "no such file"),
        (["--inputs", "bad.json", "--grid", "1"], "--inputs and --grid"),
    ):
        done = triage("run", "case.ptx", *words)
        assert done.returncode == 2
        assert said in done.stderr.strip().splitlines()[-1]
    done = triage("minimize", "case.ptx", "--run", "--level", "source")
    assert done.returncode == 2
    assert "a file of PTX is reduced at ptx" in done.stderr
    done = triage("minimize", "case.ptx", "--grid", "1")
    assert done.returncode == 2
    assert "--grid is for --run" in done.stderr
