"""A matrix: which cells are run every night, which are left out, and what is expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.values.cell import LaunchLabel
from harness.values.kernel import Config, ConfigFilter, Scalar
from harness.values.target import Target
from harness.values.toolchain import BUNDLED
from harness.values.verdict import VerdictKind


class MatrixPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of cells before anything is captured.

    `compiler` is its kind (`ptx` where none is at work), `version` None where it has none.
    """

    kernel: str
    launch: str
    target: str
    compiler: str
    version: str | None


class Coordinates(MatrixPlace, frozen=True, kw_only=True):
    """A cell as selectors see it; `cell` is the whole id, the rest as in a row."""

    cell: str
    config: Config
    assembler: str
    ptxas: str | None
    ptxas_origin: str | None


class ToolRange(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of compiler or assembler, and those of its versions that are meant; None for all."""

    kind: str
    versions: SpecifierSet | None = None

    def has(self, kind: str, version: str | None) -> bool:
        """Whether this version of this kind is meant."""
        return kind == self.kind and _is_among(version, self.versions)


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Some of a matrix' cells: all that is given must hold.

    `kernel`, `launch`, `target` and `cell` are patterns as in a shell, the first three also
    several of them (`mamba2_*|fla_*`). `set` are overrides that the launch has (`chunk_size=32`).
    `compilers` and `assemblers` are kinds with their versions; `bundled` says whether the assembler
    must (or must not) be the one that the compiler bundles.
    """

    cell: str | None = None
    kernel: str | None = None
    launch: str | None = None
    target: str | None = None
    set: tuple[str, ...] = ()
    compilers: tuple[ToolRange, ...] = ()
    assemblers: tuple[ToolRange, ...] = ()
    bundled: bool | None = None
    config: ConfigFilter = msgspec.field(default_factory=ConfigFilter)

    def __str__(self) -> str:
        tools = [
            f"{tool.kind}{tool.versions or ''}" for tool in (*self.compilers, *self.assemblers)
        ]
        config = [f"{name}={'|'.join(values)}" for name, values in self.config.wanted]
        places = (self.cell, self.kernel, self.launch, self.target)
        return ", ".join(filter(None, (*places, *self.set, *tools, *config)))

    @property
    def is_known_early(self) -> bool:
        """Whether it is decided by what is known before anything is captured."""
        late = (self.cell, self.assemblers, self.bundled)
        return late == (None, (), None) and not self.config.wanted

    def matches(self, cell: Coordinates) -> bool:
        """Whether the cell is one of those meant."""
        return (
            self.matches_early(cell)
            and (self.cell is None or fnmatchcase(cell.cell, self.cell))
            and (self.bundled is None or self.bundled == (cell.ptxas_origin == BUNDLED))
            and all(choice.has(cell.assembler, cell.ptxas) for choice in self.assemblers)
            and self.config.matches(cell.config)
        )

    def names(self, kernel: str) -> bool:
        """Whether it may mean cells of this kernel, by its name."""
        return _is_like(self.kernel, kernel)

    def matches_early(self, place: MatrixPlace) -> bool:
        """As `matches`, as far as it can be decided before the configs are known."""
        # A launch's overrides and number are part of its label, not of its name.
        label = LaunchLabel.parse(place.launch)
        return (
            self.names(place.kernel)
            and _is_like(self.launch, place.launch, label.name)
            and _is_like(self.target, place.target)
            and all(word in label.overrides for word in self.set)
            and all(compiler.has(place.compiler, place.version) for compiler in self.compilers)
        )


def _is_like(patterns: str | None, *names: str) -> bool:
    """Whether one of the patterns, between `|`, is of one of the names; without any, all are."""
    return patterns is None or any(
        fnmatchcase(name, pattern.strip()) for pattern in patterns.split("|") for name in names
    )


@lru_cache(maxsize=4096)
def _is_among(version: str | None, specifiers: SpecifierSet | None) -> bool:
    if specifiers is None:
        return True
    try:
        # Pre-releases are chosen where versions are; here each that is run can be meant.
        return version is not None and specifiers.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


class VersionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions of a tool take part: the union of the specs.

    `newest_of_minor` keeps only the last release of each minor version (3.7.0, 3.7.1: 3.7.1).
    """

    specs: tuple[str, ...]
    prereleases: bool = False
    newest_of_minor: bool = False


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of compiler or assembler, and which of its versions: a specifier, or one."""

    kind: str
    spec: str


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that are left out, and why; `line` is where the file says so."""

    selector: Selector
    reason: str
    line: int | None = None


class MatrixVariant(msgspec.Struct, frozen=True, kw_only=True):
    """One config, listed by the tuner or not, and words that ptxas is given besides."""

    config: Config
    options: str | None = None


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """Cells beside the product of the lists: one kernel, with its own launch, values and versions.

    What is None (or empty) is as in the product. `variant` takes the place of the kernel's own
    configs.
    """

    kernel: str
    launch: str | None = None
    set: tuple[tuple[str, Scalar | None], ...] = ()
    config: ConfigFilter = msgspec.field(default_factory=ConfigFilter)
    targets: tuple[Target, ...] = ()
    compiler: ToolChoice | None = None
    assembler: ToolChoice | None = None
    variant: MatrixVariant | None = None
    line: int | None = None


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """Other limits for some cells: seconds and bytes for one compiler run, and how often to run."""

    selector: Selector
    timeout: float | None = None
    memory: int | None = None
    repeat: int | None = None
    line: int | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A known failure: `verdict` (and `signature`, where one is given) is what should happen."""

    selector: Selector
    verdict: VerdictKind
    signature: str | None = None
    issue: str | None = None
    line: int | None = None


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """All of `matrix.yaml`; `timeout` in seconds, `kernels` and `launches` are patterns.

    With `freeze_ptx` every ptxas gets the PTX that was made for the bundled one, byte for byte.
    `compilers` are versions of compilers besides Triton, by kind, and `assemblers` those of
    assemblers besides ptxas. `file` is where it was read,
    `lines` where in it an entry of a list stands (`kernels[0]`).
    """

    triton: VersionChoice
    ptxas: VersionChoice
    compilers: Mapping[str, VersionChoice] = {}
    assemblers: Mapping[str, VersionChoice] = {}
    targets: tuple[Target, ...]
    kernels: tuple[str, ...]
    launches: tuple[str, ...] = ()
    exclude: tuple[Excluded, ...] = ()
    include: tuple[Extra, ...] = ()
    overrides: tuple[Override, ...] = ()
    expect: tuple[Expectation, ...] = ()
    timeout: float = 300.0
    repeat: int = 1
    freeze_ptx: bool = True
    file: str = "matrix.yaml"
    lines: Mapping[str, int] = {}
