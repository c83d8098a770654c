"""The comment that a pull request gets."""

from __future__ import annotations

from change_cases import compared, facts

from harness.matrix.pull_request_forms import as_markdown
from harness.values.change import PullRequest
from harness.values.row import Facts


def picture(older: Facts, newer: Facts) -> str:
    result = PullRequest(changes=compared([older], [newer]), cells=(newer,))
    return as_markdown(result).partition("```mermaid")[2]


def test_a_recovered_list_is_better_and_lost_nothing() -> None:
    failing = [facts("out_of_resources", "s1", warps=warps, stage="launch") for warps in (16, 32)]
    newer = (facts(), facts(warps=8))
    result = PullRequest(changes=compared(failing, newer), cells=newer)
    title = as_markdown(result).splitlines()[1]
    assert title == "### triage: 2 better (2 fixed)"
    assert "another list: 2 of 2 configs work, before 0 of 2" in as_markdown(result)


def test_what_cannot_be_launched_is_not_in_the_picture() -> None:
    plain, sick = facts(), facts("sick", spill_stores=5000, spill_loads=0)
    assert "bar [0, 5000]" in picture(plain, sick)
    too_large = facts("out_of_resources", "s1", stage="launch", spill_stores=5000, spill_loads=0)
    assert not picture(plain, too_large)
    assert not picture(too_large, plain)
