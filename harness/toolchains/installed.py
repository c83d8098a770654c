"""Installed toolchains: Triton environments, ptxas and nvdisasm, one folder each in the cache.

`toolchains/<kind>-<version>/` appears whole or not at all and carries a marker file that says what
it is. A Triton holds modules that are compiled for one Python, and its folder names it
(`triton-3.8.0-cp312`), so that one cache serves several. Once it is there, using it reads that
marker: no network, no process, no lock.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from harness.files.locations import storage_error
from harness.files.whole_folders import ensure_folder, remove_folder
from harness.packages.index import Release, wheels
from harness.packages.versions import (
    OLDEST_TRITON,
    check_spec,
    exact_version,
    parse_banner,
    require_supported_triton,
    select,
)
from harness.toolchains.contents import SITE, check, fill
from harness.toolchains.marker import (
    MARKER,
    NVDISASM,
    PTXAS,
    TRITON,
    Toolchain,
    folder_name,
    read_toolchain,
    this_python,
    toolchain_folder,
    toolchains_root,
)
from harness.values.errors import InfrastructureError, StorageError, UsageError
from harness.values.toolchain import INSTALLED, Ptxas, Tool, Triton

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = [
    "available_nvdisasm",
    "available_ptxas",
    "available_triton",
    "bundled_nvdisasm",
    "find_nvdisasm",
    "install_nvdisasm",
    "install_ptxas",
    "install_triton",
    "installed_nvdisasm",
    "installed_package",
    "installed_triton",
    "list_damaged",
    "list_installed",
    "package_of",
    "planned_ptxas",
    "planned_triton",
    "remove",
    "require_installed",
    "select_ptxas",
    "select_triton",
    "verify",
]

_NAME = re.compile(rf"({TRITON}|{PTXAS}|{NVDISASM})-(.+?)(?:-([a-z]\w*))?")
_PTXAS_PROJECTS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11")
_NVDISASM_PROJECT = "nvidia-cuda-nvdisasm"


def available_triton(*, prereleases: bool = False) -> list[Version]:
    """The Triton versions with a wheel for this interpreter and platform, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.packages.index.wheels`.
    """
    return [release.version for release in wheels(TRITON, prereleases=prereleases)]


def available_ptxas(*, prereleases: bool = False) -> list[tuple[Version, str]]:
    """The ptxas versions and the project that carries each, oldest first.

    Raises:
        UsageError: the index has none of the projects.
        OfflineError, InfrastructureError: as `harness.packages.index.wheels`.
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
    """The Triton versions that `spec` names (see `harness.packages.versions.select`).

    An exact version that is installed, or yanked, is found too, the former without the network.
    What a range names that is too old for triage is left out.

    Raises:
        UsageError: `spec` is malformed or names only versions that do not exist or are too old.
        OfflineError, InfrastructureError: as `harness.packages.index.wheels`.
    """
    check_spec(spec, what="Triton")
    require_supported_triton(spec)
    exact = exact_version(spec)
    if exact is not None:
        found = _installed(TRITON, exact)
        return [Version(found.version) if found else _find_triton(exact).version]
    versions = available_triton(prereleases=prereleases)
    matching = select(versions, spec, what="Triton", prereleases=prereleases)
    supported = [version for version in matching if version >= OLDEST_TRITON]
    if matching and not supported:
        require_supported_triton(str(matching[-1]))
    return supported


def select_ptxas(spec: str, *, prereleases: bool = False) -> list[Version]:
    """The ptxas versions that `spec` names; as `select_triton`."""
    exact = exact_version(spec)
    if exact is not None:
        found = _installed(PTXAS, exact)
        return [Version(found.version) if found else _find_ptxas(exact).version]
    check_spec(spec, what=PTXAS)
    versions = [version for version, _ in available_ptxas(prereleases=prereleases)]
    return select(versions, spec, what=PTXAS, prereleases=prereleases)


def install_triton(version: Version | str) -> Triton:
    """The environment of that Triton, installed if it is not yet.

    Raises:
        UsageError: there is no such version for this interpreter and platform.
        OfflineError, IntegrityError, StorageError, InfrastructureError: it cannot be installed.
    """
    exact = _exact(version, "Triton")
    return _as_triton(_installed(TRITON, exact) or _install(TRITON, _find_triton(exact)))


def planned_triton(version: Version | str) -> Triton:
    """What `install_triton` would give; nothing is installed.

    Raises:
        UsageError, OfflineError, InfrastructureError: the index has no such version.
    """
    exact = _exact(version, "Triton")
    found = _installed(TRITON, exact)
    if found:
        return _as_triton(found)
    release = _find_triton(exact)
    folder = toolchain_folder(folder_name(TRITON, release.version, release.filename))
    return Triton(
        version=str(release.version),
        origin=release.name,
        path=folder / SITE,
        sha256=release.sha256,
    )


def _as_triton(found: Toolchain) -> Triton:
    return Triton(
        version=found.version,
        origin=found.distribution,
        path=found.path / SITE,
        sha256=found.sha256,
    )


def install_ptxas(version: Version | str) -> Ptxas:
    """That ptxas, installed if it is not yet; errors as `install_triton`."""
    exact = _exact(version, PTXAS)
    return _as_ptxas(_installed(PTXAS, exact) or _install(PTXAS, _find_ptxas(exact)))


def planned_ptxas(version: Version | str) -> Ptxas:
    """As `planned_triton`; of one that is not installed, the sha256 is that of the wheel."""
    exact = _exact(version, PTXAS)
    found = _installed(PTXAS, exact)
    if found:
        return _as_ptxas(found)
    release = _find_ptxas(exact)
    folder = toolchain_folder(folder_name(PTXAS, release.version, release.filename))
    return Ptxas(
        version=str(release.version),
        origin=release.name,
        path=folder / "bin" / PTXAS,
        sha256=release.sha256,
    )


def _as_ptxas(found: Toolchain) -> Ptxas:
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
    exact = _exact(version, NVDISASM)
    return _tool(_installed(NVDISASM, exact) or _install(NVDISASM, _find_nvdisasm(exact)))


def find_nvdisasm() -> Tool:
    """The newest nvdisasm that is installed; if none is, the newest of the index, installed.

    So a warm start needs no network. Errors as `install_nvdisasm`.
    """
    return installed_nvdisasm() or install_nvdisasm()


def installed_nvdisasm() -> Tool | None:
    """The newest nvdisasm that is installed."""
    installed = [each for each in list_installed() if each.kind == NVDISASM]
    return _tool(installed[-1]) if installed else None


def package_of(triton: Triton | None) -> Path | None:
    """The folder of a Triton's package (the installed one for None); None where there is none."""
    if triton is not None and triton.path is not None:
        return triton.path / TRITON
    return installed_package()


def bundled_nvdisasm(triton: Triton | None) -> Tool | None:
    """The nvdisasm inside a Triton (the installed one for None); None where it carries none."""
    package = package_of(triton)
    path = package / "backends" / "nvidia" / "bin" / NVDISASM if package else None
    if path is None or not path.is_file():
        return None
    facts = path.stat()
    return Tool(name=NVDISASM, version=f"bundled {facts.st_size} {facts.st_mtime_ns}", path=path)


def _fingerprint() -> str | None:
    """A hash that changes when somebody rebuilds or edits the installed Triton in place."""
    package = installed_package()
    if package is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".so"):
            facts = path.stat()
            digest.update(f"{path}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def installed_package() -> Path | None:
    """The folder of the Triton beside triage; it is not imported."""
    found = importlib.util.find_spec(TRITON)
    return Path(found.origin).parent if found and found.origin else None


def installed_triton() -> Triton:
    """The Triton that lies beside triage in its own environment; it is not imported.

    Raises:
        InfrastructureError: there is none.
    """
    try:
        version = importlib.metadata.version(TRITON)
    except importlib.metadata.PackageNotFoundError as error:
        raise InfrastructureError(
            "no Triton is installed beside triage; install one there, or name a version"
        ) from error
    return Triton(version=version, origin=INSTALLED, fingerprint=_fingerprint())


def list_installed(*, of_any_python: bool = False) -> list[Toolchain]:
    """Every installed toolchain that this Python (or any) can use, by kind and version.

    Those of `list_damaged` are not among them.

    Raises:
        StorageError: the cache cannot be read.
    """
    return [each for each in _look_through()[0] if each.fits or of_any_python]


def list_damaged() -> dict[str, StorageError]:
    """What is wrong with each installed toolchain whose marker cannot be read, by name.

    Raises:
        StorageError: the cache cannot be read.
    """
    return _look_through()[1]


def _look_through() -> tuple[list[Toolchain], dict[str, StorageError]]:
    root = toolchains_root()
    try:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    except OSError as error:
        raise storage_error(error, root, "read") from error
    sound: list[Toolchain] = []
    damaged: dict[str, StorageError] = {}
    for name in filter(_NAME.fullmatch, names):
        try:
            found = read_toolchain(name)
        except StorageError as error:
            damaged[name] = error
        else:
            sound += [found] if found else []
    return sorted(sound, key=lambda each: (each.kind, Version(each.version), each.python)), damaged


def require_installed(name: str) -> None:
    """Complain where nothing of that name can be verified; what is installed may be damaged.

    Raises:
        UsageError: it is not installed, is for another Python only, or is no toolchain's name.
    """
    if name in list_damaged():
        return
    found = _require(name)
    if not found.fits:
        raise UsageError(
            f"{found.name} is for another Python ({found.python}; this one is {this_python()}); "
            "verify it with the triage of that Python"
        )


def verify(name: str) -> Toolchain:
    """Hash an installed toolchain again and run it again.

    Raises:
        UsageError: as `require_installed`.
        IntegrityError: a file is missing or was changed since the install.
        StorageError: its marker is damaged.
        InfrastructureError: it no longer runs, or says that it is another version.
    """
    require_installed(name)
    found = _require(name)
    check(found)
    return found


def remove(name: str) -> None:
    """Delete an installed toolchain, and nothing that is not one.

    Raises:
        UsageError: it is not installed, or the folder is not ours.
        StorageError: it cannot be deleted.
    """
    _parts_of(name)
    # By the folder's name first: the marker in it may be damaged.
    known = (toolchain_folder(each) for each in (f"{name}-{this_python()}", name))
    folder = next((each for each in known if each.exists()), None)
    remove_folder(folder or _require(name).path, marker=MARKER)


def _parts_of(name: str) -> tuple[str, str, str]:
    """Kind, version and Python (or empty) of a toolchain's name.

    Raises:
        UsageError: it is none.
    """
    match = _NAME.fullmatch(name)
    try:
        if match and str(Version(match[2])) == match[2]:
            return match[1], match[2], match[3] or ""
    except InvalidVersion:
        pass
    raise UsageError(f"{name!r} is no toolchain's name; write it like ptxas-13.1.115")


def _installed(kind: str, version: Version) -> Toolchain | None:
    for name in (f"{kind}-{version}-{this_python()}", f"{kind}-{version}"):
        found = read_toolchain(name)
        if found is not None and found.fits:
            return found
    # 3.6 and 3.6.0 are one version.
    same = (each for each in list_installed() if each.kind == kind)
    return next((each for each in same if Version(each.version) == version), None)


def _named(name: str) -> Toolchain | None:
    """What is installed under a name: for this Python, else for the only one that there is.

    Raises:
        UsageError: it is there for several other Pythons, and the name says none.
    """
    kind, version, python = _parts_of(name)
    same = [
        each
        for each in list_installed(of_any_python=True)
        if (each.kind, each.version) == (kind, version) and python in ("", each.python)
    ]
    fitting = [each for each in same if each.fits]
    if not fitting and len(same) > 1:
        pythons = ", ".join(f"{each.name}-{each.python}" for each in same)
        raise UsageError(f"{name} is installed for several Pythons; name one of {pythons}")
    return next(iter(fitting or same), None)


def _require(name: str) -> Toolchain:
    found = _named(name)
    if found is None:
        every = list_installed(of_any_python=True)
        names = ", ".join(dict.fromkeys(each.name for each in every)) or "nothing"
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
    releases = wheels(TRITON, exact=version)
    if not releases:
        _none_such(available_triton(prereleases=True), version, "Triton")
    return releases[0]


def _find_ptxas(version: Version) -> Release:
    releases = _ptxas_releases(exact=version)
    if not releases:
        _none_such([each for each, _ in available_ptxas(prereleases=True)], version, PTXAS)
    return releases[0]


def _find_nvdisasm(version: Version) -> Release:
    releases = [each for each in wheels(_NVDISASM_PROJECT, exact=version) if each.is_binary]
    if not releases:
        _none_such(available_nvdisasm(prereleases=True), version, NVDISASM)
    return releases[0]


def _none_such(available: list[Version], version: Version, what: str) -> NoReturn:
    select(available, str(version), what=what)
    raise AssertionError


def _install(kind: str, release: Release) -> Toolchain:
    name = folder_name(kind, release.version, release.filename)
    ensure_folder(toolchain_folder(name), marker=MARKER, fill=partial(fill, kind, release))
    found = read_toolchain(name)
    assert found is not None, "its folder was just made"
    return found
