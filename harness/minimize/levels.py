"""The levels above PTX: the source, Triton's IR, and the launch's settings; Tritons hold them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.frontends.one_file import StandaloneError
from harness.frontends.registry import back_end, front_end
from harness.minimize.reduction.fingerprint import Fingerprint, guards_of
from harness.minimize.reduction.interest import (
    AnyTool,
    AtHand,
    Interest,
    Oracle,
    Shelf,
    ask_installed,
    assembler_shelf,
    compiler_shelf,
    walk_the_index,
)
from harness.minimize.reduction.oracles import AssemblerOracle, CompilerOracle
from harness.minimize.reduction.result import Minimization, Size, Uninteresting
from harness.minimize.reduction.work import (
    STARTED_OVER,
    Driver,
    HeldReduction,
    MinimizedFolder,
    Reducing,
)
from harness.minimize.settings import open_launch, size_of_command
from harness.minimize.sources import read_source_of
from harness.minimize.ttgir.level import find_ir, ir_driver, ir_oracle, size_of_module
from harness.values.errors import InfrastructureError, OfflineError, UsageError
from harness.values.standalone import SourceInstall
from harness.values.toolchain import BUNDLED, PTX, Assembler, Compiler
from harness.values.verdict import Stage

T = TypeVar("T", bound=AnyTool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Along(Generic[T]):
    """The tool whose versions hold the failure in place, and how to come by the others."""

    tool: T
    shelf: Callable[[], Shelf[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level(Generic[T]):
    """A kind of text: what is reduced, how it is asked about, and how it is reduced.

    `options` are what `triage compile` needs besides; `changes` says what was made smaller.
    """

    name: str
    suffix: str
    original: str
    size_of: Callable[[str], Size]
    oracle: Oracle[T]
    driver: Driver
    options: str = ""
    changes: Callable[[str], list[str]] = lambda _: []


async def minimize_source(reducing: Reducing) -> Minimization | Uninteresting:
    """Write the subject as one file of source, reduce it, and report.

    Raises:
        UsageError: it has no source, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = reducing.bench, reducing.subject.cell
    source = await read_source_of(bench, cell)
    folder = reducing.folder(source.suffix)
    oracle = CompilerOracle(
        bench=bench, cell=cell, until=_until(reducing), suffix=source.suffix, options=source.options
    )
    back = back_end(cell.compiler.kind, cell.cell.target)
    if _until(reducing) is Stage.CUBIN and back.takes != PTX:
        # It is not a level of its own: what the assembler takes is only reduced as source.
        by_assembler = Level(
            name="source",
            suffix=source.suffix,
            original=source.text,
            size_of=source.size_of,
            oracle=AssemblerOracle(inner=oracle),
            driver=source.driver,
        )
        along = Along(tool=cell.ptxas, shelf=lambda: assembler_shelf(back))
        return await minimize_level(reducing, folder, by_assembler, along)
    level = Level(
        name="source",
        suffix=source.suffix,
        original=source.text,
        size_of=source.size_of,
        oracle=oracle,
        driver=source.driver,
    )
    return await minimize_level(reducing, folder, level, along_compilers(reducing))


async def minimize_ttgir(reducing: Reducing) -> Minimization | Uninteresting:
    """Take the lowest IR of the subject that still shows it, reduce it, and report.

    Raises:
        UsageError: it never was IR, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = reducing.bench, reducing.subject.cell
    ir = await find_ir(bench, cell, _fingerprint(reducing, _triton(reducing).version).shows)
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
    return await minimize_level(reducing, folder, level, along_compilers(reducing))


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
    return await minimize_level(reducing, folder, level, along_compilers(reducing))


def along_compilers(reducing: Reducing) -> Along[Compiler]:
    """The subject's compiler.

    Raises:
        UsageError: it is raw PTX.
    """
    compiler = _triton(reducing)
    return Along(tool=compiler, shelf=lambda: compiler_shelf(compiler.kind))


def _fingerprint(reducing: Reducing, bad: str) -> Fingerprint:
    options, subject = reducing.options, reducing.subject
    if options.script is not None:
        raise UsageError("--script is asked about PTX: give a PTX file, or --level ptx")
    return Fingerprint(
        bad=bad,
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
    reducing: Reducing, folder: MinimizedFolder, level: Level[T], along: Along[T]
) -> Minimization | Uninteresting:
    """Ask every version about the original, reduce, keep the best whatever happens, and report."""
    tool, fingerprint = along.tool, _fingerprint(reducing, along.tool.version)
    shelf = along.shelf()
    at_hand = await _look_around(reducing, level, shelf, tool, fingerprint)
    first = at_hand.reactions[tool.version]
    if not fingerprint.shows(first):
        gives = f"{first.verdict.value}: {first.reason}"
        return Uninteresting(reason=f"the {level.name} alone does not reproduce it, but {gives}")
    fingerprint = fingerprint.with_errors_of(at_hand.reactions.values())
    answers = at_hand.answers(fingerprint)
    guards = guards_of(answers, tool.version, keeps_refusals=True)
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
        name=shelf.name,
        work=work,
        interest=interest,
        at_hand=at_hand,
        driver=level.driver,
        keeps_refusals=True,
    )
    await held.run(is_done=reducing.begin(work, level.name, interest.fingerprint))
    work.notes += level.changes(work.best)
    work.finish(is_minimal=held.is_minimal)
    return _report(reducing, held, level, is_assembler=isinstance(tool, Assembler))


async def _look_around(
    reducing: Reducing, level: Level[T], shelf: Shelf[T], tool: T, fingerprint: Fingerprint
) -> AtHand[T]:
    """What every installed version does with the original; more of the index until both accept.

    Raises:
        InfrastructureError: this one cannot be started.
    """
    watch, limits = reducing.watch, reducing.bench.limits
    watch.stage(f"asking every installed {shelf.name} about the original")
    found = await ask_installed(level.oracle, shelf, level.original, tool, limits)
    if fingerprint.condition is None and fingerprint.shows(found.reactions[tool.version]):
        await walk_the_index(level.oracle, shelf, found, fingerprint, limits, watch.stage)
    return found


async def _begun(
    folder: MinimizedFolder, level: Level[T], interest: Interest[T]
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


def _report(
    reducing: Reducing, held: HeldReduction[T], level: Level[T], *, is_assembler: bool
) -> Minimization:
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
        is_of_assemblers=is_assembler,
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


def _reason(held: HeldReduction[T]) -> str:
    """What the failing version says of the result; of the original where it was not asked."""
    bad = held.interest.fingerprint.bad
    return next((line.minimized_words for line in held.versions if line.version == bad), "")
