"""`triage toolchain`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, print_line, print_note, print_said, status_console
from harness.cli.progress.steps import preparing, working
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.registry import front_end, front_ends, kinds
from harness.io.files.locations import cache_dir
from harness.io.toolchains import marker as toolchain_marker
from harness.io.toolchains.install import (
    available_nvdisasm,
    available_ptxas,
    available_triton,
    install_nvdisasm,
    install_ptxas,
    select_ptxas,
)
from harness.io.toolchains.installed import (
    list_damaged,
    list_installed,
    remove,
    require_installed,
    verify,
)
from harness.tables.said import Block, GridColumn, SaidGrid, say
from harness.values.errors import EmptySelectionError, StorageError, TriageError, UsageError
from harness.values.toolchain import NO_ASSEMBLER, PTX, PTXAS, TRITON

_EPILOG = """\b
Example:
  triage toolchain install triton-3.8.0 ptxas-13.1.115 'ptxas>=13.3'
  triage toolchain list --available"""


@click.group("toolchain", context_settings=CONTEXT, epilog=_EPILOG)
def command() -> None:
    """List, install, verify and remove compilers, assemblers and disassemblers.

    They come from the package index, hash-checked, and are shared by all projects of this user.
    """


@command.command("list", context_settings=CONTEXT)
@click.option("--available", is_flag=True, help="What the package index has, too.")
@json_option
def list_command(*, available: bool, as_json: bool) -> None:
    """List what is installed."""
    installed = list_installed(of_any_python=True)
    damaged = list_damaged()
    for error in damaged.values():
        print_note(str(error))
    offered: dict[str, list[str]] = {}
    if available:
        offered = {
            TRITON: [str(version) for version in available_triton()],
            **{kind: _versions(front_end(kind)) for kind in _compilers() if kind != TRITON},
            **{kind: _versions(back) for kind, back in _assemblers().items()},
            "ptxas": [str(version) for version, _ in available_ptxas()],
            "nvdisasm": [str(version) for version in available_nvdisasm()],
        }
    if as_json:
        rows = [
            {
                "name": each.name,
                "sha256": each.sha256,
                "distribution": each.distribution,
                "python": each.python or None,
                "partners": [*each.dependencies, *each.shared],
            }
            for each in installed
        ]
        document = {"schema": 1, "installed": rows, "available": offered or None}
        print_json({**document, "damaged": list(damaged)})
    else:
        lists = (say(f"{kind}: {', '.join(versions)}") for kind, versions in offered.items())
        print_said([_installed_said(installed), *lists])
    raise click.exceptions.Exit(StorageError.exit_code if damaged else 0)


def _versions(end: FrontEnd | BackEnd) -> list[str]:
    """What there is of a tool; none, and a note, where that cannot be found out."""
    try:
        return list(map(str, end.available()))
    except TriageError as error:
        print_note(str(error))
        return []


def _installed_said(installed: Sequence[toolchain_marker.Toolchain]) -> Block:
    if not installed:
        return say(f"nothing is installed in {cache_dir()}")
    titles = ("name", "python", "from", "wheel sha256", "installed")
    rows = (
        (each.name, _python(each), each.distribution, each.sha256[:12], each.installed)
        for each in installed
    )
    return SaidGrid(
        columns=tuple(GridColumn(title=title, wraps=True) for title in titles),
        rows=tuple(tuple(map(say, row)) for row in rows),
    )


def _python(each: toolchain_marker.Toolchain) -> str:
    """The Python that can use it."""
    return each.banner.removeprefix("Python ") if each.environment else each.python or "any"


@command.command("install", context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True)
def install_command(names: tuple[str, ...]) -> None:
    """Install toolchains: triton-3.8.0, ptxas-latest, 'ptxas>=13.1', nvdisasm-latest."""
    for name in names:
        with preparing(status_console()):
            done = _install(name)
        for installed in done:
            print_line(installed)


def _install(name: str) -> list[str]:
    kind, spec = _split(name)
    if kind == "ptxas":
        versions = select_ptxas(spec)
        done = [f"ptxas-{install_ptxas(version).version}" for version in versions]
    elif kind == "nvdisasm":
        tool = install_nvdisasm(None if spec == "latest" else spec)
        done = [f"{tool.name}-{tool.version}"]
    elif kind in _assemblers():
        back = _assemblers()[kind]
        done = [f"{kind}-{back.install(version).version}" for version in back.select(spec)]
    else:
        end = front_end(kind)
        done = [end.install(version).label for version in end.select(spec)]
    if not done:
        raise EmptySelectionError(f"{name}: the package index has no such version")
    return done


def _split(name: str) -> tuple[str, str]:
    known = [*_compilers(), *_assemblers(), "ptxas", "nvdisasm"]
    for kind in known:
        if name.startswith(kind) and len(name) > len(kind):
            return kind, name[len(kind) :].removeprefix("-")
    raise UsageError(f"{name!r}: write KIND-VERSION; there are {', '.join(known)}")


def _compilers() -> list[str]:
    """The kinds of compilers that have versions, longest names first: one may begin another."""
    return sorted((kind for kind in kinds() if kind != PTX), key=len, reverse=True)


def _assemblers() -> dict[str, BackEnd]:
    """The assemblers that have versions, besides ptxas, by their kinds."""
    every = (back for end in front_ends() for back in end.back_ends)
    return {back.kind: back for back in every if back.kind not in (PTXAS, NO_ASSEMBLER)}


@command.command("verify", context_settings=CONTEXT)
@click.argument("names", nargs=-1)
def verify_command(names: tuple[str, ...]) -> None:
    """Hash and run installed toolchains again; all of them when none is named."""
    for name in names:
        require_installed(name)
    installed = [*(each.name for each in list_installed()), *list_damaged()]
    wanted = names or installed
    failures = 0
    for name in wanted:
        try:
            with working(status_console(), f"verifying {name}"):
                verify(name)
        except TriageError as error:
            failures += 1
            print_note(str(error))
        else:
            print_line(f"{name}: sound")
    raise click.exceptions.Exit(1 if failures else 0)


@command.command("remove", context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True)
def remove_command(names: tuple[str, ...]) -> None:
    """Delete installed toolchains, and nothing that triage did not install."""
    for name in names:
        remove(name)
        print_line(f"{name}: removed")
