"""Installed toolchains: Triton environments, ptxas and nvdisasm, one folder each in the cache.

`toolchains/<kind>-<version>/` appears whole or not at all and carries a marker file that says what
it is. Once it is there, using it reads that marker: no network, no process, no lock.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.effects.folders import ensure_folder, remove_folder, sha256_of, write_atomically
from harness.effects.index import Release, wheels
from harness.effects.locations import cache_dir, storage_error
from harness.effects.process import run_tool
from harness.effects.wheel_install import install_wheels
from harness.logic.versions import exact_version, parse_banner, select
from harness.values.errors import (
    InfrastructureError,
    IntegrityError,
    StorageError,
    UsageError,
)
from harness.values.toolchain import INSTALLED, Ptxas, Tool, Triton

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

__all__ = [
    "Toolchain",
    "available_nvdisasm",
    "available_ptxas",
    "available_triton",
    "bundled_nvdisasm",
    "describe_ptxas",
    "find_nvdisasm",
    "install_nvdisasm",
    "install_ptxas",
    "install_triton",
    "installed_triton",
    "list_installed",
    "remove",
    "select_ptxas",
    "select_triton",
    "verify",
]

MARKER = ".triage-toolchain.json"
_TRITON, _PTXAS, _NVDISASM = "triton", "ptxas", "nvdisasm"
_NAME = re.compile(rf"({_TRITON}|{_PTXAS}|{_NVDISASM})-(.+)")
_PTXAS_PROJECTS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11")
_NVDISASM_PROJECT = "nvidia-cuda-nvdisasm"
_SITE = "site"
_NOT_NEEDED = frozenset({"torch", "cmake", "lit"})
"""What Triton 2.0 asks for and a compile does not need, or has from triage's own environment."""
_BANNER_SECONDS = 60.0
_IMPORT_SECONDS = 600.0
_PROBE = "import json, triton; print(); print(json.dumps([triton.__version__, triton.__file__]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What the marker of one installed toolchain says.

    `distribution`, `filename` and `sha256` are those of the wheel; `executable` is relative to the
    folder and `executable_sha256` its hash (for Triton: its compiled library); `banner` is what
    `--version` printed, or the `__version__` that Triton gives; `dependencies` are wheels that
    were installed beside it; `installed` is a time in ISO 8601, UTC.
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
    installed: str

    @property
    def name(self) -> str:
        """How users spell it: `ptxas-13.1.115`."""
        return f"{self.kind}-{self.version}"

    @property
    def path(self) -> Path:
        """Its folder."""
        return _folder(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """What is remembered of a ptxas that we did not install, while its file stays the same."""

    path: str
    mtime_ns: int
    size: int
    sha256: str
    version: str
    build: str


def available_triton(*, prereleases: bool = False) -> list[Version]:
    """The Triton versions with a wheel for this interpreter and platform, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.effects.index.wheels`.
    """
    return [release.version for release in wheels(_TRITON, prereleases=prereleases)]


def available_ptxas(*, prereleases: bool = False) -> list[tuple[Version, str]]:
    """The ptxas versions and the project that carries each, oldest first.

    Raises:
        UsageError: the index has none of the projects.
        OfflineError, InfrastructureError: as `harness.effects.index.wheels`.
    """
    found: dict[Version, str] = {}
    for release in _ptxas_releases(prereleases=prereleases):
        found.setdefault(release.version, release.name)
    return sorted(found.items())


def available_nvdisasm(*, prereleases: bool = False) -> list[Version]:
    """The nvdisasm versions, oldest first; errors as `available_triton`."""
    releases = wheels(_NVDISASM_PROJECT, prereleases=prereleases)
    return [release.version for release in releases if release.is_binary]


def select_triton(spec: str, *, prereleases: bool = False) -> list[Version]:
    """The Triton versions that `spec` names (see `harness.logic.versions.select`).

    An exact version that is installed, or yanked, is found too, the former without the network.

    Raises:
        UsageError: `spec` is malformed or names a version that does not exist.
        OfflineError, InfrastructureError: as `harness.effects.index.wheels`.
    """
    exact = exact_version(spec)
    if exact is not None:
        found = _installed(_TRITON, exact)
        return [Version(found.version) if found else _find_triton(exact).version]
    versions = available_triton(prereleases=prereleases)
    return select(versions, spec, what="Triton", prereleases=prereleases)


def select_ptxas(spec: str, *, prereleases: bool = False) -> list[Version]:
    """The ptxas versions that `spec` names; as `select_triton`."""
    exact = exact_version(spec)
    if exact is not None:
        found = _installed(_PTXAS, exact)
        return [Version(found.version) if found else _find_ptxas(exact).version]
    versions = [version for version, _ in available_ptxas(prereleases=prereleases)]
    return select(versions, spec, what=_PTXAS, prereleases=prereleases)


def install_triton(version: Version | str) -> Triton:
    """The environment of that Triton, installed if it is not yet.

    Raises:
        UsageError: there is no such version for this interpreter and platform.
        OfflineError, IntegrityError, StorageError, InfrastructureError: it cannot be installed.
    """
    exact = _exact(version, "Triton")
    found = _installed(_TRITON, exact) or _install(_TRITON, _find_triton(exact))
    return Triton(
        version=found.version,
        origin=found.distribution,
        path=found.path / _SITE,
        sha256=found.sha256,
    )


def install_ptxas(version: Version | str) -> Ptxas:
    """That ptxas, installed if it is not yet; errors as `install_triton`."""
    exact = _exact(version, _PTXAS)
    found = _installed(_PTXAS, exact) or _install(_PTXAS, _find_ptxas(exact))
    release = parse_banner(found.banner)
    return Ptxas(
        version=found.version,
        origin=found.distribution,
        path=found.path / found.executable,
        sha256=found.executable_sha256,
        build=release[1] if release else "",
    )


def install_nvdisasm(version: Version | str | None = None) -> Tool:
    """That nvdisasm, or the newest that the index has, installed if it is not yet.

    Errors as `install_triton`.
    """
    if version is None:
        version = select(available_nvdisasm(), "latest", what="nvdisasm")[0]
    exact = _exact(version, _NVDISASM)
    return _tool(_installed(_NVDISASM, exact) or _install(_NVDISASM, _find_nvdisasm(exact)))


def find_nvdisasm() -> Tool:
    """The newest nvdisasm that is installed; if none is, the newest of the index, installed.

    So a warm start asks nobody. Errors as `install_nvdisasm`.
    """
    installed = [each for each in list_installed() if each.kind == _NVDISASM]
    return _tool(installed[-1]) if installed else install_nvdisasm()


def bundled_nvdisasm(triton: Triton | None) -> Tool | None:
    """The nvdisasm inside a Triton (the installed one for None); None where it carries none."""
    if triton is not None and triton.path is not None:
        package: Path | None = triton.path / _TRITON
    else:
        found = importlib.util.find_spec(_TRITON)
        package = Path(found.origin).parent if found and found.origin else None
    path = package / "backends" / "nvidia" / "bin" / _NVDISASM if package else None
    if path is None or not path.is_file():
        return None
    facts = path.stat()
    return Tool(name=_NVDISASM, version=f"bundled {facts.st_size} {facts.st_mtime_ns}", path=path)


def installed_triton() -> Triton:
    """The Triton that lies beside triage in its own environment; it is not imported.

    Raises:
        InfrastructureError: there is none.
    """
    try:
        version = importlib.metadata.version(_TRITON)
    except importlib.metadata.PackageNotFoundError as error:
        raise InfrastructureError(
            "no Triton is installed beside triage; install one there, or name a version"
        ) from error
    return Triton(version=version, origin=INSTALLED)


def describe_ptxas(path: Path, origin: str) -> Ptxas:
    """What the ptxas at `path` is; its `--version` is run once as long as the file is the same.

    Raises:
        StorageError: it cannot be read.
        InfrastructureError: it cannot be run, or is no ptxas.
    """
    path = path.absolute()
    try:
        facts = path.stat()
    except OSError as error:
        raise storage_error(error, path, "read") from error
    memo = cache_dir() / "described" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"
    known = _read_description(memo)
    stat = (str(path), facts.st_mtime_ns, facts.st_size)
    if known is None or (known.path, known.mtime_ns, known.size) != stat:
        known = _describe(path, facts, known)
        # On a read-only cache the question is asked again next time.
        with contextlib.suppress(StorageError):
            write_atomically(memo, msgspec.json.encode(known))
    return Ptxas(
        version=known.version, origin=origin, path=path, sha256=known.sha256, build=known.build
    )


def list_installed() -> list[Toolchain]:
    """Every installed toolchain, by kind and version.

    Raises:
        StorageError: the cache, or a marker in it, cannot be read.
    """
    root = cache_dir() / "toolchains"
    try:
        names = [path.name for path in root.iterdir()] if root.is_dir() else []
    except OSError as error:
        raise storage_error(error, root, "read") from error
    found = [_read(name) for name in names if _NAME.fullmatch(name)]
    return sorted(
        (each for each in found if each is not None),
        key=lambda each: (each.kind, Version(each.version)),
    )


def verify(name: str) -> Toolchain:
    """Hash an installed toolchain again and run it again.

    Raises:
        UsageError: it is not installed.
        IntegrityError: a file is missing or was changed since the install.
        InfrastructureError: it no longer runs, or says that it is another version.
    """
    found = _require(name)
    executable = found.path / found.executable
    try:
        digest = sha256_of(executable)
        damaged = executable if digest != found.executable_sha256 else None
        damaged = damaged or _damaged_file(found.path / _SITE)
    except OSError as error:
        damaged = Path(error.filename or executable)
    if damaged is not None:
        raise IntegrityError(
            f"{found.name} was changed since it was installed ({damaged.name}); "
            "remove it and install it again"
        )
    if found.kind == _TRITON:
        banner = _import_triton(found.path / _SITE, Version(found.version))
    else:
        banner = _checked_banner(executable, found.name, found.version)
    if banner != found.banner:
        raise InfrastructureError(
            f"{found.name} no longer says what it said at the install; remove it and install again"
        )
    return found


def remove(name: str) -> None:
    """Delete an installed toolchain, and nothing that is not one.

    Raises:
        UsageError: it is not installed, or the folder is not ours.
        StorageError: it cannot be deleted.
    """
    _known_name(name)
    if not _folder(name).exists():
        _require(name)
    remove_folder(_folder(name), marker=MARKER)


def _folder(name: str) -> Path:
    return cache_dir() / "toolchains" / name


def _known_name(name: str) -> None:
    match = _NAME.fullmatch(name)
    try:
        if match and str(Version(match[2])) == match[2]:
            return
    except InvalidVersion:
        pass
    raise UsageError(f"{name!r} is no toolchain's name; write it like ptxas-13.1.115")


def _read(name: str) -> Toolchain | None:
    path = _folder(name) / MARKER
    try:
        return msgspec.json.decode(path.read_bytes(), type=Toolchain)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except msgspec.MsgspecError as error:
        raise StorageError(
            f"the marker of {name} is damaged ({path}); remove {name} and install it again"
        ) from error


def _installed(kind: str, version: Version) -> Toolchain | None:
    found = _read(f"{kind}-{version}")
    if found is not None:
        return found
    # 3.6 and 3.6.0 are one version.
    same = (each for each in list_installed() if each.kind == kind)
    return next((each for each in same if Version(each.version) == version), None)


def _require(name: str) -> Toolchain:
    _known_name(name)
    found = _read(name)
    if found is None:
        names = ", ".join(each.name for each in list_installed()) or "nothing"
        raise UsageError(f"{name} is not installed; installed: {names}")
    return found


def _exact(version: Version | str, what: str) -> Version:
    exact = version if isinstance(version, Version) else exact_version(version)
    if exact is None:
        raise UsageError(f"{version!r} is not one version of {what}; write it like 13.1.115")
    return exact


def _tool(found: Toolchain) -> Tool:
    return Tool(name=found.kind, version=found.version, path=found.path / found.executable)


def _ptxas_releases(*, exact: Version | None = None, prereleases: bool = False) -> list[Release]:
    """Of every project, newest project first; of an exact version, from the first that has it."""
    found: list[Release] = []
    errors: list[UsageError] = []
    for project in _PTXAS_PROJECTS:
        answer = _releases_or_error(project, exact=exact, prereleases=prereleases)
        if isinstance(answer, UsageError):
            errors.append(answer)
            continue
        # The first releases of each project are placeholders, for any platform.
        found += [release for release in answer if release.is_binary]
        if exact is not None and found:
            break
    if len(errors) == len(_PTXAS_PROJECTS):
        raise errors[0]
    return found


def _releases_or_error(
    project: str, *, exact: Version | None, prereleases: bool
) -> list[Release] | UsageError:
    """A mirror may lack the older projects; that is an error only if it lacks them all."""
    try:
        return wheels(project, exact=exact, prereleases=prereleases)
    except UsageError as error:
        return error


def _find_triton(version: Version) -> Release:
    releases = wheels(_TRITON, exact=version)
    if not releases:
        _none_such(available_triton(prereleases=True), version, "Triton")
    return releases[0]


def _find_ptxas(version: Version) -> Release:
    releases = _ptxas_releases(exact=version)
    if not releases:
        _none_such([each for each, _ in available_ptxas(prereleases=True)], version, _PTXAS)
    return releases[0]


def _find_nvdisasm(version: Version) -> Release:
    releases = [each for each in wheels(_NVDISASM_PROJECT, exact=version) if each.is_binary]
    if not releases:
        _none_such(available_nvdisasm(prereleases=True), version, _NVDISASM)
    return releases[0]


def _none_such(available: list[Version], version: Version, what: str) -> NoReturn:
    select(available, str(version), what=what)
    raise AssertionError


def _install(kind: str, release: Release) -> Toolchain:
    name = f"{kind}-{release.version}"
    fill = partial(_fill_triton if kind == _TRITON else partial(_fill_tool, kind), release)
    ensure_folder(_folder(name), marker=MARKER, fill=fill)
    return _require(name)


def _fill_triton(release: Release, partial_folder: Path) -> bytes:
    scratch, site = partial_folder / "scratch", partial_folder / _SITE
    scratch.mkdir()
    install_wheels([release], site, scratch=scratch)
    needed = _dependencies(site)
    if needed:
        install_wheels(needed, site, scratch=scratch)
    shutil.rmtree(scratch)
    library = next(site.glob("triton/_C/libtriton*"), site / "triton" / "__init__.py")
    return _marker(
        _TRITON,
        release,
        library.relative_to(partial_folder),
        sha256_of(library),
        _import_triton(site, release.version),
        dependencies=tuple(f"{each.name}=={each.version}" for each in needed),
    )


def _fill_tool(kind: str, release: Release, partial_folder: Path) -> bytes:
    """Keep one executable, and the licence, of a wheel that holds a whole toolkit."""
    scratch = partial_folder / "scratch"
    scratch.mkdir()
    # uv's own cache would keep the whole toolkit of every version.
    install_wheels([release], scratch / _SITE, scratch=scratch, cache=scratch / "cache")
    unpacked = next((scratch / _SITE).glob(f"**/bin/{kind}"), None)
    if unpacked is None:
        raise InfrastructureError(f"{release.filename} holds no {kind}; choose another version")
    executable = partial_folder / "bin" / kind
    executable.parent.mkdir()
    unpacked.rename(executable)
    executable.chmod(0o755)
    for licence in (scratch / _SITE).glob("*.dist-info/**/[Ll]icense*.txt"):
        licence.rename(partial_folder / "LICENSE.txt")
    shutil.rmtree(scratch)
    banner = _checked_banner(executable, f"{kind}-{release.version}", str(release.version))
    where = executable.relative_to(partial_folder)
    return _marker(kind, release, where, sha256_of(executable), banner)


def _marker(
    kind: str,
    release: Release,
    executable: Path,
    digest: str,
    banner: str,
    *,
    dependencies: tuple[str, ...] = (),
) -> bytes:
    toolchain = Toolchain(
        kind=kind,
        version=str(release.version),
        distribution=release.name,
        filename=release.filename,
        sha256=release.sha256,
        executable=executable.as_posix(),
        executable_sha256=digest,
        banner=banner,
        dependencies=dependencies,
        installed=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    return msgspec.json.format(msgspec.json.encode(toolchain))


def _dependencies(site: Path) -> list[Release]:
    """The newest wheels of what the Triton in `site` needs at import, except torch."""
    requirements = {
        canonicalize_name(requirement.name): requirement
        for text in importlib.metadata.Distribution.at(_dist_info(site)).requires or ()
        if (requirement := Requirement(text)).marker is None
        or requirement.marker.evaluate({"extra": ""})
    }
    if _imports_setuptools(site / "triton"):
        # Triton 2.0 to 3.2 import it and do not say so.
        requirements.setdefault(canonicalize_name("setuptools"), Requirement("setuptools"))
    found: list[Release] = []
    for name in sorted(requirements.keys() - _NOT_NEEDED):
        fitting = [
            release
            for release in wheels(name)
            if requirements[name].specifier.contains(release.version, prereleases=False)
        ]
        if not fitting:
            raise InfrastructureError(
                f"the package index has no {requirements[name]}, which this Triton needs; "
                "choose another Triton"
            )
        found.append(fitting[-1])
    return found


def _dist_info(site: Path) -> Path:
    return next(site.glob("triton-*.dist-info"), site)


def _imports_setuptools(package: Path) -> bool:
    pattern = re.compile(rb"^\s*(?:import|from)\s+setuptools\b", re.MULTILINE)
    return any(pattern.search(path.read_bytes()) for path in package.glob("**/*.py"))


def _import_triton(site: Path, version: Version) -> str:
    """The `__version__` of the Triton in `site`, imported in a child."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    result = run_tool(
        [sys.executable, "-s", "-c", _PROBE], timeout=_IMPORT_SECONDS, env=environment, cwd=site
    )
    if not result.end.ok:
        last = (result.stderr.strip().splitlines() or [result.end.words])[-1]
        raise InfrastructureError(
            f"{_TRITON}-{version} cannot be imported by this Python ({last}); choose another one"
        )
    said, where = json.loads(result.stdout.splitlines()[-1])
    if not Path(where).resolve().is_relative_to(site.resolve()):
        raise InfrastructureError(
            f"importing {_TRITON}-{version} finds another Triton; unset PYTHONPATH and try again"
        )
    return str(said)


def _checked_banner(executable: Path, name: str, version: str) -> str:
    """What `--version` prints, which must name the version that the wheel promises."""
    banner = _banner(executable)
    release = parse_banner(banner)
    if release is None or Version(release[0]) != Version(version):
        raise InfrastructureError(
            f"the executable of {name} says that it is {release[0] if release else 'nothing known'}"
            "; choose another version"
        )
    return banner


def _banner(executable: Path) -> str:
    result = run_tool([executable, "--version"], timeout=_BANNER_SECONDS)
    if not result.end.ok:
        raise InfrastructureError(
            f"{executable.name} --version fails on this machine ({result.end.words}): {executable}"
        )
    return result.stdout.strip()


def _describe(path: Path, facts: os.stat_result, known: _Description | None) -> _Description:
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if known is not None and known.sha256 == digest:
        release: tuple[str, str] | None = (known.version, known.build)
    else:
        release = parse_banner(_banner(path))
    if release is None:
        raise InfrastructureError(f"{path} is no ptxas: its --version says nothing known")
    return _Description(
        path=str(path),
        mtime_ns=facts.st_mtime_ns,
        size=facts.st_size,
        sha256=digest,
        version=release[0],
        build=release[1],
    )


def _read_description(memo: Path) -> _Description | None:
    try:
        return msgspec.json.decode(memo.read_bytes(), type=_Description)
    except (OSError, msgspec.MsgspecError):
        return None


def _damaged_file(site: Path) -> Path | None:
    """The first file that is not what the wheels' RECORD says (absent for a lone executable)."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        with record.open(encoding="utf-8", newline="") as stream:
            rows: Iterable[list[str]] = list(csv.reader(stream))
        for relative, algorithm, *_ in rows:
            kind, _, expected = algorithm.partition("=")
            if kind != "sha256":
                continue
            digest = bytes.fromhex(sha256_of(site / relative))
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected:
                return site / relative
    return None
