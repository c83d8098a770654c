"""Other releases of the packages that repros take their kernels from."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from harness.io.packages.index import files
from harness.io.packages.index import sdist as sdist_of
from harness.io.packages.versions import exact_version, select
from harness.values.errors import UsageError
from harness.values.kernel import Pin, Repro


def releases(package: str, spec: str) -> list[Version]:
    """The releases of a package that a specifier names and that have a source, oldest first.

    Raises:
        UsageError: the index has no such package, or none of its releases is meant.
        InfrastructureError: the index does not answer, and its listing is not cached.
    """
    exact = exact_version(spec)
    sources = [file for file in files(package) if not file.is_wheel]
    there = [file.version for file in sources if not file.yanked or file.version == exact]
    versions = select(there, spec, what=f"sdist of {package}")
    if not versions:
        listed = ", ".join(str(version) for version in sorted(set(there)))
        raise UsageError(f"no sdist of {package} is {spec}; there are {listed or 'none'}")
    return versions


def pin_of(package: str, version: Version) -> Pin:
    """A release of a package as it is pinned: the sha256 is that of the package index.

    Raises:
        UsageError, InfrastructureError: as `releases`.
    """
    file = sdist_of(package, version)
    return Pin(package=file.name, version=str(version), sha256=file.sha256)


def in_releases(repro: Repro, spec: str) -> list[Repro]:
    """The kernel in each release of its package that a specifier names.

    Raises:
        UsageError: it is not of a package, or there is no such release.
        InfrastructureError: as `releases`.
    """
    if repro.source is None:
        raise UsageError(f"{repro.name}: its source is not a package, so that it has no releases")
    pinned = repro.source
    exact = exact_version(spec)
    if exact is not None and exact == exact_version(pinned.version):
        return [repro]
    return [in_release(repro, version) for version in releases(pinned.package, spec)]


def in_release(repro: Repro, version: Version, pin: Pin | None = None) -> Repro:
    """The kernel in a release of its package; in the pinned one it keeps its name.

    Raises:
        UsageError, InfrastructureError: as `releases`.
    """
    assert repro.source is not None
    if version == exact_version(repro.source.version):
        return repro
    pin = pin or pin_of(repro.source.package, version)
    name, colons, kernel = repro.name.partition("::")
    operation = repro.operation
    return replace(
        repro,
        name=f"{name}@{version}{colons}{kernel}",
        source=replace(repro.source, package=pin.package, version=pin.version, sha256=pin.sha256),
        operation=operation and replace(operation, kernel=f"{operation.kernel}@{version}"),
        # Its author counted those of the release that is pinned.
        configs=None,
    )


def plain_name(name: str) -> str:
    """The name of a kernel without the release of its package: that of the pinned one."""
    folder, colons, kernel = name.partition("::")
    return f"{folder.partition('@')[0]}{colons}{kernel}"


def whole_folder(repros: Sequence[Repro], kernel: str | None) -> Repro:
    """A kernel that the launches of a folder come to, named or not; None means every one.

    Raises:
        UsageError: the repros are of several folders, or have no launch code.
    """
    first = repros[0]
    if len({repro.group for repro in repros}) > 1 or first.file.suffix != ".py":
        raise UsageError(f"{first.name}::{kernel}: name a folder of repros before the `::`")
    launches = {spec.name: spec for repro in repros for spec in repro.launches}
    return replace(
        first,
        name=f"{first.group}::{kernel}" if kernel else first.group,
        kernel=kernel,
        launches=tuple(launches.values()),
        configs=None,
        summary="",
        issue=None,
        operation=None,
        reference=None,
        baseline=None,
    )


def is_of(repro: Repro, package: str) -> bool:
    """Whether a repro's kernel comes from a package, in whatever release."""
    name = repro.source.package if repro.source else None
    return name is not None and canonicalize_name(name) == canonicalize_name(package)
