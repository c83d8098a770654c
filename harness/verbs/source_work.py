"""The level of the source: one file that needs nothing but Triton, reduced as Python."""

from __future__ import annotations

import asyncio

from harness.logic.fingerprint import Fingerprint
from harness.logic.minimization import Ending, Minimization, Size
from harness.logic.reduction import Progress
from harness.logic.source_tree import Source
from harness.logic.standalone import StandaloneError, read_standalone, render
from harness.values.errors import InfrastructureError, UsageError
from harness.values.standalone import Standalone
from harness.values.toolchain import BUNDLED
from harness.values.verdict import Stage
from harness.verbs.minimizing_source import Judged, evaluate_source, export_source, reduce_source
from harness.verbs.minimizing_work import Reducing, Work
from harness.verbs.ptx_oracle import reaction_of

__all__ = ["minimize_source"]


async def minimize_source(reducing: Reducing) -> Minimization:
    """Write the subject's launch as one file, reduce it, and report.

    Raises:
        UsageError: it has no source, the file does something else, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    subject, options = reducing.subject, reducing.options
    if options.script is not None:
        raise UsageError("--script is asked about PTX; leave out --level, or the script")
    folder = reducing.folder(".py")
    original = await export_source(reducing.bench, subject.cell)
    text = render(original)
    folder = folder.open(text, resume=options.resume)
    begun, note = original, None
    if folder.begun not in (None, text):
        try:
            begun = read_standalone(folder.begun or "")
        except StandaloneError as error:
            note = f"what the folder held cannot be read ({error}): begun anew"
    work = reducing.work(folder, Source.of(begun).text, _size_of)
    folder.keep(work.best)
    if note:
        work.note(note)
    fingerprint = Fingerprint(
        bad=subject.cell.ptxas.version,
        signature=None if options.condition else subject.row.signature,
        condition=options.condition,
    )
    reducing.watch.began(subject.row.kernel, work.size)
    work.log(
        "begun",
        {
            "kernel": subject.row.short,
            "triton": subject.row.triton,
            "signature": fingerprint.signature,
            "seed": options.seed,
            "jobs": reducing.how.workers,
        },
    )
    is_minimal = await _reduce(reducing, work, begun, fingerprint)
    work.log(work.ending.value)
    return await _report(reducing, work, fingerprint, text, is_minimal=is_minimal)


async def _reduce(
    reducing: Reducing, work: Work, begun: Standalone, fingerprint: Fingerprint
) -> bool | None:
    """Whether nothing single can go any more; None where that is not known."""
    options, row = reducing.options, reducing.subject.row

    def is_interesting(judged: Judged) -> bool:
        work.calls += 1
        return fingerprint.shows(reaction_of(judged.verdict, judged.evidence))

    def heard(progress: Progress[Source]) -> None:
        document = progress.document
        work.heard(progress.pass_name, progress.tests, text=document.text if document else None)

    work.begin()
    try:
        reduced = await reduce_source(
            reducing.bench,
            reducing.subject.cell,
            begun,
            is_interesting,
            until=Stage(row.stage) if fingerprint.signature and row.stage else None,
            jobs=reducing.how.workers,
            seed=options.seed,
            max_tests=work.tests_left,
            is_time_up=work.is_time_up,
            watch=heard,
        )
    except asyncio.CancelledError:
        work.ending = Ending.INTERRUPTED
        return None
    except InfrastructureError as error:
        work.ending, work.trouble = Ending.TROUBLE, str(error)
        return None
    found = reduced.reduction
    work.take(found.document.text)
    work.end(found.ledger, found.tests, is_finished=found.is_finished)
    return found.is_minimal if found.is_finished else None


def _size_of(text: str) -> Size:
    """Lines are those of functions, without comments and blank ones."""
    source = Source.of(read_standalone(text))
    return Size(instructions=None, bytes=len(text.encode()), lines=source.kernel_lines)


async def _report(
    reducing: Reducing,
    work: Work,
    fingerprint: Fingerprint,
    original: str,
    *,
    is_minimal: bool | None,
) -> Minimization:
    subject, ptxas = reducing.subject, reducing.subject.cell.ptxas
    judged = None
    if work.ending in (Ending.FINISHED, Ending.BUDGET):
        judged = await evaluate_source(reducing.bench, subject.cell, work.best)
    return Minimization(
        kernel=subject.row.kernel,
        short=subject.row.short,
        target=str(subject.question.target),
        flags=subject.question.flags,
        level="source",
        triton=subject.row.triton,
        ptxas=ptxas.version,
        packages={} if ptxas.origin == BUNDLED else {ptxas.version: ptxas.origin},
        fingerprint=fingerprint,
        reaction=reaction_of(judged.verdict, judged.evidence) if judged else None,
        reason=judged.verdict.reason if judged else subject.row.reason,
        limit=reducing.how.limits.timeout,
        path=str(work.folder.path),
        original_text=original,
        text=work.best,
        original=_size_of(original),
        minimized=work.size,
        tests=work.all_tests,
        calls=work.all_calls,
        seconds=work.seconds,
        ending=work.ending,
        trouble=work.trouble,
        is_minimal=is_minimal,
        passes=dict(work.passes),
        notes=(*work.notes, *reducing.others),
    )
