"""`triage bisect`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import structs

from harness.bisect.axes import VERSION_AXES
from harness.bisect.bisection import bisect_versions
from harness.bisect.contrast import contrast_document, contrast_said
from harness.bisect.log import BisectLog, BisectOptions, LogHead, log_path
from harness.bisect.neighbours import CONTRAST_AXES, contrast
from harness.bisect.words import BisectReport, bisect_document, bisection_said
from harness.cells.repros.find import find_kernels
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions, on_assembler, on_compiler, only, spell_command
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import executed_on, formal_option, is_executed
from harness.cli.main import CONTEXT
from harness.cli.options import (
    EXECUTES,
    apart,
    exclusive,
    execution_options,
    json_option,
    package_version_option,
    scheduler_option,
    selection_options,
    while_option,
)
from harness.cli.output import print_json, print_said, results_console, status_console
from harness.cli.progress.steps import preparing, show_steps
from harness.cli.results import open_results
from harness.cli.running import (
    check_scheduler,
    compile_options,
    run_to_the_end,
    selection_words,
    surroundings,
)
from harness.frontends.base import Selection
from harness.frontends.registry import back_end
from harness.io.packages.versions import require_supported_triton
from harness.io.processes.cluster import local_workers, open_machines
from harness.judging.followed import read_while
from harness.tables.summary import plural
from harness.values.errors import ConfigurationError, UsageError
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import (
    EMULATOR,
    GPU,
    NO_ASSEMBLER,
    PTX,
    PTXAS,
    RELEASE,
    TRITON,
    compiler_name,
)


def follow_command(report: BisectReport, row: Row, words: SelectionOptions) -> str:
    """The command that follows another failure: the same question, started where that one is."""
    asked = replace(words, config=_config(report, words))
    if report.along_assembler:
        # The axis gives every version the same PTX as it is.
        asked = on_assembler(asked, None, None)
    elif report.axis != RELEASE:
        asked = on_compiler(asked, None, None)
    more = ["--axis", _axis(report), "--bad", report.version_of(row) or ""]
    return spell_command("bisect", asked, *_executed(report), *more)


def _axis(report: BisectReport) -> str:
    """The axis of a report as an option's value."""
    if report.axis in VERSION_AXES:
        return report.axis
    return "assembler" if report.along_assembler else "compiler"


def _executed(report: BisectReport) -> list[str]:
    rows = report.rows.values()
    if any(row.cell.rpartition("/")[2].startswith(f"{GPU}:") for row in rows):
        return ["--run", "--on", GPU]
    return ["--run"] if any(row.ptxas == EMULATOR for row in rows) else []


def _config(report: BisectReport, words: SelectionOptions) -> str:
    if not (report.config and report.others):
        return words.config
    beside = [ConfigFilter.parse(each) for each in report.others if each != Config().label]
    return only(report.config, [name for each in beside for name, _ in each.wanted])


def compile_command(
    report: BisectReport, selection: Selection, version: str, words: SelectionOptions
) -> str:
    """The command that compiles, or runs, what a version was tried with."""
    row, executed = report.rows.get(version), _executed(report)
    is_release = report.axis == RELEASE
    launch = selection.launches[0]
    asked = replace(
        words,
        # In the release of a version, where those are followed.
        kernel=row.kernel if is_release and row else selection.repro.name,
        sm=[str(selection.targets[0])],
        launch=None if launch.spec == selection.repro.launches[0] else launch.spec.name,
        config=_config(report, words),
    )
    compiler, tool = selection.compilers[0], selection.ptxas[0]
    if report.along_assembler:
        asked = on_compiler(asked, compiler.kind, compiler.version)
        asked = on_assembler(asked, report.axis, version)
        is_lowered = bool(asked.triton or asked.compiler)
        asked = replace(asked, freeze_ptx=is_lowered and report.axis == PTXAS)
    else:
        asked = on_compiler(asked, compiler.kind, compiler.version if is_release else version)
        asked = on_assembler(asked, tool.kind if tool else None, tool.version if tool else None)
    where = executed[1:]
    return spell_command("run" if executed else "compile", asked, *where)


_EPILOG = """\b
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
Where no failing version is named, the gravest failure that is seen is followed, and the others are
listed with the command that follows them.

The command of --script runs in this folder and finds $TRIAGE_ROW (a file: the row as JSON),
$TRIAGE_PTX, $TRIAGE_CUBIN and $TRIAGE_PTXAS (of another assembler $TRIAGE_PROGRAM and
$TRIAGE_ASSEMBLER). It says by its exit code what the version is: 0 good, 125 cannot be tested, 126
and 127 (it cannot be run) and 128 or more stop, any other bad."""

_OF_PTXAS = ("ptxas", "assembler", "flag")
_SEARCH_ONLY = ("bad", "good", "sweep", "budget", "script")


@click.command("bisect", context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--signature", "--script", "--while")
@apart(EXECUTES, "--script", because="what comes out is followed")
@partial(selection_options, kernel_required=False)
@click.option(
    "--axis",
    type=click.Choice([*VERSION_AXES, *CONTRAST_AXES]),
    help="Versions of the assembler (ptxas; the default) or the compiler (default with --run); "
    "releases of the kernel's package; or GPUs, ptxas' flags, tuned parameters: one by one.",
)
@package_version_option("The axis: releases of the kernel's package: '>=0.4,<0.6'.")
@click.option(
    "--run",
    is_flag=True,
    help="Execute the PTX on the emulator, as `triage run` does, and follow what comes out.",
)
@executed_on("On a GPU the cubins of PTX are launched, along ptxas.")
@formal_option
@click.option(
    "--bad", metavar="VERSION", help="A version that fails. Default: --ptxas or --triton."
)
@click.option("--good", metavar="VERSION", help="A version that works, to be tried first.")
@click.option("--signature", metavar="KEY", help="The failure that is meant (`--json` has it).")
@while_option
@click.option("--sweep", is_flag=True, help="Try every version.")
@click.option(
    "--budget",
    type=click.IntRange(2, 1000),
    help="Versions to try. Default: those installed, one of each minor release, two halvings.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="How often both sides of the boundary are run, at least.",
)
@click.option("--script", metavar="CMD", help="Your own predicate, as for `git bisect run`.")
@click.option("--resume", type=FilePath(read=True), metavar="LOG", help="Go on with a log.")
@click.option(
    "--replay", type=FilePath(read=True), metavar="LOG", help="Print again what a log says."
)
@scheduler_option("Have the versions compiled")
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Find the version in which a failure began, and the one that ended it.

    Along ptxas, every version gets the same PTX, byte for byte; along Triton, each lowers for
    itself; with --run every PTX is executed on the same inputs. Where what is left fits the budget
    every version is tried: a history may come and go. Along `target`, `flag` and `config`, which
    have no order, everything is tried.
    """
    _check(options)
    if options["replay"]:
        log = BisectLog.read(options["replay"])
        _tell(log.report(), log, options, reproduce=None)
    elif options["resume"] and options["kernel"]:
        raise UsageError("--resume takes what is asked from its log; leave --kernel out")
    elif options["resume"]:
        _search(BisectLog.read(options["resume"]), options)
    elif not options["kernel"]:
        raise UsageError("name a kernel: `triage bisect FILE.py`, or --kernel NAME")
    elif options["axis"] in CONTRAST_AXES:
        _contrast(options)
    else:
        _search(_begin(options), options)


def _check(options: dict[str, Any]) -> None:
    """Refuse a question that is none, before anything is downloaded or compiled."""
    on_gpu = options["on"] == GPU or options["runner"] is not None
    options["run"] = is_executed(options)
    _check_scheduler(options)
    if on_gpu:
        options["on"], options["run"] = GPU, True
        if options["axis"] not in (None, PTXAS):
            raise UsageError(f"--on gpu follows versions of ptxas, not --axis {options['axis']}")
        options["axis"] = PTXAS
    if options["package_version"] is not None:
        if options["axis"] not in (None, RELEASE):
            raise UsageError(
                f"--package-version is an axis, and so is --axis {options['axis']}: which one is "
                "meant? (--kernel NAME@VERSION names one release)"
            )
        options["axis"] = RELEASE
    options["axis"] = options["axis"] or _default_axis(options)
    if options["run"] and options["axis"] == RELEASE:
        raise UsageError("--run does not apply to releases: they may take other inputs")
    if options["run"] and not on_gpu and options["axis"] in _OF_PTXAS:
        raise UsageError(
            f"--axis {options['axis']} does not apply to --run: the emulator executes the PTX, "
            "which ptxas has not seen; use --axis triton, target or config"
        )
    read_while(options["condition"])
    if options["script"] is not None and not options["script"].strip():
        raise UsageError("--script is empty: give the command that tests one version")
    if options["axis"] == "triton":
        for version in filter(None, (options["bad"], options["good"])):
            require_supported_triton(version)


def _check_scheduler(options: dict[str, Any]) -> None:
    """Only what compiles versions goes to other machines."""
    is_elsewhere = check_scheduler(options, {"--run": options["run"]})
    if is_elsewhere and options["axis"] in CONTRAST_AXES:
        raise UsageError(f"--axis {options['axis']} is compiled here: leave out --scheduler")


def _default_axis(options: dict[str, Any]) -> str:
    if not options["kernel"]:
        return "triton" if options["run"] else PTXAS
    repro = find_kernels(options["kernel"])[0]
    if options["run"]:
        return "triton" if repro.front_end in (TRITON, PTX) else "compiler"
    where = [*options["sm"], *repro.targets][:1]
    backs = [back_end(repro.front_end, Target.parse(each)).kind for each in where]
    return {NO_ASSEMBLER: "compiler", PTXAS: PTXAS}.get((backs or [PTXAS])[0], "assembler")


def _begin(options: dict[str, Any]) -> BisectLog:
    words, axis = selection_words(options), options["axis"]
    head = LogHead(
        axis=axis,
        selection=msgspec.to_builtins(words),
        options=msgspec.convert(options, BisectOptions),
    )
    return BisectLog.begin(log_path(f"{Path(words.kernel).name.replace('::', '-')}-{axis}"), head)


def _words(log: BisectLog) -> SelectionOptions:
    try:
        return msgspec.convert(log.head.selection, SelectionOptions)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{log.path}:1: selection: {error}") from error


def _selected(words: SelectionOptions, *, run: bool, on: str | None = None) -> Selection:
    """The one launch that is followed on one target, at the size at which it is executed."""
    with preparing(status_console()):
        selection = select(words)
    for name, values in (("--sm", selection.targets), ("--launch", selection.launches)):
        if len(values) != 1:
            raise UsageError(f"{name}: {len(values)} are meant; a bisection follows one")
    if run:
        from harness.run.executors import executed_selection  # noqa: PLC0415 - numpy: 0.2 s

        selection = executed_selection(selection, on)
    return selection


def _search(log: BisectLog, options: dict[str, Any]) -> None:
    """On this machine, or with the help of those that are found there."""
    asked, where = log.head.options, options["scheduler"]
    if asked.run and where is not None:
        raise UsageError("--run executes on this machine: leave out --scheduler")
    how = compile_options(options)
    selection = _selected(_words(log), run=asked.run, on=asked.on)

    async def bisected() -> BisectReport:
        if where is None:
            return await bisect_versions(selection, store, how, asked, tell, log)
        from harness.matrix.nights.elsewhere import Prefetch  # noqa: PLC0415 - only where it is wanted
        from harness.matrix.nights.workers import work_on_capture  # noqa: PLC0415

        there = structs.replace(how, jobs=local_workers(where) or 0)
        async with open_machines(where, work_on_capture) as machines:
            ahead = Prefetch(machines=machines, how=there)
            return await bisect_versions(selection, store, there, asked, tell, log, ahead)

    with open_results() as store, show_steps(status_console()) as tell:
        report = run_to_the_end(bisected())
    _tell(report, log, options, reproduce=selection)


def _tell(
    report: BisectReport, log: BisectLog, options: dict[str, Any], *, reproduce: Selection | None
) -> None:
    status = status_console()
    if report.trouble:
        status.print(f"triage: stopped: {report.trouble}", soft_wrap=True, markup=False)
        again = spell_command("bisect", None, "--resume", str(log.path), *surroundings())
        status.print(f"{again} goes on", soft_wrap=True, markup=False)
    if options["as_json"]:
        print_json({**bisect_document(report), "log": str(log.path)})
    else:
        _print(report, _words(log), reproduce, script=bool(log.head.options.script))
        status.print(f"Log: {log.path}", soft_wrap=True, markup=False)
    raise click.exceptions.Exit(_exit_code(report))


def _exit_code(report: BisectReport) -> int:
    if report.trouble:
        return 4
    return 1 if report.finding.newest_bad is None else 0


def _print(
    report: BisectReport, words: SelectionOptions, selection: Selection | None, *, script: bool
) -> None:
    console = results_console()
    config = report.config.label if report.config else "no config"
    where = f"{words.kernel} · {config}"
    where += f" · {selection.targets[0]}" if selection else ""
    source = selection.repro.source if selection else None
    if source and report.axis == RELEASE:
        where += f" · releases of {source.pin.package}, by the package index"
    console.print(where, markup=False)
    print_said(bisection_said(report))
    if report.boundary and selection:
        console.print("Reproduce:")
        for index in (report.boundary.before, report.boundary.after):
            line = compile_command(report, selection, report.version(index), words)
            console.print(f"  {line}", soft_wrap=True, markup=False)
    for row in [] if script else report.other_failures:
        console.print(f"Also seen: {_other(report, row)}", soft_wrap=True, markup=False)
        console.print(f"  {follow_command(report, row, words)}", soft_wrap=True, markup=False)
    if report.others:
        console.print(
            f"Not followed: {plural(len(report.others), 'other config')} (--config names one)"
        )


def _other(report: BisectReport, row: Row) -> str:
    version = report.version_of(row)
    return f"{compiler_name(report.axis)} {version}, {row.verdict}: {row.reason.rstrip('.')}."


def _contrast(options: dict[str, Any]) -> None:
    axis = options["axis"]
    for name in _SEARCH_ONLY:
        if options[name]:
            raise UsageError(f"--{name} does not apply to --axis {axis}: it has no order")
    selection = _selected(selection_words(options), run=options["run"])
    how = compile_options(options)
    condition = read_while(options["condition"])
    with open_results() as store, show_steps(status_console()) as tell:
        job = contrast(
            selection,
            store,
            how,
            axis,
            options["signature"],
            tell,
            condition=condition,
            run=options["run"],
        )
        found = run_to_the_end(job)
    if options["as_json"]:
        print_json(contrast_document(found))
    else:
        results_console().print(found.origin.cell, soft_wrap=True, markup=False)
        print_said(contrast_said(found))
    raise click.exceptions.Exit(4 if found.trouble else 0)
