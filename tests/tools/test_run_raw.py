"""`triage run` on files of PTX: what they compute, and everything that can be wrong with them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [k_param_0];
  ld.param.u64 %rd2, [k_param_1];
  ld.param.u32 %r1, [k_param_2];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra $done;
  mul.wide.s32 %rd5, %r5, 4;
  add.s64 %rd6, %rd3, %rd5;
  add.s64 %rd7, %rd4, %rd5;
  ld.global.u32 %r6, [%rd7];
  add.s32 %r7, %r6, 5;
  st.global.u32 [%rd6], %r7;
$done:
  ret;
}
"""
INPUTS = ["--buffer", "out=u32[128]", "--buffer", "x=u32[128]:random"]
SHAPE = ["--grid", "2", "--block", "64"]

# A way round the barrier: threads of the warp need not have met before it.
PARTED = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  setp.lt.u32 %p1, %r1, 16;
  setp.gt.u32 %p2, %r1, 99;
  @%p1 bra one;
  @%p2 bra away;
  bra tail;
one:
  add.u32 %r2, %r1, 2;
tail:
  bar.warp.sync -1;
  bar.sync 0;
away:
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
"""


def run(triage: Triage, ptx: str, *words: str, code: int) -> dict[str, Any]:
    (triage.folder / "case.ptx").write_text(ptx)
    done = triage("run", "case.ptx", *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    document = msgspec.json.decode(done.stdout)
    assert document["schema"] == 1
    [row] = document["runs"]
    found: dict[str, Any] = row
    return found


def test_what_it_computes_is_printed_and_dumped(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(PTX)
    words = [*INPUTS, "--scalar", "n=100", *SHAPE]
    done = triage("run", "case.ptx", *words, "--out", "after")
    assert done.returncode == 0, done.stderr
    assert "out: 100 of 128 elements changed" in done.stdout
    assert "x: unchanged" in done.stdout
    assert "out is the parameter k_param_0" in done.stderr
    out, x = (np.load(triage.folder / "after" / f"{name}.npy") for name in ("out", "x"))
    assert out.dtype == np.uint32
    assert (out[:100] == x[:100] + np.uint32(5)).all()
    assert not out[100:].any()
    assert len(set(x.tolist())) > 100


def test_of_a_large_grid_some_programs_are_run_and_it_is_said(triage: Triage) -> None:
    words = [*INPUTS, "--scalar", "n=128", "--grid", "8", "--block", "16", "--programs", "2"]
    row = run(triage, PTX, *words, code=0)
    assert (row["run"], row["ctas_run"], row["ctas"]) == ("ran", 2, 8)
    assert "2 of 8 programs were run" in row["run_reason"]
    whole = run(triage, PTX, *words[:-2], code=0)
    assert (whole["ctas_run"], whole["ctas"]) == (8, 8)


@pytest.mark.long
def test_a_long_run_says_how_far_it_is(triage: Triage) -> None:
    endless = PTX.replace("$done:", "bra $done;\n$done:\nadd.s32 %r7, %r7, 1;\nbra $done;")
    (triage.folder / "case.ptx").write_text(endless)
    words = [
        *INPUTS,
        "--scalar",
        "n=0",
        *SHAPE,
        "--timeout",
        "12",
        "--max-instructions",
        "100000000000",
    ]
    done = triage("run", "case.ptx", *words)
    assert "run 1 of 5, " in done.stderr
    assert " million a second" in done.stderr


def test_a_row_has_the_keys_of_every_row(triage: Triage) -> None:
    row = run(triage, PTX, *INPUTS, "--scalar", "n=100", *SHAPE, code=0)
    assert (row["on"], row["run"], row["device"], row["time_ms"]) == ("emulator", "ran", None, None)
    assert row["reference"] is None
    assert row["run_signature"] is None
    assert row["verdict"] is None
    assert row["schedule"] == "first/early, first/late, last/early, last/late"
    # Five runs; 18 instructions a thread, fewer for those that leave early.
    assert row["instructions_run"] % 5 == 0
    assert 100 * 10 < row["instructions_run"] / 5 < 128 * 20
    [out] = row["outputs"]
    assert (out["name"], out["dtype"], out["elements"]) == ("out", "u32", 128)


def test_an_edited_program_is_wrong(triage: Triage) -> None:
    words = [*INPUTS, "--scalar", "n=100", *SHAPE]
    run(triage, PTX, *words, "--out", "after", code=0)
    words += ["--expect", "out=after/out.npy"]
    row = run(triage, PTX, *words, code=0)
    assert (row["run"], row["reference"]) == ("right", "after/out.npy")
    row = run(triage, PTX.replace("setp.ge.s32", "setp.gt.s32"), *words, code=1)
    assert row["run"] == "wrong_result"
    [out] = row["outputs"]
    assert (out["differing"], out["where"], out["expected"]) == (1, "[100]", 0.0)
    assert row["run_signature"]


@pytest.mark.parametrize(
    ("old", "new", "verdict", "said"),
    [
        # Twice as far apart as they are: the second half of them is beyond the end.
        (
            "mul.wide.s32 %rd5, %r5, 4",
            "mul.wide.s32 %rd5, %r5, 8",
            "memory_fault",
            "PTX line 24: ld.global",
        ),
        (
            "add.s64 %rd6, %rd3, %rd5",
            "add.s64 %rd6, %rd3, 2",
            "memory_fault",
            "PTX line 26: st.global",
        ),
        (
            "$done:",
            "bra $done;\n$done:\nbra $done;",
            "hang",
            "2 blocks loop without end; PTX line 29",
        ),
        ("st.global.u32", "trap;\n  st.global.u32", "launch_failed", "trap"),
        ("add.s32 %r7, %r6, 5", "add.s32 %r7, %r6, %r9", "uninitialised", "out depends on"),
    ],
)
def test_what_goes_wrong_has_a_name_and_a_place(
    triage: Triage, old: str, new: str, verdict: str, said: str
) -> None:
    words = [*INPUTS, "--scalar", "n=100", *SHAPE, "--max-instructions", "200000"]
    row = run(triage, PTX.replace(old, new), *words, code=1)
    assert row["run"] == verdict, row["run_reason"]
    assert said in row["run_reason"]
    assert row["run_signature"]


def test_an_instruction_that_is_not_known_is_named_whole(triage: Triage) -> None:
    ptx = PTX.replace("add.s32 %r7, %r6, 5", "frobnicate.rn.f32.x7 %r7, %r6, 5")
    row = run(triage, ptx, *INPUTS, *SHAPE, code=4)
    assert row["run"] == "not_run"
    assert "frobnicate.rn.f32.x7" in row["run_reason"]


def test_what_is_left_out_is_guessed_aloud(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(PTX)
    done = triage("run", "case.ptx")
    assert done.returncode == 0, done.stderr
    for guess in (
        "--grid 1",
        "--block 32",
        "--buffer k_param_0=u32[4096]:random",
        "--scalar k_param_2=32",
    ):
        assert f"guessed: {guess}" in done.stderr


def test_eight_bit_floats_come_out_as_bits(triage: Triage) -> None:
    words = ["--buffer", "out=float8_e5m2[64]:1.5", "--buffer", "x=u32[64]", "--scalar", "n=4"]
    run(triage, PTX, *words, "--out", "after", code=0)
    out = np.load(triage.folder / "after" / "out.npy")
    assert (out.dtype, out[:2].tolist(), out[63]) == (np.uint8, [5, 0], 0x3E)


def test_bfloat16_goes_in_and_comes_out_as_bits(triage: Triage) -> None:
    words = ["--buffer", "out=bf16[64]:1.5", "--buffer", "x=u32[64]", "--scalar", "n=8"]
    run(triage, PTX, *words, "--out", "after", code=0)
    out = np.load(triage.folder / "after" / "out.npy")
    assert out.dtype == np.uint16
    # Eight words of 5 at the start; 1.5 is 0x3fc0.
    assert out[:4].tolist() == [5, 0, 5, 0]
    assert set(out[16:].tolist()) == {0x3FC0}
    again = ["--buffer", "out=bf16[64]:after/out.npy", *words[2:], "--expect", "out=after/out.npy"]
    assert run(triage, PTX, *again, code=0)["run"] == "right"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.ptx"], "none.ptx"),
        (["case.py"], "case.py"),
        (["case.ptx", "--buffer", "out=u32"], "write NAME=DTYPE[N]"),
        (["case.ptx", "--scalar", "n=1.5"], "no number that fits"),
        (["case.ptx", "--buffer", "x=u32[4]:no.npy"], "no.npy: no such file"),
        (["case.ptx", "--grid", "0"], "each at least 1"),
        (["case.ptx", "--kernel", "x"], "which one is meant"),
        (["case.ptx", "--schedules", "backwards"], "WARPS/COMPLETION"),
        (["required.ptx", "--block", "64"], "wants blocks of 128,1,1 (.reqntid)"),
        (["case.ptx", "--expect", "y=y.npy"], "no buffer has this name"),
        (["--kernel", "case.py", "--grid", "1"], "--grid is for a file of PTX"),
        (["case.ptx", "--buffer", "x=u32[]:empty.npy"], "empty.npy cannot be read"),
        (["case.ptx", "--buffer", "x=u32[]:huge.npy"], "huge.npy cannot be read"),
        (["case.ptx", "--buffer", "x=f32[]:records.npy"], "records.npy holds records"),
        (["case.ptx", "--sm", "90a"], "--sm does not apply"),
        (["case.ptx", "--triton", "3.6.0"], "--triton does not apply"),
        (["case.ptx", "--compiler", "triton==3.6.0"], "--compiler does not apply"),
        (["case.ptx", "--launch", "x"], "--launch does not apply"),
        (["case.ptx", "--set", "n=3"], "--set does not apply"),
        (["case.ptx", "--config", "num_warps=4"], "--config does not apply"),
        (["case.ptx", "--ptxas", "13.0.88"], "--ptxas does not apply"),
        ([], "name a kernel"),
    ],
)
def test_bad_words_are_one_line(triage: Triage, words: list[str], said: str) -> None:
    (triage.folder / "case.ptx").write_text(PTX)
    (triage.folder / "empty.npy").write_bytes(b"")
    np.save(triage.folder / "records.npy", np.zeros(4, [("a", "f4")]))
    head = b"{'descr': '<u4', 'fortran_order': False, 'shape': (10000000000000,), }".ljust(117)
    start = b"\x93NUMPY\x01\x00" + (len(head) + 1).to_bytes(2, "little")
    (triage.folder / "huge.npy").write_bytes(start + head + b"\n")
    required = PTX.replace("k_param_2)", "k_param_2)\n.reqntid 128")
    (triage.folder / "required.ptx").write_text(required)
    done = triage("run", *words)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert said in last
    assert "Traceback" not in done.stderr


RACY = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry pair(.param .u64 out)
{
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  .shared .align 4 .b8 tile[256];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 2;
  add.s32 %r4, %r2, %r3;
  st.shared.u32 [%r4], 0;
  bar.sync 0;
  xor.b32 %r5, %r3, 128;
  add.s32 %r6, %r2, %r5;
  st.shared.u32 [%r4], %r3;
  ld.shared.u32 %r7, [%r6];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r7;
  ret;
}
"""


def test_a_value_is_followed_to_where_two_runs_part(triage: Triage) -> None:
    words = ["--buffer", "out=u32[64]", "--block", "64", "--trace", "out"]
    row = run(triage, RACY, *words, code=1)
    trace = row["trace"]
    assert trace["element"].startswith("out[")
    assert trace["values"][0] != trace["values"][1]
    assert [each["instruction"].split()[0] for each in trace["steps"]] == [
        "ld.shared.u32",
        "st.global.u32",
    ]
    assert "st.shared.u32 [%r4], 0" in trace["begins"]
    done = triage("run", "case.ptx", *words[:-1], "out[0,1]")
    assert done.returncode == 2
    assert "out has the shape [64]" in done.stderr


def test_a_formal_race_is_a_note_and_a_verdict_where_it_is_asked_for(triage: Triage) -> None:
    words = ("--buffer", "out=u32[32]", "--block", "32")
    row = run(triage, PARTED, *words, code=0)
    assert (row["run"], row["races"][0]["formal"]) == ("ran", True)
    asked = run(triage, PARTED, *words, "--formal", code=1)
    assert (asked["run"], asked["races"]) == ("race", row["races"])
    done = triage("bisect", "--kernel", "case.ptx", "--formal", "--on", "gpu")
    assert done.returncode == 2
    assert "--formal is about races, which the emulator sees" in done.stderr


def test_a_pattern_executes_each_file_of_ptx(triage: Triage) -> None:
    done = triage("run", "--kernel", "fold_s*", "--json")
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout)["runs"]
    assert len(found) == 4
    assert {row["run"] for row in found} == {"ran"}
    refused = triage("run", "--kernel", "fold_s*", "--out", "out")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--out is for one file of PTX" in refused.stderr


def test_a_run_of_ptx_is_shown_by_the_cell_that_json_names(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(PTX)
    done = triage("run", "case.ptx", *INPUTS, "--scalar", "n=128", *SHAPE, "--json")
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert (row["run"], row["launch"]) == ("ran", "ptx"), done.stderr
    # Other inputs are another cell.
    assert "/ptx:inputs=" in row["cell"]
    for name in (row["cell"], row["short"]):
        shown = triage("show", name)
        assert shown.returncode == 0, shown.stderr
        assert msgspec.json.decode(shown.stdout)["cell"] == row["cell"]
