"""The commands that a bisection ends with: its versions again, and what else was seen."""

from __future__ import annotations

from dataclasses import replace

from harness.bisect.axes import VERSION_AXES
from harness.bisect.words import BisectReport
from harness.cells.spelling import SelectionOptions, on_assembler, on_compiler, only, spell_command
from harness.frontends.base import Selection
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, GPU, PTXAS, RELEASE


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
    """The options with which versions were executed, and where."""
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
