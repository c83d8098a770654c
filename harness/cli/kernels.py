"""`triage kernels`, `triage import` and `triage show`: repros, and what is kept of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from packaging.version import Version

from harness.cells.places import CompileOptions, at_bench
from harness.cells.repros.cache_folders import read_leftovers, write_repro
from harness.cells.repros.find import list_repros
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_bytes, print_json, print_remarks, print_said, results_console
from harness.cli.results import read_results
from harness.cli.running import run_to_the_end
from harness.frontends.assemble import count_live
from harness.frontends.registry import stages_of
from harness.io.toolchains.install import every_nvdisasm
from harness.site.live import Live, live_text
from harness.store.schema import ResultRecord
from harness.store.stages import STAGES, stage_bytes
from harness.store.store import Store
from harness.tables.said import GridColumn, SaidGrid, say
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError
from harness.values.kernel import Repro
from harness.values.toolchain import TRITON

_KERNELS_EPILOG = """\b
Example:
  triage kernels

Repros in ./repros come first, then those that ship with triage."""


@click.command("kernels", context_settings=CONTEXT, epilog=_KERNELS_EPILOG)
@json_option
def kernels_command(*, as_json: bool) -> None:
    """List the kernels that have a repro: source, upstream issue, launches, number of configs."""
    repros, errors = list_repros()
    print_remarks(map(str, errors))
    if as_json:
        print_json({"schema": 1, "kernels": [_document(repro) for repro in repros]})
    else:
        print_said([_grid(repros)])
    raise click.exceptions.Exit(2 if errors else 0)


def _grid(repros: Sequence[Repro]) -> SaidGrid:
    columns = (
        GridColumn(title="name"),
        *(GridColumn(title=title, wraps=True) for title in ("source", "issue", "launches")),
        GridColumn(title="configs", is_number=True),
        GridColumn(title="what", wraps=True),
    )
    return SaidGrid(columns=columns, rows=tuple(tuple(map(say, _line(repro))) for repro in repros))


def _line(repro: Repro) -> tuple[str, ...]:
    launches = ", ".join(launch.name for launch in repro.launches)
    configs = "-" if repro.configs is None else str(repro.configs)
    return repro.name, _source(repro), repro.issue or "-", launches, configs, repro.summary


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
            {"name": launch.name, "parameters": {p.name: p.default for p in launch.parameters}}
            for launch in repro.launches
        ],
    }


_IMPORT_EPILOG = """\b
Example:
  triage import ~/.triton/cache
  triage compile --kernel my_kernel-1f2e3d4c --ptxas 13.1.115

An entry without metadata and cubin is a compilation that failed. Exit code 3: nothing found."""


def _version(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else str(Version(text))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a version; write it like 3.6.0", param=option
        ) from None


@click.command("import", context_settings=CONTEXT, epilog=_IMPORT_EPILOG)
@click.argument("folder", type=FilePath())
@click.option(
    "--into",
    type=FilePath(file_okay=False),
    default=Path("repros"),
    show_default=True,
    help="Where the repros go.",
)
@click.option(
    "--triton",
    callback=_version,
    metavar="VERSION",
    help="The Triton that compiled them, where their metadata does not say.",
)
@json_option
def import_command(*, folder: Path, into: Path, triton: str | None, as_json: bool) -> None:
    """Make repros of what Triton left in a cache folder, or in a TRITON_KERNEL_DUMP folder.

    Each then compiles offline, from the stage that comes after the last one it holds, or from an
    earlier one (--launch ttir, ttgir, ptx). Nothing in the folder is run.
    """
    leftovers = read_leftovers(folder)
    print_remarks(leftovers.skipped)
    imported = []
    for kernel in leftovers.kernels:
        place, is_new = write_repro(kernel, into, triton=triton)
        imported.append(
            {
                "name": kernel.name,
                "kernel": kernel.kernel,
                "folder": str(place),
                "failed_after": kernel.failed_after,
                "state": kernel.state,
                "launches": [suffix.removeprefix(".") for suffix in kernel.files],
                "target": str(kernel.target) if kernel.target else None,
                "triton": kernel.triton or triton,
                "new": is_new,
            }
        )
    if not imported:
        raise EmptySelectionError(f"{folder}: no kernels: neither a Triton cache nor a dump folder")
    if as_json:
        print_json({"schema": 1, "imported": imported, "skipped": leftovers.skipped})
        return
    console = results_console()
    for repro in imported:
        remark = "" if repro["new"] else ", is there already"
        console.print(f"{repro['name']}: {repro['state']}{remark}", soft_wrap=True)
    failed = [repro for repro in imported if repro["failed_after"]]
    console.print("Next:")
    words = SelectionOptions(kernel=str((failed or imported)[0]["name"]))
    console.print(f"  {spell_command('compile', words)}", soft_wrap=True, markup=False)


_LIVE = "live"

_SHOW_EPILOG = """\b
Example:
  triage show 4f617d90 --stage sass | grep -c STL
  triage show 4f617d90 --stage live | head -1

CELL is the short name in the first column of a table, a cell id, or a part of one."""


@click.command("show", context_settings=CONTEXT, epilog=_SHOW_EPILOG)
@click.argument("cell")
@click.option(
    "--stage",
    metavar=f"[{'|'.join((*STAGES, _LIVE))}]",
    help="Which artifact; `live` is the SASS with the live registers of each instruction. "
    "Default: the row.",
)
def show_command(cell: str, stage: str | None) -> None:
    """Print an artifact of a cell, or its whole row."""
    with read_results() as store:
        record = _find(store, cell)
        if stage is None:
            print_json(msgspec.json.decode(record.row))
            return
        _check_stage(record, stage)
        if stage == _LIVE:
            data = run_to_the_end(_live(store, record))
        else:
            data = stage_bytes(store, record, stage)
    if data is None:
        raise EmptySelectionError(
            f"{record.cell} has no {stage}: its verdict is {record.verdict}, or it was trimmed; "
            "compile it again to be sure"
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


def _check_stage(record: ResultRecord, stage: str) -> None:
    """Refuse what is not a stage of Triton's, nor of the compiler of this cell."""
    kind = msgspec.json.decode(record.row).get("compiler")
    stages = [*STAGES, _LIVE, *(stages_of(kind) if kind not in (None, TRITON) else ())]
    if stage not in stages:
        names = ", ".join(repr(name) for name in dict.fromkeys(stages))
        raise click.BadParameter(f"{stage!r} is not one of {names}.", param_hint="'--stage'")


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
