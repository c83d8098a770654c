"""`triage rank`: the configs of a kernel by their time, or by spills and occupancy.

Example:
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a --measure --on gpu

Exit code 0: the configs are ordered. 2: wrong usage. 3: nothing matches. 4: this machine, or a GPU
that cannot be reached.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import GpuOptions, gpu_option
from harness.cli.options import Options, goes_with, json_option, option, verb
from harness.cli.output import print_json, print_next, print_remarks, print_said, print_text
from harness.cli.progress.steps import narrating
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, select_named, selection_options
from harness.io.files.reading import read_regular
from harness.values.errors import UsageError
from harness.values.toolchain import GPU
from harness.workaround.rank.order import rank_document, ranks_as_markdown, ranks_said
from harness.workaround.rank.ranking import MeasuredError, rank, rank_again

_LARGEST = 1 << 28


class _RankOptions(
    Options, rules=[goes_with("--measure", "--on", "--runner", "--pack", "--import")]
):
    words: SelectionOptions = selection_options(kernel_required=False)
    measure: bool = option(often=True, help="Time the configs on a GPU: the fastest first.")
    gpu: GpuOptions = gpu_option("--measure: this machine's GPU.", GPU)
    documents: tuple[Path, ...] = option(
        "--again",
        type=FilePath(read=True),
        metavar="FILE",
        help="Order what `--measure --json` wrote before (.xz, too). Repeatable.",
    )
    as_markdown: bool = option(
        "--markdown", help="How good the order without times is where there are times, as a table."
    )
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _RankOptions) -> None:
    """Order the configs of a kernel: the fastest first, where a GPU times them (--measure).

    Without it by what can be launched, spilled bytes and occupancy: this is not an order of times.
    Where there are times it says how near the two are: the correlation of ranks, and how much
    slower the first choices are than the best.
    """
    if options.documents:
        try:
            report = rank_again([_unpacked(path) for path in options.documents])
        except MeasuredError as error:
            raise UsageError(f"--again: no document of `triage rank --json`: {error}") from error
    elif options.words.kernel:
        way = options.gpu.way() if options.measure else None
        selections = select_named(options.words)
        with open_results() as store, narrating("compiling") as tell:
            report = run_to_the_end(rank(selections, store, options.how, way, tell))
        print_remarks(*report.notes)
    else:
        raise UsageError("name a kernel: `triage rank FILE.py`, or --kernel NAME")
    if options.as_json:
        print_json(rank_document(report))
    elif not options.as_markdown:
        print_said(ranks_said(report))
        if options.words.kernel and not options.measure:
            pack = ("--measure", "--pack", "rank.pack")
            timed = spell_command("rank", options.words, *pack)
            print_next([(timed, "a file that times them on a GPU elsewhere")])
    elif any(launch.quality for launch in report.launches):
        print_text(ranks_as_markdown(report))
    else:
        raise UsageError("--markdown needs a launch of which three configs were measured")


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
