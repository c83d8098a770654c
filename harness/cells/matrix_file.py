"""`matrix.yaml`: where it is found, what may stand in it, and what it says as a `Matrix`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import yaml
from msgspec import Meta

import harness
from harness.cells.matrix_rules import make_selector, read_specifiers, read_tool
from harness.io.files.reading import FieldError, read_located
from harness.io.packages.versions import LATEST
from harness.values.errors import UsageError
from harness.values.kernel import ConfigFilter
from harness.values.matrix import (
    Excluded,
    Expectation,
    Extra,
    Matrix,
    Override,
    Selector,
    ToolChoice,
    VersionChoice,
)
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, INSTALLED, PTXAS, TRITON
from harness.values.verdict import VerdictKind

FILE = "matrix.yaml"

_GIB = 1 << 30
_SIGNATURE = re.compile(r"[0-9a-f]{12}")

T = TypeVar("T")

_Text = Annotated[str, Meta(min_length=1)]
_Texts = _Text | list[_Text]
_Seconds = Annotated[float, Meta(gt=0, le=86400)]
_GiB = Annotated[float, Meta(gt=0, le=4096)]
_Times = Annotated[int, Meta(ge=1, le=100)]


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    """Versions of a tool: specifiers over what the package index has (or `latest`, or one)."""

    spec: _Texts
    prereleases: bool = False
    newest_of_minor: bool = False


class _Toolchains(msgspec.Struct, forbid_unknown_fields=True):
    """`compilers` and `assemblers` are those of other front ends, by kind."""

    triton: _Choice = msgspec.field(default_factory=lambda: _Choice(spec=INSTALLED))
    ptxas: _Choice = msgspec.field(default_factory=lambda: _Choice(spec=BUNDLED))
    compilers: dict[str, _Choice] = {}
    assemblers: dict[str, _Choice] = {}


class _When(msgspec.Struct, forbid_unknown_fields=True):
    """All that is given must hold; patterns as in a shell, specifiers of versions.

    `compiler` and `assembler` are a kind, alone or with versions: `nvcc`, `nvcc>=13`.
    """

    cell: _Text | None = None
    launch: _Text | None = None
    target: _Text | None = None
    triton: _Text | None = None
    ptxas: _Text | None = None
    compiler: _Text | None = None
    assembler: _Text | None = None
    config: str = ""


class _Exclude(_When, forbid_unknown_fields=True, kw_only=True):
    reason: _Text
    kernel: _Text | None = None


class _Include(msgspec.Struct, forbid_unknown_fields=True):
    """Cells beside the product; what is left out is as in the product."""

    kernel: _Text
    launch: _Text | None = None
    set: dict[str, bool | int | float | str | None] = {}
    config: str = ""
    target: _Texts = []
    triton: _Text | None = None
    ptxas: _Text | None = None
    compiler: _Text | None = None
    assembler: _Text | None = None


class _Override(_When, forbid_unknown_fields=True, kw_only=True):
    """Other limits: seconds and GiB for one compiler run, and how often each cell is run."""

    kernel: _Text | None = None
    timeout: _Seconds | None = None
    memory: _GiB | None = None
    repeat: _Times | None = None


class _Expect(msgspec.Struct, forbid_unknown_fields=True):
    """A known failure."""

    kernel: _Text
    verdict: VerdictKind
    when: _When = msgspec.field(default_factory=_When)
    signature: _Text | None = None
    issue: _Text | None = None


class _Defaults(msgspec.Struct, forbid_unknown_fields=True):
    timeout: _Seconds = 300.0
    repeat: _Times = 1
    freeze_ptx: bool = True


class _MatrixFile(msgspec.Struct, forbid_unknown_fields=True):
    """Which kernels are compiled with what, what is left out, and what is expected."""

    version: Literal[1]
    targets: Annotated[list[_Text], Meta(min_length=1)]
    kernels: Annotated[list[_Text], Meta(min_length=1)]
    toolchains: _Toolchains = msgspec.field(default_factory=_Toolchains)
    launches: list[_Text] = []
    exclude: list[_Exclude] = []
    include: list[_Include] = []
    overrides: list[_Override] = []
    expect: list[_Expect] = []
    defaults: _Defaults = msgspec.field(default_factory=_Defaults)


def find_matrix_file() -> Path:
    """The user's own `./matrix.yaml`, else the one that comes with triage.

    Raises:
        UsageError: there is neither.
    """
    package = Path(harness.__file__).parent
    for path in (Path(FILE), package / "data" / FILE, package.parent / FILE):
        if path.is_file():
            return path
    raise UsageError(f"there is no {FILE} here; write one, or name it with --matrix")


def first_matrix(targets: Sequence[Target], kernels: Sequence[str]) -> str:
    """The text of a matrix of these, with the Triton that is installed and the ptxas in it."""
    document = {
        "version": 1,
        "targets": [str(target) for target in targets],
        "kernels": list(kernels),
        "toolchains": {TRITON: {"spec": INSTALLED}, PTXAS: {"spec": BUNDLED}},
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None)


def matrix_schema() -> dict[str, Any]:
    """The JSON schema of `matrix.yaml`, for editors."""
    schema = msgspec.json.schema(_MatrixFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FILE, **schema}


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file.

    Raises:
        ConfigurationError: what is wrong with it, with file, line and key.
    """
    data, line = read_located(path, _MatrixFile, lambda data: _Meaning(data).matrix(""))
    return _Meaning(data, line).matrix(str(path))


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A file's words as values; each that makes no sense is a `FieldError`."""

    data: _MatrixFile
    line: Callable[[str], int] = lambda where: 0  # noqa: ARG005

    def matrix(self, file: str) -> Matrix:
        data = self.data
        lists = {"kernels": data.kernels, "launches": data.launches, "targets": data.targets}
        lines = {
            f"{name}[{index}]": self.line(f"$.{name}[{index}]")
            for name, rules in lists.items()
            for index in range(len(rules))
        }
        lines |= {
            f"toolchains.{tool}": self.line(f"$.toolchains.{tool}") for tool in ("triton", "ptxas")
        }
        return Matrix(
            triton=self._versions("triton", data.toolchains.triton, (INSTALLED, LATEST)),
            ptxas=self._versions("ptxas", data.toolchains.ptxas, (BUNDLED, LATEST)),
            compilers={
                kind: self._versions(f"compilers.{kind}", choice, (INSTALLED, LATEST))
                for kind, choice in data.toolchains.compilers.items()
            },
            assemblers={
                kind: self._versions(f"assemblers.{kind}", choice, (BUNDLED, LATEST))
                for kind, choice in data.toolchains.assemblers.items()
            },
            targets=tuple(
                _meant(f"$.targets[{index}]", Target.parse, text)
                for index, text in enumerate(data.targets)
            ),
            kernels=tuple(data.kernels),
            launches=tuple(data.launches),
            exclude=tuple(self._excluded(index) for index in range(len(data.exclude))),
            include=tuple(self._extra(index) for index in range(len(data.include))),
            overrides=tuple(self._override(index) for index in range(len(data.overrides))),
            expect=tuple(self._expectation(index) for index in range(len(data.expect))),
            timeout=data.defaults.timeout,
            repeat=data.defaults.repeat,
            freeze_ptx=data.defaults.freeze_ptx,
            file=file,
            lines=lines,
        )

    def _versions(self, tool: str, choice: _Choice, words: tuple[str, ...]) -> VersionChoice:
        specs = _several(choice.spec)
        where = f"$.toolchains.{tool}.spec"
        if not specs:
            raise FieldError(where, "the list is empty")
        for index, spec in enumerate(specs):
            place = where if isinstance(choice.spec, str) else f"{where}[{index}]"
            if spec not in words:
                _meant(place, read_specifiers, spec)
        return VersionChoice(
            specs=specs, prereleases=choice.prereleases, newest_of_minor=choice.newest_of_minor
        )

    def _excluded(self, index: int) -> Excluded:
        where, entry = f"$.exclude[{index}]", self.data.exclude[index]
        selector = self._selector(where, entry, entry.kernel)
        if selector == Selector():
            raise FieldError(where, "it excludes everything; say which cells are meant")
        return Excluded(selector=selector, reason=entry.reason, line=self.line(where))

    def _extra(self, index: int) -> Extra:
        where, entry = f"$.include[{index}]", self.data.include[index]
        self._selector(where, entry, entry.kernel)
        return Extra(
            kernel=entry.kernel,
            launch=entry.launch,
            set=tuple(entry.set.items()),
            config=_meant(f"{where}.config", ConfigFilter.parse, entry.config),
            targets=tuple(
                _meant(f"{where}.target", Target.parse, text) for text in _several(entry.target)
            ),
            compiler=_chosen(f"{where}.compiler", TRITON, entry.triton, entry.compiler),
            assembler=_chosen(f"{where}.assembler", PTXAS, entry.ptxas, entry.assembler),
            line=self.line(where),
        )

    def _override(self, index: int) -> Override:
        where, entry = f"$.overrides[{index}]", self.data.overrides[index]
        if (entry.timeout, entry.memory, entry.repeat) == (None, None, None):
            raise FieldError(where, "it overrides nothing; give timeout, memory or repeat")
        selector = self._selector(where, entry, entry.kernel)
        if selector == Selector():
            raise FieldError(where, "it overrides for every cell; say which are meant, or defaults")
        return Override(
            selector=selector,
            timeout=entry.timeout,
            memory=int(entry.memory * _GIB) if entry.memory else None,
            repeat=entry.repeat,
            line=self.line(where),
        )

    def _expectation(self, index: int) -> Expectation:
        where, entry = f"$.expect[{index}]", self.data.expect[index]
        if entry.signature and not _SIGNATURE.fullmatch(entry.signature):
            complaint = f"{entry.signature[:40]!r} is not 12 hex digits"
            raise FieldError(f"{where}.signature", complaint)
        return Expectation(
            selector=self._selector(f"{where}.when", entry.when, entry.kernel, f"{where}.kernel"),
            verdict=entry.verdict,
            signature=entry.signature,
            issue=entry.issue,
            line=self.line(where),
        )

    def _selector(
        self, where: str, entry: _When | _Include, kernel: str | None, kernel_at: str = ""
    ) -> Selector:
        """All parts together; each alone first, so that a complaint names its line."""
        parts = {
            "kernel": kernel,
            "launch": entry.launch,
            "target": entry.target if isinstance(entry.target, str) else None,
            "triton": entry.triton,
            "ptxas": entry.ptxas,
            "compiler": entry.compiler,
            "assembler": entry.assembler,
            "config": entry.config,
        }
        for name, text in parts.items():
            place = kernel_at if name == "kernel" and kernel_at else f"{where}.{name}"
            if text:
                _meant(place, partial(make_selector, **{name: text}))
        return make_selector(cell=entry.cell if isinstance(entry, _When) else None, **parts)


def _chosen(where: str, kind: str, versions: str | None, tool: str | None) -> ToolChoice | None:
    if versions and tool:
        raise FieldError(where, f"give {kind} or this, not both")
    if versions:
        return ToolChoice(kind=kind, spec=versions)
    named = _meant(where, read_tool, tool) if tool else None
    if named and named.versions is None:
        raise FieldError(where, f"say which version of {named.kind}")
    return ToolChoice(kind=named.kind, spec=str(named.versions)) if named else None


def _several(texts: str | list[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _meant(where: str, read: Callable[..., T], *words: str) -> T:
    try:
        return read(*words)
    except UsageError as error:
        raise FieldError(where, str(error).removeprefix("--config ")) from error
