"""What a reduction of PTX came to."""

from __future__ import annotations

from pathlib import Path

from harness.minimize.ptx.work import PtxWork, size_of, undefined_count
from harness.minimize.reduction.result import Minimization
from harness.minimize.reduction.work import Reducing
from harness.values.toolchain import BUNDLED, Assembler


def ptx_report(
    reducing: Reducing,
    under_way: PtxWork,
    ptxas: Assembler,
    text: str,
    *,
    flags: tuple[str, ...],
    limit: float,
) -> Minimization:
    """The report of a reduction of PTX, of which `text` is the original.

    `limit` is how many seconds a candidate had.
    """
    subject, held = reducing.subject, under_way.held
    at_hand, work, interest = held.at_hand, held.work, held.interest
    reaction = at_hand.reactions.get(ptxas.version)
    is_file = subject.cell.raw_ptx is not None
    return Minimization(
        kernel=Path(subject.row.kernel).name if is_file else subject.row.kernel,
        short=subject.row.short,
        target=str(subject.question.target),
        flags=flags,
        level="ptx",
        ptxas=ptxas.version,
        packages={v: tool.origin for v, tool in at_hand.tools.items() if tool.origin != BUNDLED},
        fingerprint=interest.fingerprint,
        reaction=reaction,
        reason=reaction.reason if reaction else subject.row.reason,
        stage=subject.row.stage,
        kind=subject.cell.compiler.kind,
        triton=subject.row.compiler_version,
        limit=limit,
        path=str(work.folder.path),
        as_version=at_hand.as_version,
        original_text=text,
        text=work.best,
        original=size_of(text),
        minimized=work.size,
        tests=work.all_tests,
        calls=work.all_calls,
        seconds=work.seconds,
        ending=work.ending,
        trouble=work.trouble,
        versions=held.versions,
        ablation=under_way.ablation,
        not_ablated=under_way.not_ablated,
        is_minimal=under_way.is_minimal,
        is_defined=under_way.is_defined,
        undefined=(undefined_count(text), undefined_count(work.best)),
        passes=dict(work.passes),
        notes=(*work.notes, *subject.notes),
    )
