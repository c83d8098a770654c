"""Old against new: what each toolchain makes of the same configs, by the rules of `triage diff`.

Of one toolchain, what each target makes of them. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec.structs import replace

from harness.cells.next_steps import cell_words
from harness.cells.spelling import SelectionOptions, on_assembler, on_compiler, spell_command
from harness.diff.compare import change_of
from harness.diff.diff_words import TONES, changed_cell, group_changes, moved
from harness.io.packages.versions import version_order
from harness.tables.rows import config_columns, fates_said, grid_of, lifted_words, toolchain_words
from harness.tables.said import BLANK, Block, SaidGrid, SaidLine, Tone, say, verdict_said
from harness.tables.samples import Sample, samples_said, untried
from harness.tables.summary import plural
from harness.tables.survivors import alike, survivors
from harness.values.cell import place_of
from harness.values.change import Change, ChangeKind
from harness.values.row import Row
from harness.values.toolchain import BUNDLED, PTXAS, TRITON

_AXES = ("compiler", "assembler", "target")
_COMPILER, _ASSEMBLER, _TARGET = range(3)
_MOST_ROWS = 40
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """The rows of two sides, which differ in what stands at `axis`, and what changed between them.

    `changes` are of the cells that both have, what got worse first. `alone` counts the cells that
    only the older and only the newer side has.
    """

    axis: int
    older: Sequence[Row]
    newer: Sequence[Row]
    changes: Sequence[Change]
    alone: tuple[int, int]

    @property
    def shown(self) -> list[Change]:
        """Those in which anything differs, or is not known."""
        return [change for change in self.changes if change.steps or not change.kind.is_quiet]

    @property
    def title(self) -> str:
        """`Triton 3.5.0 -> 3.9.0`, and the other tool where it is named."""
        older, newer = self.older[0], self.newer[0]
        words = f"{_name(older, self.axis)} -> {_name(newer, self.axis).rpartition(' ')[2]}"
        other = {_COMPILER: not _has_its_own(newer), _ASSEMBLER: newer.compiler is not None}
        return f"{words}, {_name(newer, 1 - self.axis)}" if other.get(self.axis) else words

    @property
    def sentence(self) -> str:
        """How much got worse and better, and the most of each launch."""
        launches = {_launch(change) for change in self.changes}
        unit, every = ("launch", launches) if len(launches) > 1 else ("config", self.changes)
        are_one = len({kernel for kernel, _ in launches}) == 1
        parts = []
        for word, kinds in _DIRECTIONS.items():
            some = [change for change in self.changes if change.kind in kinds]
            most = {_launch(change): change for change in reversed(some)}
            named = [
                f"{' · '.join(_launch(change)[are_one:]).rpartition('::')[2]} " * (unit == "launch")
                + group_changes([change])[0].what
                for change in some
                if most[_launch(change)] is change
            ]
            if some:
                count = len(most) if unit == "launch" else len(some)
                units = plural(len(every), unit, "launches" if unit == "launch" else "")
                share = f"{count:,} of {units} {word}" if len(every) > 1 else word
                more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
                words = "; ".join(name.replace("; ", ", ") for name in named[:_MOST_NAMED])
                parts.append(f"{share}: {words}{more}")
        untold = sum(change.kind in _UNTOLD for change in self.changes)
        if untold:
            parts.append(f"{plural(untold, 'config')} could not be determined")
        if not parts:
            nothing = "nothing changed" if self.changes else "no config is of both"
            parts = [f"{nothing} enough to matter" if self.shown else nothing]
        for count, side in zip(self.alone, (self.older, self.newer), strict=True):
            if count:
                parts.append(f"{plural(count, 'config')} only with {_name(side[0], self.axis)}")
        return f"{self.title}: {'. '.join(parts)}"


_DIRECTIONS = {
    "worse": [kind for kind in ChangeKind if kind.is_bad],
    "better": [ChangeKind.FIXED, ChangeKind.METRIC_BETTER],
}
_UNTOLD = (ChangeKind.UNTESTABLE, ChangeKind.INFRA, ChangeKind.NEW, ChangeKind.SAME_UNTOLD)


def _has_its_own(row: Row) -> bool:
    return row.ptxas_origin in (BUNDLED, None)


def _name(row: Row, axis: int) -> str:
    return (row.compiler_name, row.tool, row.target)[axis]


def _version(row: Row, axis: int) -> str:
    return (row.compiler_version if axis == _COMPILER else row.ptxas) or ""


def _launch(change: Change) -> tuple[str, str]:
    return change.facts.kernel, change.facts.launch


def side_by_side(rows: Sequence[Row], *, of_targets: bool = True) -> list[SideBySide]:
    """Each toolchain against the next older one, of which only one tool differs.

    Where there is one toolchain, `of_targets` compares each target with the one named before it.
    """
    sides: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        version = BUNDLED if _has_its_own(row) else row.ptxas
        tools = (row.compiler, row.compiler_version), (row.assembler, version, row.frozen)
        sides.setdefault(tools, []).append(row)
    if len(sides) == 1 and of_targets:
        targets = {row.target: [one for one in rows if one.target == row.target] for row in rows}
        return [_compared(_TARGET, *pair) for pair in itertools.pairwise(targets.values())]
    found = []
    for axis in (_COMPILER, _ASSEMBLER):
        lines: dict[object, list[list[Row]]] = {}
        for tools, side in sides.items():
            lines.setdefault((tools[1 - axis], tools[axis][0]), []).append(side)
        for line in lines.values():
            line.sort(key=lambda side, axis=axis: version_order(_version(side[0], axis)))  # type: ignore[misc]
            found += [_compared(axis, *pair) for pair in itertools.pairwise(line)]
    return found


def _compared(axis: int, older: Sequence[Row], newer: Sequence[Row]) -> SideBySide:
    def change(old: Row, new: Row) -> Change:
        # The occupancy of another GPU is a share of another whole.
        known = replace(old, occupancy=None) if axis == _TARGET else old
        return replace(change_of(known, new), older=old)

    across = axis == _TARGET
    before, after = (
        {place_of(row.cell, across_targets=across): row for row in side} for side in (older, newer)
    )
    changes = [change(before[at], row) for at, row in after.items() if at in before]
    alone = len(before.keys() - after.keys()), len(after.keys() - before.keys())
    changes.sort(key=_gravity)
    return SideBySide(axis=axis, older=older, newer=newer, changes=changes, alone=alone)


def _gravity(change: Change) -> tuple[float, ...]:
    """What sorts first: the kind, the gravest number, and by how much it moved."""
    apart, share, severity = 0.0, 0.0, -1
    if change.steps:
        older, newer, severity = (
            getattr(change.steps[0], n) for n in ("older", "newer", "severity")
        )
        if not isinstance(older, str):
            apart, share = abs(newer - older), abs(newer - older) / max(older, newer)
    return list(ChangeKind).index(change.kind), -severity, -apart, -share


# For people: what came of each side, then a table of what changed.

_METRICS = {
    "n_regs": "regs",
    "spills": "spills",
    "stack": "stack",
    "shared": "shared",
    "tmem_size": "tmem",
    "occupancy": "occupancy",
}
_SPARE = {"regs": 1, "spills": 1, "occupancy": 1, "tmem": 1, "shared": 3, "stack": 4}
_KINDS = {
    ChangeKind.METRIC_WORSE: "worse",
    ChangeKind.METRIC_BETTER: "better",
    ChangeKind.SAME_OK: "",
}
_Entry: TypeAlias = tuple[Mapping[str, str], Change]
"""Configs to which the same happened, and the change of one of them."""


def sides_said(pairs: Sequence[SideBySide], samples: Sequence[Sample] = ()) -> list[Block]:
    """How many configs of each side work, and why the others do not."""
    sides = {side[0].cell: (side, pair) for pair in pairs for side in (pair.older, pair.newer)}
    blocks: list[Block] = []
    for side, pair in sides.values():
        name = side[0].target if pair.axis == _TARGET else toolchain_words(side)
        blocks.append(say(f"{name}: {survivors(side, untried(side, samples)).headline}"))
        blocks += fates_said(side)
    return [*blocks, BLANK, *samples_said(samples)]


def side_by_side_said(pair: SideBySide, launches: Mapping[str, str] = {}) -> list[Block]:
    """A table of what changed, equal lines as one, and all of it in a sentence.

    By cell, `launches` say what tells its launch from the others of the kernel.
    """

    def line_of(change: Change) -> tuple[object, ...]:
        numbers = (tuple(moved(change, metric)) for metric in ("verdict", *_METRICS))
        return _launch(change), change.facts.target, change.kind, *numbers

    entries = alike(pair.shown, line_of, lambda change: change.facts.config)
    if not entries:
        return [say(pair.sentence, Tone.HEAD), BLANK]
    facts = [change.facts for change in pair.changes]
    distinct = {
        name: list(dict.fromkeys(getattr(one, name) for one in facts))
        for name in ("kernel", "launch", "target")[: 2 if pair.axis == _TARGET else 3]
    }
    same = [names[0] for names in distinct.values() if len(names) == 1]
    lifted = lifted_words([config for config, _ in entries])
    blocks: list[Block] = [say(" · ".join((*same, pair.title, *lifted)), Tone.HEAD)]
    if len(distinct["launch"]) > 1 == len(distinct["kernel"]):
        legend = {row.launch: launches[row.cell] for row in pair.newer if row.cell in launches}
        blocks += [say(f"{name}: {words}", Tone.FAINT) for name, words in legend.items()]
    shown = entries[:_MOST_ROWS]
    blocks.append(_table(shown, [name for name, names in distinct.items() if len(names) > 1]))
    if more := len(entries) - len(shown):
        blocks.append(say(f"and {plural(more, 'more line')} (--json)", Tone.FAINT))
    if equal := len(pair.changes) - len(pair.shown):
        blocks.append(say(f"the same with both: {plural(equal, 'config')}", Tone.FAINT))
    return [*blocks, say(pair.sentence, Tone.HEAD), BLANK]


def _table(entries: Sequence[_Entry], names: Sequence[str]) -> SaidGrid:
    """A line for each entry; `names` are those of columns that say where it is."""
    changes = [change for _, change in entries]
    columns: dict[str, Sequence[str | SaidLine]] = {
        name: [getattr(change.facts, name).rpartition("::")[2] for change in changes]
        for name in names
    }
    columns |= config_columns([config for config, _ in entries])
    columns["is"] = [
        say(_KINDS.get(each.kind, each.kind.value), TONES.get(each.kind, Tone.PLAIN))
        for each in changes
    ]
    columns["verdict"] = [
        say("".join(f"{word} -> " for word in moved(each, "verdict")[:-1]))
        + verdict_said(each.facts.verdict)
        for each in changes
    ]
    for metric, title in _METRICS.items():
        sides = [moved(each, metric) for each in changes]
        # Of a side that has no number, its verdict says why.
        columns[title] = [each[-1] if "-" in each else " -> ".join(each) for each in sides]
    return grid_of(columns, _SPARE)


# What leads on, and what `--json` has.


def bisect_worst(
    pairs: Sequence[SideBySide], rows: Sequence[Row], words: SelectionOptions
) -> list[tuple[str, str]]:
    """The command that says since when the worst of it is so.

    `words` chose the rows; without a kernel they meant several.
    """
    worst = [(pair.changes[0], pair) for pair in pairs if pair.changes]
    change, pair = min(worst, key=lambda entry: _gravity(entry[0]), default=(None, None))
    if change is None or pair is None or not change.kind.is_bad:
        return []
    row = next(row for row in pair.newer if row.cell == change.facts.cell)
    words = replace(words, kernel=words.kernel or row.kernel)
    cell, axis, why = cell_words(row, rows, words), "target", "where else is the worst of it so?"
    more = _condition(change)
    if pair.axis != _TARGET:
        kind = row.compiler if pair.axis == _COMPILER else row.assembler
        axis = kind if kind in (TRITON, PTXAS) else _AXES[pair.axis]
        cell = (on_compiler, on_assembler)[pair.axis](cell, None, None)
        ends = [_version(side[0], pair.axis) for side in (pair.older, pair.newer)]
        more, why = (
            [*more, "--good", ends[0], "--bad", ends[1]],
            "since when is the worst of it so?",
        )
    return [(spell_command("bisect", cell, "--axis", axis, *more), why)]


def _condition(change: Change) -> list[str]:
    """What follows a number that is worse, where no verdict says so."""
    older, newer = change.older, change.newer
    name = change.steps[0].metric if change.steps else ""
    if name not in ("spills", "n_regs", "occupancy") or older is None or newer is None:
        return []
    if name == "spills":
        is_stored = (newer.spill_stores or 0) > (older.spill_stores or 0)
        name = "spill_stores" if is_stored else "spill_loads"
    return ["--while", f"{name}{'<=' if name == 'occupancy' else '>='}{getattr(newer, name)}"]


def compared_document(pair: SideBySide) -> dict[str, Any]:
    """Two sides in the document of `triage compile`: what differs, the worst first."""
    return {
        "axis": _AXES[pair.axis],
        "older": pair.older[0].cell.split("@")[-1],
        "newer": pair.newer[0].cell.split("@")[-1],
        "words": pair.sentence,
        "changes": list(map(changed_cell, pair.shown)),
        "same": len(pair.changes) - len(pair.shown),
        "only_older": pair.alone[0],
        "only_newer": pair.alone[1],
    }
