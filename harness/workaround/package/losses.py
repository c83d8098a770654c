"""What a target leaves of a tuning list. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harness.judging.answers import COULD_NOT_TELL
from harness.tables.survivors import group_rows
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.verdict import VerdictKind


class Loss(StrEnum):
    """How many configs of a list a target takes; `unknown`: of none it could be determined."""

    ALL = "all"
    MOST = "most"
    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningList:
    """The configs of one launch of a kernel on one target with one toolchain.

    `kernel` is the function, `name` what `--kernel` takes; `record` is one of its configs as it was
    captured, `file` where it is written, below the package's folder. `keys` name what is compiled.
    `also` are other launches that come to the very same list.
    """

    kernel: str
    name: str
    file: str
    record: LaunchFacts
    keys: frozenset[str]
    rows: tuple[Row, ...]
    also: tuple[str, ...] = field(default=())

    @property
    def target(self) -> str:
        """As ptxas spells it."""
        return self.rows[0].target

    @property
    def launch(self) -> str:
        """The first launch that comes to it, with its folder."""
        return f"{self.name.partition('::')[0]} {self.rows[0].launch}"

    @property
    def works(self) -> tuple[Row, ...]:
        """Those that compile, sick ones among them."""
        return tuple(row for row in self.rows if VerdictKind(row.verdict).compiles)

    @property
    def lost(self) -> tuple[Row, ...]:
        """Those that do not work, by an answer of the compilers and not by a limit of `triage`."""
        return tuple(row for row in self.rows if not _is_unknown(row) and row not in self.works)

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Those of which nothing could be determined."""
        return tuple(row for row in self.rows if _is_unknown(row))

    @property
    def loss(self) -> Loss:
        """How much is lost; `all` only where every config is known to be."""
        lost = len(self.lost)
        if lost == len(self.rows):
            return Loss.ALL
        if 2 * lost > len(self.rows):
            return Loss.MOST
        if lost:
            return Loss.SOME
        return Loss.NONE if self.works else Loss.UNKNOWN


def _is_unknown(row: Row) -> bool:
    return VerdictKind(row.verdict) in COULD_NOT_TELL


def tuning_lists(
    rows: Sequence[Row], captured: Mapping[str, LaunchFacts], files: Mapping[str, str]
) -> list[TuningList]:
    """The lists that the rows make up, each once, in the order of the rows.

    Args:
        rows: the results.
        captured: the launch of each cell, by its name.
        files: the place of each captured file below the package's folder.
    """
    found: dict[object, TuningList] = {}
    for group in group_rows(rows):
        records = [captured[row.cell] for row in group]
        first, keys = records[0], frozenset(record.key for record in records)
        one = TuningList(
            kernel=first.kernel,
            name=group[0].kernel,
            file=files[first.file],
            record=first,
            keys=keys,
            rows=tuple(group),
        )
        row = group[0]
        same = (keys, row.target, row.compiler_version, row.ptxas, row.ptxas_origin, row.frozen)
        known = found.get(same)
        found[same] = replace(known, also=(*known.also, one.launch)) if known else one
    return list(found.values())
