"""The configs of one launch as a set: a tuner takes the best that works, whatever its name.

A set has one kernel, launch, target and toolchain. Where the source lists other configs than
before, its cells cannot be compared one by one. Rules:

- Fewer work than before: each new one that fails, as far as one is lost for it, is `regressed`. It
  is compared with the nearest config that is gone: the one with which it shares the most values.
- More work than before: each new one that works is `fixed` in the same way, as far as one that
  failed is gone for it.
- The best config is sick now, or spills more: `metric-worse`. The other way round it is
  `metric-better`. Registers and occupancy are not compared: a larger tile takes more for more work.
- What else is gone is `removed`: other configs have come in its place.

Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from harness.judging.answers import COULD_NOT_TELL, works
from harness.values.change import Change, ChangeKind, ConfigSet, MetricStep, Severity
from harness.values.row import Facts
from harness.values.verdict import VerdictKind

_Key: TypeAlias = tuple[str, ...]
_COMPARED = ("verdict", "spills")
_TOO_LITTLE = Severity.INFORMATIONAL


def does_work(facts: Facts) -> bool:
    """Whether the config can be used."""
    return works(facts.verdict, facts.stage)


@dataclass(slots=True)
class _Side:
    working: int = 0
    every: int = 0
    best: Facts | None = None

    def add(self, facts: Facts) -> None:
        self.every += 1
        if does_work(facts):
            self.working += 1
            self.best = min(filter(None, (self.best, facts)), key=_quality)


@dataclass(slots=True)
class _Set:
    example: Facts
    older: _Side = field(default_factory=_Side)
    newer: _Side = field(default_factory=_Side)

    def listed(self) -> ConfigSet:
        """What is reported of it."""
        one, older, newer = self.example, self.older, self.newer
        return ConfigSet(
            kernel=one.kernel,
            launch=one.launch,
            target=one.target,
            toolchain=f"{one.compiler_name} · {one.tool}",
            older=(older.working, older.every),
            newer=(newer.working, newer.every),
            spills=(_spills(older.best), _spills(newer.best)),
        )


@dataclass(slots=True)
class ConfigSets:
    """The sets of two runs, counted while their cells go by.

    `judge` says what a cell is that is compared with another, as if both were of one config.
    """

    judge: Callable[[Facts, Facts], Change]
    sets: dict[_Key, _Set] = field(default_factory=dict)

    def add(self, older: Iterable[Facts], newer: Iterable[Facts]) -> None:
        """Count cells of both runs."""
        for facts in older:
            self._of(facts).older.add(facts)
        for facts in newer:
            self._of(facts).newer.add(facts)

    def _of(self, facts: Facts) -> _Set:
        return self.sets.setdefault(_key(facts), _Set(facts))

    def listed(self) -> tuple[ConfigSet, ...]:
        """Each set, for people."""
        return tuple(one.listed() for one in self.sets.values())

    def judged(self, changes: Sequence[Change], *, is_whole: bool) -> list[Change]:
        """The changes by the rules of sets; only of `is_whole` runs one is known to be another.

        Those of cells that no longer work have their set, where fewer of it work, and those of
        recovered lists, where more of it work.
        """
        gone: dict[_Key, list[Change]] = defaultdict(list)
        new: dict[_Key, list[Facts]] = defaultdict(list)
        for change in changes if is_whole else ():
            if change.kind in (ChangeKind.MISSING, ChangeKind.REMOVED):
                gone[_key(change.facts)].append(change)
            elif change.kind is ChangeKind.NEW and not change.since:
                new[_key(change.facts)].append(change.facts)
        instead: dict[tuple[str, bool], Change] = {}
        for key, out in gone.items():
            if not new[key] and out[0].kind is ChangeKind.MISSING:
                continue
            instead |= {_at(change): replace(change, kind=ChangeKind.REMOVED) for change in out}
            leaving = [change.facts for change in out]
            for change in (*self._moved(leaving, new[key]), *self._best(leaving, new[key], key)):
                # Where no new config stands for it, it is said of the one that is gone.
                said_of = change if change.newer in new[key] else replace(change, newer=None)
                instead[_at(said_of)] = change
        sets = {key: each.listed() for key, each in self.sets.items()}
        judged = []
        for plain in changes:
            change = instead.get(_at(plain), plain)
            configs = sets[_key(change.facts)]
            lost = configs.older[0] - configs.newer[0]
            is_told = (change.kind is ChangeKind.REGRESSED and lost > 0) or (
                change.kind is ChangeKind.FIXED and lost < 0 and change.is_of_other_configs
            )
            judged.append(replace(change, configs=configs) if is_told else change)
        return judged

    def _moved(self, gone: Sequence[Facts], new: Sequence[Facts]) -> Iterator[Change]:
        worked, working = (list(filter(does_work, side)) for side in (gone, new))
        failed = [facts for facts in gone if facts.verdict.is_failure]
        failing = [facts for facts in new if not does_work(facts)]
        # What is undetermined is not known to fail.
        failing.sort(key=lambda facts: facts.verdict in COULD_NOT_TELL)
        lost = len(worked) - len(working)
        older, newer = (worked, failing[:lost]) if lost > 0 else (failed, working[:-lost])
        for facts in newer[: len(older)]:
            mine = facts.config.items()
            nearest = max(older, key=lambda old: len(old.config.items() & mine))
            older.remove(nearest)
            yield self.judge(nearest, facts)

    def _best(self, gone: Sequence[Facts], new: Sequence[Facts], key: _Key) -> Iterator[Change]:
        older, newer = self.sets[key].older.best, self.sets[key].newer.best
        steps = self._steps(older, newer)
        if steps and steps[0].worse and new:
            newer = min(filter(does_work, new), key=_quality, default=None)
            steps = self._steps(older, newer)
        # What both runs have is compared as a cell.
        if steps and (older in gone if steps[0].worse else newer in new):
            kind = ChangeKind.METRIC_WORSE if steps[0].worse else ChangeKind.METRIC_BETTER
            yield Change(kind=kind, older=older, newer=newer, steps=steps)

    def _steps(self, older: Facts | None, newer: Facts | None) -> tuple[MetricStep, ...]:
        steps = self.judge(older, newer).steps if older and newer else ()
        return tuple(
            step for step in steps if step.metric in _COMPARED and step.severity > _TOO_LITTLE
        )


def _at(change: Change) -> tuple[str, bool]:
    return change.facts.cell, change.newer is None


def _key(facts: Facts) -> _Key:
    compiler, tool = facts.cell.rsplit("/", 2)[1:]
    # Two files of one name are two kernels: the first part says where the file lies.
    file = facts.file.partition(":")[0] if facts.file else ""
    return facts.kernel, facts.launch, facts.target, compiler, tool, file


def _spills(best: Facts | None) -> int | None:
    return best.spills if best else None


def _quality(facts: Facts) -> tuple[bool, bool, int, int]:
    spills = facts.spills
    is_sick = facts.verdict is VerdictKind.SICK
    return is_sick, spills is None, spills or 0, facts.n_regs or 0
