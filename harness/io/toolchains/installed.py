"""Installed toolchains: Triton environments, ptxas and nvdisasm, one folder each in the cache.

`toolchains/<kind>-<version>/` appears whole or not at all and carries a marker file that says what
it is. A Triton holds modules that are compiled for one Python, and its folder names it
(`triton-3.8.0-cp312`), so that one cache serves several. Once it is there, using it reads that
marker: no network, no process, no lock. A cache that cannot be read is a `StorageError`.
"""

from __future__ import annotations

import base64
import csv
import functools
import re
import shutil
import sysconfig
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.io.files.locations import cache_dir, storage_error
from harness.io.files.writing import ensure_folder, remove_folder, sha256_of
from harness.values.errors import InfrastructureError, StorageError, UsageError
from harness.values.toolchain import Assembler

VENV = "venv"
"""Where a virtual environment lies in the folder of its toolchain."""
MARKER = ".triage-toolchain.json"
TRITON, PTXAS, NVDISASM = "triton", "ptxas", "nvdisasm"
"""The kinds of toolchains, beside those of compilers with an environment of their own."""
NAME = re.compile(r"([a-z][a-z0-9_]*)-(.+?)(?:-([a-z]\w*))?")
"""A toolchain's name: kind, version, and the Python or the environment where one is named."""


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """What the marker of one installed toolchain says.

    `distribution`, `filename` and `sha256` are those of the wheel; `executable` is relative to the
    folder and `executable_sha256` its hash (for Triton: its compiled library); `banner` is what
    `--version` printed, or the `__version__` that Triton gives; `dependencies` are wheels that
    were installed beside it; `installed` is a time in ISO 8601, UTC. `folder` is the name of its
    folder, which is not part of the marker. Of a compiler in a virtual environment of its own,
    `environment` tells it from others of the same version, `shared` are packages of triage's own
    environment that are linked into it, and `imports` the modules that it must be able to import.
    """

    kind: str
    version: str
    distribution: str
    filename: str
    sha256: str
    executable: str
    executable_sha256: str
    banner: str
    dependencies: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    environment: str = ""
    installed: str
    folder: str = ""

    @property
    def name(self) -> str:
        """How users spell it: `ptxas-13.1.115`."""
        own = f"{self.kind}-{self.version}"
        return f"{own}-{self.environment}" if self.environment else own

    @property
    def python(self) -> str:
        """The ABI of the Python that its compiled modules are for (`cp312`); empty for any."""
        return _abi_of(self.filename)

    @property
    def fits(self) -> bool:
        """Whether this Python can import it."""
        return self.python in ("", this_python())

    @property
    def path(self) -> Path:
        """Its folder."""
        return toolchains_root() / (self.folder or self.name)


def folder_name(kind: str, version: object, filename: str) -> str:
    """The folder of what a wheel holds: one for each Python where it holds compiled modules."""
    abi = _abi_of(filename)
    return f"{kind}-{version}-{abi}" if abi else f"{kind}-{version}"


@functools.cache
def this_python() -> str:
    """The ABI of the running Python, as wheels spell it: `cp312`, `cp313t`."""
    implementation, version, *_ = str(sysconfig.get_config_var("SOABI")).split("-")
    return f"cp{version}" if implementation == "cpython" else f"{implementation}_{version}"


@functools.cache
def _abi_of(filename: str) -> str:
    """Empty where any Python will do (`none`, `abi3`)."""
    try:
        abis = {tag.abi for tag in parse_wheel_filename(filename)[3]} - {"none", "abi3"}
    except InvalidWheelFilename:
        return ""  # of a marker that was written by hand: nothing is known of it
    return min(abis, default="")


def toolchains_root() -> Path:
    """The folder that holds them all; it need not exist."""
    return cache_dir() / "toolchains"


def list_folders() -> list[str]:
    """The names of all folders there that may be a toolchain's."""
    root = toolchains_root()
    try:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    except OSError as error:
        raise storage_error(error, root, "read") from error
    return [name for name in names if NAME.fullmatch(name)]


def read_toolchain(name: str) -> Toolchain | None:
    """What is installed in the folder of that name; None if nothing is.

    Raises:
        StorageError: its marker is damaged or cannot be read.
    """
    path = toolchains_root() / name / MARKER
    try:
        toolchain = msgspec.json.decode(path.read_bytes(), type=Toolchain)
        Version(toolchain.version)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except ValueError as error:
        raise StorageError(
            f"the marker of {name} is damaged ({path}); remove {name} and install it again"
        ) from error
    return replace(toolchain, folder=name)


def make_toolchain(planned: Toolchain, fill: Callable[[Path, Path], Toolchain]) -> Toolchain:
    """A toolchain that is not there yet, installed.

    `fill` gets its new folder, and one in it that goes when it ends; it gives what the marker says.
    """

    def fill_and_mark(folder: Path) -> bytes:
        scratch = folder / "scratch"
        scratch.mkdir()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        marker = replace(fill(folder, scratch), folder="", installed=now)
        shutil.rmtree(scratch)
        return msgspec.json.format(msgspec.json.encode(marker))

    ensure_folder(planned.path, marker=MARKER, fill=fill_and_mark)
    toolchain = read_toolchain(planned.path.name)
    assert toolchain is not None, "its folder was just made"
    return toolchain


def check_ptxas(ptxas: Assembler) -> None:
    """Compare a ptxas with its hash, and with that of the wheel of Triton that it came in.

    Asked before a failure is believed: a damaged one crashes, or says what it never says. Its hash
    is compared once, as long as its file stays the same.

    Raises:
        InfrastructureError: it is not what was installed.
    """
    _check(ptxas.path, f"ptxas {ptxas.version}", "triton-*", ptxas.sha256)


def check_in_wheel(path: Path, name: str) -> None:
    """As `check_ptxas`, for an executable that only the wheel that it came in knows by its hash."""
    _check(path, name, f"*{name}*", None)


def _check(path: Path, name: str, wheel: str, sha256: str | None) -> None:
    try:
        digest = digest_of(path)
        recorded = _in_record(path, wheel)
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be read: {error.strerror}") from error
    if digest != (sha256 or recorded) or recorded not in (None, digest):
        raise InfrastructureError(
            f"{name} is damaged: {path} is not the file that was installed; remove its toolchain "
            "(triage toolchain list, triage toolchain remove) and run again"
        )


def digest_of(path: Path) -> str:
    """The sha256 of a file, computed once as long as it stays the same.

    Raises:
        OSError: it cannot be read.
    """
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=256)
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    del mtime_ns, size  # a part of the key only
    return sha256_of(path)


def recorded_hashes(record: Path) -> dict[str, str]:
    """The sha256 of files that a wheel's RECORD has, by their paths from its site folder."""
    with record.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row and row[1].startswith("sha256=")]
    return {
        name: base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=").hex()
        for name, digest, *_ in rows
    }


@functools.lru_cache(maxsize=256)
def _in_record(path: Path, wheel: str) -> str | None:
    for folder in path.parents:
        # Where one Triton lies alone, its distribution may have any name.
        names = "*" if folder.name == "site" else wheel
        for record in folder.glob(f"{names}.dist-info/RECORD"):
            if digest := recorded_hashes(record).get(path.relative_to(folder).as_posix()):
                return digest
        if folder.name == "site":
            return None
    return None


def list_installed(kind: str = "", *, of_any_python: bool = False) -> list[Toolchain]:
    """The installed toolchains (of a kind) that this Python (or any) can use, by kind and version.

    Those of `list_damaged` are not among them.
    """
    sound = _look_through(kind)[0]
    return [toolchain for toolchain in sound if toolchain.fits or of_any_python]


def installed_versions(kind: str) -> list[Version]:
    """The installed versions of `triton`, `ptxas` or `nvdisasm`, oldest first.

    A Triton of another distribution is none of them: it is taken where it is named alone.
    """
    return [
        Version(toolchain.version)
        for toolchain in list_installed(kind)
        if kind != TRITON or toolchain.distribution == TRITON
    ]


def list_damaged() -> dict[str, StorageError]:
    """What is wrong with each installed toolchain that cannot be used as it is, by name."""
    return _look_through()[1]


def _look_through(kind: str = "") -> tuple[list[Toolchain], dict[str, StorageError]]:
    sound: dict[tuple[str, Version, str, str], Toolchain] = {}
    damaged: dict[str, StorageError] = {}
    for name in list_folders():
        if kind and not name.startswith(f"{kind}-"):
            continue
        try:
            toolchain = read_toolchain(name)
            lost = lost_package(toolchain) if toolchain else None
        except StorageError as error:
            damaged[name] = error
            continue
        if lost:
            message = f"{name} shares {lost.name} with a triage that is gone; remove {name}"
            damaged[name] = StorageError(message)
        elif toolchain:
            version = Version(toolchain.version)
            sound[toolchain.kind, version, toolchain.python, name] = toolchain
    return [sound[key] for key in sorted(sound)], damaged


def require_installed(name: str) -> Toolchain | None:
    """What `verify` looks at; None for one of `list_damaged`.

    Raises:
        UsageError: it is not installed, is for another Python only, or is not a toolchain's name.
    """
    if name in list_damaged():
        return None
    toolchain = _require(name)
    if not toolchain.fits:
        raise UsageError(
            f"{toolchain.name} is for another Python ({toolchain.python}; this one is "
            f"{this_python()}); verify it with the triage of that Python"
        )
    return toolchain


def remove(name: str) -> None:
    """Delete an installed toolchain, and nothing that is not one.

    Raises:
        UsageError: it is not installed, or the folder is not ours.
        StorageError: it cannot be deleted.
    """
    _parts_of(name)
    # By the folder's name first: the marker in it may be damaged.
    folders = (toolchains_root() / place for place in (f"{name}-{this_python()}", name))
    folder = next((place for place in folders if place.exists()), None)
    remove_folder(folder or _require(name).path, marker=MARKER)


def _parts_of(name: str) -> tuple[str, str, str]:
    """Kind, version, and Python or environment (or empty) of a toolchain's name.

    Raises:
        UsageError: it is none.
    """
    match = NAME.fullmatch(name)
    there = (NAME.fullmatch(folder) for folder in list_folders())
    kinds = {TRITON, PTXAS, NVDISASM, *(each[1] for each in there if each)}
    try:
        if match and match[1] in kinds and str(Version(match[2])) == match[2]:
            return match[1], match[2], match[3] or ""
    except InvalidVersion:
        pass
    raise UsageError(f"{name!r} is not the name of a toolchain; write it like ptxas-13.1.115")


def find_installed(kind: str, version: Version) -> Toolchain | None:
    """The installed toolchain of that version which this Python can use.

    Raises:
        StorageError: its marker is damaged, or the cache cannot be read.
    """
    for name in (f"{kind}-{version}-{this_python()}", f"{kind}-{version}"):
        toolchain = read_toolchain(name)
        if toolchain is not None and toolchain.fits:
            return toolchain
    # 3.6 and 3.6.0 are one version.
    same = (
        installed for installed in list_installed(kind) if Version(installed.version) == version
    )
    return next(same, None)


def _require(name: str) -> Toolchain:
    """What is installed under a name: for this Python, else for the only one that there is.

    Raises:
        UsageError: nothing is, or several are, and the name says neither Python nor environment.
    """
    kind, version, suffix = _parts_of(name)
    every = list_installed(of_any_python=True)
    same = [
        toolchain
        for toolchain in every
        if (toolchain.kind, toolchain.version) == (kind, version)
        and suffix in ("", toolchain.python or toolchain.environment)
    ]
    fitting = [toolchain for toolchain in same if toolchain.fits]
    if len(fitting or same) > 1:
        names = ", ".join(toolchain.folder for toolchain in fitting or same)
        kinds = "partners" if fitting else "Pythons"
        raise UsageError(f"{name} is installed for several {kinds}; name one of {names}")
    if not same:
        names = ", ".join(dict.fromkeys(installed.name for installed in every)) or "nothing"
        raise UsageError(f"{name} is not installed; installed: {names}")
    return (fitting or same)[0]


def lost_package(toolchain: Toolchain) -> Path | None:
    """A package that an environment shares with a triage that is not there any more.

    Several installs of triage have one cache, and each links its own packages.
    """
    if not toolchain.shared:
        return None
    try:
        links = sorted(
            link for link in site_of(toolchain.path / VENV).iterdir() if link.is_symlink()
        )
    except OSError as error:
        raise storage_error(error, toolchain.path, "read") from error
    return next((link for link in links if not link.exists()), None)


def site_of(venv: Path) -> Path:
    """The folder of a virtual environment that holds its packages.

    Raises:
        OSError: there is none.
    """
    site = min(venv.glob("lib/python*/site-packages"), default=None)
    if site is None:
        raise FileNotFoundError(2, "no site-packages", str(venv))
    return site
