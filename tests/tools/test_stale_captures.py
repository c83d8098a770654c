"""A capture is used again only while all that it read is the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Triage

pytestmark = pytest.mark.tools

_LAUNCH = """
import os
from pathlib import Path

import widths


def launch():
    x = torch.empty(4096, device="cuda")
    table = Path("table.txt")
    block = int(table.read_text()) if table.exists() else int(os.environ.get("MY_DIM", "64"))
    scale[(4,)](x, 4096, BLOCK=block * widths.FACTOR)
"""
_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


def _block(triage: Triage) -> tuple[int, bool]:
    """The block size of the one config, and whether the row was stored already."""
    document = triage.compile("--kernel", "k.py::scale", "--sm", "90a", code=0)
    (cell,) = document["cells"]
    return cell["config"]["BLOCK"], cell["cached"]


@pytest.mark.long
def test_what_a_launch_reads_decides_whether_it_is_captured_again(triage: Triage) -> None:
    (triage.folder / "k.py").write_text(_KERNEL + _LAUNCH)
    ours = triage.env["PYTHONPATH"]
    for name, factor in (("one", 1), ("two", 2)):
        (triage.folder / name).mkdir()
        (triage.folder / name / "widths.py").write_text(f"FACTOR = {factor}\n")
    triage.env["PYTHONPATH"] = f"{ours}:{triage.folder / 'one'}"
    triage.env["TRIAGE_PASS_ENV"] = "MY_DIM"
    assert _block(triage) == (64, False)
    # Nothing of the launch's.
    triage.env["FORCE_COLOR"] = "1"
    assert _block(triage) == (64, True)
    triage.env["MY_DIM"] = "128"
    assert _block(triage) == (128, False)
    assert _block(triage) == (128, True)
    # Another checkout of the same module, with the old one untouched.
    triage.env["PYTHONPATH"] = f"{ours}:{triage.folder / 'two'}"
    assert _block(triage) == (256, False)
    # A file that was looked for and was not there.
    Path(triage.folder / "table.txt").write_text("16")
    assert _block(triage) == (32, False)
