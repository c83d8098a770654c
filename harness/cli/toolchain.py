"""`triage toolchain`: the compilers, assemblers and disassemblers that are installed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, print_line, print_note, print_said, status_console
from harness.cli.progress.steps import preparing, working
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.file_front_end import PassedOnFrontEnd
from harness.frontends.registry import front_end, front_ends, kinds
from harness.io.files.locations import cache_dir
from harness.io.packages.index import Release
from harness.io.packages.versions import split_distribution
from harness.io.toolchains.install import (
    available_builds,
    available_nvdisasm,
    available_ptxas,
    available_triton,
    install_nvdisasm,
    install_ptxas,
    select_ptxas,
    verify,
)
from harness.io.toolchains.installed import (
    Toolchain,
    list_damaged,
    list_installed,
    remove,
    require_installed,
)
from harness.tables.said import Block, GridColumn, SaidGrid, say
from harness.values.errors import EmptySelectionError, StorageError, TriageError, UsageError
from harness.values.toolchain import NO_ASSEMBLER, PTXAS, TRITON

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
@click.argument("distributions", nargs=-1)
@click.option("--available", is_flag=True, help="What the package index has, too.")
@json_option
def list_command(*, distributions: tuple[str, ...], available: bool, as_json: bool) -> None:
    """List what is installed; of DISTRIBUTIONS that bring a Triton along, all builds by date."""
    builds = {name: list(map(_dated, available_builds(name))) for name in distributions}
    if distributions:
        if as_json:
            print_json({"schema": 1, "builds": builds})
        else:
            lines = (
                say(f"{name}=={build['version']}  {build['uploaded'] or 'no date'}")
                for name, dated in builds.items()
                for build in dated
            )
            print_said(list(lines))
        return
    installed = list_installed(of_any_python=True)
    damaged = list_damaged()
    for error in damaged.values():
        print_note(str(error))
    offered: dict[str, list[str] | None] = {}
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
                "name": tool.name,
                "sha256": tool.sha256,
                "distribution": tool.distribution,
                "python": tool.python or None,
                "partners": [*tool.dependencies, *tool.shared],
            }
            for tool in installed
        ]
        document = {"schema": 1, "installed": rows, "available": offered or None}
        print_json({**document, "damaged": list(damaged)})
    else:
        lists = (say(f"{kind}: {_listed(versions)}") for kind, versions in offered.items())
        print_said([_installed_said(installed), *lists])
    raise click.exceptions.Exit(StorageError.exit_code if damaged else 0)


def _dated(build: Release) -> dict[str, object]:
    return {"version": str(build.version), "uploaded": build.uploaded, "sha256": build.sha256}


def _listed(versions: list[str] | None) -> str:
    return "not known" if versions is None else ", ".join(versions) or "none for this machine"


def _versions(tool: FrontEnd | BackEnd) -> list[str] | None:
    """What there is of a tool; None, and a note, where that cannot be found out."""
    try:
        return list(map(str, tool.available()))
    except TriageError as error:
        print_note(str(error))
        return None


def _installed_said(installed: Sequence[Toolchain]) -> Block:
    if not installed:
        return say(f"nothing is installed in {cache_dir()}")
    titles = ("name", "python", "from", "wheel sha256", "installed")
    rows = (
        (
            toolchain.name,
            _usable_by(toolchain),
            toolchain.distribution,
            toolchain.sha256[:12],
            toolchain.installed,
        )
        for toolchain in installed
    )
    return SaidGrid(
        columns=tuple(GridColumn(title=title, wraps=True) for title in titles),
        rows=tuple(tuple(map(say, row)) for row in rows),
    )


def _usable_by(toolchain: Toolchain) -> str:
    """The Python that can use it."""
    return (
        toolchain.banner.removeprefix("Python ")
        if toolchain.environment
        else toolchain.python or "any"
    )


@command.command("install", context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True)
def install_command(names: tuple[str, ...]) -> None:
    """Install toolchains: triton-3.8.0, ptxas-latest, 'ptxas>=13.1', nvdisasm-latest."""
    for name in names:
        with preparing(status_console()):
            labels = _install(name)
        for installed in labels:
            print_line(installed)


def _install(name: str) -> list[str]:
    kind, spec = _split(name)
    if kind == "ptxas":
        versions = select_ptxas(spec)
        labels = [f"ptxas-{install_ptxas(version).version}" for version in versions]
    elif kind == "nvdisasm":
        tool = install_nvdisasm(None if spec == "latest" else spec)
        labels = [f"{tool.name}-{tool.version}"]
    elif kind in _assemblers():
        back = _assemblers()[kind]
        labels = [f"{kind}-{back.install(version).version}" for version in back.select(spec)]
    else:
        compiler = front_end(kind)
        labels = [compiler.install(version).label for version in compiler.select(spec)]
    if not labels:
        raise EmptySelectionError(f"{name}: the package index has no such version")
    return labels


def _split(name: str) -> tuple[str, str]:
    names = [*_compilers(), *_assemblers(), "ptxas", "nvdisasm"]
    if split_distribution(name)[0] not in ("", *names):
        return TRITON, name
    for kind in names:
        if name.startswith(kind) and len(name) > len(kind):
            return kind, name[len(kind) :].removeprefix("-")
    raise UsageError(f"{name!r}: write KIND-VERSION; there are {', '.join(names)}")


def _compilers() -> list[str]:
    """The kinds of compilers that have versions, longest names first: one may begin another."""
    versioned = (kind for kind in kinds() if not isinstance(front_end(kind), PassedOnFrontEnd))
    return sorted(versioned, key=len, reverse=True)


def _assemblers() -> dict[str, BackEnd]:
    """The assemblers that have versions, besides ptxas, by their kinds."""
    every = (back for compiler in front_ends() for back in compiler.back_ends)
    return {back.kind: back for back in every if back.kind not in (PTXAS, NO_ASSEMBLER)}


@command.command("verify", context_settings=CONTEXT)
@click.argument("names", nargs=-1)
def verify_command(names: tuple[str, ...]) -> None:
    """Hash and run installed toolchains again; all of them when none is named."""
    for name in names:
        require_installed(name)
    failures = 0
    for name in names or [*(tool.name for tool in list_installed()), *list_damaged()]:
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
