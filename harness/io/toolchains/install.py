"""Toolchains by version: which ones a specifier names, and each of them installed."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from packaging.version import Version

from harness.io.files.whole_folders import ensure_folder
from harness.io.packages.index import Release, wheels
from harness.io.packages.versions import (
    OLDEST_TRITON,
    check_spec,
    exact_version,
    parse_banner,
    require_supported_triton,
    select,
)
from harness.io.toolchains.bundled import bundled_nvdisasm
from harness.io.toolchains.contents import SITE, fill
from harness.io.toolchains.installed import find_installed, list_installed
from harness.io.toolchains.marker import (
    MARKER,
    NVDISASM,
    PTXAS,
    TRITON,
    Toolchain,
    folder_name,
    read_toolchain,
    toolchain_folder,
)
from harness.values.errors import UsageError
from harness.values.toolchain import Assembler, Compiler, Tool

# What the package index offers of Triton, ptxas and nvdisasm: versions, and their files.

_PTXAS_PROJECTS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11")
_NVDISASM_PROJECT = "nvidia-cuda-nvdisasm"


def available_triton(*, prereleases: bool = False) -> list[Version]:
    """The Triton versions with a wheel for this interpreter and platform, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    return [release.version for release in wheels(TRITON, prereleases=prereleases)]


def available_ptxas(*, prereleases: bool = False) -> list[tuple[Version, str]]:
    """The ptxas versions and the project that carries each, oldest first.

    Raises:
        UsageError: the index has none of the projects.
        OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    found: dict[Version, str] = {}
    for release in _ptxas_releases(prereleases=prereleases):
        found.setdefault(release.version, release.name)
    return sorted(found.items())


def available_nvdisasm(*, prereleases: bool = False) -> list[Version]:
    """The nvdisasm versions, oldest first; errors as `available_triton`."""
    releases = wheels(_NVDISASM_PROJECT, prereleases=prereleases)
    return [release.version for release in releases if release.is_binary]


def _ptxas_releases(*, exact: Version | None = None, prereleases: bool = False) -> list[Release]:
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


def find_triton_file(version: Version) -> Release:
    """The file of the index with that Triton.

    Raises:
        UsageError: the index has no such version for this interpreter and platform.
        OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    releases = wheels(TRITON, exact=version)
    if not releases:
        _none_such(available_triton(prereleases=True), version, "Triton")
    return releases[0]


def find_ptxas_file(version: Version) -> Release:
    """The file of the index with that ptxas; errors as `find_triton_file`."""
    releases = _ptxas_releases(exact=version)
    if not releases:
        _none_such([each for each, _ in available_ptxas(prereleases=True)], version, PTXAS)
    return releases[0]


def find_nvdisasm_file(version: Version) -> Release:
    """The file of the index with that nvdisasm; errors as `find_triton_file`."""
    releases = [wheel for wheel in wheels(_NVDISASM_PROJECT, exact=version) if wheel.is_binary]
    if not releases:
        _none_such(available_nvdisasm(prereleases=True), version, NVDISASM)
    return releases[0]


def _none_such(available: list[Version], version: Version, what: str) -> NoReturn:
    select(available, str(version), what=what)
    raise AssertionError


def select_triton(spec: str, *, prereleases: bool = False) -> list[Version]:
    """The Triton versions that `spec` names (see `harness.io.packages.versions.select`).

    An exact version that is installed, or yanked, is found too, the former without the network.
    What a range names that is too old for triage is left out.

    Raises:
        UsageError: `spec` is malformed or names only versions that do not exist or are too old.
        OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    check_spec(spec, what="Triton")
    require_supported_triton(spec)
    exact = exact_version(spec)
    if exact is not None:
        found = find_installed(TRITON, exact)
        return [Version(found.version) if found else find_triton_file(exact).version]
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
        found = find_installed(PTXAS, exact)
        return [Version(found.version) if found else find_ptxas_file(exact).version]
    check_spec(spec, what=PTXAS)
    versions = [version for version, _ in available_ptxas(prereleases=prereleases)]
    return select(versions, spec, what=PTXAS, prereleases=prereleases)


def install_triton(version: Version | str) -> Compiler:
    """The environment of that Triton, installed if it is not yet.

    Raises:
        UsageError: there is no such version for this interpreter and platform.
        OfflineError, IntegrityError, StorageError, InfrastructureError: it cannot be installed.
    """
    exact = _exact(version, "Triton")
    return _as_triton(find_installed(TRITON, exact) or _install(TRITON, find_triton_file(exact)))


def planned_triton(version: Version | str) -> Compiler:
    """What `install_triton` would give; nothing is installed.

    Raises:
        UsageError, OfflineError, InfrastructureError: the index has no such version.
    """
    exact = _exact(version, "Triton")
    found = find_installed(TRITON, exact)
    if found:
        return _as_triton(found)
    release = find_triton_file(exact)
    folder = toolchain_folder(folder_name(TRITON, release.version, release.filename))
    return Compiler(
        version=str(release.version), origin=release.name, path=folder / SITE, sha256=release.sha256
    )


def _as_triton(found: Toolchain) -> Compiler:
    return Compiler(
        version=found.version,
        origin=found.distribution,
        path=found.path / SITE,
        sha256=found.sha256,
    )


def install_ptxas(version: Version | str) -> Assembler:
    """That ptxas, installed if it is not yet; errors as `install_triton`."""
    exact = _exact(version, PTXAS)
    return _as_ptxas(find_installed(PTXAS, exact) or _install(PTXAS, find_ptxas_file(exact)))


def planned_ptxas(version: Version | str) -> Assembler:
    """As `planned_triton`; of one that is not installed, the sha256 is that of the wheel."""
    exact = _exact(version, PTXAS)
    found = find_installed(PTXAS, exact)
    if found:
        return _as_ptxas(found)
    release = find_ptxas_file(exact)
    folder = toolchain_folder(folder_name(PTXAS, release.version, release.filename))
    return Assembler(
        version=str(release.version),
        origin=release.name,
        path=folder / "bin" / PTXAS,
        sha256=release.sha256,
    )


def _as_ptxas(found: Toolchain) -> Assembler:
    release = parse_banner(found.banner)
    return Assembler(
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
    return _tool(find_installed(NVDISASM, exact) or _install(NVDISASM, find_nvdisasm_file(exact)))


def find_nvdisasm() -> Tool:
    """The newest nvdisasm that is installed; if none is, the newest of the index, installed.

    So a warm start needs no network. Errors as `install_nvdisasm`.
    """
    return installed_nvdisasm() or install_nvdisasm()


def installed_nvdisasm() -> Tool | None:
    """The newest nvdisasm that is installed."""
    installed = [each for each in list_installed() if each.kind == NVDISASM]
    return _tool(installed[-1]) if installed else None


def every_nvdisasm(triton: str | None) -> list[Tool]:
    """All that are installed, none twice: the newest by itself, then those inside Tritons.

    Of these, that of the version `triton` comes first, then the oldest; that of the Triton beside
    triage is the last. Nothing is fetched.

    Raises:
        StorageError: the cache cannot be read.
    """
    alone = installed_nvdisasm()
    tools = {alone.path.stat().st_size: alone} if alone else {}
    tritons = [each for each in list_installed() if each.kind == TRITON]
    for each in sorted(tritons, key=lambda each: each.version != triton):
        tool = bundled_nvdisasm(_as_triton(each))
        if tool:
            size = tool.path.stat().st_size  # neighbouring Tritons carry the same file
            name = f"{tool.name} of Triton"
            tools.setdefault(
                size, Tool(name=name, version=f"{each.version} {size}", path=tool.path)
            )
    beside = bundled_nvdisasm(None)
    if beside:
        tools.setdefault(beside.path.stat().st_size, beside)
    return list(tools.values())


def _exact(version: Version | str, what: str) -> Version:
    exact = version if isinstance(version, Version) else exact_version(version)
    if exact is None:
        raise UsageError(f"{version!r} is not one version of {what}; write it like 13.1.115")
    return exact


def _tool(found: Toolchain) -> Tool:
    return Tool(name=found.kind, version=found.version, path=found.path / found.executable)


def _install(kind: str, release: Release) -> Toolchain:
    name = folder_name(kind, release.version, release.filename)
    ensure_folder(toolchain_folder(name), marker=MARKER, fill=partial(fill, kind, release))
    found = read_toolchain(name)
    assert found is not None, "its folder was just made"
    return found
