"""Installing wheels, pinned by sha256, with uv: into a folder, or into a virtual environment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uv
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from harness.io.files.locations import offline
from harness.io.files.writing import Scratch, scratch_disk
from harness.io.packages.index import Release, endpoint_setting, files
from harness.io.packages.versions import select
from harness.io.processes.hub import run_tool
from harness.values.errors import (
    InfrastructureError,
    IntegrityError,
    OfflineError,
    StorageError,
    TriageError,
    UsageError,
)
from harness.values.toolchain import PackagePin

if TYPE_CHECKING:
    import importlib.metadata

    from packaging.requirements import Requirement

# What uv downloads while it installs, as lines for a display.

_BEGUN = re.compile(r"^Downloading (\S+) \(([\d.]+ ?[KMGT]?i?B)\)$", re.MULTILINE)
_DONE = re.compile(r"^ *Downloaded (\S+)$", re.MULTILINE)
_MOST_NAMES = 3

_tell: ContextVar[Callable[[str], None] | None] = ContextVar("tell", default=None)


@contextlib.contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `tell` gets a line about each download again and again, from a thread."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def told_to() -> Callable[[str], None] | None:
    """What takes all that uv has printed so far; None outside `telling`."""
    tell = _tell.get()
    if tell is None:
        return None

    def watch(printed: str) -> None:
        words = words_of(printed)
        if words:
            tell(words)

    return watch


def words_of(printed: str) -> str | None:
    """What is on its way, by what uv has printed so far; None where nothing was.

    uv names packages of a megabyte or more, each when it begins and when it is there.
    """
    begun = dict(_BEGUN.findall(printed))
    if not begun:
        return None
    finished = set(_DONE.findall(printed)) & set(begun)
    waits = [f"{name} ({size})" for name, size in begun.items() if name not in finished]
    if not waits:
        return f"{len(finished)} of {len(begun)} downloads done, unpacking"
    more = f" and {len(waits) - _MOST_NAMES} more" if len(waits) > _MOST_NAMES else ""
    return f"{len(finished)} of {len(begun)} downloads done, {', '.join(waits[:_MOST_NAMES])}{more}"


_SECONDS = 1800.0
_URL = re.compile(r"[a-z+]+://\S*?(?=[`)\s]|$)")
_FRAME = re.compile(r"^[^\w`]*(?:(?:cause|error|Caused by):)?\s*", re.IGNORECASE)
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_READ_ONLY = ("Read-only file system", "Permission denied")
_NO_NETWORK = (
    "error sending request",
    "Could not connect",
    "dns error",
    "tcp connect error",
    "operation timed out",
    "request or response body error",
)


def install_wheels(
    releases: Sequence[Release], target: Path, *, scratch: Path, cache: Path | None = None
) -> None:
    """Unpack wheels into `target` as an importable folder; nothing else comes with them.

    `scratch` is an existing folder for uv's own settings. `cache` replaces uv's own cache.

    Raises:
        OfflineError: the index does not answer, or the network is forbidden.
        IntegrityError: the wheel has another sha256.
        StorageError: the disk is full or read-only.
        InfrastructureError: uv fails for another reason.
    """
    lines = [f"{file.name}=={file.version} --hash=sha256:{file.sha256}\n" for file in releases]
    # What imports it may not write there, and starts a thousand times.
    where: list[str | Path] = ["--compile-bytecode", "--python", sys.executable, "--target", target]
    where += ["--cache-dir", cache] if cache else []
    packages = ", ".join(f"{release.name} {release.version}" for release in releases)
    _install(packages, lines, where, scratch)


def resolve(requirements: Sequence[str]) -> dict[str, Version]:
    """The versions that an installer takes today for Linux on x86-64, with all that they need.

    Nothing is installed, and no source is built.

    Raises:
        UsageError: there are none that fit together.
        OfflineError, StorageError: as `install_wheels`.
    """
    words = ", ".join(requirements)
    with Scratch() as scratch:
        file, out = scratch / "requirements.in", scratch / "requirements.txt"
        with scratch_disk():
            file.write_text("\n".join(requirements), encoding="utf-8")
        how = ["--no-header", "--no-annotate", "--no-build", "--python-platform", "linux"]
        try:
            _run(words, ["pip", "compile", file, "-o", out, *how], scratch)
        except (OfflineError, StorageError):
            raise
        except InfrastructureError as error:
            raise UsageError(
                f"no versions go together with {words}: one is not on the package index, or torch "
                "needs another Triton"
            ) from error
        lines = out.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ;")[0].partition("==") for line in lines)
    return {canonicalize_name(name): Version(version) for name, _, version in pairs if version}


def create_environment(folder: Path, *, python: str, scratch: Path) -> None:
    """Create an empty virtual environment; `python` is an interpreter, or a version of Python.

    Raises:
        InfrastructureError: there is no such Python, or uv fails for another reason.
        OfflineError, StorageError: as `install_wheels`.
    """
    words: list[str | Path] = ["venv", "--no-project", "--python", python, folder]
    name = "a virtual environment" + ("" if python == sys.executable else f" of Python {python}")
    _run(name, words, scratch)


def install_pins(pins: Sequence[PackagePin], python: Path, *, scratch: Path) -> None:
    """Install exactly these packages into the environment of an interpreter, as wheels.

    Of the wheels of a version, uv takes the one that fits this interpreter.

    Raises:
        UsageError: the index has no wheel of one of them.
        OfflineError, IntegrityError, StorageError, InfrastructureError: as `install_wheels`.
    """
    lines = []
    for pin in pins:
        wheels = [file for file in files(pin.name) if file.is_wheel]
        select({wheel.version for wheel in wheels}, pin.version, what=f"wheel of {pin.name}")
        same = [wheel for wheel in wheels if wheel.version == Version(pin.version)]
        lines.append(f"{pin}{''.join(f' --hash=sha256:{wheel.sha256}' for wheel in same)}\n")
    where: list[str | Path] = ["--compile-bytecode", "--python", python]
    _install(", ".join(map(str, pins)), lines, where, scratch)


def _install(
    packages: str, requirements: Sequence[str], where: Sequence[str | Path], scratch: Path
) -> None:
    file = scratch / "requirements.txt"
    with scratch_disk():
        file.write_text("".join(requirements), encoding="utf-8")
    words: list[str | Path] = ["pip", "install", *where]
    words += ["--no-deps", "--no-build", "--require-hashes", "--no-progress"]
    _run(packages, [*words, "-r", file], scratch)


def _run(packages: str, words: Sequence[str | Path], scratch: Path) -> None:
    try:
        executable = uv.find_uv_bin()
    except FileNotFoundError as error:
        raise InfrastructureError(
            "the executable of uv is missing; install the package uv beside triage again"
        ) from error
    argv = [executable, *words, *(("--offline",) if offline() else ())]
    # The working folder matters: uv reads the pyproject.toml of the project it finds there.
    watch = told_to()
    environment = {**os.environ, "NO_COLOR": "1"}
    setting = endpoint_setting()
    if setting:
        environment["UV_DEFAULT_INDEX"] = setting
    result = run_tool(argv, timeout=_SECONDS, env=environment, cwd=scratch, watch=watch)
    if result.end.timed_out:
        raise InfrastructureError(
            f"uv did not install {packages} in {_SECONDS:.0f} s; check the network and try again"
        )
    if not result.end.ok:
        raise _failure(packages, result.stderr, result.end.words)


def _failure(packages: str, stderr: str, words: str) -> TriageError:
    # The innermost cause that uv gives, on one line and without addresses. uv 0.13 writes `cause:
    # ...` lines, older ones draw a tree; hints follow after a blank line.
    causes: list[str] = []
    for line in stderr.splitlines():
        text = _URL.sub("(address)", _FRAME.sub("", line)).strip()
        if text.startswith("hint:"):
            break
        if text:
            causes.append(text)
    reason = (causes[-1].rstrip(".") if causes else "") or words
    if any(sign in stderr for sign in _DISK_FULL):
        return StorageError(
            f"cannot install {packages}: the disk is full; free some space or set TRIAGE_CACHE_DIR "
            "and UV_CACHE_DIR to another disk"
        )
    if any(sign in stderr for sign in _READ_ONLY):
        return StorageError(
            f"cannot install {packages}: {reason}; set TRIAGE_CACHE_DIR and UV_CACHE_DIR to "
            "writable folders"
        )
    if "Hash mismatch" in stderr:
        hashes = re.findall(r"sha256:([0-9a-f]{64})", stderr)
        return IntegrityError(
            f"the wheel of {packages} was downloaded with sha256 "
            f"{hashes[-1] if hashes else 'unknown'}, not "
            f"{hashes[0] if hashes else 'that of the index'}; the index or a proxy changed it"
        )
    if offline():
        return OfflineError(
            f"{packages} is not installed and TRIAGE_OFFLINE forbids fetching it; "
            "unset TRIAGE_OFFLINE once"
        )
    if any(sign in stderr for sign in _NO_NETWORK):
        return OfflineError(
            f"cannot download {packages}: {reason}; check the network and try again"
        )
    return InfrastructureError(f"uv cannot install {packages}: {reason}; try again")


# Packages of triage's own environment that another one shares: links, in place of copies.


class SharedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One of our packages: `record` hashes its list of files, `entries` lie in a site folder."""

    name: str
    version: str
    record: str
    entries: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def shared_packages(names: Sequence[str]) -> tuple[SharedPackage, ...]:
    """These packages and all that they need, by name.

    Raises:
        InfrastructureError: one of them is not installed beside triage, or not from a wheel.
    """
    import importlib.metadata  # noqa: PLC0415 - 15 ms of every command, and only installs need it

    packages: dict[str, SharedPackage] = {}
    named = {canonicalize_name(name) for name in names}
    open_names = [*named]
    while open_names:
        name = open_names.pop()
        if name in packages:
            continue
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            if name not in named:
                continue  # what shares it does without it here, too
            raise InfrastructureError(
                f"{name} is not installed beside triage, and a compiler shares it: "
                f"pip install {name}"
            ) from error
        packages[name] = _shared(name, package)
        open_names += needs(package)
    return tuple(packages[name] for name in sorted(packages))


def _shared(name: str, package: importlib.metadata.Distribution) -> SharedPackage:
    record = package.read_text("RECORD")
    if record is None or '"editable": true' in (package.read_text("direct_url.json") or ""):
        raise InfrastructureError(
            f"{name} beside triage is not installed from a wheel, so it cannot be shared; install "
            "a wheel of it"
        )
    # `..` are scripts, outside of the site folder.
    tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    return SharedPackage(
        name=name,
        version=package.version,
        record=hashlib.sha256(record.encode()).hexdigest(),
        entries=tuple(Path(str(package.locate_file(top))).resolve() for top in sorted(tops)),
    )


def needs(package: importlib.metadata.Distribution) -> dict[NormalizedName, Requirement]:
    """What a package requires here, without its extras, by name."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - as above: 9 ms

    requirements = [Requirement(text) for text in package.requires or ()]
    return {
        canonicalize_name(requirement.name): requirement
        for requirement in requirements
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }


def link_packages(packages: Iterable[SharedPackage], site: Path) -> None:
    """Link what they consist of into a site folder; what is installed there stays.

    Raises:
        OSError: it cannot be written.
    """
    for package in packages:
        for entry in package.entries:
            place = site / entry.name
            if not place.is_symlink() and not place.exists():
                place.symlink_to(entry)
