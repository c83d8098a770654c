"""`triage history`."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.main import CONTEXT
from harness.cli.options import Verb, as_value, holds_option, json_option, kernel_options
from harness.cli.output import print_json, print_said
from harness.cli.results import read_results
from harness.judging.followed import read_while
from harness.matrix.history.table import history_document, history_said
from harness.matrix.history.versions import HistoryOptions, read_history

_EPILOG = """\b
Example:
  triage history --kernel mamba3_siso_bwd_dqkv --sm 100a --config num_warps=8,num_stages=1
  triage history mamba3_siso_bwd_dqkv --while "n_regs<=32 and spill_stores>4096"

With --while, each row says if the condition holds: `no` is of a kernel that compiles, `other
failure` of one that does not, - of what says nothing of the kernel.

Nothing is compiled: it is what `triage compile` and `triage matrix run` found, the last result of
each cell. In the sparklines a version is a character; x did not compile, · is not known."""


def _options(*, config: str | None, **which: Any) -> HistoryOptions:  # noqa: ANN401 - its fields
    return HistoryOptions(config=config or "", **which)


@click.command("history", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@as_value(
    "options",
    _options,
    kernel_options("A kernel with results, or a pattern; as the argument."),
    click.option("--config", metavar="FILTER", help='"num_warps=4|8,maxnreg=none".'),
    click.option("--sm", multiple=True, metavar="SM", help="GPU target: 90a, sm_100a. Repeatable."),
    click.option("--launch", metavar="NAME", help="Launch function, or a pattern of them."),
    click.option(
        "--set",
        multiple=True,
        metavar="NAME=VALUE",
        help="Only launches with this override. Repeatable.",
    ),
    click.option("--triton", metavar="X", help="Only this version, or specifier ('>=3.6')."),
    click.option("--ptxas", metavar="X", help="Only this version, or specifier ('>=13.1,<13.4')."),
    click.option("--compiler", metavar="KIND", help="Only this compiler: 'nvcc', 'nvcc>=13'."),
    click.option("--assembler", metavar="KIND", help="Only this assembler, in the same way."),
)
@holds_option
@json_option
def command(*, options: HistoryOptions, condition: str | None, as_json: bool) -> None:
    """Show one row a version of Triton and ptxas: verdict, registers and spills over time."""
    holds = read_while(condition)
    with read_results() as store:
        rows = read_history(store, options)
    if as_json:
        print_json(history_document(rows, holds))
    else:
        print_said(history_said(rows, holds))
