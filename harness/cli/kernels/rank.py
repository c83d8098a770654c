"""`triage rank`."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.cells.selection import select_all
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import gpu_way, gpu_way_options
from harness.cli.main import CONTEXT
from harness.cli.options import execution_options, goes_with, json_option, selection_options
from harness.cli.output import print_json, print_remarks, print_said, print_text, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, selection_words
from harness.io.files.regular_files import read_regular
from harness.values.errors import UsageError
from harness.workaround.rank.order import RankReport
from harness.workaround.rank.ranking import MeasuredError, rank, rank_again
from harness.workaround.rank.table import rank_document, ranks_as_markdown, ranks_said

_LARGEST = 1 << 28

_EPILOG = """\b
Example:
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a --measure --on gpu

Exit code 0: the configs are ordered. 2: wrong usage. 3: nothing matches. 4: this machine, or a GPU
that cannot be reached."""


@click.command("rank", context_settings=CONTEXT, epilog=_EPILOG)
@goes_with("--measure", "--on", "--runner", "--pack", "--import")
@lambda function: selection_options(function, kernel_required=False)
@click.option(
    "--measure", is_flag=True, help="Time the configs on a GPU, and hold the order to it."
)
@click.option("--on", type=click.Choice(["gpu"]), help="--measure: this machine's GPU.")
@gpu_way_options
@click.option(
    "--again",
    "documents",
    type=FilePath(read=True),
    multiple=True,
    metavar="FILE",
    help="Order what `--measure --json` wrote before (.xz, too). Repeatable.",
)
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="How good the orders are, as a table."
)
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Order the configs of a kernel by what compilers tell of their time, without running them.

    It says how sure the order is, and where it cannot tell. With --measure a GPU says how good it
    is: the correlation of ranks, and how much slower the first choices are than the best.
    """
    if options["documents"]:
        _show(_again(options["documents"]), options)
        return
    if not options["kernel"]:
        raise UsageError("name a kernel: `triage rank FILE.py`, or --kernel NAME")
    way = gpu_way({**options, "on": options["on"] or ("gpu" if options["measure"] else None)})
    with preparing(status_console()):
        selections = select_all(selection_words(options))
    how = compile_options(options)
    with open_results() as store, narrating(status_console(), "compiling") as tell:
        report = run_to_the_end(rank(selections, store, how, way, tell))
    print_remarks(report.notes)
    _show(report, options)


def _again(paths: Sequence[Path]) -> RankReport:
    texts = []
    for path in paths:
        data = read_regular(path, _LARGEST)
        if path.suffix == ".xz":
            data = _unpacked(data, path)
        texts.append(data)
    try:
        return rank_again(texts)
    except MeasuredError as error:
        raise UsageError(f"--again: no document of `triage rank --json`: {error}") from error


def _unpacked(data: bytes, path: Path) -> bytes:
    archive = lzma.LZMADecompressor()
    try:
        text = archive.decompress(data, _LARGEST + 1)
    except lzma.LZMAError as error:
        raise UsageError(f"--again {path}: {error}") from error
    if len(text) > _LARGEST:
        raise UsageError(f"--again {path}: more than {_LARGEST:,} bytes: it is not read")
    if not archive.eof:
        raise UsageError(f"--again {path}: it is cut off")
    return text


def _show(report: RankReport, options: dict[str, Any]) -> None:
    if options["as_json"]:
        print_json(rank_document(report))
    elif options["as_markdown"]:
        if not any(each.quality for each in report.launches):
            raise UsageError("--markdown says how good orders are: nothing was measured")
        print_text(ranks_as_markdown(report))
    else:
        print_said(ranks_said(report))
