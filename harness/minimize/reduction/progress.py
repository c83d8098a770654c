"""What every level of a reduction keeps while it works: the best so far, the log, the accounts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cells.places import CompileOptions
from harness.frontends.base import Selection
from harness.frontends.bench.bench import Workbench
from harness.judging.conditions import Condition, spell
from harness.minimize.reduction.fingerprint import Fingerprint
from harness.minimize.reduction.folder import MinimizedFolder
from harness.minimize.reduction.result import Ending, Size
from harness.minimize.reduction.subject import Subject
from harness.minimize.reduction.tests import Effort, PassCount
from harness.values.row import Row

if TYPE_CHECKING:
    from harness.run.raw_ptx import RawInputs


STARTED_OVER = "the saved result no longer reproduces; starting over"

# Accepted texts are kept to go back to, up to this many bytes.
_MAX_HISTORY = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizeOptions:
    """What to look for and how long.

    `condition` or `script` say what a candidate has to show, else it is the failure that is found.
    `folder_of` names the output folder by the row that is reduced. `seconds` and `tests` bound this
    run with those that it goes on from. With `run`, what is followed is what the PTX computes when
    it is executed; `inputs` are what a file of PTX is launched with. With `on_gpu`, cubins are
    launched there: what the first ptxas makes of it at `gpu_level` (-O); `runner` is a command that
    reaches the GPU.
    """

    folder_of: Callable[[Row], Path]
    resume: bool = False
    condition: Condition | None = None
    script: str | None = None
    level: str = "auto"
    seconds: float | None = None
    tests: int | None = None
    seed: int = 0
    is_defined: bool = False
    run: bool = False
    inputs: RawInputs | None = None
    on_gpu: bool = False
    gpu_level: int = 3
    runner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionStep:
    """One test, as a live view wants it: the size of the best so far, tests per second."""

    pass_name: str
    is_accepted: bool
    tests: int
    accepted: int
    best: Size
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a reduction reports while it works."""

    tell: Callable[[str], None] = lambda line: None  # noqa: ARG005
    stage: Callable[[str], None] = lambda words: None  # noqa: ARG005
    began: Callable[[str, str, Size], None] = lambda name, level, size: None  # noqa: ARG005
    step: Callable[[ReductionStep], None] = lambda step: None  # noqa: ARG005


@dataclass(slots=True, kw_only=True)
class Work:
    """The best text so far and how it came to be.

    `deadline` is by `time.monotonic`; `jobs`, `seed` and `max_tests` are those of an `Effort`.
    `history` are texts that were accepted, oldest first; the first is the one that this run began
    with. `calls` counts the runs of a compiler.
    """

    folder: MinimizedFolder
    watch: Watch
    best: str
    size_of: Callable[[str], Size]
    started: float
    deadline: float | None = None
    jobs: int = 1
    seed: int = 0
    max_tests: int | None = None
    tests: int = 0
    accepted: int = 0
    calls: int = 0
    ending: Ending = Ending.FINISHED
    trouble: str | None = None
    passes: dict[str, PassCount] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    size: Size = field(init=False)
    _before: int = 0
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.size = self.size_of(self.best)
        self.history.append(self.best)
        self.passes.update(self.folder.passes)

    @property
    def all_tests(self) -> int:
        """Of this run and of those that it goes on from."""
        return self.folder.tests + self.tests

    @property
    def all_calls(self) -> int:
        """How often a compiler was run for them."""
        return self.folder.calls + self.calls

    @property
    def seconds(self) -> float:
        """Wall time of this run and of those that it goes on from."""
        return self.folder.seconds + time.monotonic() - self.started

    @property
    def effort(self) -> Effort:
        """What this run may still spend."""
        left = None if self.max_tests is None else max(0, self.max_tests - self.all_tests)
        return Effort(jobs=self.jobs, seed=self.seed, max_tests=left, is_time_up=self.is_time_up)

    def is_time_up(self) -> bool:
        """Whether the time of this run is spent."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def begin(self) -> None:
        """A driver starts to count from nothing."""
        self._before, self._began = self.tests, time.monotonic()

    def heard(self, pass_name: str, tests: int, *, text: str | None) -> None:
        """One test was answered, the driver's `tests`-th; `text` is the new best, if it is."""
        self.tests = self._before + tests
        if text is not None:
            self.accepted += 1
            self.take(text)
            self.log("accepted", {"pass": pass_name})
        self.watch.step(
            ReductionStep(
                pass_name=pass_name,
                is_accepted=text is not None,
                tests=self.tests,
                accepted=self.accepted,
                best=self.size,
                rate=tests / max(time.monotonic() - self._began, 1e-3),
            )
        )

    def end(self, ledger: Mapping[str, PassCount], tests: int, *, is_finished: bool) -> None:
        """A driver is done."""
        self.tests = self._before + tests
        for name, count in ledger.items():
            old = self.passes.get(name, PassCount())
            self.passes[name] = PassCount(
                tests=old.tests + count.tests,
                accepted=old.accepted + count.accepted,
                removed=old.removed + count.removed,
            )
        if not is_finished:
            self.ending = Ending.BUDGET

    def take(self, text: str) -> None:
        """This is the best now: on disk before anything else is tried."""
        if text == self.best:
            return
        self.best, self.size = text, self.size_of(text)
        self.folder.keep(text)
        self.history.append(text)
        if sum(map(len, self.history)) > _MAX_HISTORY:
            self.history[1:-1:2] = []

    def finish(self, *, is_minimal: bool | None) -> None:
        """The last line of the log: how it ended, and what a later run can go on from."""
        passes = {name: asdict(count) for name, count in self.passes.items()}
        self.log(self.ending.value, {"is_minimal": is_minimal, "passes": passes})

    def note(self, words: str) -> None:
        """Tell something now, and in the report."""
        self.notes.append(words)
        self.watch.tell(words)

    def log(self, event: str, more: Mapping[str, object] | None = None) -> None:
        """A line of the log: what happened, and where it stands."""
        self.folder.log(
            {
                "event": event,
                **(more or {}),
                "instructions": self.size.instructions,
                "lines": self.size.lines,
                "bytes": self.size.bytes,
                "tests": self.all_tests,
                "calls": self.all_calls,
                "seconds": round(self.seconds, 2),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducing:
    """What is to be reduced, and with what."""

    bench: Workbench
    selection: Selection
    subject: Subject
    how: CompileOptions
    options: MinimizeOptions
    watch: Watch
    started: float

    def folder(self, suffix: str) -> MinimizedFolder:
        """The folder that is named for it, before anything is in it.

        Raises:
            UsageError: there is something else in it, or nothing to go on from.
            StorageError: it cannot be read.
        """
        folder = MinimizedFolder(path=self.options.folder_of(self.subject.row), suffix=suffix)
        folder.check(resume=self.options.resume)
        return folder

    def work(self, folder: MinimizedFolder, text: str, size_of: Callable[[str], Size]) -> Work:
        """The work on a text in an opened folder."""
        options = self.options
        return Work(
            folder=folder,
            watch=self.watch,
            best=text,
            size_of=size_of,
            started=self.started,
            # What earlier runs spent is spent.
            deadline=self.started + options.seconds - folder.seconds if options.seconds else None,
            jobs=self.how.workers,
            seed=options.seed,
            max_tests=options.tests,
        )

    def begin(self, work: Work, level: str, fingerprint: Fingerprint, **more: object) -> bool:
        """Say what begins; whether an earlier run has finished the same, so that nothing is left.

        `more` is what else decides what comes out.
        """
        row, folder = self.subject.row, work.folder
        self.watch.began(row.kernel, level, work.size)
        condition = fingerprint.condition
        terms = {
            "level": level,
            "fails": fingerprint.bad,
            "signature": fingerprint.signature,
            "while": spell(condition) if condition else None,
            "script": fingerprint.script,
            "guards": (*fingerprint.checks[1:], *filter(None, (fingerprint.held_for,))),
            "seed": self.options.seed,
            **more,
        }
        work.log("begun", {"kernel": row.short, "jobs": self.how.workers, "terms": terms})
        same = json.loads(json.dumps(terms)) == folder.finished_terms
        return same and work.best == folder.begun
