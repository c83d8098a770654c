"""An A/A night: the same versions twice, compiled twice, change nothing."""

from __future__ import annotations

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

TUNED = ["--kernel", str(HERE / "kernels" / "tuned.py"), "--sm", "90a", "--triton", "installed"]


@pytest.mark.long
def test_the_same_versions_twice_without_the_cache_change_nothing(triage: Triage) -> None:
    first = triage("compile", *TUNED, "--json")
    second = triage("compile", *TUNED, "--json", "--no-cache", "--jobs", "1")
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    cells = msgspec.json.decode(second.stdout)["cells"]
    assert not any(cell["cached"] for cell in cells)
    done = triage("diff", "--json", "--all")
    assert done.returncode == 0, done.stderr
    document = msgspec.json.decode(done.stdout)
    assert document["counts"]["same-ok"] == sum(document["counts"].values()) == len(cells) > 1
    assert document["informational"] == []
    history = triage("history", "--kernel", cells[0]["kernel"], "--json")
    assert {cell["short"] for cell in msgspec.json.decode(history.stdout)["cells"]} == {
        cell["short"] for cell in cells
    }
