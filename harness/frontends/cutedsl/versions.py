"""CuTe DSL's versions, and what goes with each: its libraries, and a ptxas like the one inside.

That one cannot be called by itself. The header of the PTX names the NVVM, of another release.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.io.packages.index import wheels
from harness.values.environment import Environment, PackagePin
from harness.values.errors import InfrastructureError, UsageError

KIND = "cutedsl"
TITLE = "CuTe DSL"
_NAME = "nvidia-cutlass-dsl"
# Older ones want a driver before they generate anything.
_OLDEST = Version("4.4.0")
# Until 4.5 one package held the libraries.
_BASE, _SPLIT = f"{_NAME}-libs-base", (f"{_NAME}-libs-core", f"{_NAME}-libs-cu12")
_SPLIT_SINCE = Version("4.6.0")
# The ptxas inside the libraries for CUDA 12 is 12.9.83, whatever NVVM they have (12.9 up to 4.5,
# 13.3 up to 4.7, then 13.4). The next wheel of its release generates the same machine code.
_PTXAS, _PTXAS_BUILD = "nvidia-cuda-nvcc-cu12", ">=12.9.83,<12.10"
# tvm-ffi is declared by no version, and needed by launch code that passes torch's tensors directly.
_PARTNERS = {
    "cuda-bindings": ">=12.8",
    "cuda-pathfinder": "",
    "protobuf": "",
    "apache-tvm-ffi": ">=0.1.11",
}
_SHARED = ("ml-dtypes", "numpy", "torch", "triton", "typing-extensions")


def available(*, prereleases: bool = False) -> list[Version]:
    """The versions that can be installed here, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    found = {each.version for each in wheels(_NAME, prereleases=prereleases)}
    return sorted(version for version in found if version >= _OLDEST)


def declared_environment(version: str) -> Environment:
    """The packages of one CuTe DSL.

    Raises:
        UsageError: there is no such version.
        OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
    """
    wanted = Version(version)
    known = available(prereleases=True)
    if wanted not in known:
        near = ", ".join(map(str, known))
        raise UsageError(f"there is no {TITLE} {version} that works here; there are {near}")
    parts = (_NAME, _BASE, *(_SPLIT if wanted >= _SPLIT_SINCE else ()))
    own = (PackagePin(name=name, version=str(wanted)) for name in parts)
    return Environment(
        kind=KIND,
        version=str(wanted),
        pins=(*own, *_partners(wanted)),
        shared=_SHARED,
        imports=("cutlass", "cutlass.cute"),
    )


def pins_without_ptxas(version: str) -> tuple[PackagePin, ...]:
    """All that a CuTe DSL needs to come to PTX, itself first: the ptxas is inside.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `declared_environment`.
    """
    return tuple(pin for pin in declared_environment(version).pins if pin.name != _PTXAS)


def _partners(wanted: Version) -> Iterator[PackagePin]:
    yield PackagePin(name=_PTXAS, version=str(min(_fitting(_PTXAS, _PTXAS_BUILD, wanted))))
    for name, spec in _PARTNERS.items():
        yield PackagePin(name=name, version=str(max(_fitting(name, spec, wanted))))


def _fitting(name: str, spec: str, wanted: Version) -> list[Version]:
    """The versions of a partner that a specifier names."""
    known = [each.version for each in wheels(name)]
    fits = [each for each in known if SpecifierSet(spec).contains(each, prereleases=False)]
    if not fits:
        raise InfrastructureError(
            f"the package index has no {name}{spec}, which goes with {TITLE} {wanted}"
        )
    return fits
