"""`triage blame`.

Example:
  triage blame --kernel mamba3_siso_bwd_dqkv --sm 100a --config num_warps=4,num_stages=1
  triage blame --kernel two_dots --sm 100a --set stages=2 --triton 3.8.0 --run
  triage blame --kernel fold_sat_undone --ptxas 13.0.88 --run --on gpu

A kernel that compiles and is sick (it spills) is followed by a condition on its numbers: --while,
or one that is derived from the best toolchain's numbers.

Exit code 0: there is an answer, if only that it cannot be determined, and the commands that would
determine it. 1: nothing that was tried fails. 4: it cannot be determined, or nothing fails, and a
toolchain is not available; or it could not be run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import click
from msgspec.structs import replace

from harness.blame.blame_words import BlameReport, NextStep, blame_document, blame_said
from harness.blame.blaming import BlameOptions, find_blame
from harness.blame.grid import Culprit
from harness.blame.lines import choose_compilers, known_versions
from harness.cells.places import CompileOptions
from harness.cells.spelling import (
    SelectionOptions,
    among,
    execution_words,
    on_assembler,
    on_compiler,
    show_command,
    spell_command,
)
from harness.cli.gpu_way import Execution, execution_option
from harness.cli.options import (
    EXECUTES,
    Options,
    apart,
    exclusive,
    json_option,
    option,
    silent,
    verb,
    while_option,
)
from harness.cli.output import print_json, print_line, print_next, print_remarks, print_said
from harness.cli.progress.steps import show_steps
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, select_single, selection_options
from harness.frontends.plan import Selection
from harness.judging.conditions import spell
from harness.judging.followed import read_while, toolchain_of
from harness.tables.summary import plural
from harness.values.cell import executed_by
from harness.values.toolchain import BUNDLED, EMULATOR, PTXAS, TRITON
from harness.values.verdict import VerdictKind

_TIMEOUT = VerdictKind.TIMEOUT.value


class _BlameOptions(
    Options,
    rules=[
        exclusive("--signature", "--while"),
        apart(EXECUTES, "--while", because="it is about what ptxas makes"),
    ],
):
    words: SelectionOptions = selection_options()
    execution: Execution = execution_option(
        "Execute the PTX on the emulator, as `triage run` does, and blame what comes out.",
        "Cubins of each ptxas and -O level: SASS emulated, or launched on a GPU.",
    )
    signature: str | None = option(
        metavar="KEY", help="The failure that is meant (`--json` has it)."
    )
    condition: str | None = while_option()
    budget: int = silent(
        "--max-tries",
        metavar="N",
        type=click.IntRange(2, 10_000),
        default=60,
        help="Pairs of PTX and ptxas to try.",
    )
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _BlameOptions) -> int:
    """Say which component is to blame: ptxas, Triton, the kernel, or a combination of versions.

    It begins with the first config that fails on the Triton and the ptxas that you name, compiles
    it with several Tritons, and gives each PTX to many ptxas, byte for byte. One --triton or
    --ptxas says where to begin, and the others are chosen (what is installed, and each minor
    release); several, or a range, are the grid. Where no --ptxas is named and nothing fails with
    the bundled one, the PTX is tried on others for one that does.

    With --run, what is blamed is what the PTX computes: each Triton's is executed on the same
    inputs, and so is that of other options and targets. With --on gpu, it is what cubins compute.
    """
    words = options.execution.formally(options.words)
    question = BlameOptions(
        signature=options.signature,
        condition=read_while(options.condition),
        budget=options.budget,
        looks_further=not (words.ptxas or words.assembler),
    )
    selection = select_single(words, "blame follows one", "--sm", "--launch")
    with open_results() as store, show_steps() as tell:
        find = find_blame
        if options.execution.of_cubins:
            from harness.blame.executed_blame import find_measured_blame  # noqa: PLC0415 - as below

            find = partial(
                find_measured_blame, on=options.execution.on, runner=options.execution.runner
            )
        elif options.execution.run:
            from harness.blame.executed_blame import find_run_blame as find  # noqa: PLC0415 - brings in the emulator: 0.2 s
        report = run_to_the_end(find(selection, store, options.how, question, tell))
    for trouble in report.troubles:
        print_remarks(f"not available: {trouble}")
    would_tell = list(_would_tell(report, selection, words, options.condition))
    if options.as_json:
        print_json(blame_document(report, would_tell))
    else:
        _print(report, selection, would_tell, words, options.condition)
    culprit = report.blame.culprit
    is_open = report.troubles and culprit in (None, Culprit.CANNOT_TELL)
    if is_open or (culprit is None and report.case.verdict is VerdictKind.NOT_RUN):
        return 4
    return 1 if culprit is None else 0


def _print(
    report: BlameReport,
    selection: Selection,
    would_tell: list[str],
    words: SelectionOptions,
    condition: str | None,
) -> None:
    case = report.case
    where = toolchain_of(case)
    beside = any(other.launch != report.cell.launch for other in report.others)
    launch = f" · {case.launch}" if beside else ""
    config = report.cell.config.label
    print_line(f"{case.kernel}{launch} · {config} · {selection.targets[0]} · {where}")
    print_line(f"{case.verdict}: {case.reason}")
    print_said(blame_said(report.grid, report.blame), whole_lines=True)
    if report.remedy:
        print_line("To use it:")
        for line in report.remedy:
            print_line(f"  {line}")
    if would_tell:
        print_line("What would determine it:")
        for line in would_tell:
            print_line(f"  {line}")
    for note in report.notes:
        print_line(note)
    if report.blame.culprit in (Culprit.PTXAS, Culprit.TRITON, Culprit.PAIRING):
        pinned, on = _pinned(report, words, selection), executed_by(case.cell)
        how = execution_words(run=on is not None, on=on)
        filed = spell_command("report", pinned, *_followed(report, condition))
        steps = [(filed, "an issue for those who can fix it")]
        if condition is None:
            way_out = spell_command("workaround", pinned, *how)
            steps.insert(0, (way_out, "what can be done today"))
        print_next(steps)
    if report.others:
        names = "--config" if case.compiler else "--kernel FILE.ptx::ENTRY"
        print_line(f"Not followed: {plural(len(report.others), 'other')} ({names} names one)")


def _would_tell(
    report: BlameReport, selection: Selection, words: SelectionOptions, condition: str | None
) -> Iterator[str]:
    case, next_step = report.case, report.blame.next_step
    if next_step is None:
        return
    pinned, followed_words = _pinned(report, words, selection), _followed(report, condition)
    bare = on_assembler(on_compiler(pinned, None, None), None, None)
    placed = on_compiler(bare, case.compiler, case.compiler_version)
    tried = {version for line in report.grid.lines for version in line.compilers}
    if max(len(selection.compilers), len(selection.ptxas)) > 1:
        # The user chose the grid; the one that is chosen otherwise may tell more.
        own = next((c for c in selection.compilers if c.version == case.compiler_version), None)
        narrow = replace(selection, compilers=selection.compilers[:1])
        has_assemblers = bool(report.grid.device) or not report.grid.focus.before_ptxas
        if has_assemblers or not tried.issuperset(choose_compilers(narrow, own, [])):
            yield spell_command("blame", pinned, *followed_words)
    match next_step:
        case NextStep.OTHER_TRITONS:
            unnamed = replace(selection, is_compiler_named=False)
            if tried.issuperset(map(str, known_versions(unnamed, "compiler", []))):
                return
            oldest = ">=3.2" if case.compiler == TRITON else ">=0"
            yield spell_command("blame", on_compiler(bare, case.compiler, oldest), *followed_words)
        case NextStep.OTHER_PTXAS:
            every = ">=12" if case.assembler == PTXAS else None
            yield spell_command("blame", on_assembler(placed, PTXAS, every), *followed_words)
        case NextStep.SOURCE:
            yield "triage blame --kernel FILE.py::KERNEL  # the source that the PTX is from"
        case NextStep.MORE_ROOM:
            more = ["--timeout", "3600"] if case.verdict == _TIMEOUT else ["--memory", "64"]
            yield spell_command("blame", pinned, *followed_words, *more)
        case NextStep.REDUCTION:
            focus = report.grid.focus.condition
            followed = ["--while", spell(focus)] if focus else []
            yield spell_command("minimize", pinned, *followed)
        case NextStep.WORKAROUND:
            yield spell_command("workaround", pinned)
        case NextStep.RUN:
            # Configs are held to one another: one that is chosen has none beside it.
            yield spell_command("run", replace(placed, config=""))
        case NextStep.AGAIN:
            yield spell_command("blame", pinned, *followed_words, "--no-cache")
        case NextStep.LOG:
            yield show_command(case.short, "log")
        case NextStep.IR:
            yield show_command(case.short, "ttir")


def _pinned(report: BlameReport, words: SelectionOptions, selection: Selection) -> SelectionOptions:
    """What selects the case, on its own toolchain."""
    case = report.case
    is_named = case.ptxas_origin not in (BUNDLED, EMULATOR)
    cell, kernel = report.cell, words.kernel
    _, is_of_file, name = cell.kernel.rpartition("::")
    if is_of_file and "::" not in kernel:
        kernel += f"::{name}"
    words = replace(words, kernel=kernel, sm=[str(selection.targets[0])])
    others = [other for other in report.others if other.kernel == cell.kernel]
    again = on_compiler(among(words, cell, others), case.compiler, case.compiler_version)
    return on_assembler(again, case.assembler, case.ptxas if is_named else None)


def _followed(report: BlameReport, condition: str | None) -> list[str]:
    if condition is not None:
        return ["--while", condition]
    case, on = report.case, executed_by(report.case.cell)
    signature = ["--signature", case.signature] if case.signature else []
    return [*execution_words(run=on is not None, on=on), *signature]
