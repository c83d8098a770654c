"""`triage compile`.

Example:
  triage compile --kernel mamba3_siso_bwd_dqkv --sm 100a --config num_warps=4,maxnreg=none
  triage compile --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115
  triage compile --kernel 'mamba2_*' --sm 80 --sm 90a --sm 100a --sm 120a
  triage compile my_kernel.py --sm 90a --triton 3.5.0 --triton 3.9.0

Exit code 0: every config compiles. 1: some do not work. 4: some could not be determined.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from harness.cells.compile import (
    CompileReport,
    SamplePolicy,
    compile_document,
    compile_selections,
    save_cells,
)
from harness.cells.next_steps import next_steps
from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cli.amounts import FilePath
from harness.cli.options import Options, exclusive, json_option, silent, verb
from harness.cli.output import (
    print_json,
    print_next,
    print_remarks,
    print_said,
    print_text,
    results_console,
    status_console,
)
from harness.cli.progress.cells import show_progress
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, select_named, selection_options
from harness.diff.side_by_side import (
    bisect_worst,
    compared_document,
    side_by_side,
    side_by_side_said,
    sides_said,
)
from harness.frontends.registry import known_versions, stages_of
from harness.tables.markdown import rows_as_markdown, summary_as_markdown
from harness.tables.rows import rows_said
from harness.tables.summary import summarize, summary_said
from harness.values.row import Row
from harness.values.verdict import VerdictKind


class _CompileOptions(Options, rules=[exclusive("--json", "--markdown")]):
    words: SelectionOptions = selection_options()
    how: CompileOptions = execution_options()
    save: Path | None = silent(
        "--out",
        often=True,
        type=FilePath(file_okay=False),
        help="Write every artifact of every cell below this folder.",
    )
    as_markdown: bool = silent("--markdown", help="Tables as Markdown on stdout.")
    as_json: bool = json_option()


@verb()
def command(options: _CompileOptions) -> int:
    """Compile every config of a kernel and report the result of each.

    A pattern of names ('mamba2_*') compiles many kernels and ends in one summary. Several
    versions or targets are compared, what got worse first. Needs no GPU.
    "ok" means compiled and within the target's limits; nothing has been run.
    """
    status = status_console()
    selections = select_named(options.words)
    with open_results() as store:
        with show_progress() as progress:
            work = compile_selections(
                selections, store, options.how, progress, SamplePolicy(options.words)
            )
            report = run_to_the_end(work)
        if options.save:
            saved = save_cells(store, report.rows, options.save)
            status.print(f"{saved} files written below {options.save}")
    many = len(selections) > 1
    rows = report.rows
    print_remarks(*report.notes, *report.failures)
    if options.as_json:
        pairs = map(compared_document, side_by_side(rows, of_targets=not many))
        print_json({**compile_document(report), "compared": list(pairs)})
    elif options.as_markdown:
        in_full = rows_as_markdown(rows, report.samples, report.launches)
        print_text(summary_as_markdown(summarize(rows, report.samples)) if many else in_full)
    else:
        _print(report, options.words, many=many)
    kinds = [row.verdict for row in rows]
    is_failing = any(kind.fails for kind in kinds)
    is_incomplete = report.failures or not all(kind.compiles for kind in kinds)
    return 1 if is_failing else 4 if is_incomplete else 0


def _print(report: CompileReport, words: SelectionOptions, *, many: bool) -> None:
    console, rows, samples = results_console(), report.rows, report.samples
    # A table for each of many kernels, or of many toolchains, would drown the reader.
    pairs = side_by_side(rows, of_targets=not many)
    if many:
        blocks = summary_said(summarize(rows, samples))
        steps = _first_look(rows, words)
    else:
        blocks = rows_said(rows, samples, report.launches)
        if pairs and len({row.place for row in rows}) > 1:
            blocks = sides_said(pairs, samples)
        kinds = {row.compiler for row in rows if row.compiler}
        stages = {kind: stages_of(kind) for kind in kinds}
        steps = next_steps(rows, words, stages, cache(known_versions))
    changed = (block for pair in pairs for block in side_by_side_said(pair, report.launches))
    print_said([*blocks, *changed])
    if since := bisect_worst(pairs, rows, replace(words, kernel="") if many else words):
        steps = [*since, *(step for step in steps if step[0].split()[1] != "bisect")]
    print_next(steps)
    if not many and any(row.cached for row in rows):
        console.print("* from the store, time of when it was compiled", style="dim")


def _first_look(rows: Sequence[Row], words: SelectionOptions) -> list[tuple[str, str]]:
    """The kernel that most needs a look, with each of its configs; by now they are stored."""
    kinds = {row.kernel: [0, 0] for row in rows}
    for row in rows:
        kind = row.verdict
        kinds[row.kernel][0] += not kind.compiles
        kinds[row.kernel][1] += kind is VerdictKind.SICK
    worst = max(kinds, key=lambda kernel: kinds[kernel])
    if not any(kinds[worst]):
        return [(spell_command("run", words), "do they compute what they must?")]
    command = spell_command("compile", replace(words, kernel=worst))
    return [(command, "each config of it, from the store")]
