"""Compilers that are packages: each version has an environment of its own, by one table of pins.

Wheels often ask for partners that they do not work with, or for none: a plain `pip install` of
TileLang 0.1.8 cannot be imported today, and nvcc without its cicc cannot compile. So each partner
is pinned here.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.frontends.back_end import BUNDLED_BACK_END, BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.bench import Kept, Workbench
from harness.frontends.readings import PtxReading, read_stored
from harness.io.packages.index import wheels
from harness.io.packages.versions import exact_version
from harness.io.toolchains.environments import (
    compiler_in,
    environments_of,
    install_environment,
    planned_environment,
)
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import Lowering
from harness.values.toolchain import NVCC, Compiler, Environment, PackagePin

Fits = str | tuple[tuple[str | None, str], ...]
"""A specifier, or one for each last version of the compiler; that of None is for what is newer."""


class Partner(msgspec.Struct, frozen=True, kw_only=True):
    """A package that goes with a compiler, or (of the table) another compiler with its partners.

    `picks` one of those that fit: the compiler's own version (`same`), or the newest of its release
    of CUDA that is no newer (`release`). `since` is the first compiler that needs it.
    """

    name: str
    fits: Fits = ""
    picks: Literal["newest", "oldest", "same", "release"] = "newest"
    since: str = "0"

    def spec(self, compiler: Version) -> str:
        """Which versions fit one of the compiler's."""
        if isinstance(self.fits, str):
            return self.fits
        return next(spec for last, spec in self.fits if last is None or compiler <= Version(last))


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler: its package, and what goes with it.

    Versions before `oldest` do not work here. `whole` are partners without which a version is not
    offered. `shared` are packages of triage's own environment, and `imports` what has to work.
    """

    kind: str
    title: str
    package: str
    partners: tuple[Partner, ...]
    oldest: str = "0"
    whole: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def available(self, *, prereleases: bool = False) -> list[Version]:
        """The versions that can be installed here, oldest first.

        Raises:
            UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
        """
        oldest = Version(self.oldest)
        there = (
            {wheel.version for wheel in wheels(name, prereleases=prereleases)}
            for name in (self.package, *self.whole)
        )
        return sorted(version for version in set.intersection(*there) if version >= oldest)

    def environment(self, version: str) -> Environment:
        """The packages of one version.

        Raises:
            UsageError: there is no such version.
            OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
        """
        return Environment(
            kind=self.kind,
            version=str(Version(version)),
            pins=self.pins(version),
            shared=self.shared,
            imports=self.imports,
        )

    def installed(self) -> list[Compiler]:
        """The versions that are on this machine."""
        return list(map(compiler_in, environments_of(self.kind)))

    def here(self, version: Version | str) -> Compiler | None:
        """An installed version: it is used as it is, as its partners were chosen then."""
        installed = (compiler for compiler in self.installed() if compiler.version == str(version))
        return next(installed, None)

    def install(self, version: Version | str) -> Compiler:
        """Install a version, or find it installed; errors are those of `environment`."""
        return self.here(version) or install_environment(self.environment(str(version)))

    def pins(self, version: str, *, without: str = "") -> tuple[PackagePin, ...]:
        """The packages of one version, itself first, and all partners but one.

        Raises:
            UsageError: there is no such version.
            OfflineError, InfrastructureError: the index cannot be asked, or lacks a partner.
        """
        compiler, versions = Version(version), self.available(prereleases=True)
        if compiler not in versions:
            near = ", ".join(map(str, versions))
            raise UsageError(
                f"there is no {self.title} {version} that works here; there are {near}"
            )
        pins = [PackagePin(name=self.package, version=str(compiler))]
        for partner in self.partners:
            if compiler >= Version(partner.since) and partner.name != without:
                pins += self._pins_of(partner, compiler)
        return tuple(pins)

    def _pins_of(self, partner: Partner, compiler: Version) -> tuple[PackagePin, ...]:
        name = partner.name
        if partner.picks == "same":
            return (PackagePin(name=name, version=str(compiler)),)
        if partner.picks == "release":
            return (PackagePin(name=name, version=str(partner_of(name, compiler))),)
        beside = PINS.get(name)
        versions = beside.available() if beside else [wheel.version for wheel in wheels(name)]
        spec = partner.spec(compiler)
        fits = list(SpecifierSet(spec).filter(versions, prereleases=False))
        if not fits:
            package = beside.package if beside else name
            raise InfrastructureError(
                f"the package index has no {package}{spec}, which goes with {self.title} {compiler}"
            )
        version = str(max(fits) if partner.picks == "newest" else min(fits))
        return beside.pins(version) if beside else (PackagePin(name=name, version=version),)


def partner_of(name: str, cuda: Version) -> Version:
    """The newest version of the same minor release that is no newer, or else the oldest of it.

    Raises:
        OfflineError, InfrastructureError: the index cannot be asked, or has none.
    """
    versions = sorted(wheel.version for wheel in wheels(name))

    def release_of(version: Version) -> tuple[int, ...]:
        # From 13.3 on cccl counts otherwise: 13.3.4.2.1 is that of 13.4.
        return version.release[:2] if len(version.release) <= 3 else version.release[:3:2]

    same = [version for version in versions if release_of(version) == cuda.release[:2]]
    if not same:
        raise InfrastructureError(f"the package index has no {name} for nvcc {cuda}")
    digits = len(cuda.release)
    older = [version for version in same if version <= cuda or len(version.release) > digits]
    return older[-1] if older else same[0]


_NVVM = "nvidia-nvvm"
_CRT = "nvidia-cuda-crt"
_DSL = "nvidia-cutlass-dsl"
PINS = {
    pinned.kind: pinned
    for pinned in (
        Pinned(
            kind=NVCC,
            title=NVCC,
            package="nvidia-cuda-nvcc",
            # Wheels of 12.x hold ptxas and no nvcc; those of 13.0.48 put cicc where its nvcc does
            # not look.
            oldest="13.0.88",
            whole=(_NVVM, _CRT),
            partners=(
                Partner(name=_NVVM, picks="same"),
                Partner(name=_CRT, picks="same"),
                Partner(name="nvidia-cuda-runtime", picks="release"),
                Partner(name="nvidia-cuda-cccl", picks="release"),
            ),
        ),
        Pinned(
            kind="tilelang",
            title="TileLang",
            package="tilelang",
            # Older ones cannot be imported where there is no libcuda and no libnvrtc.
            oldest="0.1.8",
            partners=(
                # The newest that each works with (imported, and kernels lowered); what is newer, as
                # TileLang declares it from there on.
                Partner(
                    name="apache-tvm-ffi",
                    fits=(("0.1.9", "==0.1.9"), ("0.1.12", "==0.1.11"), (None, ">=0.1.11,<0.1.13")),
                ),
                # As TileLang 0.1.8 to 0.1.15 declare them.
                Partner(name="z3-solver", fits=">=4.13.0,<4.15.5"),
                Partner(name="torch-c-dlpack-ext"),
                Partner(name="cloudpickle"),
                Partner(name="psutil"),
                Partner(name="tqdm", fits=">=4.62.3"),
                Partner(name=NVCC, picks="oldest"),
            ),
            shared=("ml-dtypes", "numpy", "torch", "triton"),
            imports=("tilelang",),
        ),
        Pinned(
            kind="cutedsl",
            title="CuTe DSL",
            package=_DSL,
            # Older ones want a driver before they generate anything.
            oldest="4.4.0",
            partners=(
                # Until 4.5 one package held the libraries.
                Partner(name=f"{_DSL}-libs-base", picks="same"),
                Partner(name=f"{_DSL}-libs-core", picks="same", since="4.6.0"),
                Partner(name=f"{_DSL}-libs-cu12", picks="same", since="4.6.0"),
                # The ptxas inside the libraries for CUDA 12 is 12.9.83, whatever NVVM they have
                # (12.9 up to 4.5, 13.3 up to 4.7, then 13.4). The next wheel of its release
                # generates the same machine code.
                Partner(name="nvidia-cuda-nvcc-cu12", fits=">=12.9.83,<12.10", picks="oldest"),
                Partner(name="cuda-bindings", fits=">=12.8"),
                Partner(name="cuda-pathfinder"),
                Partner(name="protobuf"),
                # Declared by no version; launch code that passes torch's tensors directly needs it.
                Partner(name="apache-tvm-ffi", fits=">=0.1.11"),
            ),
            shared=("ml-dtypes", "numpy", "torch", "triton", "typing-extensions"),
            imports=("cutlass", "cutlass.cute"),
        ),
        Pinned(
            kind="cutile",
            title="cuTile",
            package="cuda-tile",
            # Older ones have no way to compile what is not launched (`cuda.tile.compilation`).
            oldest="1.3.0",
            partners=(
                # As each declares it (the extra `tileiras`).
                Partner(
                    name="tileiras",
                    fits=(
                        ("1.3.0", ">=13.2,<13.3"),
                        ("1.5.0", ">=13.2,<13.4"),
                        ("1.7.0", ">=13.2,<13.5"),
                        (None, ">=13.2"),
                    ),
                ),
            ),
            shared=("numpy", "torch", "triton", "typing-extensions"),
            imports=("cuda.tile",),
        ),
        Pinned(
            kind="tileiras",
            title="tileiras",
            package="nvidia-cuda-tileiras",
            # 13.1.80 looks for libNVVM where no wheel has it, and compiles nothing.
            oldest="13.2",
            partners=(Partner(name=_NVVM, picks="release"),),
        ),
    )
}
"""By kind: each front end that is packages, and the assembler that is one."""


class PackagedFrontEnd(FrontEnd):
    """The parts of a front end that follow from an environment.

    `pins` are its versions, each with what goes with it. `needs` are packages that a user installs
    themselves, beside those of the environment.
    """

    pins: Pinned
    needs: tuple[str, ...] = ()
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return self.pins.available(prereleases=prereleases)

    def environment(self, version: str) -> Environment:
        return self.pins.environment(version)

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        exact = exact_version(spec)
        if exact is not None and self.pins.here(exact):
            return [exact]
        return super().select(spec, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        return self.pins.installed()

    def install(self, version: Version | str) -> Compiler:
        return self.pins.install(version)

    def planned(self, version: Version | str) -> Compiler:
        return self.pins.here(version) or planned_environment(self.environment(str(version)))

    def install_line(self, version: str) -> str:
        pins = (str(pin) for pin in self.environment(version).pins)
        return f"pip install {' '.join((*self.needs, *pins))}"

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        entry = lowering.value.metadata.get("entry")
        return read_stored(bench, ptx, entry=str(entry) if entry else None)
