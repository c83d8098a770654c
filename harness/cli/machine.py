"""`triage doctor`, `triage toolchain`, `triage cache`: this machine, its tools, its results."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import uv
from packaging.version import Version

import harness
from harness.cli.amounts import SIZES, FiniteRange, read_amount
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import (
    print_json,
    print_line,
    print_note,
    print_said,
    results_console,
    size_words,
    status_console,
)
from harness.cli.progress.steps import preparing, working
from harness.cli.results import open_results, read_results
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.file_front_end import PassedOnFrontEnd
from harness.frontends.registry import front_end, front_ends, kinds
from harness.io.files.locations import cache_dir, cache_path, home_dir, home_path, offline
from harness.io.packages.index import Release
from harness.io.packages.versions import split_distribution
from harness.io.processes import machine
from harness.io.processes.hub import run_tool
from harness.io.processes.machine import confinement_words
from harness.io.toolchains.install import (
    available_builds,
    available_nvdisasm,
    available_ptxas,
    available_triton,
    find_nvdisasm,
    install_nvdisasm,
    install_ptxas,
    installed_triton,
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
from harness.store.store import Store
from harness.tables.said import Block, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.values.errors import (
    EmptySelectionError,
    FullDiskError,
    StorageError,
    TriageError,
    UsageError,
)
from harness.values.toolchain import NO_ASSEMBLER, PTXAS, TRITON

_GIB = 1 << 30
_ROOM = 3 * _GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried. `ok` is None where it is only worth knowing.

    People read `brief` in place of `found`, where that is long.
    """

    name: str = ""
    ok: bool | None = None
    found: str
    advice: str = ""
    brief: str = ""


def examine() -> list[Check]:
    """Try everything that a compile needs, really; nothing raises, and nothing is left behind."""
    languages: list[tuple[str, Callable[[], Check]]] = [
        (kind, partial(_language, kind)) for kind in kinds() if kind != TRITON and _lowers(kind)
    ]
    at = 1 + [name for name, _ in _CHECKS].index("package index")
    return [_try(name, check) for name, check in (*_CHECKS[:at], *languages, *_CHECKS[at:])]


def _try(name: str, check: Callable[[], Check]) -> Check:
    try:
        return replace(check(), name=name)
    except Exception as error:  # noqa: BLE001 - a check must not end the report
        return Check(name=name, ok=False, found=_words_of(error), advice=_ADVICE.get(name, ""))


def _words_of(error: Exception) -> str:
    if isinstance(error, TriageError):
        return str(error)
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _machine() -> Check:
    fits = platform.system() == "Linux" and platform.machine() == "x86_64"
    words = f"{platform.system()} {platform.machine()}, {machine.cores()} cores"
    advice = "" if fits else "Triton and ptxas wheels exist for Linux x86-64 only"
    return Check(ok=fits, found=f"{words}, {machine.memory() / _GIB:.0f} GiB", advice=advice)


def _torch() -> Check:
    try:
        return Check(ok=True, found=f"{metadata.version('torch')} (a CPU build is enough)")
    except metadata.PackageNotFoundError:
        return Check(
            ok=False, found="not installed", advice="pip install torch (a CPU build is enough)"
        )


def _uv() -> Check:
    result = run_tool([uv.find_uv_bin(), "--version"], timeout=30)
    return Check(ok=result.end.ok, found=result.stdout.strip() or result.stderr.strip())


def _index() -> Check:
    if offline():
        return Check(found="not asked: TRIAGE_OFFLINE is set")
    tritons = available_triton()
    ptxas = [version for version, _ in available_ptxas()]
    words = f"{_span('Tritons', tritons)}, {_span('ptxas', ptxas)} for this machine"
    is_whole = bool(tritons and ptxas)
    advice = "" if is_whole else "this Python may be too new or too old for the wheels"
    return Check(ok=is_whole, found=words, advice=advice)


def _lowers(kind: str) -> bool:
    """Whether there is a compiler: what an assembler takes as it is needs none."""
    front = front_end(kind)
    return front.stages[0] not in {back.takes for back in front.back_ends}


def _language(kind: str) -> Check:
    front = front_end(kind)
    versions = sorted({Version(compiler.version) for compiler in front.installed()})
    if not versions:
        return Check(found=f"no {front.title} is installed; it is when a kernel needs it")
    return Check(found=f"{front.title} {', '.join(map(str, versions))}")


def _span(tools: str, versions: Sequence[Version]) -> str:
    if not versions:
        return f"no {tools}"
    return f"{len(versions)} {tools} ({versions[0]} - {versions[-1]})"


def _installed() -> Check:
    every = list_installed(of_any_python=True)
    names = [
        f"{toolchain.name}{_beside(toolchain)}"
        if toolchain.fits
        else f"{toolchain.name} (for {toolchain.python} only)"
        for toolchain in every
    ]
    damaged = list_damaged()
    lost = f"; damaged: {', '.join(damaged)}" if damaged else ""
    counts = Counter(toolchain.kind for toolchain in every)
    totals = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return Check(
        ok=False if damaged else None,
        found=(", ".join(names) or "none installed yet") + lost,
        advice=f"triage toolchain remove {' '.join(damaged)}, and install again" if damaged else "",
        brief=f"{totals} (`triage toolchain list`){lost}" if every else "",
    )


def _beside(toolchain: Toolchain) -> str:
    """The Python and the partners of a compiler in an environment of its own."""
    if not toolchain.environment:
        return ""
    return f" ({', '.join((toolchain.banner, *toolchain.dependencies, *toolchain.shared))})"


def _cache() -> Check:
    path = cache_path()
    place = _existing(path)
    free = shutil.disk_usage(place).free
    advice = "" if free > _ROOM else "a Triton takes 0.9 GB: free some space"
    with tempfile.TemporaryFile(dir=place):
        return Check(ok=free > _ROOM, found=f"{path}, {free / _GIB:.0f} GiB free", advice=advice)


def _results() -> Check:
    home = home_path()
    with tempfile.TemporaryFile(dir=_existing(home)), Store.for_reading(home) as store:
        stats = store.stats()
    return Check(ok=True, found=f"{home}: {stats.runs} runs, {stats.results.rows} results")


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it, in which it would be created."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _confinement() -> Check:
    is_whole, words = confinement_words()
    if is_whole:
        return Check(ok=True, found=words)
    advice = "launch code is somebody else's program: run only what you trust"
    return Check(found=words, advice=advice)


def _gpu() -> Check:
    there = Path("/proc/driver/nvidia/version").exists()
    return Check(found="an NVIDIA driver is loaded (not used)" if there else "none; none is needed")


def _overrides() -> Check:
    names = sorted(name for name in os.environ if name.startswith(("TRITON_", "TRIAGE_", "UV_")))
    return Check(found=", ".join(names) or "no settings that matter")


_CHECKS: tuple[tuple[str, Callable[[], Check]], ...] = (
    ("machine", _machine),
    (
        "python",
        lambda: Check(ok=True, found=f"{platform.python_version()}, triage {harness.__version__}"),
    ),
    ("torch", _torch),
    (
        "triton",
        lambda: Check(ok=True, found=f"{installed_triton().version} installed beside triage"),
    ),
    ("uv", _uv),
    ("package index", _index),
    ("disassembler", lambda: Check(ok=True, found=find_nvdisasm().label)),
    ("toolchains", _installed),
    ("cache", _cache),
    ("results", _results),
    ("launch code", _confinement),
    ("gpu", _gpu),
    ("environment", _overrides),
)
_ADVICE = {
    "triton": "pip install triton, or name one: --triton 3.6.0",
    "package index": "what is installed already still works; set TRIAGE_OFFLINE=1 to stop asking",
    "disassembler": "without it instructions are not counted; everything else works",
    "uv": "pip install uv: it installs the toolchains",
    "cache": "set TRIAGE_CACHE_DIR to a folder that can be written",
    "results": "set TRIAGE_HOME to a folder that can be written",
}


_MARKS = {True: say("ok", Tone.GOOD), False: say("!!", Tone.BAD), None: say("--", Tone.FAINT)}


@click.command("doctor", context_settings=CONTEXT, epilog="\b\nExample:\n  triage doctor")
@json_option
def doctor_command(*, as_json: bool) -> None:
    """Say what works on this machine, and what to do about what does not."""
    with working(status_console(), "looking at this machine"):
        checks = examine()
    if as_json:
        print_json({"schema": 1, "checks": checks})
    else:
        print_said(line for check in checks for line in _lines(check))
    raise click.exceptions.Exit(4 if any(check.ok is False for check in checks) else 0)


def _lines(check: Check) -> list[SaidLine]:
    line = _MARKS[check.ok] + say(f" {check.name}: {check.brief or check.found}")
    return [line, say(f"   {check.advice}")] if check.advice else [line]


_TOOLCHAIN_EPILOG = """\b
Example:
  triage toolchain install triton-3.8.0 ptxas-13.1.115 'ptxas>=13.3'
  triage toolchain list --available"""


@click.group("toolchain", context_settings=CONTEXT, epilog=_TOOLCHAIN_EPILOG)
def toolchain_command() -> None:
    """List, install, verify and remove compilers, assemblers and disassemblers.

    They come from the package index, hash-checked, and are shared by all projects of this user.
    """


@toolchain_command.command("list", context_settings=CONTEXT)
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


@toolchain_command.command("install", context_settings=CONTEXT)
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


@toolchain_command.command("verify", context_settings=CONTEXT)
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


@toolchain_command.command("remove", context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True)
def remove_command(names: tuple[str, ...]) -> None:
    """Delete installed toolchains, and nothing that triage did not install."""
    for name in names:
        remove(name)
        print_line(f"{name}: removed")


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """`500MB`, `2G`, `2GiB` (2 * 1024**3), or a number of bytes."""
    if value is None:
        return None
    size = read_amount(value.upper(), {"": 1, **SIZES})
    if size is None:
        raise click.BadParameter(f"{value!r} is not a size; write for example 500MB or 2GiB")
    return int(size)


@click.command("cache", context_settings=CONTEXT, epilog="\b\nExample:\n  triage cache --trim 2GB")
@click.option(
    "--trim",
    callback=_size,
    metavar="SIZE",
    help="Delete what was longest unused until this much is left.",
)
@click.option("--older-than", type=FiniteRange(0), help="Delete what was unused for DAYS.")
@json_option
def cache_command(*, trim: int | None, older_than: float | None, as_json: bool) -> None:
    """Show what is stored in this folder's results, and trim it.

    Trimming deletes IR, cubins and logs, which are made again when asked for. The rows of past
    runs stay, and so do records: hunts, minimized inputs, packs whose results are not back yet,
    and what was measured or learned.
    """
    report = None
    if trim is not None or older_than is not None:
        limits: dict[str, Any] = {
            "max_bytes": trim,
            "older_than": None if older_than is None else older_than * 86400,
        }
        try:
            with open_results() as store:
                report = store.trim(**limits)
        except FullDiskError:
            report = Store.make_room(home_dir(), **limits)
    with read_results() as store:
        stats = store.stats()
    if as_json:
        print_json({"schema": 1, "stats": stats, "trimmed": report})
        return
    console = results_console()
    if report:
        console.print(
            f"deleted {report.evidence} pieces of evidence and {report.artifacts} artifacts, "
            f"{size_words(report.bytes)}"
        )
    console.print(f"{home_path()}: {stats.runs} runs, {stats.results.rows} results")
    for kind, evidence in stats.evidence.items():
        console.print(f"  {kind}: {evidence.rows} kept, {size_words(evidence.bytes)}")
    for kind, records in stats.records.items():
        size = size_words(records.bytes)
        console.print(f"  {kind}: {records.rows} kept, {size} (a record: never trimmed)")
    console.print(
        f"  artifacts: {stats.artifacts}, {size_words(stats.artifact_bytes)} on disk"
        f" ({stats.orphans} no longer used, {size_words(stats.orphan_bytes)})"
    )
    console.print(f"  database: {size_words(stats.database_bytes)}")
