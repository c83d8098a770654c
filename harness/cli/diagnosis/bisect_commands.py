"""The commands that a bisection ends with: its versions again, and what else was seen."""

from __future__ import annotations

import shlex
from dataclasses import replace

from harness.bisect.axes import VERSION_AXES
from harness.bisect.report import BisectReport
from harness.cells.selection import SelectionOptions
from harness.cli.running import spelled
from harness.frontends.base import Selection
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.toolchain import (
    EMULATOR,
    GPU,
    PTXAS,
    RELEASE,
    assembler_words,
    compiler_words,
)

__all__ = ["compile_command", "follow_command"]


def follow_command(report: BisectReport, row: Row, words: SelectionOptions) -> list[str]:
    """The command that follows another failure: the same question, started where that one is."""
    config = _filter(report.config, report.others) if report.config and report.others else ""
    asked = replace(words, config=config or words.config)
    if report.along_assembler:
        asked = replace(asked, ptxas=(), assembler=())
    elif report.axis != RELEASE:
        asked = replace(asked, triton=(), compiler=())
    version = report.version_of(row) or ""
    run = ["--run"] if row.ptxas == EMULATOR else []
    return ["triage", "bisect", *spelled(asked), *run, "--axis", _axis(report), "--bad", version]


def _axis(report: BisectReport) -> str:
    """The axis of a report as an option's value."""
    if report.axis in VERSION_AXES:
        return report.axis
    return "assembler" if report.along_assembler else "compiler"


def compile_command(report: BisectReport, selection: Selection, version: str, chosen: str) -> str:
    """The command that compiles, or runs, what a version was tried with."""
    is_run = any(row.ptxas == EMULATOR for row in report.rows.values())
    on_gpu = any(row.cell.rpartition("/")[2].startswith(f"{GPU}:") for row in report.rows.values())
    verb = "run" if is_run or on_gpu else "compile"
    words = ["triage", verb, "--kernel", _name(report, selection, version)]
    words += ["--on", GPU] if on_gpu else []
    words += ["--sm", str(selection.targets[0])]
    launch = selection.launches[0]
    if not selection.repro.ptx and launch.spec != selection.repro.launches[0]:
        words += ["--launch", launch.spec.name]
    for name, value in launch.overrides.items():
        words += ["--set", f"{name}={value}"]
    config = _filter(report.config, report.others) if report.config and report.others else chosen
    if config:
        words += ["--config", config]
    words += ["--formal"] if selection.formal else []
    if not report.along_assembler:
        compiler = selection.compilers[0]
        is_release = report.axis == RELEASE
        words += compiler_words(compiler.kind, compiler.version if is_release else version)
        tool = selection.ptxas[0]
        words += assembler_words(tool.kind, tool.version) if tool else []
    else:
        own = compiler_words(selection.compilers[0].kind, selection.compilers[0].version)
        words += [*own, *assembler_words(report.axis, version)]
        if own and report.axis == PTXAS:
            words.append("--freeze-ptx")
    return shlex.join(words)


def _name(report: BisectReport, selection: Selection, version: str) -> str:
    """The kernel as `--kernel` takes it, in the release of a version where those are followed."""
    row = report.rows.get(version)
    return row.kernel if report.axis == RELEASE and row else selection.repro.name


def _filter(config: Config, others: tuple[str, ...]) -> str:
    """The `--config` that means this one only: what others have and it has not is `none`."""
    names = dict.fromkeys(part.partition("=")[0] for label in others for part in label.split(","))
    unset = [f"{name}=none" for name in names if name not in config.as_dict() and name != "default"]
    return ",".join([*([config.label] if config.items else []), *unset])
