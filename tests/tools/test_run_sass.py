"""`triage run --on sass`, and what follows it: real ptxas and nvdisasm, both emulators, no GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import HERE, Triage

from gpu_emulator.sass.cubin import read_entry
from harness.minimize.ptx.reduce import count_instructions
from harness.store.store import Store

pytestmark = pytest.mark.tools

REPROS = Path(__file__).parents[2] / "repros"
FOLDS = sorted(path.parent.name for path in REPROS.glob("fold_*/repro.yaml"))

# A loop that threads leave one after the other, with a carry, and shared memory with a barrier.
SOUND = """.version 8.0
.target sm_80
.address_size 64
.visible .entry sound(.param .u64 out, .param .u64 x, .param .u32 n)
{
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .shared .align 4 .b8 held[256];
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [x];
    ld.param.u32 %r9, [n];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d3, %r0, 4;
    add.s64 %d1, %d1, %d3;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r1, [%d2];
    mov.u32 %r2, 0;
    and.b32 %r3, %r0, 7;
again:
    add.cc.u32 %r1, %r1, 0x89abcdef;
    addc.u32 %r2, %r2, %r3;
    sub.u32 %r3, %r3, 1;
    setp.ge.s32 %p1, %r3, 0;
    @%p1 bra again;
    mov.u32 %r4, held;
    shl.b32 %r5, %r0, 2;
    add.u32 %r6, %r4, %r5;
    xor.b32 %r1, %r1, %r2;
    st.shared.u32 [%r6], %r1;
    bar.sync 0;
    xor.b32 %r5, %r5, 4;
    add.u32 %r6, %r4, %r5;
    ld.shared.u32 %r7, [%r6];
    mad.lo.u32 %r8, %r7, %r9, %r2;
    st.global.u32 [%d1], %r8;
    ret;
}
"""
INPUTS = ["--buffer", "out=u32[64]", "--buffer", "x=u32[64]:random", "--scalar", "n=3"]
INPUTS += ["--block", "64"]


def executed(triage: Triage, *words: str, code: int = 0) -> list[dict[str, Any]]:
    done = triage("run", *words, "--json", timeout=900)
    assert done.returncode == code, done.stderr[-3000:]
    rows: list[dict[str, Any]] = msgspec.json.decode(done.stdout)["runs"]
    return rows


def by_tool(rows: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row["kernel"], {})[row["cell"].rpartition("ptxas-")[2]] = row["run"]
    return found


@pytest.mark.parametrize("target", ["80", "90a"])
def test_sound_code_is_right_at_every_level_and_no_cubin_is_accused(
    triage: Triage, target: str
) -> None:
    (triage.folder / "case.ptx").write_text(SOUND)
    words = ["case.ptx", *INPUTS, "--sm", target, "--ptxas", "13.5.37", "-O", "0..3"]
    rows = executed(triage, *words, "--on", "sass")
    assert [row["run"] for row in rows] == ["right"] * 4
    [ptx] = executed(triage, "case.ptx", *INPUTS)
    for row in rows:
        assert (row["on"], row["device"], row["reference"]) == ("sass", None, "the emulated PTX")
        assert "/sass:ptxas-13.5.37,-O" in row["cell"]
        assert row["run_reason"] == "emulated SASS: agrees with the emulated PTX"
        assert row["outputs"][0]["sha256"] == ptx["outputs"][0]["sha256"]
        assert row["instructions_run"]


@pytest.mark.parametrize(
    "pattern",
    [
        "fold_sat_undone",
        pytest.param("fold_*", marks=pytest.mark.long),
        pytest.param("add_s16x2_lost", marks=pytest.mark.long),
    ],
)
def test_folds_are_accused_by_the_vote_and_right_code_is_not(triage: Triage, pattern: str) -> None:
    """The folds as an H200 executed the same cubins (`test_folds_gpu.py`)."""
    words = ["--kernel", pattern, "--ptxas", "13.0.88", "--ptxas", "13.5.37", "-O", "0,3"]
    rows = executed(triage, *words, "--on", "sass", code=1)
    found = by_tool(rows)
    assert sorted(found) == ([pattern] if "*" not in pattern else FOLDS)
    verdicts = {"13.0.88,-O3": "wrong_result"}
    expected = {
        f"{version},-O{level}": verdicts.get(f"{version},-O{level}", "right")
        for version in ("13.0.88", "13.5.37")
        for level in (0, 3)
    }
    assert found == dict.fromkeys(found, expected)
    [*accused] = [row for row in rows if row["run"] == "wrong_result"]
    for row in accused:
        assert row["run_reason"].startswith("emulated SASS: ")
        assert "ptxas 13.0.88 -O0 agrees with the emulated PTX" in row["run_reason"]


@pytest.mark.long
def test_bisect_follows_it_along_ptxas_without_a_gpu(triage: Triage) -> None:
    words = ["--run", "--on", "sass", "--kernel", "fold_sat_undone", "--bad", "13.3.73"]
    words += ["--good", "13.4.59", "--max-tries", "6", "--repeat", "1"]
    done = triage("bisect", *words, "--json", timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    document = msgspec.json.decode(done.stdout)
    assert document["first_fixed"] == "13.4.59"
    assert document["blame"] == "ptxas"


@pytest.mark.long
def test_blame_names_ptxas_and_its_levels(triage: Triage) -> None:
    words = ["--run", "--on", "sass", "--kernel", "fold_sat_undone", "--ptxas", "13.0.88"]
    done = triage("blame", *words, "--max-tries", "8", timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Emulated SASS: cubins of one PTX" in done.stdout
    assert "ptxas" in done.stdout


@pytest.mark.long
def test_a_packed_add_that_loses_its_immediate_is_ptxas_12_9(triage: Triage) -> None:
    """triton #11581: 12.9.86 adds 0 in place of 1 to a half, 13.3.33 does not."""
    words = ["--kernel", str(HERE / "kernels" / "packed.py"), "--sm", "90a", "--triton", "3.9.0"]
    tools = ["--ptxas", "12.9.86", "--ptxas", "13.3.33", "-O", "0,3"]
    rows = executed(triage, *words, *tools, "--on", "sass", code=1)
    [found] = by_tool(rows).values()
    assert found == {
        "12.9.86,-O0": "right",
        "12.9.86,-O3": "wrong_result",
        "13.3.33,-O0": "right",
        "13.3.33,-O3": "right",
    }


def test_a_cubin_without_ptx_says_what_it_computes(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(SOUND)
    words = ["case.ptx", *INPUTS, "--sm", "90a", "--ptxas", "13.5.37", "-O", "3"]
    [row] = executed(triage, *words, "--on", "sass")
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        cubin = store.artifacts.get(row["cubin_sha256"])
    (triage.folder / "case.cubin").write_bytes(cubin)
    named = ["--buffer", "0=u32[64]", "--buffer", "1=u32[64]:random", "--scalar", "2=3"]
    [alone] = executed(triage, "case.cubin", *named, "--block", "64", "--out", "left")
    assert (alone["run"], alone["on"]) == ("ran", "sass")
    assert alone["cell"].endswith("/sass:none")
    assert alone["run_reason"].startswith("emulated SASS: finished")
    executed(triage, "case.ptx", *INPUTS, "--out", "right")
    left, right = (triage.folder / name for name in ("left/0.npy", "right/out.npy"))
    assert np.array_equal(np.load(left), np.load(right))
    assert triage("run", "case.cubin::other").returncode == 2
    (triage.folder / "torn.cubin").write_bytes(cubin[:900])
    done = triage("run", "torn.cubin", "--on", "sass")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_schedule_that_does_not_wait_is_suspect(triage: Triage) -> None:
    """The emulator has no latencies: it computes the same, and the verdict is what it was."""
    (triage.folder / "case.ptx").write_text(SOUND)
    words = ["case.ptx", *INPUTS, "--sm", "90a", "--ptxas", "13.5.37", "--on", "sass"]
    rows = executed(triage, *words, "--sanitize")
    assert [row["sanitizers"] for row in rows] == [
        [{"tool": "schedule", "errors": 0, "words": ""}]
    ] * 2
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        cubin = bytearray(store.artifacts.get(rows[1]["cubin_sha256"]))
    # Of LDG (by the lowest bits of its encoding) the scoreboard of its result: 7 is none.
    [load] = [
        at for at in range(0, len(cubin) - 15, 16) if cubin[at] == 0x81 and cubin[at + 1] & 15 == 9
    ]
    cubin[load + 13] |= 0xC0
    cubin[load + 14] |= 0x01
    (triage.folder / "hurt.cubin").write_bytes(cubin)
    named = ["--buffer", "0=u32[64]", "--buffer", "1=u32[64]:random", "--scalar", "2=3"]
    alone = ["hurt.cubin", *named, "--block", "64", "--on", "sass"]
    assert [row["run"] for row in executed(triage, *alone)] == ["ran"]
    [row] = executed(triage, *alone, "--sanitize", code=1)
    [facts] = row["sanitizers"]
    assert (row["run"], facts["tool"], facts["errors"] >= 1) == ("ran", "schedule", True)
    assert re.match(r"statically suspect: R[0-9]+, which LDG\.E ", facts["words"])
    done = triage("run", *alone, "--sanitize")
    assert f"schedule  {facts['errors']} error" in done.stdout
    assert facts["words"] in " ".join(done.stdout.split())


TILES = """import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def doubled_tiles(x_desc, out_desc, N: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0) * B
    for column in range(0, N, B):
        out_desc.store([row, column], x_desc.load([row, column]) * 2)


def launch(n: int = 64, block: int = 32):
    x = torch.randn(n, n, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    tiles = [TensorDescriptor.from_tensor(t, [block, block]) for t in (x, out)]
    doubled_tiles[(n // block,)](*tiles, N=n, B=block)
    return {"out": out}
"""


def test_tensor_maps_of_the_host_are_parameters_that_tma_reads(triage: Triage) -> None:
    """They are aligned to 64 bytes in the constant bank, so the first begins behind its start."""
    (triage.folder / "tiles.py").write_text(TILES)
    words = ["--kernel", "tiles.py", "--sm", "90a", "--triton", "3.9.0", "-O", "0,3"]
    rows = executed(triage, *words, "--ptxas", "13.5.37", "--on", "sass")
    assert [row["run"] for row in rows] == ["right"] * 2
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        cubins = [store.artifacts.get(row["cubin_sha256"]) for row in rows]
    first = [read_entry(cubin, None).parameters_from for cubin in cubins]
    assert all(0x210 + start == 0x240 for start in first)


CLUSTERS = [f"%{name}.{axis}" for name in ("clusterid", "nclusterid") for axis in "xyz"]
CLUSTERS += [f"%cluster_{name}.{axis}" for name in ("ctaid", "nctaid") for axis in "xyz"]
CLUSTERS += ["%cluster_ctarank", "%cluster_nctarank", "%dynamic_smem_size", "%clock_hi"]


@pytest.mark.parametrize("sm", ["90a", "100a", "120a"])
@pytest.mark.parametrize("cluster", ["2, 3, 1", "1, 2, 4"])
def test_clusters_are_as_the_ptx_declares_them(triage: Triage, sm: str, cluster: str) -> None:
    """Each block of 4 x 6 x 4 writes what its special registers say."""
    reads = "".join(
        f"    mov.u32 %r5, {name};\n    st.global.u32 [%d1+{4 * number}], %r5;\n"
        for number, name in enumerate(CLUSTERS)
    )
    (triage.folder / "case.ptx").write_text(
        ".version 8.8\n.target sm_90\n.address_size 64\n"
        f".visible .entry blocks(.param .u64 out) .reqnctapercluster {cluster}\n{{\n"
        "    .reg .b32 %r<6>;\n    .reg .b64 %d<3>;\n    ld.param.u64 %d1, [out];\n"
        "    mov.u32 %r0, %ctaid.x;\n    mov.u32 %r1, %ctaid.y;\n    mov.u32 %r2, %ctaid.z;\n"
        "    mad.lo.u32 %r2, %r2, 6, %r1;\n    mad.lo.u32 %r2, %r2, 4, %r0;\n"
        f"    mul.wide.u32 %d2, %r2, 64;\n    add.s64 %d1, %d1, %d2;\n{reads}    ret;\n}}\n"
    )
    words = ["case.ptx", "--buffer", "out=u32[1536]", "--grid", "4,6,4", "--block", "1"]
    rows = executed(triage, *words, "--sm", sm, "--ptxas", "13.5.37", "--on", "sass")
    assert [row["run"] for row in rows] == ["right"] * 2
    executed(triage, *words, "--out", "x")
    out = np.load(triage.folder / "x" / "out.npy").reshape(4, 6, 4, 16)
    sizes = [int(size) for size in cluster.split(", ")]
    assert (out[..., 9:12] == sizes).all()
    assert (out[..., 3:6] == [4 // sizes[0], 6 // sizes[1], 4 // sizes[2]]).all()


# Reads a texture, which neither emulator does.
UNKNOWN = SOUND.replace(
    "    mov.u32 %r4, held;",
    "    cvt.rn.f32.u32 %f0, %r1;\n"
    "    tex.1d.v4.u32.f32 {%r1, %r10, %r11, %r12}, [%d1, {%f0}];\n"
    "    mov.u32 %r4, held;",
).replace("    .reg .b64 %d<8>;", "    .reg .b64 %d<8>;\n    .reg .f32 %f<1>;")


def test_what_the_emulator_does_not_know_is_not_run_by_its_name(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(UNKNOWN)
    rows = executed(triage, "case.ptx", *INPUTS, "--ptxas", "13.5.37", "--on", "sass", code=4)
    for row in rows:
        assert row["run"] == "not_run"
        assert re.match(r"unknown instructions: .*TEX\.", row["run_reason"])


def test_what_a_driver_refuses_is_not_emulated(triage: Triage) -> None:
    words = ["--kernel", "verdict_out_of_resources_shared_memory", "--sm", "90a"]
    rows = executed(triage, *words, "--on", "sass", code=4)
    assert [row["run"] for row in rows] == ["not_run"]
    assert rows[0]["run_reason"].startswith("out_of_resources: it needs")


@pytest.mark.long
def test_a_night_keeps_what_was_emulated(triage: Triage) -> None:
    (triage.folder / "matrix.yaml").write_text(
        "version: 1\nkernels: [fold_sat_undone]\ntargets: [sm_90a]\n"
        'toolchains: {ptxas: {spec: ["==13.0.88", "==13.5.37"]}}\n'
    )
    done = triage("matrix", "run", "--run", "--on", "sass", "--json", timeout=900)
    assert done.returncode == 1, done.stderr[-3000:]
    assert msgspec.json.decode(done.stdout)["cells"] == {"ok": 2, "wrong_result": 1, "right": 1}
    [bug] = msgspec.json.decode(triage("bugs", "--json").stdout)["bugs"]
    assert "/sass:ptxas-13.0.88" in bug["example"]["cell"]


@pytest.mark.long
def test_minimize_keeps_what_the_vote_accuses(triage: Triage) -> None:
    words = ["--kernel", "fold_sat_undone", "--run", "--on", "sass"]
    tools = ["--ptxas", "13.0.88", "--ptxas", "13.5.37", "--max-tries", "20"]
    done = triage("minimize", *words, *tools, "--out", "min", "--json", timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    original = (REPROS / "fold_sat_undone" / "case.ptx").read_text()
    assert msgspec.json.decode(done.stdout)["instructions"] < count_instructions(original)
    assert "sub.sat.s32" in (triage.folder / "min" / "min.ptx").read_text()
    readme = (triage.folder / "min" / "README.md").read_text()
    assert "goes wrong (its SASS, emulated)" in readme
    assert "-O 0,3 --on sass" in readme


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "case.ptx", "--on", "sass", "--measure"], "--measure is for a GPU: leave out"),
        (["run", "case.ptx", "--on", "sass", "--runner", "x"], "--runner is for a GPU: leave out"),
        (["run", "case.ptx", "--on", "sass", "--trace", "out"], "--trace is for the emulator of"),
        (["run", "case.cubin", "--on", "gpu"], "is executed by --on sass alone"),
        (["run", "case.cubin", "--ptxas", "13.0.88"], "a cubin is executed as it is"),
        (
            ["bisect", "--kernel", "case.ptx", "--on", "sass", "--axis", "triton"],
            "--on sass follow",
        ),
        (["minimize", "case.ptx", "--run", "--on", "sass"], "--on sass: name the ptxas that gets"),
        (["rank", "--kernel", "case.ptx", "--on", "sass"], "'sass' is not 'gpu'"),
        (["matrix", "run", "--on", "sass", "--scheduler", "local:1"], "--on sass"),
    ],
)
def test_what_is_not_done_is_refused_in_one_line(
    triage: Triage, words: list[str], said: str
) -> None:
    (triage.folder / "case.ptx").write_text(SOUND)
    (triage.folder / "case.cubin").write_bytes(b"")
    (triage.folder / "matrix.yaml").write_text(
        "version: 1\nkernels: [late_use]\ntargets: [sm_80]\n"
    )
    done = triage(*words)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr
