"""`triage kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, results_console, status_console
from harness.repros.find import list_repros
from harness.values.kernel import Repro
from harness.values.toolchain import TRITON

__all__ = ["command"]

_EPILOG = """\b
Example:
  triage kernels

Repros in ./repros come first, then those that ship with triage."""


@click.command("kernels", context_settings=CONTEXT, epilog=_EPILOG)
@json_option
def command(*, as_json: bool) -> None:
    """List the kernels that have a repro: source, upstream issue, launches, number of configs."""
    repros, errors = list_repros()
    for error in errors:
        status_console().print(f"triage: {error}", soft_wrap=True)
    if as_json:
        print_json({"schema": 1, "kernels": [_document(repro) for repro in repros]})
    else:
        results_console().print(_table(repros))
    raise click.exceptions.Exit(2 if errors else 0)


def _table(repros: Sequence[Repro]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "source", "issue", "launches", "configs", "what"):
        numbers = title == "configs"
        justify: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(title, no_wrap=numbers or title == "name", justify=justify)
    for repro in repros:
        launches = ", ".join(launch.name for launch in repro.launches)
        configs = "-" if repro.configs is None else str(repro.configs)
        table.add_row(
            repro.name, _source(repro), repro.issue or "-", launches, configs, repro.summary
        )
    return table


def _source(repro: Repro) -> str:
    if repro.source is None:
        return str(repro.folder)
    return f"{repro.source.pin.package} {repro.source.pin.version}"


def _document(repro: Repro) -> dict[str, object]:
    return {
        "name": repro.name,
        "kernel": repro.kernel,
        "source": _source(repro),
        "issue": repro.issue,
        "summary": repro.summary,
        "tags": repro.tags,
        "triton": repro.version if repro.compiler == TRITON else None,
        "targets": repro.targets,
        "configs": repro.configs,
        "launches": [
            {
                "name": launch.name,
                "parameters": {p.name: p.default for p in launch.parameters},
            }
            for launch in repro.launches
        ],
    }
