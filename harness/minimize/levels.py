"""The levels above PTX: the source, Triton's IR, and the launch's settings; Tritons hold them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from harness.frontends.one_file import StandaloneError
from harness.frontends.registry import front_end
from harness.minimize.launch.run import open_launch, size_of_command
from harness.minimize.python.run import export_source, form_of, source_driver, source_sizes
from harness.minimize.reduction.ask_compiler import CompilerOracle
from harness.minimize.reduction.fingerprint import Fingerprint, guards_of
from harness.minimize.reduction.folder import MinimizedFolder
from harness.minimize.reduction.held import Driver, HeldReduction
from harness.minimize.reduction.interest import Interest, Oracle
from harness.minimize.reduction.progress import STARTED_OVER, Reducing
from harness.minimize.reduction.references import (
    AtHand,
    ask_installed,
    compiler_shelf,
    walk_the_index,
)
from harness.minimize.reduction.result import Minimization, Size, Uninteresting
from harness.minimize.ttgir.run import find_ir, ir_driver, ir_oracle, size_of_module
from harness.values.errors import InfrastructureError, OfflineError, UsageError
from harness.values.standalone import SourceInstall
from harness.values.toolchain import BUNDLED, Assembler, Compiler, compiler_name
from harness.values.verdict import Stage

__all__ = [
    "Level",
    "minimize_config",
    "minimize_level",
    "minimize_source",
    "minimize_ttgir",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A kind of text: what is reduced, how it is asked about, and how it is reduced.

    `options` are what `triage compile` needs besides; `changes` says what was made smaller.
    """

    name: str
    suffix: str
    original: str
    size_of: Callable[[str], Size]
    oracle: Oracle[Compiler]
    driver: Driver
    options: str = ""
    changes: Callable[[str], list[str]] = lambda _: []


async def minimize_source(reducing: Reducing) -> Minimization | Uninteresting:
    """Write the subject's launch as one file, reduce it as Python, and report.

    Raises:
        UsageError: it has no source, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = reducing.bench, reducing.subject.cell
    folder, form = reducing.folder(".py"), form_of(cell.compiler.kind)
    level = Level(
        name="source",
        suffix=".py",
        original=form.render(await export_source(bench, cell)),
        size_of=source_sizes(form),
        oracle=CompilerOracle(bench=bench, cell=cell, until=_until(reducing)),
        driver=source_driver(form),
    )
    return await minimize_level(reducing, folder, level)


async def minimize_ttgir(reducing: Reducing) -> Minimization | Uninteresting:
    """Take the lowest IR of the subject that still shows it, reduce it, and report.

    Raises:
        UsageError: it never was IR, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = reducing.bench, reducing.subject.cell
    ir = await find_ir(bench, cell, _fingerprint(reducing).shows)
    if isinstance(ir, Uninteresting):
        return ir
    folder = reducing.folder(ir.suffix)
    level = Level(
        name="ttgir",
        suffix=ir.suffix,
        original=ir.text,
        size_of=size_of_module,
        oracle=ir_oracle(bench, cell, ir, until=_until(reducing)),
        driver=ir_driver(),
        options=ir.set_options,
    )
    return await minimize_level(reducing, folder, level)


async def minimize_config(reducing: Reducing) -> Minimization | Uninteresting:
    """Find the smallest shapes, config and flags that still show it; what is left is a command.

    Raises:
        UsageError: there is no launch to make smaller, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    folder = reducing.folder(".sh")
    launch = await open_launch(reducing.bench, reducing.selection, reducing.subject)
    level = Level(
        name="config",
        suffix=".sh",
        original=launch.command(launch.begun),
        size_of=size_of_command,
        oracle=launch,
        driver=launch.driver(),
        changes=launch.changes,
    )
    return await minimize_level(reducing, folder, level)


def _fingerprint(reducing: Reducing) -> Fingerprint:
    options, subject = reducing.options, reducing.subject
    if options.script is not None:
        raise UsageError("--script is asked about PTX: give a PTX file, or --level ptx")
    return Fingerprint(
        bad=_triton(reducing).version,
        signature=None if subject.condition else subject.row.signature,
        condition=subject.condition,
    )


def _triton(reducing: Reducing) -> Compiler:
    launch = reducing.subject.cell.launch
    if launch is None:
        kernel = reducing.subject.row.kernel
        raise UsageError(f"{kernel}: raw PTX comes from no compiler here; use --level ptx")
    return launch.compiler


def _until(reducing: Reducing) -> Stage | None:
    """The stage of the failure, where a failure is looked for."""
    stage = reducing.subject.row.stage
    return Stage(stage) if reducing.subject.condition is None and stage else None


async def minimize_level(
    reducing: Reducing, folder: MinimizedFolder, level: Level
) -> Minimization | Uninteresting:
    """Ask every Triton about the original, reduce, keep the best whatever happens, and report."""
    triton, fingerprint = _triton(reducing), _fingerprint(reducing)
    at_hand = await _look_around(reducing, level, triton, fingerprint)
    first = at_hand.reactions[triton.version]
    if not fingerprint.shows(first):
        gives = f"{first.verdict.value}: {first.reason}"
        return Uninteresting(reason=f"the {level.name} alone does not reproduce it, but {gives}")
    answers = at_hand.answers(fingerprint)
    guards = guards_of(answers, triton.version, keeps_refusals=True)
    interest = Interest(
        oracle=level.oracle,
        fingerprint=fingerprint.with_guards(answers, guards),
        tools=at_hand.tools,
    )
    folder = folder.open(level.original, resume=reducing.options.resume)
    best, notes = await _begun(folder, level, interest)
    work = reducing.work(folder, best, level.size_of)
    work.notes += [*at_hand.notes, *notes]
    folder.keep(best)
    held = HeldReduction(
        name=compiler_name(triton.kind),
        work=work,
        interest=interest,
        at_hand=at_hand,
        driver=level.driver,
        keeps_refusals=True,
    )
    await held.run(is_done=reducing.begin(work, level.name, interest.fingerprint))
    work.notes += level.changes(work.best)
    work.finish(is_minimal=held.is_minimal)
    return _report(reducing, held, level)


async def _look_around(
    reducing: Reducing, level: Level, triton: Compiler, fingerprint: Fingerprint
) -> AtHand[Compiler]:
    """What every installed Triton does with the original; more of the index until both accept.

    Raises:
        InfrastructureError: this Triton cannot be started.
    """
    watch, limits = reducing.watch, reducing.bench.limits
    shelf = compiler_shelf(triton.kind)
    watch.stage(f"asking every installed {shelf.name} about the original")
    found = await ask_installed(level.oracle, shelf, level.original, triton, limits)
    if fingerprint.condition is None and fingerprint.shows(found.reactions[triton.version]):
        await walk_the_index(level.oracle, shelf, found, fingerprint, limits, watch.stage)
    return found


async def _begun(
    folder: MinimizedFolder, level: Level, interest: Interest[Compiler]
) -> tuple[str, list[str]]:
    """What the reduction goes on from, and what to say of it."""
    if folder.begun is None or folder.begun == level.original:
        return level.original, []
    try:
        level.size_of(folder.begun)
    except (StandaloneError, ValueError) as error:
        raise UsageError(f"--resume: {folder.best} cannot be read: {error}") from error
    if await interest.holds(folder.begun):
        return folder.begun, []
    return level.original, [STARTED_OVER]


def _report(reducing: Reducing, held: HeldReduction[Compiler], level: Level) -> Minimization:
    subject, ptxas, work = reducing.subject, reducing.subject.cell.ptxas, held.work
    reaction = held.at_hand.reactions[held.interest.fingerprint.bad]
    work.calls = held.interest.calls
    return Minimization(
        kernel=subject.row.kernel,
        short=subject.row.short,
        target=str(subject.question.target),
        flags=subject.question.flags,
        level=level.name,
        suffix=level.suffix,
        options=level.options,
        kind=subject.cell.compiler.kind,
        triton=subject.row.compiler_version,
        install=_install(subject.cell.compiler, ptxas),
        ptxas=ptxas.version,
        assembler=ptxas.kind,
        packages={} if ptxas.origin == BUNDLED else {ptxas.version: ptxas.origin},
        fingerprint=held.interest.fingerprint,
        reaction=reaction,
        reason=_reason(held) or reaction.reason,
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
        versions=held.versions,
        is_minimal=held.is_minimal,
        passes=dict(work.passes),
        notes=(*work.notes, *subject.notes),
    )


def _install(compiler: Compiler, assembler: Assembler) -> SourceInstall | None:
    """What it takes to compile a file of the source; None where the index cannot be asked."""
    form = front_end(compiler.kind).source_form
    with contextlib.suppress(InfrastructureError, OfflineError, UsageError):
        return form.install(compiler.version, assembler) if form else None
    return None


def _reason(held: HeldReduction[Compiler]) -> str:
    """What the failing version says of the result; of the original where it was not asked."""
    bad = held.interest.fingerprint.bad
    return next((line.minimized_words for line in held.versions if line.version == bad), "")
