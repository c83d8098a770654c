"""One sentence says what is broken, on what and since when; numbers come by the size of change."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import pytest
from nights import row

from harness.diff.compare import compare
from harness.site.overview import MOST_READ, Overview, age_of, steps_of
from harness.tables.said import Tone
from harness.values.row import BugFacts, Facts, Row
from harness.values.verdict import VerdictKind

OK, FAILED, SICK = VerdictKind.OK, VerdictKind.OUT_OF_RESOURCES, VerdictKind.SICK
MATMUL = "matmul.py::matmul_kernel"


def facts(of: Row) -> BugFacts:
    return msgspec.json.decode(msgspec.json.encode(of), type=BugFacts)


def overview(*rows: Row, known: bool = False) -> Overview:
    """What is known of these cells; each that fails has bug 1."""
    found = Overview(is_known=lambda *_: known)
    for each in rows:
        bug = 1 if each.verdict.is_failure else None
        found.add(each.kernel, each.target, [(facts(each), bug)], lambda cell: cell)
    return found


def nights(*counts: dict[VerdictKind, int], target: str = "sm_90a") -> list[tuple[int, object]]:
    """Runs of one kernel on one target, newest first."""
    last = len(counts)
    return [(last - at, {(MATMUL, target): Counter(each)}) for at, each in enumerate(counts)]


def failing(**changes: object) -> Row:
    changes = {"kernel": MATMUL, "target": "sm_90a", **changes}
    return row("out_of_resources", "s1", **changes)  # type: ignore[arg-type]


def test_what_does_not_work_at_all_is_broken_since_the_first_of_its_last_nights() -> None:
    story = nights({FAILED: 4}, {FAILED: 2}, {OK: 4}, {FAILED: 4})
    sentence, tone = overview(failing()).state(story, {1: 1})  # type: ignore[arg-type]
    assert (sentence, tone) == ("matmul_kernel is broken on sm_90a since run 3.", Tone.BAD)
    both = overview(failing(), failing(target="sm_100a"))
    sentence, _ = both.state([(5, {})], {1: 4})
    assert sentence == "matmul_kernel is broken on sm_90a and sm_100a since run 4."


def test_nights_that_were_not_read_are_not_spoken_of() -> None:
    story = nights(*[{FAILED: 1}] * MOST_READ)
    sentence, _ = overview(failing()).state(story, {1: 1})  # type: ignore[arg-type]
    assert sentence == "matmul_kernel is broken on sm_90a since run 1 or earlier."


def test_a_toolchain_with_which_alone_it_is_broken_is_named() -> None:
    rows = [failing(triton="3.9.0"), row(kernel=MATMUL, target="sm_90a")]
    sentence, _ = overview(*rows).state([(2, {})], {1: 2})
    assert sentence == (
        "matmul_kernel is broken on sm_90a with Triton 3.9.0, ptxas 13.0.88 since run 2."
    )


def test_some_configs_that_fail_do_not_make_a_kernel_broken() -> None:
    rows = [failing(warps=16), row(kernel=MATMUL, target="sm_90a")]
    sentence, tone = overview(*rows).state([], {1: 1})
    assert (sentence, tone) == ("Some configs of matmul_kernel fail.", Tone.POOR)


@pytest.mark.parametrize(
    ("rows", "known", "words"),
    [
        ([row()], False, "Nothing is broken: 1 of 1 cells work, in 1 kernel."),
        (
            [row(), row("sick", kernel="b", stage=None), row("infra", kernel="c")],
            False,
            "Nothing is broken: 2 of 3 cells work, in 3 kernels; poor code: 1; undetermined: 1.",
        ),
        (
            [failing(), row()],
            True,
            "Nothing is broken: 1 of 2 cells work, in 2 kernels; known failures: 1.",
        ),
    ],
)
def test_nothing_is_broken(rows: list[Row], words: str, known: bool) -> None:
    assert overview(*rows, known=known).state([], {}) == (words, Tone.GOOD)


def test_kernels_that_are_broken_alike_share_a_sentence_and_more_are_counted() -> None:
    rows = [failing(kernel=name) for name in "abcde"]
    sentence, _ = overview(*rows).state([], {1: 1})
    assert sentence == "a, b, c and 2 more are broken on sm_90a since run 1."
    rows = [
        failing(kernel=name, target=f"sm_{n}")
        for n, name in zip((80, 86, 89, 90), "abcd", strict=True)
    ]
    sentence, _ = overview(*rows).state([], {1: 1})
    assert sentence.startswith("a is broken on sm_80 since run 1; b is broken on sm_86 since run 1")
    assert sentence.endswith("; 1 kernel more.")


def test_an_age_is_in_days() -> None:
    day = 86_400.0
    assert [age_of(0, at) for at in (day / 2, day, 3.5 * day)] == [
        "less than a day",
        "1 day",
        "3 days",
    ]


def test_numbers_come_by_the_size_of_their_change_and_small_ones_apart() -> None:
    def night(*regs: int) -> list[Facts]:
        rows = [row(warps=2**at, n_regs=n) for at, n in enumerate(regs)]
        return sorted(map(facts, rows), key=lambda each: each.cell)

    changes = compare(night(100, 100, 115, 100), night(150, 200, 118, 50), runs=(1, 2))
    assert [percent for percent, _ in steps_of(changes.changes)] == [100, 50, -50]
    ((percent, small),) = steps_of(changes.informational)
    assert (round(percent, 1), small.what) == (2.6, "registers 115 -> 118")
    begun = compare([facts(row(spill_stores=0))], [facts(row(spill_stores=64))], runs=(1, 2))
    assert [percent for percent, _ in steps_of(begun.changes)] == [math.inf]
