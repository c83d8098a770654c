"""TileLang's versions, and what goes with each: its FFI, and an nvcc for the C++ that it writes.

Several versions ask for an FFI that they do not work with: a plain `pip install` of 0.1.8 to 0.1.11
cannot be imported today. So each partner is pinned here.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.frontends.cuda.nvcc import available_nvcc, environment_of
from harness.io.packages.index import wheels
from harness.values.environment import Environment, PackagePin
from harness.values.errors import InfrastructureError, UsageError

KIND = "tilelang"
TITLE = "TileLang"
_FFI = "apache-tvm-ffi"
# Older ones cannot be imported where there is no libcuda and no libnvrtc.
_OLDEST = Version("0.1.8")
# The newest FFI that each works with (imported, and kernels lowered); the last row is for what is
# newer, too, as TileLang declares it from there on.
_FFI_OF = (
    (Version("0.1.9"), "==0.1.9"),
    (Version("0.1.12"), "==0.1.11"),
    (None, ">=0.1.11,<0.1.13"),
)
# As TileLang 0.1.8 to 0.1.15 declare them. torch, Triton and numpy are those of triage.
_PARTNERS = {
    "z3-solver": ">=4.13.0,<4.15.5",
    "torch-c-dlpack-ext": "",
    "cloudpickle": "",
    "psutil": "",
    "tqdm": ">=4.62.3",
}
SHARED = ("ml-dtypes", "numpy", "torch", "triton")
"""Packages of triage's own environment that each version has there."""


def available(*, prereleases: bool = False) -> list[Version]:
    """The versions that can be installed here, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    found = {each.version for each in wheels(KIND, prereleases=prereleases)}
    return sorted(version for version in found if version >= _OLDEST)


def declared_environment(version: str) -> Environment:
    """The packages of one TileLang: its FFI, small libraries, and the oldest nvcc that is whole.

    Raises:
        UsageError: there is no such version.
        OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
    """
    own, *partners = pins_without_nvcc(version)
    pins = (own, *partners, *environment_of(str(available_nvcc()[0])).pins)
    return Environment(
        kind=KIND, version=own.version, pins=pins, shared=SHARED, imports=("tilelang",)
    )


def pins_without_nvcc(version: str) -> tuple[PackagePin, ...]:
    """What a version needs to lower a kernel to CUDA C++, itself first.

    Raises:
        UsageError: there is no such version.
        OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
    """
    wanted = Version(version)
    known = available(prereleases=True)
    if wanted not in known:
        near = ", ".join(map(str, known))
        raise UsageError(f"there is no {TITLE} {version} that works here; there are {near}")
    return (PackagePin(name=KIND, version=str(wanted)), *_partners(wanted))


def _partners(wanted: Version) -> Iterator[PackagePin]:
    ffi = next(spec for last, spec in _FFI_OF if last is None or wanted <= last)
    for name, spec in {_FFI: ffi, **_PARTNERS}.items():
        fits = [
            each.version
            for each in wheels(name)
            if SpecifierSet(spec).contains(each.version, prereleases=False)
        ]
        if not fits:
            raise InfrastructureError(
                f"the package index has no {name}{spec}, which goes with {TITLE} {wanted}"
            )
        yield PackagePin(name=name, version=str(max(fits)))
