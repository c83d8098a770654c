"""Whether a text of PTX goes wrong in the same way when the emulator executes it.

What a candidate computes has no meaning of its own: nothing says what it ought to be. So a wrong
value is held to its bits. Of one element, every schedule must leave the very bytes that the
original leaves, the wrong ones and the right ones. What is left then computes this one value, as
wrong as before. For a fault, a race, a hang and a read of what nothing wrote the emulator itself
is the judge: the same verdict and signature, the same address of a fault; and no race that the
original has not, so that no barrier goes that still orders something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpu_emulator.values import Budget
from harness.frontends.bench.bench import Workbench
from harness.minimize.ptx.defined import count_unwritten
from harness.minimize.ptx.predicate import Said
from harness.minimize.reduction.fingerprint import Answer
from harness.run.emulating import Once, emulate_once
from harness.run.entry import Entry, EntryError, read_entry
from harness.run.faults import race_words
from harness.run.jobs import Ran, RunTrial
from harness.run.judging import Judgement, judge, schedule_words
from harness.run.numbers.scalars import ELEMENTS
from harness.run.ptx_launch import PtxLaunch
from harness.run.schedules import DEFAULT, read_schedules, trials_of
from harness.values.execution import RunVerdict

_FAULTS = frozenset({RunVerdict.MEMORY_FAULT, RunVerdict.HANG, RunVerdict.LAUNCH_FAILED})
_BY_VALUE = frozenset({RunVerdict.WRONG_RESULT, RunVerdict.NONDETERMINISTIC})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one text does under the default schedules.

    `values` are the bytes of the element that is held, by schedule; `faults` what runs that differ
    in garbage alone say; `races` are pairs of lines by their kinds.
    """

    judgement: Judgement
    values: Mapping[str, bytes] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    races: Counter[tuple[str, bool]] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class EmulatedPtx:
    """A `PtxPredicate`: executes a text on the inputs of a launch.

    `files` are the sha256 of the buffers' bytes, which `contents` has. `entry` is the one that is
    meant, where a text has it. `wanted` is what the original does, once it was observed;
    `unwritten` how many registers it reads that nothing may have written, None where any number
    will do. `formal` is as in `RunEvidence`.
    """

    bench: Workbench
    launch: PtxLaunch
    files: Sequence[str | None]
    contents: Mapping[str, bytes]
    budget: Budget
    entry: str | None = None
    wanted: Observed | None = None
    unwritten: int | None = None
    formal: bool = False

    def is_possible(self, text: str) -> bool:
        """Whether its entry takes what the launch gives."""
        entry = self._entry(text)
        if entry is None or not self.launch.fits(entry):
            return False
        return self.unwritten is None or count_unwritten(text) <= self.unwritten

    async def ask(self, text: str) -> Said:
        """Whether it goes wrong as the original does.

        Raises:
            InfrastructureError: the emulator cannot be started.
        """
        assert self.wanted is not None, "the original was observed"
        if not self.is_possible(text):
            return Said(
                answer=Answer.UNTOLD, reason="its entry does not take what the launch gives"
            )
        early = await self._glance(text, self.wanted)
        if early:
            return early
        found = await self.observe(text)
        return compared(found, self.wanted)

    async def observe(self, text: str) -> Observed:
        """All that a text does.

        Raises:
            InfrastructureError: the emulator cannot be started.
        """
        trials = trials_of(read_schedules(DEFAULT), races=True)
        once = await self._run(text, trials)
        judgement = self._judge(once)
        faults: tuple[str, ...] = ()
        if judgement.verdict in _FAULTS:
            faults = _fault_words(once.emulated.runs)
            failed = once.emulated.runs[-1].trial
            garbage = replace(failed, schedule=replace(failed.schedule, garbage=1))
            faults += _fault_words((await self._run(text, (garbage,))).emulated.runs)
        return Observed(
            judgement=judgement,
            values={} if faults else self._values(once),
            faults=faults,
            races=_pairs(once.emulated.runs),
        )

    async def _glance(self, text: str, wanted: Observed) -> Said | None:
        """A refusal that one run is enough for; None where there is none."""
        if wanted.judgement.verdict not in _BY_VALUE:
            return None
        [schedule] = read_schedules((wanted.judgement.schedule or DEFAULT).partition(",")[0])
        once = await self._run(text, (RunTrial(schedule=schedule),))
        values = self._values(once)
        name = schedule_words(schedule)
        if values.get(name) == wanted.values.get(name):
            return None
        return Said(answer=Answer.OTHER, reason=self._other_value(once))

    def _other_value(self, once: Once) -> str:
        judgement = self._judge(once)
        if judgement.verdict in (*_FAULTS, RunVerdict.NOT_RUN):
            return f"{judgement.verdict.value}: {judgement.reason}"
        return "another value comes out"

    def _judge(self, once: Once) -> Judgement:
        emulated = once.emulated
        evidence = self.launch.evidence(
            self.files, emulated.runs, {"": b"", **once.contents}, emulated.problem
        )
        return judge(replace(evidence, formal=self.formal))

    async def _run(self, text: str, trials: Sequence[RunTrial]) -> Once:
        entry = self._entry(text)
        assert entry is not None, "the text was looked at before"
        wanted = self.launch.emulation(entry.name, self.files, trials, self.budget)
        return await emulate_once(self.bench, wanted, text, self.contents)

    def _values(self, once: Once) -> dict[str, bytes]:
        """The bytes of the element that is held, after each run."""
        if len(self.launch.tensors) != 1:
            return {}
        [tensor] = self.launch.tensors
        size = ELEMENTS[tensor.dtype].itemsize
        return {
            _named(ran): once.contents[ran.buffers[tensor.buffer]][
                tensor.offset : tensor.offset + size
            ]
            for ran in once.emulated.runs
            if len(ran.buffers) > tensor.buffer and not ran.faults
        }

    def _entry(self, text: str) -> Entry | None:
        for name in dict.fromkeys((self.entry, None)):
            try:
                return read_entry(text, name)
            except (EntryError, ValueError):
                continue
        return None


def compared(found: Observed, wanted: Observed) -> Said:
    """Whether two texts do the same, as far as a reduction is about it."""
    mine, asked = found.judgement, wanted.judgement
    if mine.verdict is RunVerdict.NOT_RUN:
        return Said(answer=Answer.UNTOLD, reason=f"{mine.verdict.value}: {mine.reason}")
    if mine.verdict in (RunVerdict.RIGHT, RunVerdict.RAN):
        return Said(answer=Answer.ACCEPTS, reason=f"{mine.verdict.value}: {mine.reason}")
    keys = [each.signature.key if each.signature else None for each in (mine, asked)]
    if mine.verdict is not asked.verdict or keys[0] != keys[1]:
        return Said(answer=Answer.OTHER, reason=f"{mine.verdict.value}: {mine.reason}")
    if asked.verdict in _BY_VALUE and found.values != wanted.values:
        return Said(answer=Answer.OTHER, reason="another value comes out under some schedule")
    if asked.verdict is RunVerdict.MEMORY_FAULT and not set(found.faults) <= set(wanted.faults):
        return Said(answer=Answer.OTHER, reason=f"another address: {found.faults[0]}")
    if len(set(found.faults)) > 1:
        return Said(answer=Answer.OTHER, reason="how it fails depends on what nothing wrote")
    more = found.races - wanted.races
    if more:
        [(words, _), *_] = more
        return Said(answer=Answer.OTHER, reason=f"it has a race that the original has not: {words}")
    return Said(answer=Answer.SAME, reason=mine.reason)


def _fault_words(runs: Sequence[Ran]) -> tuple[str, ...]:
    """What faults say, apart from how many threads they meet; that nothing failed is said too."""
    words = [fault.what.partition(" is out of bounds")[0] for ran in runs for fault in ran.faults]
    return tuple(words) or ("no fault",)


def _pairs(runs: Sequence[Ran]) -> Counter[tuple[str, bool]]:
    """How many pairs of lines race, by what they are."""
    lines = {
        ((race_words(race), race.formal), race.first.ptx_line, race.second.ptx_line)
        for ran in runs
        for race in ran.races
    }
    return Counter(kind for kind, *_ in lines)


def _named(ran: Ran) -> str:
    garbage = " with other garbage" if ran.trial.schedule.garbage else ""
    return schedule_words(ran.trial.schedule) + garbage
