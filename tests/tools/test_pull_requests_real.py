"""`triage pr`: what a change of a repository does to machine code, and the forms it is told in."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Triage

ADD = """\
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    # One block of elements.
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, at < n) - tl.load(y + at, at < n)
    tl.store(out + at, total, at < n)
"""
ADD_LAUNCH = """\
import torch
from kern.add import add_kernel


def launch(n: int = 256):
    x = torch.randn(n, device="cuda")
    y = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    add_kernel[(n // 128,)](x, y, out, n, BLOCK=128)
    torch.testing.assert_close(out, x + y)
"""
TILE = """\
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=1, maxnreg=64)], key=[])
@triton.jit
def tile_kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + places, 2.0)
"""
TILE_LAUNCH = """\
import torch
from kern.tile import tile_kernel


def launch():
    x = torch.randn(64, 64, device="cuda")
    tile_kernel[(1,)](x, torch.empty_like(x), ROWS=64, COLUMNS=64)
"""
MATMUL = """\
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({}, num_warps=4, num_stages=stages) for stages in (2, 5)], key=[]
)
@triton.jit
def matmul_kernel(a, b, c, K, SIZE: tl.constexpr):
    step: tl.constexpr = 32
    rows = tl.arange(0, SIZE)
    inner = tl.arange(0, step)
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for k in range(0, K, step):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * SIZE + rows[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * SIZE + rows[None, :], total.to(tl.float16))
"""
MATMUL_LAUNCH = """\
import torch
from kern.matmul import matmul_kernel


def launch(k: int = 256):
    a = torch.randn(128, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, 128, device="cuda", dtype=torch.float16)
    c = torch.empty(128, 128, device="cuda", dtype=torch.float16)
    matmul_kernel[(1,)](a, b, c, k, SIZE=128)
"""
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    return subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def committed(folder: Path, files: dict[str, str]) -> None:
    """A repository whose branch `main` holds these files."""
    git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".gitignore").write_text("results/\nout/\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def json_of(triage: Triage, *words: str, code: int) -> dict[str, Any]:
    done = triage("pr", "--json", *words)
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


@pytest.mark.tools
def test_changes_of_ptx_are_told_by_their_machine_code(triage: Triage) -> None:
    folder = triage.folder
    committed(folder, {"k.ptx": PTX, "README.md": "kernels"})
    words = ("--base", "main", "--kernel", "k.ptx", "--sm", "80", "--ptxas", "13.1.115")

    assert "nothing was compiled: no file differs" in triage("pr", *words).stdout

    # Another text, and the same machine code.
    edit(folder / "k.ptx", "ret;", "// done\n    ret;")
    document = json_of(triage, *words, code=0)
    assert (document["cells"], document["same_code"], document["other_code"]) == (1, 1, 0)

    # Other code, with numbers that are the same.
    edit(folder / "k.ptx", ", 7;", ", 8;")
    document = json_of(triage, *words, code=0)
    assert (document["same_code"], document["other_code"]) == (0, 1)
    headline = triage("pr", *words).stdout.splitlines()[0]
    assert ": nothing is worse" in headline
    assert "nothing changed" not in headline

    # No code at all: what the four forms say, and when it is an error.
    edit(folder / "k.ptx", "mov.u32 %r1, 8", "mov.u32 %r2, 8")
    done = triage("pr", *words, "--out", "out")
    assert done.returncode == 1, done.stderr
    assert triage("pr", *words, "--fail-on", "never").returncode == 0
    comment = (folder / "out/comment.md").read_text()
    assert "### triage: 1 worse" in comment
    assert "**regressed**: ok -> ptxas_error" in comment
    assert "| 1 of 1 | 0 of 1 |" in comment
    assert "0 of 1 cells have the same machine code; 1 have none" in comment
    assert "mermaid" not in comment  # no number moved
    sarif = msgspec.json.decode((folder / "out/triage.sarif").read_bytes())
    [result] = sarif["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("regressed", "error")
    [location] = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "k.ptx"
    suite = ET.parse(folder / "out/junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")

    # What main had is untouched, and git knows of no other tree.
    assert git(folder, "worktree", "list").count("\n") == 1
    assert git(folder, "status", "--porcelain") == " M k.ptx\n"


def test_what_is_compared_has_to_exist(triage: Triage) -> None:
    committed(triage.folder, {"k.ptx": PTX})
    done = triage("pr", "--base", "gone", "--kernel", "k.ptx", "--sm", "80")
    assert done.returncode == 2
    assert "--base gone: neither a folder nor a commit that git knows" in done.stderr
    edit(triage.folder / "k.ptx", "ret;", "exit;")
    done = triage("pr", "--base", "main", "--kernel", "other.ptx", "--sm", "80")
    assert done.returncode == 3
    assert "no kernel is selected" in done.stderr


@pytest.mark.long
@pytest.mark.tools
def test_a_pull_request_that_changes_comments_spills_loses_and_fixes(triage: Triage) -> None:
    folder = triage.folder
    sources = {
        "add": (ADD, ADD_LAUNCH),
        "tile": (TILE, TILE_LAUNCH),
        "matmul": (MATMUL, MATMUL_LAUNCH),
    }
    committed(
        folder,
        {
            "kern/__init__.py": "",
            **{f"kern/{name}.py": kernel for name, (kernel, _) in sources.items()},
            **{f"launches/{name}.py": launch for name, (_, launch) in sources.items()},
        },
    )
    words = ("--base", "main", "--kernel", "launches/**.py", "--sm", "90a", "--sm", "120a")

    edit(folder / "kern/add.py", "One block", "A block")
    done = triage("pr", *words, "--markdown", timeout=30)
    assert done.returncode == 0
    assert "### triage: nothing changed" in done.stdout
    assert "kern/add.py: comments and layout alone" in done.stdout
    assert not (folder / "results").exists()

    edit(
        folder / "kern/tile.py",
        "    tl.store(out + places, 2.0)",
        "    tile = tl.load(x + places)\n"
        "    tl.store(out + places, tile * tl.sum(tile, 1)[:, None] * tl.sum(tile, 0)[None, :])",
    )
    document = json_of(triage, *words, "--out", "out", code=1)
    assert document["same_code"] == 6
    for sarif in msgspec.json.decode((folder / "out/triage.sarif").read_bytes())["runs"]:
        for one in sarif["results"]:
            [location] = one["locations"]
            place = location["physicalLocation"]
            assert place["artifactLocation"]["uri"] == "kern/tile.py"
            # The tile is kept for its sums, and moved where it is loaded, summed and used.
            assert place["region"]["startLine"] in (9, 10)
    picture = (folder / "out/comment.md").read_text().partition("```mermaid\n")[2]
    kind, title, labels, axis, bars, _, _, first, second, *_ = picture.splitlines()
    assert (kind, title) == ("xychart-beta horizontal", 'title "spills (B) of a thread"')
    assert labels == 'x-axis ["1 base", "1 head", "2 base", "2 head"]'
    for line, target in ((first, "sm_120a"), (second, "sm_90a")):
        assert f"num_warps=1,num_stages=3,maxnreg=64 · {target} · ptxas " in line
    worse = document["changes"]["metric-worse"]
    shown = msgspec.json.decode(bars.removeprefix("bar "))
    spills = [cell["newer"]["spill_stores"] + cell["newer"]["spill_loads"] for cell in worse]
    assert shown[0::2] == [0] * len(worse)
    assert axis == f"y-axis 0 --> {max(spills)}"
    assert shown[1::2] == sorted(spills, reverse=True)
    assert {cell["kernel"] for cell in worse} == {"launches/tile.py::tile_kernel"}
    assert {cell["target"] for cell in worse} == {"sm_90a", "sm_120a"}
    assert all(cell["older"]["spill_stores"] == 0 < cell["newer"]["spill_stores"] for cell in worse)
    git(folder, "checkout", "-q", "kern/tile.py")

    edit(folder / "kern/matmul.py", "constexpr = 32", "constexpr = 64")
    done = triage("pr", *words, "--markdown", timeout=900)
    assert done.returncode == 1, done.stderr
    assert "### triage: 3 worse (1 no longer works)" in done.stdout
    assert "compiled for sm_120a, sm_90a: 4 of 8 cells have the same" in done.stdout
    assert "1 changed too little to count; nothing was executed" in done.stdout
    # No column without a number.
    assert "| cell | verdict | registers | shared (B) | occupancy |" in done.stdout
    assert "8.3% → cannot launch" in done.stdout
    assert "**worse numbers**: registers " in done.stdout
    assert "**regressed**: ok -> " in done.stdout
    assert (
        "| launches/matmul.py::matmul\\_kernel · launch · sm\\_120a | 2 of 2 | 1 of 2 |"
        in done.stdout.replace("matmul_kernel", "matmul\\_kernel").replace("sm_120a", "sm\\_120a")
    )
    assert "sm_90a | 2 of 2" not in done.stdout
    git(folder, "checkout", "-q", "kern/matmul.py")

    edit(folder / "kern/add.py", "- tl.load(y", "+ tl.load(y")
    document = json_of(triage, *words, "--run", code=0)
    fixed = document["changes"]["fixed"]
    assert {cell["target"] for cell in fixed} == {"sm_90a", "sm_120a"}
    assert {(c["older"]["verdict"], c["newer"]["verdict"]) for c in fixed} == {
        ("wrong_result", "right")
    }


@pytest.mark.long
@pytest.mark.tools
def test_a_base_that_imports_the_code_of_head_is_refused(triage: Triage) -> None:
    folder = triage.folder
    found = f"import sys\nsys.path.insert(0, {str(folder / 'python')!r})\n"
    launch = found + ADD_LAUNCH.replace("from kern.add", "from add")
    committed(folder, {"python/add.py": ADD, "launch.py": launch})
    edit(folder / "python/add.py", "- tl.load(y", "+ tl.load(y")
    done = triage("pr", "--base", "main", "--kernel", "launch.py", "--sm", "80")
    assert done.returncode == 2, done.stdout
    assert f"imports {folder / 'python/add.py'}, which is of working tree" in done.stderr
