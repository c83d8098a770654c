"""Failures of the real ptxas that say nothing, in two stores that are merged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from conftest import Triage

PTXAS = ("--ptxas", "13.1.115", "--jobs", "1")

# Crashes ptxas 13.1 and newer with C7907; with two remainders fewer it does not.
ICE = """\
.version 8.6
.target sm_100a
.extern .shared .b8 v0[];
.entry k0()
{{
.reg .b32 r<3>;
.reg .pred p<2>;
.reg .b64 rd<1>;
mov.u32 r0, %tid.x;
mov.b32 r1, v0;
setp.eq.b32 p0, r0, 0;
cvt.u64.u32 rd0, r1;
@p0 tensormap.replace.tile.global_address.b1024.b64 [rd0], rd0;
@p0 tensormap.replace.tile.rank.b1024.b32 [rd0], 0;
@p0 tensormap.replace.tile.box_dim.b1024.b32 [rd0], 0, r2;
@p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [rd0], 0, r2;
@p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [rd0], 0, r2;
L0:
@p0 mbarrier.init.shared::cta.b64 [r1], 1;
rem.u32 r0, r0, r2;
rem.u32 r0, r0, r2;
mbarrier.init.shared.b64 [r0], 1;
{remainders}stmatrix.sync.aligned.m8n8.x1.b16 [r2], {{r0}};
ld.b32 r0, [v0];
@p0 mbarrier.init.shared::cta.b64 [r1], 1;
@p1 bra L0;
}}
"""
# Every ptxas dies by SIGSEGV, without a word, over a local array of almost 2 GiB.
CRASH = """\
.version 7.8
.target sm_80
.address_size 64
.visible .entry k()
{{
.local .align 8 .b8 q[2147483640];
.reg .b64 d;
.reg .b32 r;
mov.u64 d, q;
{use}
ret;
}}
"""
USES = (
    "st.local.u32 [d], 1;",
    "ld.local.u32 r, [d];\nst.local.u32 [d+8], r;",
    "atom.add.u32 r, [d], 1;",
)
WELL = """\
.version 8.6
.target sm_100a
.visible .entry k0() { ret; }
"""
PROGRAMS = {
    **{
        f"ice{count}.ptx": ICE.format(remainders="rem.u32 r0, r0, r2;\n" * count)
        for count in (4, 8, 12, 16)
    },
    **{f"crash{number}.ptx": CRASH.format(use=use) for number, use in enumerate(USES)},
}


def test_seven_programs_in_two_stores_are_seven_bugs(triage: Triage) -> None:
    for name, text in PROGRAMS.items():
        (triage.folder / name).write_text(text)
    # The same program under another name, in the other store.
    (triage.folder / "again.ptx").write_text("// again\n" + PROGRAMS["ice4.ptx"])
    names = list(PROGRAMS)
    for store, mine in (("one", names[::2]), ("two", [*names[1::2], "again.ptx"])):
        part = replace(triage, env={**triage.env, "TRIAGE_HOME": str(triage.folder / store)})
        for name in mine:
            (row,) = part.compile("--kernel", name, *PTXAS, code=1)["cells"]
            said = ("compiler_crash", None) if "crash" in name else ("ptxas_ice", "C7907")
            assert (row["verdict"], row["code"]) == said
    assert triage("matrix", "merge", "one", "two").returncode == 0
    bugs = msgspec.json.decode(triage("bugs", "--json").stdout)["bugs"]
    assert len(bugs) == 7
    assert len({bug["signature"] for bug in bugs}) == 2
    (twice,) = [bug for bug in bugs if len(bug["kernels"]) == 2]
    assert set(twice["kernels"]) == {"ice4.ptx", "again.ptx"}

    first, second = [bug["number"] for bug in bugs if bug["code"] == "C7907"][:2]
    refused = triage("bugs", "join", str(first), str(second))
    assert refused.returncode == 2
    assert "--because TEXT must say why they are one" in refused.stderr
    words = ["--because", "one fix for both"]
    assert triage("bugs", "join", str(first), str(second), *words).returncode == 0
    assert f"joined with bug {first}: one fix for both" in triage("bugs", "show", str(first)).stdout
    assert len(msgspec.json.decode(triage("bugs", "--json").stdout)["bugs"]) == 6


def test_files_of_one_name_in_two_folders_are_two_programs(triage: Triage) -> None:
    texts = {"one": ICE.format(remainders="rem.u32 r0, r0, r2;\n" * 4), "two": WELL}
    cells = []
    for name, text in texts.items():
        folder = triage.folder / name
        folder.mkdir()
        (folder / "kernel.ptx").write_text(text)
        home = str(folder / "results")
        part = replace(triage, folder=folder, env={**triage.env, "TRIAGE_HOME": home})
        code = 1 if name == "one" else 0
        (row,) = part.compile("--kernel", "kernel.ptx", *PTXAS, code=code)["cells"]
        cells.append(row["cell"])
        assert row["kernel"] == "kernel.ptx"
    assert triage("matrix", "merge", "one/results", "two/results").returncode == 0
    assert len(set(cells)) == 2
    changes = msgspec.json.decode(triage("diff", "1", "2", "--json").stdout)["counts"]
    assert {kind: n for kind, n in changes.items() if n} == {"missing": 1, "new": 1}
    [bug] = msgspec.json.decode(triage("bugs", "--json").stdout)["bugs"]
    assert (bug["machine"], bug["cells"]) == ("new", 1)
    assert "13.1.115" in triage("history", "--kernel", "kernel.ptx").stdout


def test_what_is_tried_on_other_targets_is_no_bug_of_its_own(triage: Triage) -> None:
    (triage.folder / "kernel.ptx").write_text(PROGRAMS["ice4.ptx"])
    for axis in ("target", "flag"):
        done = triage("bisect", "--kernel", "kernel.ptx", "--axis", axis, *PTXAS)
        assert done.returncode in (0, 1), done.stderr
        [bug] = msgspec.json.decode(triage("bugs", "--json").stdout)["bugs"]
        assert bug["code"] == "C7907"
        assert bug["machine"] in ("new", "confirmed", "present")
    export = triage("export", "--all", "--format", "jsonl").stdout.splitlines()
    tried = [row for row in map(msgspec.json.decode, export) if row["probe_of"]]
    # Other targets do not know what it uses: that is not a bug of ptxas.
    assert "ptxas_error" in {row["verdict"] for row in tried}
    [along] = bug["ranges"]
    assert [mark["version"] for mark in along["marks"]] == ["13.1.115"]
    pages = triage("site", "--out", "pages")
    assert pages.returncode == 0, pages.stderr


KERNEL = """\
import torch, triton, triton.language as tl

@triton.jit
def k(x):
    i = tl.arange(0, {n})
    tl.store(x + i, i)

def launch():
    k[(1,)](torch.empty(64, device="cuda", dtype=torch.int32))
"""


@pytest.mark.parametrize("order", [("bad", "good"), ("good", "bad")])
def test_python_files_of_one_name_in_two_folders_are_two_kernels(
    triage: Triage, order: tuple[str, str]
) -> None:
    for name, n in (("bad", 48), ("good", 64)):
        (triage.folder / name).mkdir()
        (triage.folder / name / "kernel.py").write_text(KERNEL.format(n=n))
    for name in order:
        home = str(triage.folder / name / "results")
        part = replace(triage, folder=triage.folder / name, env={**triage.env, "TRIAGE_HOME": home})
        [row] = part.compile("kernel.py", "--sm", "90", code=int(name == "bad"))["cells"]
        assert row["verdict"] == ("rejected" if name == "bad" else "ok")
    assert triage("matrix", "merge", *(f"{name}/results" for name in order)).returncode == 0
    changes = msgspec.json.decode(triage("diff", "1", "2", "--json").stdout)["counts"]
    assert {kind: n for kind, n in changes.items() if n} == {"missing": 1, "new": 1}
    [bug] = msgspec.json.decode(triage("bugs", "--json").stdout)["bugs"]
    assert (bug["machine"], bug["cells"], bug["cells_now"]) == ("new", 1, 1)


def test_a_python_file_that_is_edited_is_the_same_kernel(triage: Triage) -> None:
    for n in (64, 48):
        (triage.folder / "kernel.py").write_text(KERNEL.format(n=n))
        triage.compile("kernel.py", "--sm", "90", code=int(n == 48))
    changes = msgspec.json.decode(triage("diff", "1", "2", "--json").stdout)["counts"]
    assert {kind: n for kind, n in changes.items() if n} == {"regressed": 1}
