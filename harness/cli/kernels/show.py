"""`triage show`."""

from __future__ import annotations

import click
import msgspec

from harness.cli.main import CONTEXT
from harness.cli.output import print_bytes, print_json
from harness.cli.results import read_results
from harness.store.stages import STAGES, stage_bytes
from harness.store.store import ResultRecord, Store
from harness.values.errors import EmptySelectionError, UsageError

__all__ = ["command"]

_EPILOG = """\b
Example:
  triage show 4f617d90 --stage sass | grep -c STL

CELL is the short name in the first column of a table, a cell id, or a part of one."""


@click.command("show", context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("cell")
@click.option("--stage", type=click.Choice(STAGES), help="Which artifact. Default: the row.")
def command(cell: str, stage: str | None) -> None:
    """Print an artifact of a cell, or its whole row."""
    with read_results() as store:
        record = _find(store, cell)
        if stage is None:
            print_json(msgspec.json.decode(record.row))
            return
        data = stage_bytes(store, record, stage)
    if data is None:
        raise EmptySelectionError(
            f"{record.cell} has no {stage}: its verdict is {record.verdict}, or it was trimmed; "
            "compile it again to be sure"
        )
    print_bytes(data)


def _find(store: Store, text: str) -> ResultRecord:
    found = store.find_cells(text)
    if not found:
        raise EmptySelectionError(
            f"no stored cell {text!r}; the first column of `triage compile` names them"
        )
    if len(found) > 1:
        names = ", ".join(record.short for record in found[:8])
        raise UsageError(f"{text!r} fits {len(found)} cells ({names} ...); give more of the id")
    return found[0]
