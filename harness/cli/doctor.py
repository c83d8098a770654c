"""`triage doctor`: what works on this machine.

Example:
  triage doctor
"""

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

import uv
from packaging.version import Version

import harness
from harness.cli.options import JsonAlone, verb
from harness.cli.output import print_json, print_said
from harness.cli.progress.steps import working
from harness.frontends.base import FrontEnd
from harness.frontends.registry import front_end, kinds
from harness.io.files.locations import cache_path, home_path, offline
from harness.io.processes import machine
from harness.io.processes.hub import run_tool
from harness.io.processes.machine import confinement_words, gpus
from harness.io.toolchains.install import available_wheels, find_nvdisasm, installed_triton
from harness.io.toolchains.installed import list_damaged, list_installed
from harness.store.store import Store
from harness.store.trim import store_stats
from harness.tables.said import SaidLine, Tone, say
from harness.values.errors import TriageError
from harness.values.toolchain import PTXAS, TRITON

_GIB = 1 << 30
_ROOM = 3 * _GIB
_SETTINGS = ("TRITON_", "TRIAGE_", "UV_")


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
    # What an assembler takes as it is needs no compiler.
    languages: list[tuple[str, Callable[[], Check]]] = [
        (kind, partial(_language, front))
        for kind, front in ((kind, front_end(kind)) for kind in kinds() if kind != TRITON)
        if front.stages[0] not in {back.takes for back in front.back_ends}
    ]
    at = 1 + [name for name, _ in _CHECKS].index("package index")
    return [_try(name, check) for name, check in (*_CHECKS[:at], *languages, *_CHECKS[at:])]


def _try(name: str, check: Callable[[], Check]) -> Check:
    try:
        return replace(check(), name=name)
    except Exception as error:  # noqa: BLE001 - a check must not end the report
        words = str(error)
        if not isinstance(error, TriageError):
            words = ": ".join(filter(None, (type(error).__name__, " ".join(words.split()))))
        return Check(name=name, ok=False, found=words, advice=_ADVICE.get(name, ""))


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
    tritons, ptxas = (
        [wheel.version for wheel in available_wheels(kind)] for kind in (TRITON, PTXAS)
    )
    words = f"{_span('Tritons', tritons)}, {_span('ptxas', ptxas)} for this machine"
    is_whole = bool(tritons and ptxas)
    advice = "" if is_whole else "this Python may be too new or too old for the wheels"
    return Check(ok=is_whole, found=words, advice=advice)


def _language(front: FrontEnd) -> Check:
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
    names = []
    for tool in every:
        # The Python and the partners of a compiler in an environment of its own.
        beside = [tool.banner, *tool.dependencies, *tool.shared] if tool.environment else []
        more = beside if tool.fits else [f"for {tool.python} only"]
        names.append(f"{tool.name} ({', '.join(more)})" if more else tool.name)
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
        stats = store_stats(store)
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
    here = ", ".join(gpus())
    return Check(found=f"{here}: what --sm is without a name" if here else "none; none is needed")


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
    (
        "environment",
        lambda: Check(
            found=", ".join(sorted(n for n in os.environ if n.startswith(_SETTINGS)))
            or "no settings that matter"
        ),
    ),
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


@verb()
def command(options: JsonAlone) -> int:
    """Say what works on this machine, and what to do about what does not."""
    with working("looking at this machine"):
        checks = examine()
    if options.as_json:
        print_json({"schema": 1, "checks": checks})
    else:
        lines: list[SaidLine] = []
        for check in checks:
            lines.append(_MARKS[check.ok] + say(f" {check.name}: {check.brief or check.found}"))
            lines += [say(f"   {check.advice}")] if check.advice else []
        print_said(lines)
    return 4 if any(check.ok is False for check in checks) else 0
