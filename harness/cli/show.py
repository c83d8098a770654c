"""`triage show`: what is kept of a cell.

Example:
  triage show 4f617d90 --stage sass | grep -c STL
  triage show 4f617d90 --stage live | head -1

CELL is the short name in the first column of a table, a cell id, or a part of one.
"""

from __future__ import annotations

import click
import msgspec

from harness.cells.places import CompileOptions, at_bench
from harness.cli.options import Options, argument, option, verb
from harness.cli.output import print_bytes, print_json
from harness.cli.results import read_results
from harness.cli.running import run_to_the_end
from harness.frontends.assemble import count_live
from harness.frontends.registry import stages_of
from harness.io.toolchains.install import every_nvdisasm
from harness.site.live import Live, live_text
from harness.store.schema import ResultRecord
from harness.store.stages import STAGES, stage_bytes
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError
from harness.values.toolchain import TRITON

_LIVE = "live"


class _ShowOptions(Options):
    cell: str = argument()
    stage: str | None = option(
        metavar=f"[{'|'.join((*STAGES, _LIVE))}]",
        help="Which artifact; `live` is the SASS with the live registers of each instruction. "
        "Default: the row.",
    )


@verb()
def command(options: _ShowOptions) -> None:
    """Print an artifact of a cell, or its whole row."""
    with read_results() as store:
        record = _find(store, options.cell)
        if options.stage is None:
            print_json(msgspec.json.decode(record.row))
            return
        # What is a stage of Triton's, or of the compiler of this cell.
        kind = msgspec.json.decode(record.row).get("compiler")
        stages = [*STAGES, _LIVE, *(stages_of(kind) if kind not in (None, TRITON) else ())]
        if options.stage not in stages:
            names = ", ".join(map(repr, dict.fromkeys(stages)))
            raise click.BadParameter(
                f"{options.stage!r} is not one of {names}.", param_hint="'--stage'"
            )
        if options.stage == _LIVE:
            data = run_to_the_end(_live(store, record))
        else:
            data = stage_bytes(store, record, options.stage)
    if data is None:
        raise EmptySelectionError(
            f"{record.cell} has no {options.stage}: its verdict is {record.verdict}, or it was "
            "trimmed; compile it again to be sure"
        )
    print_bytes(data)


async def _live(store: Store, record: ResultRecord) -> bytes | None:
    """The SASS with live registers; None where there is no cubin."""
    sass = stage_bytes(store, record, "sass")
    triton = msgspec.json.decode(record.row).get("triton")
    async with at_bench(store, CompileOptions()) as bench:
        counted = await count_live(bench, record, every_nvdisasm(triton))
    if sass is None or counted is None:
        return None
    if counted.problem:
        raise InfrastructureError(counted.problem)
    live = Live(kernels=counted.kernels, tool=counted.tool)
    return live_text(sass.decode("utf-8", "replace"), live).encode()


def _find(store: Store, text: str) -> ResultRecord:
    records = store.find_cells(text)
    if not records:
        raise EmptySelectionError(
            f"no stored cell {text!r}; the first column of `triage compile` names them"
        )
    if len(records) > 1:
        names = ", ".join(record.short for record in records[:8])
        raise UsageError(f"{text!r} fits {len(records)} cells ({names} ...); give more of the id")
    return records[0]
