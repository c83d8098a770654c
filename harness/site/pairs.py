"""Two cells side by side: verdict, numbers, and what differs in their PTX and SASS. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import product, zip_longest
from typing import NamedTuple, TypeAlias

from harness.io.packages.versions import toolchain_order
from harness.site.squares import toolchain_of_cell
from harness.tables.rows import figure
from harness.values.bug import Seen
from harness.values.row import BugFacts

_Code: TypeAlias = Sequence[str]
STAGES = ("ptx", "sass")
_MOST_LINES = 4_000
_MOST_SHOWN = 500
_AROUND = 3
_ADDRESS = re.compile(r"/\*[0-9a-f]{4,}\*/|/\* 0x[0-9a-f]+ \*/")
_NOT_CODE = re.compile(r"\s*(?://|\.loc\b|\.file\b|\.section\b|$)")
# What a compiler counts through: registers, labels. `%tid.x` and `RZ` are none.
_NUMBERED = re.compile(r"(%[a-z]+|\b[RP]|\bU[RP]|\$L\w*?|\bB|\.L_x_)\d+\b")


class DiffLine(NamedTuple):
    """A line of both sides: `kind` is `same`, `changed`, or `skip` (`left` says how many)."""

    kind: str
    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDiff:
    """One stage of two cells; `words` say how much of it differs, `note` what is not shown."""

    title: str
    words: str
    lines: tuple[DiffLine, ...]
    note: str = ""


_FACTS: tuple[tuple[str, Callable[[BugFacts], str]], ...] = (
    ("verdict", lambda cell: f"{cell.verdict} {cell.code or ''}".rstrip()),
    ("reason", lambda cell: cell.reason),
    ("toolchain", lambda cell: toolchain_of_cell(cell).words),
    ("config", lambda cell: cell.config_label),
    ("registers", lambda cell: figure(cell.n_regs)),
    ("spill stores, bytes", lambda cell: figure(cell.spill_stores)),
    ("spill loads, bytes", lambda cell: figure(cell.spill_loads)),
    ("shared memory, bytes", lambda cell: figure(cell.shared)),
    ("tensor memory, columns", lambda cell: figure(cell.tmem_size)),
    ("occupancy", lambda cell: "-" if cell.occupancy is None else f"{cell.occupancy:.1%}"),
    ("PTX, by its hash", lambda cell: (cell.ptx_body_sha256 or "-")[:8]),
)


def pair_facts(left: BugFacts, right: BugFacts) -> list[tuple[str, str, str]]:
    """What is known of two cells, side by side: a name, and what it is of each."""
    return [(name, words(left), words(right)) for name, words in _FACTS]


def stage_diffs(left: Mapping[str, bytes], right: Mapping[str, bytes]) -> list[StageDiff]:
    """What differs in each stage that one of two cells has, by its bytes."""
    return [
        _stage_diff(stage.upper(), left.get(stage), right.get(stage))
        for stage in STAGES
        if left.get(stage) or right.get(stage)
    ]


def _stage_diff(title: str, left: bytes | None, right: bytes | None) -> StageDiff:
    if left is None or right is None:
        side = "first" if left is None else "second"
        return StageDiff(title=title, words=f"The {side} cell has none.", lines=())
    if left == right:
        return StageDiff(title=title, words="The same, byte for byte.", lines=())
    texts = [_code(data) for data in (left, right)]
    before, after = (lines[:_MOST_LINES] for lines in texts)
    blocks = SequenceMatcher(None, list(map(_key, before)), list(map(_key, after)))
    codes = blocks.get_opcodes()
    gone = sum(i2 - i1 for tag, i1, i2, _, _ in codes if tag != "equal")
    new = sum(j2 - j1 for tag, _, _, j1, j2 in codes if tag != "equal")
    lines = list(_lines(blocks, before, after))
    note = ""
    if len(lines) > _MOST_SHOWN:
        note = f"{len(lines) - _MOST_SHOWN:,} lines of the comparison are left out"
    words = (
        f"{gone:,} of {len(before):,} lines are only in the first cell, "
        f"{new:,} of {len(after):,} only in the second."
    )
    if max(map(len, texts)) > _MOST_LINES:
        sizes = " and ".join(f"{len(text):,}" for text in texts)
        words = f"Compared are the first {_MOST_LINES:,} lines of each, which have {sizes}: {words}"
    elif not gone and not new:
        words = "The same but for the names of registers and labels, comments and debug lines."
    return StageDiff(title=title, words=words, lines=tuple(lines[:_MOST_SHOWN]), note=note)


def _code(data: bytes) -> list[str]:
    lines = (_ADDRESS.sub("", line).strip() for line in data.decode("utf-8", "replace").split("\n"))
    return [line for line in lines if not _NOT_CODE.match(line)]


def _key(line: str) -> str:
    return _NUMBERED.sub(r"\1", line)


def _lines(blocks: SequenceMatcher[str], before: _Code, after: _Code) -> Iterator[DiffLine]:
    done = 0
    end = [("equal", len(before), len(before), len(after), len(after))]
    for group in (*blocks.get_grouped_opcodes(_AROUND), end):
        if skipped := group[0][1] - done:
            yield DiffLine("skip", f"{skipped:,} equal lines", "")
        for tag, i1, i2, j1, j2 in group:
            kind = "same" if tag == "equal" else "changed"
            for old, new in zip_longest(before[i1:i2], after[j1:j2], fillvalue=""):
                yield DiffLine(kind, old, new)
        done = group[-1][2]


def neighbours(beside: Sequence[tuple[BugFacts, str, Seen]]) -> tuple[str, str] | None:
    """Of the cells at one place, one that works and one that has the bug; None without both.

    Those that share their compiler or their assembler come first, of these the last that works
    before one that does not; then those that are nearest.
    """
    ordered = sorted(
        ((facts, seen) for facts, _, seen in beside),
        key=lambda entry: toolchain_order(
            entry[0].compiler_version, entry[0].ptxas, entry[0].ptxas_origin
        ),
    )
    good = [index for index, (_, seen) in enumerate(ordered) if seen is Seen.CLEAN]
    bad = [index for index, (_, seen) in enumerate(ordered) if seen is Seen.HERE]

    def distance(pair: tuple[int, int]) -> tuple[bool, bool, int]:
        first, second = (ordered[index][0] for index in pair)
        shares = first.compiler_name == second.compiler_name or first.tool == second.tool
        return not shares, pair[0] > pair[1], abs(pair[0] - pair[1])

    pair = min(product(good, bad), key=distance, default=None)
    return (ordered[pair[0]][0].cell, ordered[pair[1]][0].cell) if pair else None
