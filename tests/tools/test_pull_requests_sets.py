"""`triage pr` where the tuning list, the kernel or the launches are others: what is worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from test_pull_requests_real import committed

if TYPE_CHECKING:
    from conftest import Triage

SOURCE = """\
import torch
import triton
import triton.language as tl

LIST = [triton.Config({"ROWS": rows}, num_warps=1) for rows in (16, 32)]


@triton.autotune(configs=LIST, key=[])
@triton.jit
def tile_kernel(x, out, ROWS: tl.constexpr):
    places = tl.arange(0, ROWS)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tile = tl.load(x + places).to(tl.float32)
    tl.store(out + places, tile * tl.sum(tile, 1)[:, None] * tl.sum(tile, 0)[None, :])


def launch():
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(256, 64, device="cuda", dtype=dtype)
        tile_kernel[(1,)](x, torch.empty_like(x))
"""
LIST = 'triton.Config({"ROWS": rows}, num_warps=1) for rows in (16, 32)'
SPILLS = 'triton.Config({"ROWS": rows}, num_warps=1, maxnreg=64) for rows in (64, 128)'
NONE = "· launch on sm_90a: 0 of 2 configs work, before 2 of 2 (and 1 more)"
HALF = NONE.replace("0 of", "1 of")
WORDS = ("--base", "main", "--kernel", "tile.py", "--sm", "90a", "--jobs", "1")


def listed(text: str) -> dict[str, str]:
    return {LIST: text}


CASES: dict[str, tuple[dict[str, str], int, str, set[str]]] = {
    "all broken": (
        listed(LIST.replace("16, 32", "24, 48")),
        1,
        f"4 worse (4 no longer work): tile.py::tile_kernel {NONE}",
        {"regressed"},
    ),
    "half broken": (
        listed(LIST.replace("16, 32", "16, 48")),
        1,
        f"2 worse (2 no longer work): tile.py::tile_kernel {HALF}",
        {"regressed"},
    ),
    "another list that works": (
        listed(LIST.replace("16, 32", "8, 64").replace("num_warps=1", "num_warps=4")),
        0,
        "nothing is worse",
        set(),
    ),
    "another list that spills": (listed(SPILLS), 1, "2 worse", {"metric-worse"}),
    "one more, which fails": (
        listed(LIST.replace("16, 32", "16, 32, 48")),
        0,
        "nothing is worse, 2 new cells fail",
        set(),
    ),
    "renamed": ({"tile_kernel": "sum_kernel"}, 0, "nothing changed", set()),
    "renamed, and broken": (
        {"tile_kernel": "sum_kernel", **listed(LIST.replace("16, 32", "24, 48"))},
        1,
        f"4 worse (4 no longer work): tile.py::sum_kernel {NONE}",
        {"regressed"},
    ),
    "a launch removed": (
        {"(torch.float32, torch.float16)": "(torch.float16,)"},
        0,
        "nothing is worse, 1 launch is gone",
        set(),
    ),
    "moved alone": ({"import torch\n": "import os\nimport torch\n"}, 0, "nothing changed", set()),
}


@pytest.mark.tools
@pytest.mark.long
def test_headline_exit_code_and_sarif_of_each_change(triage: Triage) -> None:
    path = triage.folder / "tile.py"
    committed(triage.folder, {"tile.py": SOURCE})
    for name, (edits, code, headline, kinds) in CASES.items():
        text = SOURCE
        for old, new in edits.items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        done = triage("pr", *WORDS, "--out", "out", timeout=300)
        comment = (triage.folder / "out/comment.md").read_text()
        title = comment.splitlines()[1].replace("\\", "")
        assert (done.returncode, title) == (code, f"### triage: {headline}"), (name, done.stderr)
        assert "by the matrix" not in comment
        sarif = msgspec.json.decode((triage.folder / "out/triage.sarif").read_bytes())
        found = sarif["runs"][0]["results"]
        assert {each["ruleId"] for each in found} == kinds, name
        assert all(each["locations"] for each in found)
        suites = ET.parse(triage.folder / "out/junit.xml").getroot()
        failed = sum(int(suite.get("failures", "0")) for suite in suites)
        assert failed == len(found), name
        document: dict[str, Any] = msgspec.json.decode(
            (triage.folder / "out/triage.json").read_bytes()
        )
        if name in ("renamed", "a launch removed", "moved alone"):
            assert document["same_code"] == document["cells"] > 0, name
        if name == "renamed":
            assert document["renamed"] == ["tile.py::sum_kernel is tile.py::tile_kernel of base"]
