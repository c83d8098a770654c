"""Where a condition on the numbers of a row holds, over the versions of the compilers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition, spell
from harness.judging.followed import Followed, measured, toolchain_of
from harness.matrix.bugs.life import Chronicle, Story
from harness.values.bug import BugFacts, Occasion
from harness.values.kernel import Config
from harness.values.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Toolchains of one kernel, launch, target and config, one after the other, where it holds."""

    condition: Condition
    rows: tuple[Row, ...]

    @property
    def words(self) -> str:
        """From which toolchain to which it holds, with the numbers."""
        ends = dict.fromkeys((toolchain_of(self.rows[0]), toolchain_of(self.rows[-1])))
        numbers = measured(Followed(condition=self.condition).fields, self.rows)
        count = f" ({len(self.rows)} cells)" if len(self.rows) > 1 else ""
        said = f"{spell(self.condition)} holds with {' to '.join(ends)}{count}"
        return f"{said}: {numbers}" if numbers else said


def stretches(rows: Iterable[Row], condition: Condition) -> list[Stretch]:
    """Where the condition holds, without a gap; `rows` are ordered as `triage history` has them."""
    followed = Followed(condition=condition)
    return [
        Stretch(condition=condition, rows=tuple(found))
        for (_, outcome), found in groupby(rows, key=lambda row: (_place(row), followed.of(row)))
        if outcome is VerdictAnswer.SAME
    ]


def _place(row: Row) -> tuple[str, str, str, str]:
    return row.kernel, row.launch, row.target, Config.of(row.config).label


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAt:
    """A kernel on a target for which a condition held; `numbers` are those of each cell's last row.

    `story` says where and when, as of a bug.
    """

    kernel: str
    target: str
    story: Story
    numbers: str


def held_at(
    results: Iterable[tuple[Occasion, BugFacts, Row]],
    condition: Condition,
    known: Callable[[str], Sequence[str]],
) -> list[HeldAt]:
    """Each kernel and target for which it ever held, by name.

    `results` are the run, the facts and the row of each result, oldest run first; `known` as in
    `Chronicle`.
    """
    followed = Followed(condition=condition)
    chronicle = Chronicle(known=known)
    numbers: dict[tuple[str, str], int] = {}
    rows: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for run, facts, row in results:
        number = None
        if followed.of(row) is VerdictAnswer.SAME:
            at = row.kernel, row.target
            number = numbers.setdefault(at, len(numbers))
            rows[at][row.cell] = row
        chronicle.add(run, facts, number)
    stories = chronicle.stories()
    return [
        HeldAt(
            kernel=kernel,
            target=target,
            story=stories[number],
            numbers=measured(followed.fields, list(rows[kernel, target].values())),
        )
        for (kernel, target), number in sorted(numbers.items())
    ]
