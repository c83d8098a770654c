"""Toolchains: a pinned compiler and a pinned ptxas, each with version, origin and sha256."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

BUNDLED = "bundled"
"""The ptxas that this Triton picks for this target."""

EMULATOR = "emulator"
"""What takes the place of ptxas where the PTX itself is executed."""

RELEASE = "release"
"""An axis of versions: those of the package that a kernel comes from."""

GPU = "gpu"
"""Where a cubin is launched, in the name of a cell."""

SASS = "sass"
"""Where the SASS of a cubin is emulated, in the name of a cell."""

EXECUTORS = {EMULATOR: False, GPU: True, SASS: True}
"""What executes a cell, by the name that `--on` takes: whether it takes cubins, and not PTX."""

EXECUTOR_NAMES = {EMULATOR: "the emulator", GPU: "the GPU", SASS: "the SASS emulator"}
"""The same, as people call it."""

EVIDENCE = {EMULATOR: "emulated PTX", GPU: "measured", SASS: "emulated SASS"}
"""What its statements rest on: with these words each of them begins."""

INSTALLED = "installed"
"""The compiler that lies beside `triage` in its own environment."""

TRITON = "triton"
PTX = "ptx"
NVCC = "nvcc"
"""Kinds of compilers. PTX is one that passes on what it is given; it has no versions."""

PTXAS = "ptxas"
"""The kind of the assembler that takes PTX."""

NO_ASSEMBLER = "none"
"""The kind where what the compiler writes is the end: nothing assembles it."""

_TITLES = {kind: kind for kind in (NVCC, PTX, PTXAS)}
_TITLES |= {TRITON: "Triton", NO_ASSEMBLER: "no assembler"}
_NAMERS: list[Callable[[], None]] = []


def without_evidence(reason: str) -> str:
    """A statement without the words of its evidence, with which it begins."""
    words, colon, rest = reason.partition(": ")
    return rest if colon and words in EVIDENCE.values() else reason


def takes_cubins(on: str | None) -> bool:
    """Whether what `--on` names executes cubins; where it names nothing, that is the emulator."""
    return EXECUTORS[on or EMULATOR]


def name_kind(kind: str, title: str) -> None:
    """Set what people call a kind of compiler or assembler, when its front end is loaded."""
    _TITLES[kind] = title


def name_kinds_with(load: Callable[[], None]) -> None:
    """What to call, once, when an unknown kind is to be named: it names those that there are."""
    _NAMERS.append(load)


def _title(kind: str) -> str:
    while kind not in _TITLES and _NAMERS:
        _NAMERS.pop()()
    return _TITLES.get(kind, kind)


def compiler_name(kind: str | None, version: str | None = None) -> str:
    """A compiler for people: `Triton 3.6.0`; `raw PTX` where none was at work."""
    if kind in (None, PTX):
        return "raw PTX"
    title = _title(str(kind))
    return f"{title} {version}" if version else title


def assembler_name(kind: str, version: str | None = None) -> str:
    """An assembler for people: `ptxas 13.1.115`, `no assembler`, or the emulator in its place."""
    if version == EMULATOR:
        return EMULATOR
    title = _title(kind)
    return f"{title} {version}" if version else title


def program_name(is_other: bool) -> str:  # noqa: FBT001
    """What people call that which is assembled: PTX, or a program where it `is_other`."""
    return "program" if is_other else "PTX"


def assembler_words(kind: str, version: str) -> list[str]:
    """The option that names this version, or specifier; none where nothing assembles."""
    if kind == NO_ASSEMBLER:
        return []
    return ["--ptxas", version] if kind == PTXAS else ["--assembler", _named(kind, version)]


def compiler_words(kind: str | None, version: str | None) -> list[str]:
    """The option that names this version, or specifier; none for raw PTX."""
    if kind in (None, PTX) or version is None:
        return []
    return ["--triton", version] if kind == TRITON else ["--compiler", _named(kind, version)]


def _named(kind: str, version: str) -> str:
    return f"{kind}{version}" if version[:1] in "<>=!~" else f"{kind}=={version}"


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a compiler of kernels, which a child can import.

    `kind` is that of its front end (`harness.frontends`). `python` is the interpreter of the
    environment that it lives in; None where that is triage's own, to whose module path `path` is
    then added in front (None: it is installed beside us). `partners` are the other packages there
    that decide what it generates, as `NAME==VERSION`. `sha256` is that of the wheel, or of the
    environment; None when it was not installed by us; then `fingerprint` changes whenever its files
    do. `variables` are set in the environment of its processes, as a user would set them.
    """

    kind: str = TRITON
    version: str
    origin: str
    path: Path | None = None
    python: Path | None = None
    partners: tuple[str, ...] = ()
    sha256: str | None = None
    fingerprint: str | None = None
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """As in the id of a cell: `triton-3.6.0`, or `ptx`."""
        return f"{self.kind}-{self.version}" if self.version else self.kind

    @property
    def name(self) -> str:
        """For people: `Triton 3.6.0`, or `raw PTX`."""
        return compiler_name(self.kind, self.version)

    @property
    def identity(self) -> list[str | None]:
        """What of it decides what it generates, for keys."""
        variables = (f"{name}={value}" for name, value in self.variables)
        own = [self.version, self.origin, self.sha256, self.fingerprint]
        return [*own, *self.partners, *variables]


class Assembler(msgspec.Struct, frozen=True, kw_only=True):
    """One assembler, by default a ptxas.

    `kind` is that of its back end (`harness.frontends.back_end`); `origin` is `bundled` or the
    distribution that carried it; `sha256` is that of the executable; `build` is the Build line of
    its `--version`.
    """

    kind: str = PTXAS
    version: str
    origin: str
    path: Path
    sha256: str
    build: str = ""

    @property
    def label(self) -> str:
        """How cells spell it: bundled binaries differ from wheels of the same version."""
        return f"{self.version}-bundled" if self.origin == BUNDLED else self.version

    @property
    def name(self) -> str:
        """For people: `ptxas 13.1.115`."""
        return assembler_name(self.kind, self.version)


NOTHING = Assembler(kind=NO_ASSEMBLER, version="", origin=NO_ASSEMBLER, path=Path(), sha256="")
"""What stands in the place of an assembler where there is none; it is never run."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Another executable that we run: nvdisasm, cuobjdump.

    A `version` of several words tells two files apart; the first one is for people.
    """

    name: str
    version: str
    path: Path

    @property
    def label(self) -> str:
        """`nvdisasm 13.5.37`, or `nvdisasm bundled`: the one inside Triton."""
        return f"{self.name} {self.version.partition(' ')[0]}"


# The Python environment that a compiler lives in, as data: what a front end declares of it.


class PackagePin(msgspec.Struct, frozen=True, kw_only=True):
    """One package of the package index, in exactly one version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """All packages of one version of a compiler, and the Python that imports them.

    `kind` and `version` are the compiler's. `pins` are its packages, its own first, then its
    partners: nothing else is installed, whatever they ask for. `python` is a version of Python
    (`3.12`); empty for that of triage. `shared` are packages that are linked from triage's own
    environment, with all that they need, in place of hundreds of megabytes of another copy: torch,
    numpy. `imports` are the modules whose import proves that the packages go together.
    """

    kind: str
    version: str
    pins: tuple[PackagePin, ...]
    python: str = ""
    shared: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
