"""cuTile's versions, and what goes with each: a tileiras, and the libNVVM that this one loads."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.frontends.cuda.nvcc import partner_of
from harness.io.packages.index import wheels
from harness.values.environment import Environment, PackagePin
from harness.values.errors import InfrastructureError, UsageError

KIND = "cutile"
TITLE = "cuTile"
TILEIRAS = "tileiras"
_NAME = "cuda-tile"
PACKAGE, NVVM = "nvidia-cuda-tileiras", "nvidia-nvvm"
# Brings the ptxas that tileiras calls: in our environments a script stands in its place.
_NVCC = "nvidia-cuda-nvcc"
# Older ones have no way to compile what is not launched (`cuda.tile.compilation`).
_OLDEST = Version("1.3.0")
# 13.1.80 looks for libNVVM where no wheel has it, and compiles nothing.
_OLDEST_TILEIRAS = Version("13.2")
# As each declares it (the extra `tileiras`); the last row is for what is newer, too.
_TILEIRAS_OF = (
    (Version("1.3.0"), ">=13.2,<13.3"),
    (Version("1.5.0"), ">=13.2,<13.4"),
    (Version("1.7.0"), ">=13.2,<13.5"),
    (None, ">=13.2"),
)
_SHARED = ("numpy", "torch", "triton", "typing-extensions")


def available(*, prereleases: bool = False) -> list[Version]:
    """The versions that can be installed here, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    found = {each.version for each in wheels(_NAME, prereleases=prereleases)}
    return sorted(version for version in found if version >= _OLDEST)


def available_tileiras(*, prereleases: bool = False) -> list[Version]:
    """The versions of tileiras that can be installed here, oldest first; errors as `available`."""
    found = {each.version for each in wheels(PACKAGE, prereleases=prereleases)}
    return sorted(version for version in found if version >= _OLDEST_TILEIRAS)


def declared_environment(version: str) -> Environment:
    """The packages of one cuTile: the newest tileiras that it asks for is among them.

    Raises:
        UsageError: there is no such version.
        OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
    """
    wanted = _known(version, available(prereleases=True), TITLE)
    spec = next(spec for last, spec in _TILEIRAS_OF if last is None or wanted <= last)
    fits = [each for each in available_tileiras() if each in SpecifierSet(spec)]
    if not fits:
        raise InfrastructureError(
            f"the package index has no {PACKAGE}{spec}, which goes with {TITLE} {wanted}"
        )
    own = PackagePin(name=_NAME, version=str(wanted))
    return Environment(
        kind=KIND,
        version=str(wanted),
        pins=(own, *_pins(fits[-1])),
        shared=_SHARED,
        imports=("cuda.tile",),
    )


def tileiras_environment(version: str) -> Environment:
    """The packages of one tileiras alone; errors as `declared_environment`."""
    wanted = _known(version, available_tileiras(prereleases=True), TILEIRAS)
    return Environment(kind=TILEIRAS, version=str(wanted), pins=_pins(wanted))


def pins_with_ptxas(version: str, tileiras: str) -> tuple[PackagePin, ...]:
    """All that a cuTile needs to come to a cubin with this tileiras, itself first.

    Raises:
        OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
    """
    own, assembler = PackagePin(name=_NAME, version=version), Version(tileiras)
    nvcc = PackagePin(name=_NVCC, version=str(partner_of(_NVCC, assembler)))
    return (own, *_pins(assembler), nvcc)


def _known(version: str, known: list[Version], what: str) -> Version:
    wanted = Version(version)
    if wanted not in known:
        near = ", ".join(map(str, known))
        raise UsageError(f"there is no {what} {version} that works here; there are {near}")
    return wanted


def _pins(tileiras: Version) -> tuple[PackagePin, ...]:
    """A tileiras, and the libNVVM of its release."""
    partner = partner_of(NVVM, tileiras)
    return (
        PackagePin(name=PACKAGE, version=str(tileiras)),
        PackagePin(name=NVVM, version=str(partner)),
    )
