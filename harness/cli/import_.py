"""`triage import`: repros of what Triton left in a folder.

Example:
  triage import ~/.triton/cache
  triage compile --kernel my_kernel-1f2e3d4c --ptxas 13.1.115

An entry without metadata and cubin is a compilation that failed. Exit code 3: nothing found.
"""

from __future__ import annotations

from pathlib import Path

import click
from packaging.version import Version

from harness.cells.repros.cache_folders import read_leftovers, write_repro
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cli.amounts import FilePath
from harness.cli.options import Options, argument, json_option, option, verb
from harness.cli.output import print_json, print_line, print_remarks
from harness.values.errors import EmptySelectionError


def _version(text: str) -> str:
    try:
        return str(Version(text))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a version; write it like 3.6.0") from None


class _ImportOptions(Options):
    folder: Path = argument(type=FilePath())
    into: Path = option(
        type=FilePath(file_okay=False), default=Path("repros"), help="Where the repros go."
    )
    triton: str | None = option(
        reads=_version,
        metavar="VERSION",
        help="The Triton that compiled them, where their metadata does not say.",
    )
    as_json: bool = json_option()


@verb()
def command(options: _ImportOptions) -> None:
    """Make repros of what Triton left in a cache folder, or in a TRITON_KERNEL_DUMP folder.

    Each then compiles offline, from the stage that comes after the last one it holds, or from an
    earlier one (--launch ttir, ttgir, ptx). Nothing in the folder is run.
    """
    leftovers = read_leftovers(options.folder)
    print_remarks(*leftovers.skipped)
    imported = []
    for kernel in leftovers.kernels:
        place, is_new = write_repro(kernel, options.into, triton=options.triton)
        imported.append(
            {
                "name": kernel.name,
                "kernel": kernel.kernel,
                "folder": str(place),
                "failed_after": kernel.failed_after,
                "state": kernel.state,
                "launches": [suffix.removeprefix(".") for suffix in kernel.files],
                "target": str(kernel.target) if kernel.target else None,
                "triton": kernel.triton or options.triton,
                "new": is_new,
            }
        )
    if not imported:
        raise EmptySelectionError(
            f"{options.folder}: no kernels: neither a Triton cache nor a dump folder"
        )
    if options.as_json:
        print_json({"schema": 1, "imported": imported, "skipped": leftovers.skipped})
        return
    for repro in imported:
        remark = "" if repro["new"] else ", is there already"
        print_line(f"{repro['name']}: {repro['state']}{remark}")
    failed = [repro for repro in imported if repro["failed_after"]]
    print_line("Next:")
    words = SelectionOptions(kernel=str((failed or imported)[0]["name"]))
    print_line(f"  {spell_command('compile', words)}")
