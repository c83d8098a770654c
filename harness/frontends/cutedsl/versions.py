"""CuTe DSL's versions, and what goes with each: its libraries, and a ptxas of its release of CUDA.

Its own ptxas is linked into its libraries and cannot be called by itself. The headers of the PTX
that each version generates say of which release of CUDA it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.packages.index import wheels
from harness.values.environment import Environment, PackagePin
from harness.values.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KIND", "TITLE", "available", "declared_environment"]

KIND = "cutedsl"
TITLE = "CuTe DSL"
_NAME = "nvidia-cutlass-dsl"
# Older ones want a driver before they generate anything.
_OLDEST = Version("4.4.0")
# Until 4.5 one package held the libraries.
_BASE, _SPLIT = f"{_NAME}-libs-base", (f"{_NAME}-libs-core", f"{_NAME}-libs-cu12")
_SPLIT_SINCE = Version("4.6.0")
# Up to each version, the package and the build of the ptxas that it has inside; the wheel of that
# build, or the next of its release, goes with it. The last row is for what is newer, too.
_PTXAS_OF = (
    (Version("4.5.99"), "nvidia-cuda-nvcc-cu12", ">=12.9.83,<12.10"),
    (Version("4.7.99"), "nvidia-cuda-nvcc", ">=13.3.27,<13.4"),
    (None, "nvidia-cuda-nvcc", ">=13.4.59,<13.5"),
)
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
        UsageError, OfflineError, InfrastructureError: as `harness.packages.index.wheels`.
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


def _partners(wanted: Version) -> Iterator[PackagePin]:
    rows = (each for each in _PTXAS_OF if each[0] is None or wanted <= each[0])
    _, ptxas, build = next(rows)
    yield PackagePin(name=ptxas, version=str(min(_fitting(ptxas, build, wanted))))
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
