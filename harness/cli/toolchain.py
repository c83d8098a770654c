"""`triage toolchain`: the compilers, assemblers and disassemblers that are installed.

Example:
  triage toolchain install triton-3.8.0 ptxas-13.1.115 'ptxas>=13.3'
  triage toolchain list --available
"""

from __future__ import annotations

import click

from harness.cli.options import Options, argument, examples, json_option, option, verb
from harness.cli.output import print_json, print_line, print_note, print_said
from harness.cli.progress.steps import preparing, working
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.registry import front_end, front_ends, kinds
from harness.io.files.locations import cache_dir
from harness.io.packages.versions import split_distribution
from harness.io.toolchains.install import (
    available_builds,
    available_wheels,
    install_nvdisasm,
    install_ptxas,
    select_versions,
    verify,
)
from harness.io.toolchains.installed import (
    NVDISASM,
    list_damaged,
    list_installed,
    remove,
    require_installed,
)
from harness.tables.rows import grid_of
from harness.tables.said import say
from harness.values.errors import EmptySelectionError, StorageError, TriageError, UsageError
from harness.values.toolchain import NO_ASSEMBLER, PTX, PTXAS, TRITON


@click.group("toolchain", epilog=examples(__doc__))
def command() -> None:
    """List, install, verify and remove compilers, assemblers and disassemblers.

    They come from the package index, hash-checked, and are shared by all projects of this user.
    """


class _ListOptions(Options):
    distributions: tuple[str, ...] = argument()
    available: bool = option(help="What the package index has, too.")
    as_json: bool = json_option()


@verb(command)
def _list(options: _ListOptions) -> int:
    """List what is installed; of DISTRIBUTIONS that bring a Triton along, all builds by date."""
    if options.distributions:
        builds = {
            name: [
                {"version": str(build.version), "uploaded": build.uploaded, "sha256": build.sha256}
                for build in available_builds(name)
            ]
            for name in options.distributions
        }
        if options.as_json:
            print_json({"schema": 1, "builds": builds})
        else:
            for name, dated in builds.items():
                for build in dated:
                    print_line(f"{name}=={build['version']}  {build['uploaded'] or 'no date'}")
        return 0
    installed = list_installed(of_any_python=True)
    damaged = list_damaged()
    for error in damaged.values():
        print_note(str(error))
    offered: dict[str, list[str] | None] = {}
    if options.available:
        own = {
            kind: [str(wheel.version) for wheel in available_wheels(kind)]
            for kind in (TRITON, PTXAS, NVDISASM)
        }
        offered = {
            TRITON: own[TRITON],
            **{kind: _versions(front_end(kind)) for kind in _compilers() if kind != TRITON},
            **{kind: _versions(back) for kind, back in _assemblers().items()},
            **own,
        }
    if options.as_json:
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
        columns = {
            "name": [tool.name for tool in installed],
            "python": [
                (tool.banner.removeprefix("Python ") if tool.environment else tool.python) or "any"
                for tool in installed
            ],
            "from": [tool.distribution for tool in installed],
            "wheel sha256": [tool.sha256[:12] for tool in installed],
            "installed": [tool.installed for tool in installed],
        }
        nothing = say(f"nothing is installed in {cache_dir()}")
        print_said([grid_of(columns, {}, tuple(columns)) if installed else nothing])
        for kind, versions in offered.items():
            known = ", ".join(versions or ()) or "none for this machine"
            print_line(f"{kind}: {'not known' if versions is None else known}")
    return StorageError.exit_code if damaged else 0


def _versions(tool: FrontEnd | BackEnd) -> list[str] | None:
    """What there is of a tool; None, and a note, where that cannot be found out."""
    try:
        return list(map(str, tool.available()))
    except TriageError as error:
        print_note(str(error))
        return None


class _NamesOptions(Options):
    names: tuple[str, ...] = argument(required=True)


@verb(command)
def _install(options: _NamesOptions) -> None:
    """Install toolchains: triton-3.8.0, ptxas-latest, 'ptxas>=13.1', nvdisasm-latest."""
    for name in options.names:
        with preparing():
            labels = _install_named(name)
        for installed in labels:
            print_line(installed)


def _install_named(name: str) -> list[str]:
    kind, spec = _split(name)
    if kind == "ptxas":
        versions = select_versions(PTXAS, spec)
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
    return sorted((kind for kind in kinds() if kind != PTX), key=len, reverse=True)


def _assemblers() -> dict[str, BackEnd]:
    """The assemblers that have versions, besides ptxas, by their kinds."""
    every = (back for compiler in front_ends() for back in compiler.back_ends)
    return {back.kind: back for back in every if back.kind not in (PTXAS, NO_ASSEMBLER)}


class _VerifyOptions(Options):
    names: tuple[str, ...] = argument()


@verb(command)
def _verify(options: _VerifyOptions) -> int:
    """Hash and run installed toolchains again; all of them when none is named."""
    for name in options.names:
        require_installed(name)
    failures = 0
    for name in options.names or [*(tool.name for tool in list_installed()), *list_damaged()]:
        try:
            with working(f"verifying {name}"):
                verify(name)
        except TriageError as error:
            failures += 1
            print_note(str(error))
        else:
            print_line(f"{name}: sound")
    return 1 if failures else 0


@verb(command)
def _remove(options: _NamesOptions) -> None:
    """Delete installed toolchains, and nothing that triage did not install."""
    for name in options.names:
        remove(name)
        print_line(f"{name}: removed")
