"""The log of a bisection: what was asked, each answer as it came, and the end; lines of JSON.

A line is written whole, as soon as it is known. What is read again is checked; a last line that a
crash cut off is left out. Later lines of a version replace earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.bisect.ir_difference import StageStory
from harness.bisect.search import Probe, Tally
from harness.bisect.words import ProbeEvidence
from harness.io.files.locations import storage_error
from harness.io.files.reading import read_regular
from harness.judging.conditions import parse_condition, spell
from harness.judging.followed import Followed
from harness.values.errors import ConfigurationError
from harness.values.kernel import Config, Scalar
from harness.values.row import Row
from harness.values.verdict import VerdictKind

_MAX_BYTES = 256 << 20
_SCHEMA = 1


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """The first line: the options of the command, by name, and the versions there were."""

    schema: int = _SCHEMA
    axis: str
    selection: dict[str, str | bool | list[str] | None]
    options: dict[str, str | bool | int | None]


class VersionAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What one version answered, and what was followed then."""

    version: str
    probe: Probe
    tally: Tally
    row: Row | None
    reason: str
    config: dict[str, Scalar] | None
    signature: str | None
    others: tuple[str, ...]


class _Plan(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    versions: tuple[str, ...]
    budget: int


class _End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    versions: tuple[str, ...]
    focus: int | None
    signature: str | None
    config: dict[str, Scalar] | None
    others: tuple[str, ...]
    stages: StageStory | None
    trouble: str | None
    has_all: bool = True
    kind: VerdictKind = VerdictKind.OK
    stage: str | None = None
    condition: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The versions that are to be tried next, side by side, and how many may be, with these."""

    versions: tuple[str, ...]
    budget: int


@dataclass(slots=True, kw_only=True)
class LoggedProbes:
    """What a log knows, by version."""

    probes: dict[str, Probe] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    signature: str | None = None
    config: Config | None = None
    others: tuple[str, ...] = ()


_DECODER: msgspec.json.Decoder[Asked | VersionAnswer | _Plan | _End] = msgspec.json.Decoder(
    Asked | VersionAnswer | _Plan | _End
)


class BisectLog:
    """One log, to add to."""

    def __init__(
        self,
        path: Path,
        asked: Asked,
        known: LoggedProbes,
        planned: Planned | None = None,
        end: _End | None = None,
    ) -> None:
        self.path, self.asked, self.known, self.planned = path, asked, known, planned
        self._end = end

    @classmethod
    def begin(cls, path: Path, asked: Asked) -> BisectLog:
        """A new log; one that lies there is replaced.

        Raises:
            StorageError: it cannot be written.
        """
        log = cls(path, asked, LoggedProbes())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(asked) + b"\n")
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
        asked = _decode(path, 1, lines[0])
        if not isinstance(asked, Asked):
            raise ConfigurationError(f"{path}:1: not the log of a bisection: nothing was asked")
        if asked.schema != _SCHEMA:
            said = f"a log of schema {asked.schema}: only {_SCHEMA} is known"
            raise ConfigurationError(f"{path}:1: {said}; use the triage that wrote it")
        known, planned, end = LoggedProbes(), None, None
        for number, line in enumerate(lines[1:], start=2):
            if number == len(lines) and not line.endswith(b"\n"):
                break
            entry = _decode(path, number, line)
            if isinstance(entry, VersionAnswer):
                version = entry.version
                known.probes[version], known.tallies[version] = entry.probe, entry.tally
                if entry.row:
                    known.rows[version] = entry.row
                if entry.reason:
                    known.reasons[version] = entry.reason
                known.signature, known.others = entry.signature, entry.others
                known.config = None if entry.config is None else Config.of(entry.config)
            if isinstance(entry, _Plan):
                planned = Planned(versions=entry.versions, budget=entry.budget)
            end = entry if isinstance(entry, _End) else None
        return cls(path, asked, known, planned, end)

    def probe(self, answer: VersionAnswer) -> None:
        """Add the answer of one version."""
        self._add(answer)

    def plan(self, versions: Sequence[str], budget: int) -> None:
        """Add what is tried next, and how many versions may still be."""
        self._add(_Plan(versions=tuple(versions), budget=budget))

    def end(self, evidence: ProbeEvidence) -> None:
        """Add the end of a run."""
        followed = evidence.followed
        self._add(
            _End(
                versions=evidence.versions,
                focus=evidence.focus,
                signature=followed.signature,
                kind=followed.kind,
                stage=followed.stage,
                condition=spell(followed.condition) if followed.condition else None,
                why=followed.why,
                config=evidence.config.as_dict() if evidence.config else None,
                others=evidence.others,
                stages=evidence.stages,
                trouble=evidence.trouble,
                has_all=evidence.has_all,
            )
        )

    def replay(self) -> ProbeEvidence:
        """Everything again, from the log alone.

        Raises:
            ConfigurationError: the run that wrote it never came to an end.
        """
        end = self._end
        if end is None:
            raise ConfigurationError(
                f"{self.path}: that bisection did not come to its end; --resume goes on with it"
            )
        index = {version: position for position, version in enumerate(end.versions)}
        return ProbeEvidence(
            axis=self.asked.axis,
            versions=end.versions,
            probes={index[v]: probe for v, probe in self.known.probes.items() if v in index},
            reasons={index[v]: text for v, text in self.known.reasons.items() if v in index},
            rows={index[v]: row for v, row in self.known.rows.items() if v in index},
            tallies={index[v]: tally for v, tally in self.known.tallies.items() if v in index},
            focus=end.focus,
            followed=Followed(
                kind=end.kind,
                stage=end.stage,
                signature=end.signature,
                condition=parse_condition(end.condition) if end.condition else None,
                why=end.why,
            ),
            config=None if end.config is None else Config.of(end.config),
            others=end.others,
            stages=end.stages,
            trouble=end.trouble,
            has_all=end.has_all,
        )

    def _add(self, entry: VersionAnswer | _Plan | _End) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
        except OSError as error:
            raise storage_error(error, self.path, "write") from error


def _decode(path: Path, number: int, line: bytes) -> Asked | VersionAnswer | _Plan | _End:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"{path}:{number}: not a line of a bisection's log: {error}"
        ) from error
