"""`triage rank`: the configs of a kernel by their time."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import click

from harness.cells.places import CompileOptions
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import GpuOptions, gpu_options
from harness.cli.main import CONTEXT
from harness.cli.options import Verb, goes_with, json_option
from harness.cli.output import print_json, print_remarks, print_said, print_text, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, selection_options
from harness.io.files.reading import read_regular
from harness.values.errors import UsageError
from harness.workaround.rank.order import rank_document, ranks_as_markdown, ranks_said
from harness.workaround.rank.ranking import MeasuredError, rank, rank_again

_LARGEST = 1 << 28

_EPILOG = """\b
Example:
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a --measure --on gpu

Exit code 0: the configs are ordered. 2: wrong usage. 3: nothing matches. 4: this machine, or a GPU
that cannot be reached."""


@click.command("rank", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@goes_with("--measure", "--on", "--runner", "--pack", "--import")
@selection_options(kernel_required=False)
@click.option(
    "--measure", is_flag=True, help="Time the configs on a GPU, and hold the order to it."
)
@gpu_options("--measure: this machine's GPU.")
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
def command(
    *,
    words: SelectionOptions,
    measure: bool,
    gpu: GpuOptions,
    documents: Sequence[Path],
    as_markdown: bool,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Order the configs of a kernel by what compilers tell of their time, without running them.

    It says how sure the order is, and where it cannot tell. With --measure a GPU says how good it
    is: the correlation of ranks, and how much slower the first choices are than the best.
    """
    if documents:
        try:
            report = rank_again([_unpacked(path) for path in documents])
        except MeasuredError as error:
            raise UsageError(f"--again: no document of `triage rank --json`: {error}") from error
    elif words.kernel:
        way = gpu.way() if measure else None
        with preparing(status_console()):
            selections = select_all(words)
        with open_results() as store, narrating(status_console(), "compiling") as tell:
            report = run_to_the_end(rank(selections, store, how, way, tell))
        print_remarks(report.notes)
    else:
        raise UsageError("name a kernel: `triage rank FILE.py`, or --kernel NAME")
    if as_json:
        print_json(rank_document(report))
    elif not as_markdown:
        print_said(ranks_said(report))
    elif any(launch.quality for launch in report.launches):
        print_text(ranks_as_markdown(report))
    else:
        raise UsageError("--markdown says how good orders are: nothing was measured")


def _unpacked(path: Path) -> bytes:
    data = read_regular(path, _LARGEST)
    if path.suffix != ".xz":
        return data
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
