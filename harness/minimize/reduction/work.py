"""A reduction under way: its folder, the best so far, the log, and the versions that hold it.

What is written last is never half there, so that a reduction that was killed can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from harness.cells.places import CompileOptions
from harness.frontends.bench import Workbench
from harness.frontends.one_file import StandaloneError
from harness.frontends.plan import Selection
from harness.io.files.locations import create_folder, storage_error
from harness.io.files.reading import read_regular
from harness.io.files.writing import write_atomically
from harness.io.processes.cluster import MachinesGoneError
from harness.judging.conditions import Condition, spell
from harness.minimize.reduction.fingerprint import Reaction, drifted
from harness.minimize.reduction.interest import Interest
from harness.minimize.reduction.minimization import (
    Ablation,
    Ending,
    Minimization,
    MinimizedLaunch,
    MinimizedSubject,
    MinimizedText,
    MinimizedToolchain,
    MinimizeSpent,
    VersionLine,
)
from harness.minimize.reduction.reducer import (
    UNLIMITED,
    Effort,
    PassCount,
    ReduceText,
    ReductionProgress,
    Size,
)
from harness.minimize.reduction.subject import Subject
from harness.values.errors import InfrastructureError, UsageError
from harness.values.row import Row
from harness.values.toolchain import Assembler, Compiler

if TYPE_CHECKING:
    from harness.run.raw import RawInputs


LOG = "log.jsonl"
_MAX_BYTES = 256 << 20


class _Record(msgspec.Struct, frozen=True):
    """A line of the log: what happened, what was spent until then, and what came of it."""

    event: str = ""
    subject: dict[str, str] = {}
    tests: int = 0
    calls: int = 0
    seconds: float = 0.0
    terms: dict[str, Any] | None = None
    passes: dict[str, PassCount] = {}
    is_minimal: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizedFolder:
    """A folder that one original is reduced in.

    `suffix` is that of its two texts: `original` and `min`. `begun` is what an earlier run left as
    the best, `last` the last line of its log, `passes` what each pass did. `finished_terms` are the
    terms on which it came to its end; None where it did not. `subject` names what is reduced:
    kernel, target, tools.
    """

    path: Path
    suffix: str = ".ptx"
    subject: Mapping[str, str] = field(default_factory=dict)
    begun: str | None = None
    last: _Record = field(default_factory=_Record)
    passes: Mapping[str, PassCount] = field(default_factory=dict)
    finished_terms: Mapping[str, object] | None = None

    @property
    def best(self) -> Path:
        """Where the best so far is."""
        return self.path / f"min{self.suffix}"

    @property
    def original(self) -> Path:
        """Where the text is that is reduced."""
        return self.path / f"original{self.suffix}"

    def check(self, *, resume: bool) -> None:
        """See early whether the folder can be used.

        Raises:
            UsageError: there is something else in it, or nothing to go on from.
            StorageError: it cannot be read.
        """
        path = self.path
        try:
            if resume and not (self.original.is_file() and self.best.is_file()):
                beside = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
                others = ((folder, self._differs(folder)) for folder in beside)
                near = "".join(f"; {folder} has {words}" for folder, words in others if words)
                raise UsageError(f"--resume: {path} holds no reduction to go on from{near}")
            if not resume and path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UsageError(
                    f"{path} is there already; --resume goes on from it, --out names another"
                )
        except OSError as error:
            raise storage_error(error, path, "read") from error

    def open(self, original: str, *, resume: bool) -> MinimizedFolder:
        """Begin in an empty folder, or go on in one that holds this original.

        Raises:
            UsageError: there is something else in it, or nothing to go on from.
            StorageError: it cannot be read or written.
        """
        self.check(resume=resume)
        if resume:
            return self._resumed(original)
        create_folder(self.path)
        self.write(self.original.name, original)
        self.write(self.best.name, original)
        return self

    def _resumed(self, original: str) -> MinimizedFolder:
        try:
            original_bytes = read_regular(self.original, _MAX_BYTES)
            begun = read_regular(self.best, _MAX_BYTES)
            records = _records(self.path / LOG)
        except OSError as error:
            raise storage_error(error, self.path, "read") from error
        differs = self._differs(self.path)
        if differs or original_bytes != original.encode():
            why = f"it has {differs}" if differs else "--out names another folder for it"
            raise UsageError(f"--resume: {self.original} is not what would be reduced; {why}")
        last = records[-1] if records else _Record()
        terms = [record.terms for record in records if record.event == "begun"]
        return replace(
            self,
            begun=begun.decode(errors="replace"),
            last=last,
            passes=next((record.passes for record in reversed(records) if record.passes), {}),
            finished_terms=terms[-1] if terms and last.event == "finished" else None,
        )

    def _differs(self, folder: Path) -> str:
        """What a folder with a reduction of the same kernel has otherwise; empty without one."""
        there = subject_of(folder)
        if there.get("kernel") != self.subject.get("kernel"):
            return ""
        return ", ".join(
            f"{name} {there[name]} in place of {value}"
            for name, value in self.subject.items()
            if there.get(name, value) != value
        )

    def write(self, name: str, content: str | bytes, *, executable: bool = False) -> None:
        """Write one file whole.

        Raises:
            StorageError: the disk is full or read-only.
        """
        path = self.path / name
        write_atomically(path, content.encode() if isinstance(content, str) else content)
        if executable:
            path.chmod(0o755)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write several, by name; errors are those of `write`."""
        for name, data in files.items():
            self.write(name, data)

    def log(self, record: Mapping[str, object]) -> None:
        """Add a line to the log.

        Raises:
            StorageError: the disk is full or read-only.
        """
        try:
            with (self.path / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise storage_error(error, self.path / LOG, "write") from error


def _records(path: Path) -> list[_Record]:
    """The whole lines of a log; a run that was killed may leave half a line."""
    text = read_regular(path, _MAX_BYTES) if path.exists() else b""
    records = []
    for line in text.splitlines():
        with contextlib.suppress(msgspec.MsgspecError):
            records.append(msgspec.json.decode(line, type=_Record))
    return records


def subject_of(folder: Path) -> Mapping[str, str]:
    """What a folder holds a reduction of; empty where it holds none, or an older log.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        records = _records(folder / LOG)
    except OSError as error:
        raise storage_error(error, folder, "read") from error
    return next((record.subject for record in records if record.subject), {})


STARTED_OVER = "the saved result no longer reproduces; starting over"

# Accepted texts are kept to go back to, up to this many bytes.
_MAX_HISTORY = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizeOptions:
    """What to look for and how long.

    `condition` or `script` say what a candidate has to show, else it is the failure that is found.
    `folder_of` names the output folder by the row that is reduced. With `keeps_kernel` a kernel's
    source stays as it is, and only its launch is reduced. `seconds` and `tests` bound this
    run with those that it goes on from. With `run`, what is followed is what the PTX computes when
    it is executed; `inputs` are what a file of PTX is launched with. Where `on` takes cubins, it is
    what the first ptxas makes of it at `gpu_level` (-O); `runner` is a command that reaches a GPU.
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
    keeps_kernel: bool = False
    run: bool = False
    inputs: RawInputs | None = None
    on: str | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizeTask:
    """What is to be reduced, and with what; which level comes later."""

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
        row = self.subject.row
        subject = {"kernel": row.kernel, "target": row.target, "config": row.config_label}
        subject |= {"compiler": row.compiler_name} if row.compiler else {}
        subject |= {"assembler": row.tool} if row.ptxas else {}
        path = self.options.folder_of(row)
        folder = MinimizedFolder(path=path, suffix=suffix, subject=subject)
        folder.check(resume=self.options.resume)
        return folder

    def toolchain(self, **more: Any) -> MinimizedToolchain:  # noqa: ANN401 - its fields
        """What compiled the subject, and what more is known of that."""
        cell = self.subject.cell
        version, ptxas = self.subject.row.compiler_version, cell.ptxas.version
        return MinimizedToolchain(kind=cell.compiler.kind, version=version, ptxas=ptxas, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What is reduced: a text, and how it gets smaller.

    `name` is as of `--level`, `suffix` that of the files; `options` are what `triage compile` needs
    besides to take one. `terms` are what else decides what comes out. `undefined` counts registers
    that are read though nothing may have written them. `ablate` takes each piece of
    the result away alone: what came of it, and how many pieces were not tried. `remarks` are for
    the report.
    """

    name: str
    suffix: str
    original: str
    size_of: Callable[[str], Size]
    reduce: ReduceText
    options: str = ""
    terms: Mapping[str, object] = field(default_factory=dict)
    undefined: Callable[[str], int] = lambda text: 0  # noqa: ARG005
    ablate: Callable[[LevelReduction[Any]], Awaitable[tuple[tuple[Ablation, ...], int]]] | None = (
        None
    )
    remarks: Callable[[LevelReduction[Any]], Awaitable[list[str]]] | None = None


T = TypeVar("T", bound=Compiler | Assembler)


@dataclass(slots=True, kw_only=True)
class LevelReduction(Generic[T]):
    """The reduction of a level: the best text so far, and how it came to be.

    It reduces, asks every version, and goes back where one differs. `interest` says what is
    interesting about a text, and has the versions that hold the failure in place. `effort` is for
    all runs that work on it. `history` are texts that were accepted, oldest first; the first is the
    one that this run began with. `calls` counts the runs of a compiler. `versions` is the table of
    original against result once it is known.
    """

    level: Level
    interest: Interest[T]
    folder: MinimizedFolder
    watch: Watch
    best: str
    started: float
    effort: Effort = UNLIMITED
    tests: int = 0
    accepted: int = 0
    calls: int = 0
    ending: Ending = Ending.FINISHED
    trouble: str | None = None
    passes: dict[str, PassCount] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    size: Size = field(init=False)
    versions: tuple[VersionLine, ...] = ()
    ablation: tuple[Ablation, ...] = ()
    not_ablated: int = 0
    _is_minimal: bool | None = None

    def __post_init__(self) -> None:
        self.size = self.level.size_of(self.best)
        self.history.append(self.best)
        self.passes.update(self.folder.passes)

    @property
    def all_tests(self) -> int:
        """Of this run and of those that it goes on from."""
        return self.folder.last.tests + self.tests

    @property
    def all_calls(self) -> int:
        """How often a compiler was run for them."""
        return self.folder.last.calls + self.calls

    @property
    def seconds(self) -> float:
        """Wall time of this run and of those that it goes on from."""
        return self.folder.last.seconds + time.monotonic() - self.started

    @property
    def is_minimal(self) -> bool | None:
        """Whether nothing can go alone; None where that was not tried out."""
        if self.level.ablate is None:
            return self._is_minimal
        if not self.ablation or self.not_ablated:
            return None
        return all(piece.is_needed for piece in self.ablation)

    async def run(self, *, is_reduced: bool = False) -> None:
        """Reduce until nothing is left to try or to spend; Ctrl-C and trouble keep the best.

        With `is_reduced`, an earlier run has reduced it: only the versions are asked.
        """
        interest = self.interest
        try:
            if is_reduced:
                self._is_minimal = self.folder.last.is_minimal
            else:
                await self._reduce()
            while True:
                if interest.predicate is None:
                    self.watch.stage(f"asking every installed {interest.versions.name}")
                reactions = await interest.react_all(self.best)
                diverged = self._diverged(reactions)
                # Those that were asked answer differently from run to run.
                if set(diverged) <= set(interest.fingerprint.checks):
                    break
                await self._go_back(diverged)
                await self._reduce()
            self.versions = self._lines(reactions)
            self.calls = interest.calls
            if self.level.ablate:
                self.ablation, self.not_ablated = await self.level.ablate(self)
        except asyncio.CancelledError:
            self.ending = Ending.INTERRUPTED
        except (InfrastructureError, MachinesGoneError) as error:
            self.ending, self.trouble = Ending.TROUBLE, str(error)
        if not self.versions:
            self.versions = self._lines({})

    async def _reduce(self) -> None:
        before, began = self.tests, time.monotonic()

        def hear(progress: ReductionProgress[str]) -> None:
            self.calls = self.interest.calls
            self.tests = before + progress.tests
            is_accepted = progress.document is not None
            if progress.document is not None:
                self.accepted += 1
                self._take(progress.document)
                self.log("accepted", {"pass": progress.pass_name})
            self.watch.step(
                ReductionStep(
                    pass_name=progress.pass_name,
                    is_accepted=is_accepted,
                    tests=self.tests,
                    accepted=self.accepted,
                    best=self.size,
                    rate=progress.tests / max(time.monotonic() - began, 1e-3),
                )
            )

        most, holds = self.effort.max_tests, self.interest.holds
        result = await self.level.reduce(
            self.best,
            lambda text: asyncio.ensure_future(holds(text)),
            effort=replace(
                self.effort, max_tests=None if most is None else max(0, most - self.all_tests)
            ),
            watch=hear,
        )
        self._take(result.document)
        self.tests = before + result.tests
        for name, count in result.ledger.items():
            self.passes[name] = self.passes.get(name, PassCount()) + count
        if not result.is_finished:
            self.ending = Ending.BUDGET
        self._is_minimal = result.is_minimal if result.is_finished else None

    def _take(self, text: str) -> None:
        """This is the best now: on disk before anything else is tried."""
        if text == self.best:
            return
        self.best, self.size = text, self.level.size_of(text)
        self.folder.write(self.folder.best.name, text)
        self.history.append(text)
        if sum(map(len, self.history)) > _MAX_HISTORY:
            self.history[1:-1:2] = []

    def _diverged(self, reactions: Mapping[str, Reaction]) -> tuple[str, ...]:
        """Versions that answered otherwise for the original; numbers are asked of one only."""
        fingerprint = self.interest.fingerprint
        if fingerprint.signature is None:
            return ()
        answers = {name: fingerprint.answer(reaction) for name, reaction in reactions.items()}
        original = self.interest.versions.answers(fingerprint)
        return drifted(original, answers, keeps_refusals=self.interest.keeps_refusals)

    async def _go_back(self, diverged: tuple[str, ...]) -> None:
        """Return to the last step that had not diverged, and ask these versions from there on."""
        interest, history = self.interest, self.history
        interest.fingerprint = interest.fingerprint.with_guards(
            interest.versions.answers(interest.fingerprint), diverged
        )
        first, last = 0, len(history) - 1
        while last - first > 1:
            middle = (first + last) // 2
            if await interest.holds(history[middle]):
                first = middle
            else:
                last = middle
        tools = f"{interest.versions.name} {', '.join(diverged)}"
        note = f"from here on also checked with {tools}: it had differed from the original"
        self.notes.append(note)
        self.watch.tell(note)
        text = history[first]
        del history[first + 1 :]
        self._take(text)
        self.log("went back", {"versions": diverged})

    def _lines(self, reactions: Mapping[str, Reaction]) -> tuple[VersionLine, ...]:
        fingerprint, original = self.interest.fingerprint, self.interest.versions
        lines = []
        for version, answer in original.answers(fingerprint).items():
            line = VersionLine(
                version=version,
                original=answer,
                original_words=fingerprint.described(original.reactions[version]),
            )
            if reaction := reactions.get(version):
                line = replace(
                    line,
                    minimized=fingerprint.answer(reaction),
                    minimized_words=fingerprint.described(reaction),
                    minimized_kind=reaction.verdict,
                )
            lines.append(line)
        return tuple(lines)

    def log(self, event: str, more: Mapping[str, object]) -> None:
        """A line of the log: what happened, and where it stands."""
        self.folder.log(
            {
                "event": event,
                **more,
                "instructions": self.size.instructions,
                "lines": self.size.lines,
                "bytes": self.size.bytes,
                "tests": self.all_tests,
                "calls": self.all_calls,
                "seconds": round(self.seconds, 2),
            }
        )


async def reduce_level(
    task: MinimizeTask, level: Level, interest: Interest[T]
) -> LevelReduction[T]:
    """Reduce a level to what is interesting, and keep the best whatever happens.

    Raises:
        UsageError: the folder is taken, or what it holds cannot be read.
        StorageError: the folder cannot be read or written.
        InfrastructureError: this machine failed before the reduction began.
    """
    options, versions = task.options, interest.versions
    folder = task.folder(level.suffix).open(level.original, resume=options.resume)
    best, notes = versions.text, list(versions.notes)
    if folder.begun not in (None, level.original, best):
        begun = folder.begun or ""
        try:
            level.size_of(begun)
        except (StandaloneError, ValueError) as error:
            raise UsageError(f"--resume: {folder.best} cannot be read: {error}") from error
        if await interest.holds(begun):
            best = begun
        else:
            notes.append(STARTED_OVER)
    # What earlier runs spent is spent.
    deadline = task.started + (options.seconds or math.inf) - folder.last.seconds
    work = LevelReduction(
        level=level,
        interest=interest,
        folder=folder,
        watch=task.watch,
        best=best,
        started=task.started,
        effort=Effort(
            jobs=task.how.workers,
            seed=options.seed,
            max_tests=options.tests,
            is_time_up=lambda: time.monotonic() > deadline,
        ),
        notes=notes,
    )
    folder.write(folder.best.name, best)
    await work.run(is_reduced=_begins_at_the_end(task, work))
    if level.remarks:
        work.notes += await level.remarks(work)
    passes = {name: asdict(count) for name, count in work.passes.items()}
    work.log(work.ending.value, {"is_minimal": work.is_minimal, "passes": passes})
    return work


def _begins_at_the_end(task: MinimizeTask, work: LevelReduction[T]) -> bool:
    """Say what begins; whether an earlier run has finished the same, so that nothing is left."""
    row, folder, level = task.subject.row, work.folder, work.level
    fingerprint = work.interest.fingerprint
    task.watch.began(row.kernel, level.name, work.size)
    condition = fingerprint.condition
    terms = {
        "level": level.name,
        "fails": fingerprint.bad,
        "signature": fingerprint.signature,
        "while": spell(condition) if condition else None,
        "script": fingerprint.script,
        "guards": (*fingerprint.checks[1:], *filter(None, (fingerprint.held_for,))),
        "seed": task.options.seed,
        **level.terms,
    }
    begun = {"kernel": row.short, "subject": folder.subject, "jobs": task.how.workers}
    work.log("begun", {**begun, "terms": terms})
    is_same = json.loads(json.dumps(terms)) == folder.finished_terms
    return is_same and work.best == folder.begun


def minimization(
    task: MinimizeTask,
    work: LevelReduction[T],
    toolchain: MinimizedToolchain,
    *,
    flags: tuple[str, ...] | None = None,
    limit: float | None = None,
    reason: str | None = None,
    reaction: Reaction | None = None,
    launch: MinimizedLaunch | None = None,
    first_notes: Sequence[str] = (),
    last_notes: Sequence[str] = (),
) -> Minimization:
    """What the reduction of a level came to.

    Where they are not given, the `flags` are those of the subject, the `limit` is that of the
    command, and `reaction` and `reason` are what the failing version did with the original.
    """
    subject, level, interest = task.subject, work.level, work.interest
    reaction = reaction or interest.versions.reactions.get(interest.fingerprint.bad)
    row, is_file = subject.row, subject.cell.raw_ptx is not None
    return Minimization(
        level=level.name,
        suffix=level.suffix,
        options=level.options,
        path=str(work.folder.path),
        fingerprint=interest.fingerprint,
        reason=reason or (reaction.reason if reaction else row.reason),
        reaction=reaction,
        limit=task.how.limits.timeout if limit is None else limit,
        subject=MinimizedSubject(
            kernel=Path(row.kernel).name if is_file else row.kernel,
            short=row.short,
            target=str(subject.cell.cell.target),
            flags=row.ptxas_flags if flags is None else flags,
            stage=row.stage,
            as_version=interest.versions.as_version,
            text=level.original,
            size=level.size_of(level.original),
            undefined=level.undefined(level.original),
        ),
        toolchain=toolchain,
        left=MinimizedText(
            text=work.best,
            size=work.size,
            is_minimal=work.is_minimal,
            ablation=work.ablation,
            not_ablated=work.not_ablated,
            undefined=level.undefined(work.best),
            launch=launch,
        ),
        spent=MinimizeSpent(
            tests=work.all_tests,
            calls=work.all_calls,
            seconds=work.seconds,
            ending=work.ending,
            trouble=work.trouble,
            passes=dict(work.passes),
        ),
        versions=work.versions,
        notes=(*first_notes, *work.notes, *subject.notes, *last_notes),
    )
