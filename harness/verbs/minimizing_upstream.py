"""The levels above PTX: the launch's settings, the source, and Triton's IR."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.effects.minimized_folder import MinimizedFolder
from harness.logic.config_reduction import Settings
from harness.logic.fingerprint import Fingerprint, Reaction
from harness.logic.ir_module import IrModule
from harness.logic.minimization import Ending, Minimization, Size
from harness.logic.properties import holds, row_fields
from harness.logic.reduction import Progress, Reduction
from harness.logic.source_tree import Source
from harness.logic.standalone import StandaloneError, read_standalone, render
from harness.values.errors import InfrastructureError, UsageError
from harness.values.kernel import Config, Scalar
from harness.values.toolchain import BUNDLED
from harness.values.verdict import Stage
from harness.verbs.cells import Evaluated
from harness.verbs.minimizing_config import reduce_config
from harness.verbs.minimizing_source import Judged, export_source, reduce_source
from harness.verbs.minimizing_ttgir import find_ir, reduce_module
from harness.verbs.minimizing_work import Reducing, Work
from harness.verbs.ptx_oracle import reaction_of

__all__ = ["minimize_config", "minimize_source", "minimize_ttgir"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What a level's reduction came to; `reaction` is None where rows are judged."""

    text: str
    reduction: Reduction[Any]
    reason: str
    reaction: Reaction | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """A kind of text; `begun` is what the reduction starts from, `original` what is kept of it."""

    name: str
    suffix: str
    original: str
    begun: str
    size_of: Callable[[str], Size]
    reduce: Callable[[Work], Awaitable[_Done]]
    options: str = ""


@dataclass(slots=True, kw_only=True)
class _Judge:
    """Says what is interesting, and counts how often it was asked."""

    fingerprint: Fingerprint
    calls: int = 0

    def of_text(self, judged: Judged) -> bool:
        self.calls += 1
        return self.fingerprint.shows(reaction_of(judged.verdict, judged.evidence))

    def of_cell(self, done: Evaluated) -> bool:
        self.calls += 1
        condition = self.fingerprint.condition
        if condition is not None:
            return holds(condition, row_fields(done.row))
        return done.row.signature == self.fingerprint.signature


async def minimize_source(reducing: Reducing) -> Minimization:
    """Write the subject's launch as one file, reduce it as Python, and report.

    Raises:
        UsageError: it has no source, the file does something else, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    judge, folder = _judge(reducing), reducing.folder(".py")
    bench, cell = reducing.bench, reducing.subject.cell
    original = await export_source(bench, cell)
    folder = folder.open(render(original), resume=reducing.options.resume)
    begun = original
    if folder.begun is not None:
        try:
            begun = read_standalone(folder.begun)
        except StandaloneError as error:
            raise UsageError(f"--resume: {folder.best} cannot be read: {error}") from error

    async def reduce(work: Work) -> _Done:
        how = _how(reducing, work, judge, lambda source: source.text)
        until = _until(reducing, judge)
        done = await reduce_source(bench, cell, begun, judge.of_text, until=until, **how)
        return _done(done.reduction.document.text, done.reduction, done.final)

    level = _Level(
        name="source",
        suffix=".py",
        original=render(original),
        begun=Source.of(begun).text,
        size_of=_size_of_source,
        reduce=reduce,
    )
    return await _run(reducing, judge, folder, level)


async def minimize_ttgir(reducing: Reducing) -> Minimization:
    """Take the lowest IR of the subject that still shows it, reduce it, and report.

    Raises:
        UsageError: nothing of interest comes from its IR, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    judge = _judge(reducing)
    bench, cell = reducing.bench, reducing.subject.cell
    original = await find_ir(bench, cell, judge.of_text)
    folder = reducing.folder(original.suffix)
    folder = folder.open(original.text, resume=reducing.options.resume)
    begun = replace(original, text=folder.begun or original.text)

    async def reduce(work: Work) -> _Done:
        how = _how(reducing, work, judge, lambda module: module.text)
        until = _until(reducing, judge)
        done = await reduce_module(bench, cell, begun, judge.of_text, until=until, **how)
        return _done(done.text, done.reduction, done.final)

    level = _Level(
        name="ttgir",
        suffix=original.suffix,
        original=original.text,
        begun=begun.text,
        size_of=_size_of_module,
        reduce=reduce,
        options=" ".join(f"--set {name}={value}" for name, value in original.options.items()),
    )
    return await _run(reducing, judge, folder, level)


async def minimize_config(reducing: Reducing) -> Minimization:
    """Find the smallest shapes, config and flags that still show it; what is left is a command.

    Raises:
        UsageError: there is no launch to make smaller, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    if reducing.options.resume:
        raise UsageError("--resume: settings are reduced from the beginning; name another --out")
    judge, cell = _judge(reducing), reducing.subject.cell
    launch = reducing.selection.launches[0]
    original = _command(reducing, dict(launch.overrides), cell.cell.config)
    folder = reducing.folder(".sh").open(original, resume=False)

    def spelt(settings: Settings) -> str:
        return _command(reducing, settings.overrides, settings.config)

    async def reduce(work: Work) -> _Done:
        how = _how(reducing, work, judge, spelt)
        done = await reduce_config(reducing.bench, reducing.selection, cell, judge.of_cell, **how)
        return _Done(
            text=spelt(done.reduction.document),
            reduction=done.reduction,
            reason=done.final.row.reason,
            notes=done.changes,
        )

    level = _Level(
        name="config",
        suffix=".sh",
        original=original,
        begun=original,
        size_of=_size_of_command,
        reduce=reduce,
    )
    return await _run(reducing, judge, folder, level)


def _judge(reducing: Reducing) -> _Judge:
    options, subject = reducing.options, reducing.subject
    if options.script is not None:
        raise UsageError("--script is asked about PTX: give a PTX file, or --level ptx")
    fingerprint = Fingerprint(
        bad=subject.cell.ptxas.version,
        signature=None if options.condition else subject.row.signature,
        condition=options.condition,
    )
    return _Judge(fingerprint=fingerprint)


def _until(reducing: Reducing, judge: _Judge) -> Stage | None:
    """The stage of the failure, where a failure is looked for."""
    stage = reducing.subject.row.stage
    return Stage(stage) if judge.fingerprint.signature and stage else None


def _how(
    reducing: Reducing, work: Work, judge: _Judge, text_of: Callable[[Any], str]
) -> dict[str, Any]:
    """What the drivers of all levels are told."""

    def heard(progress: Progress[Any]) -> None:
        work.calls = judge.calls
        document = progress.document
        text = None if document is None else text_of(document)
        work.heard(progress.pass_name, progress.tests, text=text)

    return {
        "jobs": reducing.how.workers,
        "seed": reducing.options.seed,
        "max_tests": work.tests_left,
        "is_time_up": work.is_time_up,
        "watch": heard,
    }


def _done(text: str, reduction: Reduction[Any], final: Judged) -> _Done:
    return _Done(
        text=text,
        reduction=reduction,
        reason=final.verdict.reason,
        reaction=reaction_of(final.verdict, final.evidence),
    )


def _size_of_source(text: str) -> Size:
    """Lines are those of functions, without comments and blank ones."""
    source = Source.of(read_standalone(text))
    return Size(bytes=len(text.encode()), lines=source.kernel_lines)


def _size_of_module(text: str) -> Size:
    """Lines are operations."""
    return Size(bytes=len(text.encode()), lines=IrModule.read(text).count())


def _size_of_command(text: str) -> Size:
    """Lines are words."""
    return Size(bytes=len(text.encode()), lines=len(text.split()))


def _command(reducing: Reducing, overrides: dict[str, Scalar | None], config: Config | None) -> str:
    """The command that compiles the cell, as a script of one line."""
    selection, cell = reducing.selection, reducing.subject.cell
    launch = selection.launches[0]
    words = ["triage", "compile", "--kernel", selection.repro.name, "--sm", str(cell.cell.target)]
    if launch.spec != selection.repro.launches[0]:
        words += ["--launch", launch.spec.name]
    for name, value in overrides.items():
        words += ["--set", f"{name}={value}"]
    if config is not None and config.items:
        unset = [name for name in reducing.subject.names if name not in config.as_dict()]
        words += ["--config", ",".join([config.label, *(f"{name}=none" for name in unset)])]
    if cell.cell.triton:
        words += ["--triton", cell.cell.triton]
    if cell.ptxas.origin != BUNDLED:
        words += ["--ptxas", cell.ptxas.version]
    return f"{shlex.join(words)}\n"


async def _run(
    reducing: Reducing, judge: _Judge, folder: MinimizedFolder, level: _Level
) -> Minimization:
    """Reduce, keep the best whatever happens, and report."""
    subject, options = reducing.subject, reducing.options
    work = reducing.work(folder, level.begun, level.size_of)
    folder.keep(work.best)
    reducing.watch.began(subject.row.kernel, level.name, work.size)
    work.log(
        "begun",
        {
            "kernel": subject.row.short,
            "level": level.name,
            "triton": subject.row.triton,
            "ptxas": judge.fingerprint.bad,
            "signature": judge.fingerprint.signature,
            "seed": options.seed,
            "jobs": reducing.how.workers,
        },
    )
    work.begin()
    done = None
    try:
        done = await level.reduce(work)
    except asyncio.CancelledError:
        work.ending = Ending.INTERRUPTED
    except InfrastructureError as error:
        work.ending, work.trouble = Ending.TROUBLE, str(error)
    work.calls = judge.calls
    if done:
        work.take(done.text)
        found = done.reduction
        work.end(found.ledger, found.tests, is_finished=found.is_finished)
        work.notes += done.notes
    work.log(work.ending.value)
    return _report(reducing, judge, work, level, done)


def _report(
    reducing: Reducing, judge: _Judge, work: Work, level: _Level, done: _Done | None
) -> Minimization:
    subject, ptxas = reducing.subject, reducing.subject.cell.ptxas
    is_finished = done is not None and done.reduction.is_finished
    return Minimization(
        kernel=subject.row.kernel,
        short=subject.row.short,
        target=str(subject.question.target),
        flags=subject.question.flags,
        level=level.name,
        suffix=level.suffix,
        options=level.options,
        triton=subject.row.triton,
        ptxas=ptxas.version,
        packages={} if ptxas.origin == BUNDLED else {ptxas.version: ptxas.origin},
        fingerprint=judge.fingerprint,
        reaction=done.reaction if done else None,
        reason=done.reason if done else subject.row.reason,
        stage=subject.row.stage,
        limit=reducing.how.limits.timeout,
        path=str(work.folder.path),
        original_text=level.original,
        text=work.best,
        original=level.size_of(level.original),
        minimized=work.size,
        tests=work.all_tests,
        calls=work.all_calls,
        seconds=work.seconds,
        ending=work.ending,
        trouble=work.trouble,
        is_minimal=done.reduction.is_minimal if done and is_finished else None,
        passes=dict(work.passes),
        notes=(*work.notes, *reducing.others),
    )
