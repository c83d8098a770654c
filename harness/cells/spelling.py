"""Commands as a user types them: what every command prints that leads on is spelled here. Pure."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from harness.values.cell import INPUTS, CellId, LaunchLabel
from harness.values.kernel import Config, ConfigFilter, PtxInputs
from harness.values.row import Facts
from harness.values.toolchain import (
    BUNDLED,
    EMULATOR,
    GPU,
    assembler_words,
    compiler_words,
    takes_cubins,
)


class OfLaunch(Protocol):
    """What is of a launch: a row, or what is kept of one."""

    @property
    def kernel(self) -> str:
        """Its kernel's name."""

    @property
    def launch(self) -> str:
        """The label of the launch."""


class SelectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as the user wrote them.

    `surroundings` are those that decide what launch code sees: `--pass-env NAME`, `--confine off`.
    """

    kernel: str = ""
    sm: Sequence[str] = ()
    triton: Sequence[str] = ()
    ptxas: Sequence[str] = ()
    launch: str | None = None
    set: Sequence[str] = ()
    config: str = ""
    freeze_ptx: bool = False
    compiler: Sequence[str] = ()
    assembler: Sequence[str] = ()
    formal: bool = False
    surroundings: Sequence[str] = ()

    @property
    def filter(self) -> ConfigFilter:
        """What `--config` lets through.

        Raises:
            UsageError: it cannot be read.
        """
        return ConfigFilter.parse(self.config)


def spell_command(verb: str, words: SelectionOptions | None = None, *more: str) -> str:
    """The line for a shell; `words` select the cells, `more` are options of this verb."""
    return shlex.join(["triage", *verb.split(), *(spelled(words) if words else ()), *more])


def execution_words(*, run: bool, on: str | None = None) -> list[str]:
    """The options by which a verb executes; `--on` alone does where cubins are."""
    return ["--run", "--on", str(on)] if takes_cubins(on) else ["--run"] if run else []


_INPUTS = {
    "--buffer": "buffers",
    "--scalar": "scalars",
    "--expect": "expect",
    "--grid": "grid",
    "--block": "block",
    "--shared": "shared",
    "--inputs": "launch",
}
"""The options that say what a file of PTX is launched with, and the fields of `PtxInputs`."""


def inputs_words(inputs: PtxInputs) -> list[str]:
    """The options that say what a file of PTX is launched with."""
    line: list[str] = []
    for option, name in _INPUTS.items():
        value = getattr(inputs, name)
        values = value if isinstance(value, tuple) else () if value is None else (str(value),)
        line += [word for each in values for word in (option, each)]
    return line


def inputs_in(command: str) -> PtxInputs:
    """What a command line says of the launch of a file of PTX; a ValueError: it is none."""
    found: dict[str, Any] = {}
    words = [
        part
        for word in shlex.split(command)
        for part in (word.split("=", 1) if word.startswith("--") else [word])
    ]
    for option, value in itertools.pairwise(words):
        if name := _INPUTS.get(option):
            is_listed = isinstance(getattr(PtxInputs(), name), tuple)
            found[name] = (*found.get(name, ()), value) if is_listed else value
    return msgspec.convert(found, PtxInputs, strict=False)


def show_command(short: str, stage: str | None = None) -> str:
    """The command that prints what is kept of a cell."""
    return spell_command("show", None, short, *(["--stage", stage] if stage else []))


def spelled(words: SelectionOptions) -> list[str]:
    """The options that select the cells, as they are written on a command line."""
    line = ["--kernel", words.kernel]
    for name, values in (
        ("--sm", words.sm),
        ("--triton", words.triton),
        ("--compiler", words.compiler),
        ("--ptxas", words.ptxas),
        ("--assembler", words.assembler),
        ("--set", words.set),
    ):
        for value in values:
            line += [name, value]
    line += ["--launch", words.launch] if words.launch else []
    line += ["--config", words.config] if words.config else []
    line += ["--freeze-ptx"] if words.freeze_ptx else []
    line += ["--formal"] if words.formal else []
    return [*line, *words.surroundings]


def words_of(row: Facts, others: Iterable[OfLaunch] = ()) -> SelectionOptions:
    """What selects the cell of a stored row, and no other, as far as the `others` are known."""
    launch = LaunchLabel.parse(row.launch)
    # What a file of PTX is launched with are options of their own.
    overrides = [each for each in launch.overrides if row.compiler or not each.startswith(INPUTS)]
    beside = {other.launch for other in others if other.kernel == row.kernel}
    is_numbered = launch.number > 1 or bool(beside - {row.launch})
    name = f"{launch.name}#{launch.number}" if is_numbered else launch.name
    words = SelectionOptions(
        kernel=row.kernel,
        sm=[row.target],
        launch=name if row.compiler else "",
        set=overrides,
        # Raw PTX has no configs.
        config=only(Config.of(dict(row.config))) if row.compiler else "",
        freeze_ptx=row.frozen,
    )
    words = on_compiler(words, row.compiler, row.compiler_version)
    is_named = row.ptxas_origin not in (BUNDLED, EMULATOR, GPU)
    return on_assembler(words, row.assembler, row.ptxas if is_named else None)


def on_compiler(words: SelectionOptions, kind: str | None, version: str | None) -> SelectionOptions:
    """The same with this version of a compiler, `latest` or a specifier; none for raw PTX."""
    option, *value = compiler_words(kind, version) or [""]
    is_triton = option == "--triton"
    return replace(words, triton=value if is_triton else (), compiler=() if is_triton else value)


def on_assembler(
    words: SelectionOptions, kind: str | None, version: str | None
) -> SelectionOptions:
    """The same with this version of an assembler; None: the one that the compiler brings along.

    That one takes the PTX that is generated for it, so that there is nothing to freeze.
    """
    option, *value = (assembler_words(kind, version) if kind and version else []) or [""]
    is_ptxas = option == "--ptxas"
    return replace(
        words,
        ptxas=value if is_ptxas else (),
        assembler=() if is_ptxas else value,
        freeze_ptx=words.freeze_ptx and bool(value),
    )


def only(config: Config, names: Iterable[str] | None = None) -> str:
    """The `--config` that means this one only.

    `names` are those that any config beside it has (None: not known); what it lacks is `none`.
    """
    own = config.as_dict()
    unset = ["*"] if names is None else [name for name in dict.fromkeys(names) if name not in own]
    label = [config.label] if config.items else []
    return ",".join([*label, *(f"{name}=none" for name in unset)])


def among(words: SelectionOptions, cell: CellId, others: Sequence[CellId]) -> SelectionOptions:
    """The same, where it means one cell of several; what none of the `others` has stays unsaid."""
    if not others:
        return words
    label = LaunchLabel.parse(cell.launch)
    is_of_several = any(other.kernel != cell.kernel for other in others)
    is_numbered = any(other.launch != cell.launch for other in others)
    return replace(
        words,
        kernel=cell.kernel if is_of_several else words.kernel,
        launch=f"{label.name}#{label.number}" if is_numbered else words.launch,
        config=only(cell.config, sorted({n for other in others for n, _ in other.config.items})),
    )


# What a run is for: the words of its command that choose its cells, without those on how to work.
# Which options those are is declared where they are declared: the command line registers who knows.

Silent = Callable[[Sequence[str]], Mapping[str, bool]]
"""From a command's words to its options that choose no cells, and whether a value follows each."""

_KNOWN: list[Silent] = []


def silence_with(silent: Silent) -> None:
    """Who knows the options of a command; the last one counts."""
    _KNOWN[:] = [silent]


def purpose_of(command: str) -> tuple[str, ...]:
    """The words of a command that choose its cells: those of two nights of one kind are equal."""
    words = shlex.split(command)
    silent = _KNOWN[0](words) if _KNOWN else {}
    purpose = []
    following = iter(words)
    for word in following:
        name, equals, _ = word.partition("=")
        if name not in silent:
            purpose.append(word)
        elif silent[name] and not equals:
            next(following, None)
    return tuple(purpose)
