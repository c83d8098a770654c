"""What the package index offers of Triton, ptxas and nvdisasm: versions, and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from harness.io.packages.index import Release, wheels
from harness.io.packages.versions import select
from harness.io.toolchains.marker import NVDISASM, PTXAS, TRITON
from harness.values.errors import UsageError

if TYPE_CHECKING:
    from packaging.version import Version


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
    releases = [each for each in wheels(_NVDISASM_PROJECT, exact=version) if each.is_binary]
    if not releases:
        _none_such(available_nvdisasm(prereleases=True), version, NVDISASM)
    return releases[0]


def _none_such(available: list[Version], version: Version, what: str) -> NoReturn:
    select(available, str(version), what=what)
    raise AssertionError
