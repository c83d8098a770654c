"""`triage bisect`."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from harness.cli.main import CONTEXT
from harness.cli.options import execution_options, json_option, selection_options
from harness.cli.output import print_json, results_console, status_console
from harness.cli.running import compile_options, run_to_the_end, selection_words
from harness.effects.locations import home_dir
from harness.effects.store import Store
from harness.logic.bisect_report import BisectReport
from harness.logic.bisection import Boundary
from harness.presentation.bisections import render_bisection
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.verbs.bisecting import AXES, BisectOptions, bisect_versions
from harness.verbs.selection import Selection, select

__all__ = ["command"]

_EPILOG = """\b
Example:
  triage bisect --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115

Exit code 0: the failure was found, and so were its bounds as far as they can be told. 1: nothing
that was tried shows it. 4: a toolchain could not be had; what is known so far is told."""


@click.command("bisect", context_settings=CONTEXT, epilog=_EPILOG)
@selection_options
@click.option("--axis", type=click.Choice(AXES), default="ptxas", show_default=True)
@click.option(
    "--bad", metavar="VERSION", help="A version that fails. Default: --ptxas or --triton."
)
@click.option("--good", metavar="VERSION", help="A version that works, to be tried first.")
@click.option("--signature", metavar="KEY", help="The failure that is meant (`--json` has it).")
@click.option("--sweep", is_flag=True, help="Try every version.")
@click.option(
    "--budget", type=click.IntRange(2, 1000), default=40, show_default=True, help="Versions to try."
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="How often both sides of the boundary are run.",
)
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Find the version in which a failure began, and the one that ended it.

    Along ptxas, every version gets the same PTX, byte for byte; along Triton, each lowers for
    itself. Where what is left fits the budget every version is tried: a history may come and go.
    """
    words = selection_words(options)
    status = status_console()
    with status.status("preparing toolchains and sources"):
        selection = select(words)
    _check(selection)
    asked = BisectOptions(
        axis=options["axis"],
        good=options["good"],
        bad=options["bad"],
        signature=options["signature"],
        sweep=options["sweep"],
        budget=options["budget"],
        repeat=options["repeat"],
    )
    how = compile_options(options, command=shlex.join(["triage", *sys.argv[1:]]))

    def tell(version: str, said: str) -> None:
        status.print(f"{asked.axis} {version}: {said[:120]}", soft_wrap=True)

    with Store.open(home_dir()) as store:
        report = run_to_the_end(bisect_versions(selection, store, how, asked, tell))
    if report.trouble:
        status.print(f"triage: stopped: {report.trouble}", soft_wrap=True)
    if options["as_json"]:
        print_json(_document(report))
    else:
        _print(report, selection, words.config)
    raise click.exceptions.Exit(_exit_code(report))


def _check(selection: Selection) -> None:
    for name, values in (("--sm", selection.targets), ("--launch", selection.launches)):
        if len(values) != 1:
            raise UsageError(f"{name}: {len(values)} are meant; a bisection follows one")


def _exit_code(report: BisectReport) -> int:
    if report.trouble:
        return 4
    return 1 if report.finding.newest_bad is None else 0


def _print(report: BisectReport, selection: Selection, chosen: str) -> None:
    console = results_console()
    console.print(f"{selection.repro.name} · {report.config.label} · {selection.targets[0]}")
    console.print(render_bisection(report))
    boundary = report.finding.regression or report.finding.fix
    if boundary:
        console.print("Reproduce:")
        for index in (boundary.before, boundary.after):
            command_line = _command(report, selection, report.version(index), chosen)
            console.print(f"  {command_line}", soft_wrap=True)
    if report.others:
        console.print(f"{len(report.others)} other configs were not followed (--config names one)")


def _command(report: BisectReport, selection: Selection, version: str, chosen: str) -> str:
    words = ["triage", "compile", "--kernel", selection.repro.name]
    words += ["--sm", str(selection.targets[0])]
    launch = selection.launches[0]
    if not selection.repro.ptx and launch.spec != selection.repro.launches[0]:
        words += ["--launch", launch.spec.name]
    for name, value in launch.overrides.items():
        words += ["--set", f"{name}={value}"]
    config = _filter(report.config, report.others) if report.others else chosen
    if config:
        words += ["--config", config]
    if report.axis == "triton":
        words += ["--triton", version]
    else:
        if selection.tritons:
            words += ["--triton", selection.tritons[0].version]
        words += ["--ptxas", version]
        if selection.tritons:
            words.append("--freeze-ptx")
    return shlex.join(words)


def _filter(config: Config, others: tuple[str, ...]) -> str:
    """The `--config` that means this one only: what others have and it has not is `none`."""
    names = dict.fromkeys(part.partition("=")[0] for label in others for part in label.split(","))
    unset = [f"{name}=none" for name in names if name not in config.as_dict() and name != "default"]
    return ",".join([*([config.label] if config.items else []), *unset])


def _document(report: BisectReport) -> dict[str, Any]:
    finding = report.finding
    return {
        "schema": 1,
        "axis": report.axis,
        "config": report.config.as_dict(),
        "signature": report.signature,
        "last_good": _version(report, finding.regression, before=True),
        "first_bad": _version(report, finding.regression),
        "first_bad_candidates": _candidates(report, finding.regression),
        "first_fixed": _version(report, finding.fix),
        "first_fixed_candidates": _candidates(report, finding.fix),
        "untestable": [report.version(index) for index in finding.holes],
        "not_tried": [report.version(index) for index in finding.unprobed],
        "segments": [
            {
                "first": report.version(part.first),
                "last": report.version(part.last),
                "outcome": part.probe.outcome.value,
                "verdict": part.probe.verdict,
                "signature": part.probe.signature,
            }
            for part in finding.segments
        ],
        "came_back": finding.came_back,
        "confidence": report.repeats.confidence if report.repeats else None,
        "ptx_identical": report.ptx_identical,
        "blame": "ptxas" if report.axis == "ptxas" and report.ptx_identical else None,
        "trouble": report.trouble,
    }


def _version(
    report: BisectReport, boundary: Boundary | None, *, before: bool = False
) -> str | None:
    if boundary is None:
        return None
    if before:
        return report.version(boundary.before)
    # A bare version only where nothing lies between.
    return report.version(boundary.after) if boundary.exact else None


def _candidates(report: BisectReport, boundary: Boundary | None) -> list[str]:
    return [report.version(index) for index in boundary.candidates] if boundary else []
