"""`triage import`: repros of what Triton left in a folder."""

from __future__ import annotations

from pathlib import Path

import click
from packaging.version import Version

from harness.cells.repros.cache_folders import read_leftovers, write_repro
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, print_remarks, results_console
from harness.values.errors import EmptySelectionError

_EPILOG = """\b
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


@click.command("import", context_settings=CONTEXT, epilog=_EPILOG)
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
def command(*, folder: Path, into: Path, triton: str | None, as_json: bool) -> None:
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
