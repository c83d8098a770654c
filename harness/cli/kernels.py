"""`triage kernels`: the repros.

Example:
  triage kernels

Repros in ./repros come first, then those that ship with triage.
"""

from __future__ import annotations

from harness.cells.repros.find import list_repros
from harness.cli.options import JsonAlone, verb
from harness.cli.output import print_json, print_remarks, print_said
from harness.tables.said import GridColumn, SaidGrid, say
from harness.values.kernel import Repro
from harness.values.toolchain import TRITON


@verb()
def command(options: JsonAlone) -> int:
    """List the kernels that have a repro: source, upstream issue, launches, number of configs."""
    repros, errors = list_repros()
    print_remarks(*map(str, errors))
    if options.as_json:
        print_json({"schema": 1, "kernels": [_document(repro) for repro in repros]})
    else:
        columns = (
            GridColumn(title="name"),
            *(GridColumn(title=title, wraps=True) for title in ("source", "issue", "launches")),
            GridColumn(title="configs", is_number=True),
            GridColumn(title="what", wraps=True),
        )
        rows = []
        for repro in repros:
            launches = ", ".join(launch.name for launch in repro.launches)
            configs = "-" if repro.configs is None else str(repro.configs)
            cells = repro.name, _source(repro), repro.issue or "-", launches, configs, repro.summary
            rows.append(tuple(map(say, cells)))
        print_said([SaidGrid(columns=columns, rows=tuple(rows))])
    return 2 if errors else 0


def _source(repro: Repro) -> str:
    if repro.source is None:
        return str(repro.folder)
    return f"{repro.source.package} {repro.source.version}"


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
            {"name": launch.name, "parameters": {p.name: p.default for p in launch.parameters}}
            for launch in repro.launches
        ],
    }
