"""The log of a bisection: what was asked, each answer as it came, and the end; lines of JSON.

A line is written whole, as soon as it is answers. What is read again is checked; a last line that a
crash cut off is left out. Later lines of a version replace earlier ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.bisect.bisect_words import BisectReport
from harness.bisect.ir_difference import StageStory
from harness.bisect.search import Finding, Probe, Tally, conclude
from harness.io.files.locations import home_dir, storage_error
from harness.io.files.reading import read_regular
from harness.judging.conditions import parse_condition, spell
from harness.judging.followed import FollowedFailure
from harness.values.cell import CellId
from harness.values.errors import ConfigurationError
from harness.values.row import Row
from harness.values.verdict import VerdictKind

T = TypeVar("T")
_MAX_BYTES = 256 << 20
_SCHEMA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """What to look for: `bad` is a version that fails, `good` one that works.

    `signature` names the failure, `condition` (as of `--while`) what is followed in its place.
    `budget` is how many versions may be tried beside those, by default as many as are installed
    plus one of each minor release plus what two searches by halving take; with `sweep` every one
    is. `repeat` is how often both sides of a boundary are run, at least. `script` is the user's own
    predicate, see `run_script`. With `run` the PTX is executed, and what comes out is
    followed; with `on` gpu the cubins are launched, by the command `runner` where there is one.
    `package_version` names the releases that lie on the axis of releases, all by default.
    """

    axis: str = "ptxas"
    package_version: str | None = None
    good: str | None = None
    bad: str | None = None
    signature: str | None = None
    condition: str | None = None
    sweep: bool = False
    budget: int | None = None
    repeat: int = 5
    script: str | None = None
    run: bool = False
    on: str | None = None
    runner: str | None = None


class LogHead(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """The first line: the options of the command, by name, and the versions there were."""

    schema: int = _SCHEMA
    axis: str
    selection: dict[str, Any]
    options: BisectOptions


class VersionAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What one version answered, and what was followed then."""

    version: str
    probe: Probe
    tally: Tally
    row: Row | None
    reason: str
    cell: CellId | None
    signature: str | None
    others: tuple[CellId, ...]


class Planned(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """The versions that are to be tried next, side by side, and how many may be, with these."""

    versions: tuple[str, ...]
    budget: int


class _End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """What a run came to beside its answers."""

    versions: tuple[str, ...]
    focus: int | None
    signature: str | None
    cell: CellId | None
    others: tuple[CellId, ...]
    stages: StageStory | None
    trouble: str | None
    has_all: bool = True
    kind: VerdictKind = VerdictKind.OK
    stage: str | None = None
    condition: str | None = None
    why: str | None = None
    said: str | None = None
    axis: str | None = None


@dataclass(slots=True, kw_only=True)
class Answers:
    """What the versions that were tried say, by version; `cell` is the one that is followed.

    It is that of the version which was tried first; the others have their own in its place.
    """

    probes: dict[str, Probe] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    cell: CellId | None = None
    others: tuple[CellId, ...] = ()

    def leave_out(self, versions: Collection[str]) -> None:
        """Forget all versions but these."""
        self.probes = in_order(versions, self.probes)
        self.tallies = in_order(versions, self.tallies)
        self.rows, self.reasons = in_order(versions, self.rows), in_order(versions, self.reasons)

    def by_index(self, versions: Sequence[str]) -> dict[int, Probe]:
        """The probes by their places among these versions."""
        return {versions.index(version): probe for version, probe in self.probes.items()}

    def finding(self, versions: Sequence[str], focus: str | None) -> Finding:
        """What the probes say; `focus` as in `conclude`."""
        index = None if focus is None else versions.index(focus)
        return conclude(len(versions), self.by_index(versions), focus=index)


def log_path(name: str) -> Path:
    """Where a new log of this name lies."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    return home_dir() / "bisections" / f"{name}-{stamp}.jsonl"


def in_order(versions: Iterable[str], values: Mapping[str, T]) -> dict[str, T]:
    """The values of these versions, in their order."""
    return {version: values[version] for version in versions if version in values}


_Entry = LogHead | VersionAnswer | Planned | _End
_DECODER: msgspec.json.Decoder[_Entry] = msgspec.json.Decoder(_Entry)


@dataclass(slots=True)
class BisectLog:
    """One log, to add to."""

    path: Path
    head: LogHead
    answers: Answers
    planned: Planned | None = None
    _end: _End | None = None

    @classmethod
    def begin(cls, path: Path, head: LogHead) -> BisectLog:
        """A new log; one that lies there is replaced.

        Raises:
            StorageError: it cannot be written.
        """
        log = cls(path, head, Answers())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(head) + b"\n")
        except OSError as error:
            raise storage_error(error, path, "write") from error
        return log

    @classmethod
    def read(cls, path: Path) -> BisectLog:
        """A log that an earlier run left.

        Raises:
            ConfigurationError: it is not there, or no log of a bisection; file and line are named.
        """
        lines = read_regular(path, _MAX_BYTES).splitlines(keepends=True)
        if not lines:
            raise ConfigurationError(f"{path}: empty, not the log of a bisection")
        head = _decode(path, 1, lines[0])
        if not isinstance(head, LogHead):
            raise ConfigurationError(f"{path}:1: not the log of a bisection: nothing was asked")
        if head.schema != _SCHEMA:
            raise ConfigurationError(
                f"{path}:1: a log of schema {head.schema}: only {_SCHEMA} is known; use the "
                "triage that wrote it"
            )
        answers, planned, end = Answers(), None, None
        for number, line in enumerate(lines[1:], start=2):
            if number == len(lines) and not line.endswith(b"\n"):
                break
            entry = _decode(path, number, line)
            if isinstance(entry, VersionAnswer):
                version = entry.version
                answers.probes[version], answers.tallies[version] = entry.probe, entry.tally
                if entry.row:
                    answers.rows[version] = entry.row
                if entry.reason:
                    answers.reasons[version] = entry.reason
                answers.others, answers.cell = entry.others, entry.cell
            if isinstance(entry, Planned):
                planned = entry
            end = entry if isinstance(entry, _End) else None
        return cls(path, head, answers, planned, end)

    def note(self, version: str, signature: str | None) -> None:
        """Add what is known of one version; `signature` is that of the failure that is followed."""
        answers = self.answers
        self._add(
            VersionAnswer(
                version=version,
                probe=answers.probes[version],
                tally=answers.tallies.get(version, Tally()),
                row=answers.rows.get(version),
                reason=answers.reasons.get(version, ""),
                cell=answers.cell,
                signature=signature,
                others=answers.others,
            )
        )

    def plan(self, versions: Sequence[str], budget: int) -> None:
        """Add what is tried next, and how many versions may still be."""
        self._add(Planned(versions=tuple(versions), budget=budget))

    def end(
        self,
        followed: FollowedFailure,
        *,
        axis: str,
        versions: tuple[str, ...],
        has_all: bool,
        focus: str | None,
        stages: StageStory | None,
        trouble: str | None,
    ) -> BisectReport:
        """Add the end of a run; what it says."""
        self._end = _End(
            axis=axis,
            versions=versions,
            has_all=has_all,
            focus=None if focus is None else versions.index(focus),
            signature=followed.signature,
            kind=followed.kind,
            stage=followed.stage,
            condition=spell(followed.condition) if followed.condition else None,
            why=followed.why,
            said=followed.said,
            cell=self.answers.cell,
            others=self.answers.others,
            stages=stages,
            trouble=trouble,
        )
        self._add(self._end)
        return self.report()

    def report(self) -> BisectReport:
        """What a run came to, from the log alone.

        Raises:
            ConfigurationError: the run that wrote it never came to an end.
        """
        end, answers = self._end, self.answers
        if end is None:
            raise ConfigurationError(
                f"{self.path}: that bisection did not come to its end; --resume goes on with it"
            )
        answers.leave_out(end.versions)
        return BisectReport(
            axis=end.axis or self.head.axis,
            versions=end.versions,
            rows=answers.rows,
            reasons=answers.reasons,
            tallies=answers.tallies,
            finding=conclude(len(end.versions), answers.by_index(end.versions), focus=end.focus),
            followed=FollowedFailure(
                kind=end.kind,
                stage=end.stage,
                signature=end.signature,
                condition=parse_condition(end.condition) if end.condition else None,
                why=end.why,
                said=end.said,
            ),
            cell=end.cell,
            others=end.others,
            stages=end.stages,
            trouble=end.trouble,
            has_all=end.has_all,
        )

    def _add(self, entry: VersionAnswer | Planned | _End) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
        except OSError as error:
            raise storage_error(error, self.path, "write") from error


def _decode(path: Path, number: int, line: bytes) -> _Entry:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"{path}:{number}: not a line of a bisection's log: {error}"
        ) from error
