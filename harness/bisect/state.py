"""One bisection at work: what is asked, what is known so far, and what is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.bisect.axes import Axis
from harness.bisect.log import BisectLog, VersionAnswer
from harness.bisect.search import Finding, Probe, Tally, conclude, runs_to_trust
from harness.cells.elsewhere import Elsewhere
from harness.cells.evaluate import Evaluate, Evaluated, evaluate
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.io.packages.versions import parse_version
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition
from harness.judging.followed import Followed, follow, gravest, is_followable, read_while
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.verdict import VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """What to look for: `bad` is a version that fails, `good` one that works.

    `signature` names the failure, `condition` (as of `--while`) what is followed in its place.
    `budget` is how many versions may be tried beside those, by default as many as are installed
    plus one of each minor release plus what two searches by halving take; with `sweep` every one
    is. `repeat` is how often both sides of a boundary are run, at least. `script` is the user's own
    predicate, see `harness.bisect.predicate`. With `run` the PTX is executed, and what comes out is
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


@dataclass(slots=True, kw_only=True)
class BisectSearch:
    """What is known so far: probes by index, how often each was run, and the cells behind them.

    `tell` hears each version as it is started, with no word, and then what it did. `followed` is
    derived from the rows, see `relearn`.
    """

    bench: Workbench
    run: int
    axis: Axis
    options: BisectOptions
    log: BisectLog
    tell: Callable[[str, str], None]
    condition: Condition | None
    followed: Followed
    config: Config | None = None
    others: tuple[str, ...] = ()
    probes: dict[int, Probe] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    tallies: dict[int, Tally] = field(default_factory=dict)
    done: dict[int, Evaluated] = field(default_factory=dict)
    plans: dict[int, PlannedCell] = field(default_factory=dict)
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)
    evaluate: Evaluate = evaluate
    elsewhere: Elsewhere | None = None

    @property
    def at_once(self) -> int:
        """How many versions can be tried side by side."""
        return self.elsewhere.at_once if self.elsewhere else self.bench.jobs

    @classmethod
    def begin(
        cls,
        bench: Workbench,
        run: int,
        axis: Axis,
        options: BisectOptions,
        log: BisectLog,
        tell: Callable[[str, str], None],
    ) -> BisectSearch:
        """A search that goes on from what the log knows.

        A version that the index no longer has is left out.

        Raises:
            UsageError: the condition is malformed.
        """
        condition = read_while(options.condition)
        search = cls(
            bench=bench,
            run=run,
            axis=axis,
            options=options,
            log=log,
            tell=tell,
            condition=condition,
            followed=Followed(signature=options.signature, condition=condition),
        )
        known = log.known
        search.config, search.others = known.config, known.others
        for index, version in enumerate(axis.versions):
            if version not in known.probes:
                continue
            search.probes[index] = known.probes[version]
            search.tallies[index] = known.tallies.get(version, Tally())
            if version in known.rows:
                search.rows[index] = known.rows[version]
            if version in known.reasons:
                search.reasons[index] = known.reasons[version]
        search.relearn()
        return search

    def index(self, version: str | None, option: str) -> int | None:
        """Where a version that the user named lies on the axis.

        Raises:
            UsageError: it is not there.
        """
        if version is None:
            return None
        wanted = {str(parse_version(version)), version}
        for index, known in enumerate(self.axis.versions):
            if known in wanted:
                return index
        raise UsageError(f"--{option} {version}: there is no such {self.axis.name}")

    @property
    def focus(self) -> int | None:
        """The version at which the failure is looked for."""
        if self.options.bad:
            return self.index(self.options.bad, "bad")
        asked = self.axis.asked
        return self.axis.versions.index(asked) if asked in self.axis.versions else None

    @property
    def is_named(self) -> bool:
        """Whether the user named the version at which the failure is looked for."""
        return self.focus is not None and (self.options.bad is not None or self.axis.is_named)

    @property
    def meant(self) -> int | None:
        """The version whose failure is asked about: the one that was named, if it shows it."""
        return self.focus if self.is_named else None

    @property
    def runs_wanted(self) -> int:
        """How often a version must pass before it counts as one that works.

        By the failing version that fails least often, among those that were run often enough.
        """
        failing = (i for i, probe in self.probes.items() if probe.outcome is VerdictAnswer.SAME)
        tallies = (self.tallies.get(index, Tally()) for index in failing)
        known = (runs_to_trust(tally) for tally in tallies if tally.runs >= self.options.repeat)
        return max(known, default=1)

    def finding(self) -> Finding:
        """What the probes say."""
        return conclude(len(self.axis.versions), self.probes, focus=self.meant)

    def probe_of(self, row: Row) -> Probe:
        """What a row says of what is followed."""
        outcome = self.followed.of(row)
        return Probe(outcome=outcome, verdict=row.verdict, signature=row.signature)

    def relearn(self) -> None:
        """Derive what is followed from all rows, and judge every one of them by it.

        A function of what the user asks and of the rows alone: a search that was interrupted and
        resumed follows the same. How often a version was run stays known while its answer does.
        """
        if self.options.script:
            return
        lead = self._lead()
        if lead is not None:
            others = [row for _, row in sorted(self.rows.items()) if row is not lead]
            self.followed = follow(lead, condition=self.condition, others=others)
        for index, row in self.rows.items():
            before, now = self.probes.get(index), self.probe_of(row)
            if before is not None and before != now:
                self.probes[index], self.tallies[index] = now, tally_of(now)

    def _lead(self) -> Row | None:
        """The row whose failure is meant; None where nothing is seen of it yet.

        The failure that the user names; else that of the version that was named, or where it was
        seen; else the gravest of all, in the newest version that shows it.
        """
        rows = [row for _, row in sorted(self.rows.items())]
        if self.condition is not None or self.options.signature is not None:
            asked = Followed(signature=self.options.signature, condition=self.condition)
            return next((row for row in rows[::-1] if asked.of(row) is VerdictAnswer.SAME), None)
        seen = self.rows.get(self.focus) if self.focus is not None else None
        if seen is not None and seen.signature is not None:
            is_outright = is_followable(seen) and not VerdictKind(seen.verdict).compiles
            if self.is_named or is_outright:
                return seen
        return gravest(rows) or (seen if seen is not None and seen.signature else None)

    def note(self, index: int) -> None:
        """Write down what is known of a version."""
        answer = VersionAnswer(
            version=self.axis.versions[index],
            probe=self.probes[index],
            tally=self.tallies.get(index, Tally()),
            row=self.rows.get(index),
            reason=self.reasons.get(index, ""),
            config=self.config.as_dict() if self.config else None,
            signature=self.followed.signature,
            others=self.others,
        )
        self.log.probe(answer)


def tally_of(probe: Probe) -> Tally:
    """One run with this answer."""
    return Tally(failures=int(probe.outcome is VerdictAnswer.SAME), runs=1)
