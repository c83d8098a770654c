from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.cells import suite
from harness.cells.suite import FileResult, refusals, suite_document, suite_said
from harness.tables.said import Counted
from harness.tables.terminal import for_terminal
from harness.values import outcome as outcomes

FILE = Path("test_x.py")


def on_target(target: str, outcome: str, **facts: object) -> suite.TestOnTarget:
    known = outcomes.TestFacts(name="test_it", outcome=outcome, **facts)  # type: ignore[arg-type]
    return suite.TestOnTarget(file=FILE, target=target, facts=known)


RESULT = FileResult(
    file=FILE,
    tests=(
        on_target("sm_90a", "to the end", launches=3),
        on_target("sm_80", "until a value is needed", reason=".item()", launches=2),
        on_target(
            "sm_80",
            "until a value is needed",
            reason=".item()",
            launches=1,
            refused={"Error: grid": 1},
        ),
        # One of a front end that counts no launches.
        on_target("sm_80", "to the end", records=(0, 1)),
    ),
    problems=("test_y.py: no kernel is launched",),
)


def test_what_is_missing_is_named_and_counted() -> None:
    assert refusals([RESULT]) == {
        "launch: Error: grid": 1,
        "test: until a value is needed: .item()": 2,
        "file: test_y.py: no kernel is launched": 1,
    }
    counted = [block for block in suite_said([RESULT]) if isinstance(block, Counted)]
    assert [block.count for block in counted] == [2, 1, 1]


def test_launches_are_counted_on_each_target() -> None:
    document = suite_document([RESULT])
    assert document["launches"] == 3 + 2 + 1 + 2
    assert [test["captured"] for test in document["tests"]] == [3, 2, 0, 2]
    console = Console(width=100, record=True)
    console.print(for_terminal(suite_said([RESULT])))
    assert "7 of 8 launches captured (87 %); 2 of 4 tests finished" in console.export_text()
