"""What is compiled: repros, launches and configs."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path

import msgspec

from harness.values.errors import UsageError
from harness.values.toolchain import PTX, TRITON

Scalar = bool | int | float | str

_WORD = re.compile(r"[\w.:+/@-]+")
_OTHERS = "*"
_ARTICLES = {int: "an integer", float: "a number", bool: "true or false"}
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|.', re.DOTALL)


class Pin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the package index: a distribution, its version and the file's sha256."""

    package: str
    version: str
    sha256: str


class KernelSource(Pin, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a kernel's code comes from: a pinned sdist, and the module in it that is wanted."""

    module: str


class LaunchParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A keyword of a launch function; its default fixes its type.

    Where the default is an expression, `default` is its text and the parameter is not `settable`;
    nor is an option that a half-compiled file has fixed.
    """

    name: str
    default: Scalar | None
    settable: bool = True

    def read(self, text: str) -> Scalar | None:
        """Read a value given on the command line; where the default is None, guess its type.

        Raises:
            UsageError: the text does not have the type of the default, or nothing can be set.
        """
        if not self.settable and not isinstance(self.default, str):
            raise UsageError(f"--set {self.name}: the file itself fixes it to {self.default}")
        if not self.settable:
            raise UsageError(
                f"--set {self.name}: its default {self.default} is not a number, a text or a truth "
                "value, so it cannot be set here; write a launch function of your own"
            )
        kind = type(self.default)
        try:
            if kind is bool:
                return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            if kind is int:
                return _integer(text)
            if kind is float:
                return float(text)
        except (KeyError, ValueError):
            raise UsageError(
                f"--set {self.name}={text[:80]}: expected {_ARTICLES[kind]}, "
                f"like its default {self.default!r}"
            ) from None
        return text if kind is str else _guess(text)


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError(text)
    return int(text, 0)


def _guess(text: str) -> Scalar | None:
    """The value for a parameter whose default, None, says nothing of its type."""
    words: dict[str, bool | None] = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return _integer(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One way to come to a kernel.

    A launch function of a Python file (`function` is None for a script run as `__main__`), or what
    a compiler left half-way: `file` is the IR or PTX to go on from, `parameters` its options.
    """

    name: str
    function: str | None
    parameters: tuple[LaunchParameter, ...] = ()
    line: int = 1
    file: Path | None = None

    @property
    def from_ptx(self) -> bool:
        """Whether it goes on from PTX: no Triton has a part in it."""
        return self.file is not None and self.file.suffix == ".ptx"


class Operation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole that a kernel is a part of: a launch of a repro, small enough to be interpreted.

    Its inputs do not depend on the tunable parameters, and it returns all that it computes.
    """

    kernel: str
    launch: str | None = None
    parameters: dict[str, Scalar] = {}


EMULATED = "emulated"
"""As what a buffer must hold: whatever the emulated PTX leaves."""

LAUNCH_INPUTS = "launch.json"
"""The file in which a reduction writes what its PTX is launched with."""


class PtxInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What raw PTX is launched with, as the options of `triage run` spell it.

    `launch` is a file of JSON with all of it; files that are named lie in `folder`.
    """

    buffers: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    grid: str | None = None
    block: str | None = None
    shared: int | None = None
    launch: str | None = None
    folder: str = ""


class ReportNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What people know of a bug and a program does not, for its reports.

    `construct` (what goes wrong, for the title), `cause` and `rule` (a sentence of a specification)
    are said by hand; `related` are issues and what tells them apart; `measured` is what a GPU
    showed. `same_as` is an open issue (`owner/name#1`) with the same message: then the report is a
    comment for it. `as_given` says that the kernel is as small as a reader wants it, so that a
    report does not reduce it; `invalid` that the input breaks the `rule`, so that an error message
    is all that is expected.
    """

    construct: str = ""
    cause: str = ""
    rule: str = ""
    related: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    same_as: str = ""
    as_given: bool = False
    invalid: bool = False


class Repro(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that can be compiled: its name here, its function's name, its launch code.

    `kernel` is None where every kernel that the file launches is meant. `compiler` is the kind of
    its front end; `version` (of the compiler) and `targets` are what the upstream issue names: the
    default. `group` is the repro's folder, which several kernels may share. `check` are parameters
    of the launch that make it small enough for Triton's interpreter. `configs` is how many its
    author counted, with the default launch, version and (first) target. `tunable` are parameters of
    the launch that a user is free to choose, with values to choose from; what that does to the
    results shows in the `operation`. `reference` is a function of `reference.py` in the folder that
    computes what the kernel must write, `baseline` one that computes it as another implementation
    does, in the tensors' own types. `inputs` are those of raw PTX, `report` what its reports say by
    hand. `macros` are values by name
    that a file is compiled with: each combination is a config.
    """

    name: str
    group: str = ""
    kernel: str | None
    folder: Path
    file: Path
    launches: tuple[LaunchSpec, ...] = ()
    source: KernelSource | None = None
    requires: tuple[Pin, ...] = ()
    issue: str | None = None
    summary: str = ""
    compiler: str = TRITON
    version: str | None = None
    targets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    check: tuple[tuple[str, Scalar], ...] = ()
    configs: int | None = None
    tunable: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    operation: Operation | None = None
    reference: str | None = None
    baseline: str | None = None
    inputs: PtxInputs | None = None
    report: ReportNotes | None = None
    macros: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()

    @property
    def is_several(self) -> bool:
        """Whether it may be several kernels: a file's, or those that a pattern in its name matches.

        The name of a kernel may hold such signs, too: `scale<float*>`.
        """
        if self.kernel is None:
            return True
        is_asked_for = self.name.endswith(f"::{self.kernel}")
        return is_asked_for and any(sign in self.kernel for sign in "*?[")

    @property
    def front_end(self) -> str:
        """The kind of the front end that plans its launches."""
        return PTX if self.ptx else self.compiler

    @property
    def ptx(self) -> Path | None:
        """The PTX file, where its one launch is to assemble that."""
        return (
            self.launches[0].file if [spec.from_ptx for spec in self.launches] == [True] else None
        )


class Config(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One tuning point: meta-parameters and options, in the order in which the tuner names them."""

    items: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    def of(cls, values: dict[str, Scalar]) -> Config:
        """The config with these values."""
        return cls(items=tuple(values.items()))

    def as_dict(self) -> dict[str, Scalar]:
        """Name to value, in the tuner's order."""
        return dict(self.items)

    @cached_property
    def label(self) -> str:
        """As in a cell id: `num_warps=4,num_stages=1`; a launch without any says `default`."""
        return ",".join(map("=".join, self.parts)) or "default"

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Names and values as the label spells them."""
        return [(name, _spell(value)) for name, value in self.items]


def _spell(value: Scalar) -> str:
    """A text as it is, unless it could be taken for another value or for several."""
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _WORD.fullmatch(value) and not _is_json(value) else json.dumps(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return text == "none"
    return True


class ConfigFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`num_warps=4,maxnreg=none`: the configs that have all of these values.

    `none` matches an unset value; `1|2` either of two; `*` stands for each name that the filter
    does not have. A text in double quotes, as `Config.label` spells it, may hold commas and bars.
    """

    wanted: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def parse(cls, text: str) -> ConfigFilter:
        """Read the filter.

        Raises:
            UsageError: a part is not `name=value`.
        """
        filters: dict[str, tuple[str, ...]] = {}
        for part in filter(None, (piece.strip() for piece in _split(text, ","))):
            name, equals, value = (word.strip() for word in part.partition("="))
            values = tuple(word.strip().lower() for word in _split(value, "|"))
            if not equals or not name or not all(values):
                raise UsageError(
                    f"--config {text!r}: {part!r} is not name=value; "
                    "write for example num_warps=4,maxnreg=none"
                )
            if name in filters:
                raise UsageError(
                    f"--config {text!r}: {name} twice; for either of two values write "
                    f"{name}={'|'.join([*filters[name], *values])}"
                )
            filters[name] = values
        return cls(wanted=tuple(filters.items()))

    def matches(self, config: Config) -> bool:
        """Whether this config has all the values."""
        values = {
            name: {_spell(value).lower(), str(value).lower(), json.dumps(value).lower()}
            for name, value in config.items
        }
        filters = dict(self.wanted)
        others = set(filters.pop(_OTHERS, ()))
        if others and not all(values[name] & others for name in values.keys() - filters.keys()):
            return False
        return all(values.get(name, {"none"}) & set(allowed) for name, allowed in filters.items())


def _split(text: str, mark: str) -> list[str]:
    """The pieces between marks that are not within a quoted text; a lone quote is a character."""
    pieces = [""]
    for piece in _PIECE.findall(text):
        if piece == mark:
            pieces.append("")
        else:
            pieces[-1] += piece
    return pieces
