"""`triage doctor`: what works on this machine, each thing really tried."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import click
import uv
from packaging.version import Version

import harness
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, print_said, status_console
from harness.cli.progress.steps import working
from harness.frontends.registry import front_end, kinds
from harness.io.files.locations import cache_path, home_path, offline
from harness.io.processes import machine
from harness.io.processes.confinement import confinement_words
from harness.io.processes.hub import run_tool
from harness.io.toolchains.bundled import installed_triton
from harness.io.toolchains.install import available_ptxas, available_triton, find_nvdisasm
from harness.io.toolchains.installed import list_damaged, list_installed
from harness.io.toolchains.marker import Toolchain
from harness.store.store import Store
from harness.tables.said import SaidLine, Tone, say
from harness.values.errors import TriageError
from harness.values.toolchain import TRITON

_GIB = 1 << 30
_ROOM = 3 * _GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried. `ok` is None where it is only worth knowing.

    People read `brief` in place of `found`, where that is long.
    """

    name: str
    ok: bool | None
    found: str
    advice: str = ""
    brief: str = ""


def examine() -> list[Check]:
    """Try everything that a compile needs, really; nothing raises, and nothing is left behind."""
    checks: list[tuple[str, Callable[[], Check]]] = [
        (kind, partial(_language, kind)) for kind in kinds() if kind != TRITON and _lowers(kind)
    ]
    at = 1 + [name for name, _ in _CHECKS].index("package index")
    return [_try(name, check) for name, check in (*_CHECKS[:at], *checks, *_CHECKS[at:])]


def _try(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a check must not end the report
        return Check(name=name, ok=False, found=_words_of(error), advice=_ADVICE.get(name, ""))


def _words_of(error: Exception) -> str:
    if isinstance(error, TriageError):
        return str(error)
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _machine() -> Check:
    fits = platform.system() == "Linux" and platform.machine() == "x86_64"
    cores = machine.cores()
    memory = machine.memory() / _GIB
    return Check(
        name="machine",
        ok=fits,
        found=f"{platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB",
        advice="" if fits else "Triton and ptxas wheels exist for Linux x86-64 only",
    )


def _python() -> Check:
    return Check(
        name="python", ok=True, found=f"{platform.python_version()}, triage {harness.__version__}"
    )


def _torch() -> Check:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Check(
            name="torch", ok=False, found="not installed", advice="install a CPU build of torch"
        )
    return Check(name="torch", ok=True, found=f"{version} (a CPU build is enough)")


def _triton() -> Check:
    triton = installed_triton()
    return Check(name="triton", ok=True, found=f"{triton.version} installed beside triage")


def _uv() -> Check:
    path = uv.find_uv_bin()
    result = run_tool([path, "--version"], timeout=30)
    return Check(name="uv", ok=result.end.ok, found=result.stdout.strip() or result.stderr.strip())


def _index() -> Check:
    if offline():
        return Check(name="package index", ok=None, found="not asked: TRIAGE_OFFLINE is set")
    tritons = available_triton()
    ptxas = available_ptxas()
    return Check(
        name="package index",
        ok=bool(tritons and ptxas),
        found=f"{_span('Tritons', tritons)}, "
        f"{_span('ptxas', [version for version, _ in ptxas])} for this machine",
        advice="" if tritons and ptxas else "this Python may be too new or too old for the wheels",
    )


def _lowers(kind: str) -> bool:
    """Whether there is a compiler: what an assembler takes as it is needs none."""
    end = front_end(kind)
    return end.stages[0] not in {back.takes for back in end.back_ends}


def _language(kind: str) -> Check:
    end = front_end(kind)
    versions = sorted({Version(each.version) for each in end.installed()})
    return Check(
        name=kind,
        ok=None,
        found=f"{end.title} {', '.join(map(str, versions))}"
        if versions
        else f"no {end.title} is installed; it is when a kernel needs it",
    )


def _span(what: str, versions: Sequence[Version]) -> str:
    if not versions:
        return f"no {what}"
    return f"{len(versions)} {what} ({versions[0]} - {versions[-1]})"


def _installed() -> Check:
    every = list_installed(of_any_python=True)
    names = [
        f"{each.name}{_beside(each)}" if each.fits else f"{each.name} (for {each.python} only)"
        for each in every
    ]
    damaged = list_damaged()
    lost = f"; damaged: {', '.join(damaged)}" if damaged else ""
    counts = Counter(each.kind for each in every)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return Check(
        name="toolchains",
        ok=False if damaged else None,
        found=(", ".join(names) or "none installed yet") + lost,
        advice=f"triage toolchain remove {' '.join(damaged)}, and install again" if damaged else "",
        brief=f"{said} (`triage toolchain list`){lost}" if every else "",
    )


def _beside(found: Toolchain) -> str:
    """The Python and the partners of a compiler in an environment of its own."""
    if not found.environment:
        return ""
    return f" ({', '.join((found.banner, *found.dependencies, *found.shared))})"


def _disassembler() -> Check:
    tool = find_nvdisasm()
    return Check(name="disassembler", ok=True, found=tool.label)


def _cache() -> Check:
    path = cache_path()
    place = _existing(path)
    free = shutil.disk_usage(place).free
    with tempfile.TemporaryFile(dir=place):
        return Check(
            name="cache",
            ok=free > _ROOM,
            found=f"{path}, {free / _GIB:.0f} GiB free",
            advice="" if free > _ROOM else "a Triton takes 0.9 GB: free some space",
        )


def _results() -> Check:
    home = home_path()
    with tempfile.TemporaryFile(dir=_existing(home)), Store.for_reading(home) as store:
        stats = store.stats()
    return Check(
        name="results", ok=True, found=f"{home}: {stats.runs} runs, {stats.results.rows} results"
    )


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it, in which it would be created."""
    return next(each for each in (path, *path.parents) if each.exists())


def _confinement() -> Check:
    is_whole, words = confinement_words()
    advice = "launch code is somebody else's program: run only what you trust"
    return Check(
        name="launch code",
        ok=True if is_whole else None,
        found=words,
        advice="" if is_whole else advice,
    )


def _gpu() -> Check:
    there = Path("/proc/driver/nvidia/version").exists()
    found = "an NVIDIA driver is loaded (not used)" if there else "none; none is needed"
    return Check(name="gpu", ok=None, found=found)


def _overrides() -> Check:
    names = sorted(name for name in os.environ if name.startswith(("TRITON_", "TRIAGE_", "UV_")))
    return Check(name="environment", ok=None, found=", ".join(names) or "no settings that matter")


_CHECKS: tuple[tuple[str, Callable[[], Check]], ...] = (
    ("machine", _machine),
    ("python", _python),
    ("torch", _torch),
    ("triton", _triton),
    ("uv", _uv),
    ("package index", _index),
    ("disassembler", _disassembler),
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


_EPILOG = """\b
Example:
  triage doctor"""

_MARKS = {True: say("ok", Tone.GOOD), False: say("!!", Tone.BAD), None: say("--", Tone.FAINT)}


@click.command("doctor", context_settings=CONTEXT, epilog=_EPILOG)
@json_option
def command(*, as_json: bool) -> None:
    """Say what works on this machine, and what to do about what does not."""
    with working(status_console(), "looking at this machine"):
        checks = examine()
    if as_json:
        print_json({"schema": 1, "checks": checks})
    else:
        print_said(line for check in checks for line in _lines(check))
    raise click.exceptions.Exit(4 if any(check.ok is False for check in checks) else 0)


def _lines(check: Check) -> list[SaidLine]:
    found = _MARKS[check.ok] + say(f" {check.name}: {check.brief or check.found}")
    return [found, say(f"   {check.advice}")] if check.advice else [found]
