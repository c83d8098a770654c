"""`triage bisect`.

Example:
  triage bisect --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115
  triage bisect --kernel case.ptx --sm 90a --ptxas 13.1.115 --axis flag
  triage bisect --kernel my_kernel.py::my_kernel --sm 80 --triton 3.5.0 --run
  triage bisect --kernel fla_gla_bwd_dv --sm 90a --package-version '>=0.4' --while "spill_stores>0"

Exit code 0: the failure was found, and so were its bounds as far as they can be determined. 1:
nothing that was tried shows it. 4: a toolchain is not available; what is known so far is printed,
and --resume goes on.

A failure is followed by its signature. A kernel that compiles and is sick (it spills) is followed
by a condition on its numbers: --while, or one that is derived from the best toolchain's numbers.
Where no failing version is named, the most serious failure is followed, and the others are listed
with the command that follows them.

The command of --script runs in this folder and finds $TRIAGE_ROW (a file: the row as JSON),
$TRIAGE_PTX, $TRIAGE_CUBIN and $TRIAGE_PTXAS (of another assembler $TRIAGE_PROGRAM and
$TRIAGE_ASSEMBLER). It says by its exit code what the version is: 0 good, 125 cannot be tested, 126
and 127 (it cannot be run) and 128 or more stop, any other bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from msgspec import structs

from harness.bisect.axes import VERSION_AXES
from harness.bisect.bisect_log import BisectLog, BisectOptions, LogHead, log_path
from harness.bisect.bisect_words import BisectReport, bisect_document, bisection_said
from harness.bisect.bisection import bisect_versions
from harness.bisect.contrast import contrast_document, contrast_said
from harness.bisect.neighbours import CONTRAST_AXES, contrast
from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress
from harness.cells.repros.find import find_kernels
from harness.cells.spelling import (
    SelectionOptions,
    among,
    execution_words,
    on_assembler,
    on_compiler,
    spell_command,
)
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import Execution, execution_option
from harness.cli.options import (
    EXECUTES,
    Options,
    apart,
    exclusive,
    group,
    json_option,
    option,
    silent,
    verb,
    while_option,
)
from harness.cli.output import (
    print_json,
    print_line,
    print_next,
    print_remarks,
    print_said,
    status_console,
)
from harness.cli.progress.steps import preparing, show_steps
from harness.cli.results import open_results
from harness.cli.running import (
    execution_options,
    run_to_the_end,
    scheduler_option,
    select_single,
    selection_options,
    surroundings,
)
from harness.frontends.plan import Selection
from harness.frontends.registry import back_end, front_end
from harness.io.packages.versions import require_supported_triton
from harness.io.processes.cluster import local_workers, open_machines
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import FollowedFailure, follow, gravest, read_while
from harness.tables.summary import plural
from harness.values.cell import executed_by
from harness.values.errors import ConfigurationError, UsageError
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import (
    NO_ASSEMBLER,
    PTX,
    PTXAS,
    RELEASE,
    TRITON,
    assembler_name,
    compiler_name,
    takes_cubins,
)
from harness.values.verdict import VerdictKind


def follow_command(report: BisectReport, row: Row, words: SelectionOptions) -> str:
    """The command that follows another failure: the same question, started where that one is."""
    question = _question(report, words)
    if report.along_assembler:
        # The axis gives every version the same PTX as it is.
        question = on_assembler(question, None, None)
    elif report.axis != RELEASE:
        question = on_compiler(question, None, None)
    axis = "assembler" if report.along_assembler else "compiler"
    axis = report.axis if report.axis in VERSION_AXES else axis
    more = ["--axis", axis, "--bad", report.version_of(row) or ""]
    return spell_command("bisect", question, *_executed(report), *more)


def _executed(report: BisectReport) -> list[str]:
    rows = report.rows.values()
    on = next(filter(None, (executed_by(row.cell) for row in rows)), None)
    return execution_words(run=on is not None, on=on)


def _question(report: BisectReport, words: SelectionOptions) -> SelectionOptions:
    return among(words, report.cell, report.others) if report.cell else words


def compile_command(
    report: BisectReport, selection: Selection, version: str, words: SelectionOptions
) -> str:
    """The command that compiles, or runs, what a version was tried with."""
    executed = _executed(report)
    tried = _tried_words(report, selection, version, words)
    return spell_command("run" if executed else "compile", tried, *executed[1:])


def _tried_words(
    report: BisectReport, selection: Selection, version: str, words: SelectionOptions
) -> SelectionOptions:
    """What selects the cell that a version was tried with."""
    row = report.rows.get(version)
    is_release = report.axis == RELEASE
    question = structs.replace(_question(report, words), sm=[str(selection.targets[0])])
    if is_release and row:
        question = structs.replace(question, kernel=row.kernel)
    compiler, tool = selection.compilers[0], selection.ptxas[0]
    if report.along_assembler:
        question = on_compiler(question, compiler.kind, compiler.version)
        question = on_assembler(question, report.axis, version)
        is_lowered = bool(question.triton or question.compiler)
        question = structs.replace(question, freeze_ptx=is_lowered and report.axis == PTXAS)
    else:
        question = on_compiler(question, compiler.kind, compiler.version if is_release else version)
        question = on_assembler(
            question, tool.kind if tool else None, tool.version if tool else None
        )
    return question


def _next(
    report: BisectReport, selection: Selection, words: SelectionOptions, condition: str | None
) -> Iterator[tuple[str, str]]:
    """What is to be asked next of a failure that the newest version has."""
    newest = report.finding.newest_bad
    row = None if newest is None else report.row(newest)
    if newest is None or row is None or report.finding.fix:
        return
    tried = _tried_words(report, selection, report.version(newest), words)
    how = [*_executed(report), *(["--while", condition] if condition else [])]
    if row.verdict is not VerdictKind.REJECTED and not condition:
        yield spell_command("workaround", tried, *how), "what can be done today"
    yield spell_command("blame", tried, *how), "whose fault it is"


_OF_PTXAS = ("ptxas", "assembler", "flag")
_SEARCH_ONLY = ("bad", "good", "sweep", "budget", "script")


class _AskedBisection(
    Options,
    rules=[
        exclusive("--signature", "--script", "--while"),
        apart(EXECUTES, "--script", because="what comes out is followed"),
    ],
):
    words: SelectionOptions = selection_options(kernel_required=False)
    axis: str | None = option(
        often=True,
        type=click.Choice([*VERSION_AXES, *CONTRAST_AXES]),
        help="Versions of the assembler (ptxas) or the compiler: by default of the tool in whose "
        "stage it goes wrong, with --run the compiler; releases of the kernel's package; or GPUs, "
        "ptxas' flags, tuned parameters: one by one.",
    )
    package_version: str | None = option(
        metavar="SPEC", help="The axis: releases of the kernel's package: '>=0.4,<0.6'."
    )
    execution: Execution = execution_option(
        "Execute the PTX on the emulator, as `triage run` does, and follow what comes out.",
        "The cubins of PTX, along ptxas: SASS emulated, or launched on a GPU.",
    )
    search: BisectOptions = group(
        BisectOptions,
        bad=option(metavar="VERSION", help="A version that fails. Default: --ptxas or --triton."),
        good=option(often=True, metavar="VERSION", help="A version that works, to be tried first."),
        signature=option(metavar="KEY", help="The failure that is meant (`--json` has it)."),
        condition=while_option(),
        sweep=option(help="Try every version."),
        budget=silent(
            "--max-tries",
            metavar="N",
            type=click.IntRange(2, 1000),
            help="Versions to try. Default: those installed, one of each minor release, two "
            "halvings.",
        ),
        repeat=option(
            type=click.IntRange(1, 100),
            default=5,
            help="How often both sides of the boundary are run, at least.",
        ),
        script=option(metavar="CMD", help="Your own predicate, as for `git bisect run`."),
    )
    resume: Path | None = option(type=FilePath(read=True), metavar="LOG", help="Go on with a log.")
    replay: Path | None = option(
        type=FilePath(read=True), metavar="LOG", help="Print again what a log says."
    )
    scheduler: str | None = scheduler_option("Have the versions compiled")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _AskedBisection) -> int:
    """Find the version in which a failure began, and the one that ended it.

    Along ptxas, every version gets the same PTX, byte for byte; along Triton, each lowers for
    itself; with --run every PTX is executed on the same inputs. Where no more versions are left
    than may be tried, each is tried: a history may come and go. Along `target`, `flag` and
    `config`, which have no order, everything is tried.
    """
    words, question = options.execution.formally(options.words), options.search
    read_while(question.condition)
    if options.replay:
        log = BisectLog.read(options.replay)
        return _tell(log.report(), log, as_json=options.as_json, reproduce=None)
    if options.resume and words.kernel:
        raise UsageError("--resume takes what is asked from its log; leave --kernel out")
    if options.resume:
        return _search(BisectLog.read(options.resume), options)
    if not words.kernel:
        raise UsageError("name a kernel: `triage bisect FILE.py`, or --kernel NAME")
    question = replace(
        question,
        package_version=options.package_version,
        run=options.execution.run,
        on=options.execution.on,
        runner=options.execution.runner,
    )
    question = replace(question, axis=_axis(options.axis, question, words))
    _check(question, options.scheduler)
    # What the user says in these, the failing stage does not decide.
    is_directed = any((question.on, question.bad, question.good, question.script))
    if options.axis is None and question.axis in (PTXAS, "assembler") and not is_directed:
        question = replace(question, axis=_axis_of_failure(question, words, options.how))
    if question.axis in CONTRAST_AXES:
        return _contrast(question, words, options.how, as_json=options.as_json)
    head = LogHead(axis=question.axis, selection=msgspec.to_builtins(words), options=question)
    name = f"{Path(words.kernel).name.replace('::', '-')}-{question.axis}"
    return _search(BisectLog.begin(log_path(name), head), options)


def _axis(axis: str | None, options: BisectOptions, words: SelectionOptions) -> str:
    """The axis that is named, or that follows from the other options."""
    of_cubins = takes_cubins(options.on)
    if of_cubins and axis not in (None, PTXAS):
        raise UsageError(f"--on {options.on} follows versions of ptxas, not --axis {axis}")
    if options.package_version is not None and (of_cubins or axis not in (None, RELEASE)):
        raise UsageError(
            f"--package-version is an axis, and so is --axis {axis or PTXAS}: which one is meant? "
            "(--kernel NAME@VERSION names one release)"
        )
    if options.package_version is not None:
        return RELEASE
    if axis or of_cubins:
        return axis or PTXAS
    repro = find_kernels(words.kernel)[0]
    if options.run:
        return TRITON if repro.front_end in (TRITON, PTX) else "compiler"
    where = [*words.sm, *repro.targets][:1]
    kinds = [back_end(repro.front_end, Target.parse(target)).kind for target in where]
    return {NO_ASSEMBLER: "compiler", PTXAS: PTXAS}.get((kinds or [PTXAS])[0], "assembler")


def _axis_of_failure(options: BisectOptions, words: SelectionOptions, how: CompileOptions) -> str:
    """The axis of the tool in whose stage it goes wrong: the compiler's, before the assembler's."""
    selection = _selected(words, options)
    if selection.repro.ptx:
        return options.axis
    with open_results() as store, preparing():
        job = compile_selections([selection], store, how, RunProgress())
        rows = run_to_the_end(job).rows
    question = FollowedFailure(signature=options.signature, condition=read_while(options.condition))
    asked = [row for row in rows if question.of(row) is VerdictAnswer.SAME]
    row = gravest(asked) or gravest(rows)
    if row is None or row.stage is None or not follow(row).before_ptxas:
        return options.axis
    kind = front_end(selection.repro.front_end).kind
    print_remarks(
        f"{row.verdict} in stage {row.stage}, before {assembler_name(row.assembler)}: "
        f"followed along the versions of {compiler_name(kind)}"
    )
    return kind if kind == TRITON else "compiler"


def _check(options: BisectOptions, scheduler: str | None) -> None:
    """Refuse a question that is none, before anything is downloaded or compiled."""
    axis = options.axis
    if scheduler and (options.run or axis in CONTRAST_AXES):
        reason = (
            "--run executes on this machine" if options.run else f"--axis {axis} is compiled here"
        )
        raise UsageError(f"{reason}: leave out --scheduler")
    if options.run and axis == RELEASE:
        raise UsageError("--run does not apply to releases: they may take other inputs")
    if options.run and not takes_cubins(options.on) and axis in _OF_PTXAS:
        raise UsageError(
            f"--axis {axis} does not apply to --run: the emulator executes the PTX, which ptxas "
            "has not seen; use --axis triton, target or config"
        )
    for name in _SEARCH_ONLY if axis in CONTRAST_AXES else ():
        if getattr(options, name):
            option = "max-tries" if name == "budget" else name
            raise UsageError(f"--{option} does not apply to --axis {axis}: it has no order")
    if axis == TRITON:
        for version in filter(None, (options.bad, options.good)):
            require_supported_triton(version)


def _words(log: BisectLog) -> SelectionOptions:
    try:
        return msgspec.convert(log.head.selection, SelectionOptions)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{log.path}:1: selection: {error}") from error


def _selected(words: SelectionOptions, options: BisectOptions) -> Selection:
    """The one launch that is followed on one target, at the size at which it is executed."""
    selection = select_single(words, "a bisection follows one", "--sm", "--launch")
    if options.run:
        from harness.run.launch_sources import small_selection  # noqa: PLC0415 - numpy: 0.2 s

        selection = small_selection(selection, options.on)
    return selection


def _search(log: BisectLog, asked: _AskedBisection) -> int:
    """On this machine, or with the help of those that are found there."""
    options, where, how = log.head.options, asked.scheduler, asked.how
    if options.run and where is not None:
        raise UsageError("--run executes on this machine: leave out --scheduler")
    selection = _selected(_words(log), options)

    async def bisected() -> BisectReport:
        if where is None:
            return await bisect_versions(selection, store, how, options, tell, log)
        from harness.matrix.elsewhere import Prefetch  # noqa: PLC0415 - only where it is wanted
        from harness.matrix.workers import work_on_capture  # noqa: PLC0415

        there = structs.replace(how, jobs=local_workers(where) or 0)
        async with open_machines(where, work_on_capture) as machines:
            ahead = Prefetch(machines=machines, how=there)
            return await bisect_versions(selection, store, there, options, tell, log, ahead)

    with open_results() as store, show_steps() as tell:
        report = run_to_the_end(bisected())
    return _tell(report, log, as_json=asked.as_json, reproduce=selection)


def _tell(
    report: BisectReport, log: BisectLog, *, as_json: bool, reproduce: Selection | None
) -> int:
    status = status_console()
    if report.trouble:
        print_remarks(f"stopped: {report.trouble}")
        again = spell_command("bisect", None, "--resume", str(log.path), *surroundings())
        status.print(f"{again} goes on", soft_wrap=True)
    if as_json:
        print_json({**bisect_document(report), "log": str(log.path)})
    else:
        _print(report, _words(log), reproduce, log.head.options)
        status.print(f"Log: {log.path}", soft_wrap=True)
    failed = 1 if report.finding.newest_bad is None else 0
    return 4 if report.trouble else failed


def _print(
    report: BisectReport, words: SelectionOptions, selection: Selection | None, asked: BisectOptions
) -> None:
    cell = report.cell
    where = f"{cell.kernel} · {cell.launch} · {cell.config.label}" if cell else words.kernel
    where += f" · {selection.targets[0]}" if selection else ""
    source = selection.repro.source if selection else None
    if source and report.axis == RELEASE:
        where += f" · releases of {source.package}, by the package index"
    print_line(where)
    print_said(bisection_said(report))
    if report.boundary and selection:
        print_line("Reproduce:")
        for index in (report.boundary.before, report.boundary.after):
            line = compile_command(report, selection, report.version(index), words)
            print_line(f"  {line}")
    for row in [] if asked.script else report.other_failures:
        where = f"{compiler_name(report.axis)} {report.version_of(row)}"
        reason = f"{row.verdict}: {row.reason.rstrip('.')}."
        print_line(f"Also seen: {where}, {reason}")
        print_line(f"  {follow_command(report, row, words)}")
    if report.others:
        print_line(
            f"Not followed: {plural(len(report.others), 'other cell')} "
            "(--config and --launch name one)"
        )
    if selection and not asked.script:
        print_next(_next(report, selection, words, asked.condition))


def _contrast(
    options: BisectOptions, words: SelectionOptions, how: CompileOptions, *, as_json: bool
) -> int:
    selection = _selected(words, options)
    with open_results() as store, show_steps() as tell:
        job = contrast(
            selection,
            store,
            how,
            options.axis,
            options.signature,
            tell,
            condition=read_while(options.condition),
            run=options.run,
        )
        report = run_to_the_end(job)
    if as_json:
        print_json(contrast_document(report))
    else:
        print_line(report.origin.cell)
        print_said(contrast_said(report))
    return 4 if report.trouble else 0
