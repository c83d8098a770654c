"""Options of ptxas that change what it generates, as data, and which ptxas know them. Pure.

Which version knows an option is read from its own `--help`, never from a table of versions.

Sources: `ptxas --help`; "CUDA Compiler Driver NVCC", section "Assembler Options"; PTX ISA,
"Performance-Tuning Directives". That ptxas aims at the occupancy that a block's size (`.reqntid`,
`.maxntid`) permits, where no `.minnctapersm` says how many blocks are wanted, was observed: at 64
threads a kernel under pressure gets 32 registers on a GPU of 2,048 threads, 40 on one of 1,536, and
255 without `.reqntid`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from harness.values.errors import UsageError

# ptxas' flags, changed one at a time: the optimisation level, and what Triton may add.

_LEVELS = ("0", "1", "2", "3")
# What some Triton passes for some option or knob (`make_cubin` of its NVIDIA backend), besides the
# optimisation level and the target.
_INJECTED = ("-lineinfo", "-suppress-debug-info", "-g", "--fmad=false", "--regAllocOptLevel=2")
_OPTION, _VALUE = re.compile(r"--?[A-Za-z][\w-]*(?:=[\w.-]+)?"), re.compile(r"[\w.]+")
# What a cell has of its own: a GPU, a file to read and one to write.
_OF_CELLS = re.compile(r"(?:--?gpu-name|-arch|--?output-file|-o|--?input-as-string|-ias)(?:=|$)")
# Not a part of the compilation: what it prints, and for which GPU.
_KEPT = ("-v", "--verbose", "--gpu-name", "-arch")
_LEVEL_WORDS = ("--opt-level", "-O")
_LONG_NAME = re.compile(r"(--[\w-]+)(?: (\w+))?")


class FlagChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a command: `dropped` go, `added` come; `label` says it as a user would."""

    label: str
    dropped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def apply(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The flags after the change."""
        return (*(flag for flag in flags if flag not in self.dropped), *self.added)


def level_change(level: int) -> FlagChange:
    """Assemble at this optimisation level, 0 to 3, whatever the command says of it."""
    words = f"-O{level}"
    return FlagChange(label=words, dropped=tuple(f"-O{n}" for n in _LEVELS), added=(words,))


def single_changes(flags: Sequence[str]) -> list[FlagChange]:
    """Every change that is worth a try: each level, each flag without, each missing one with."""
    levels = tuple(_level_words(flags))
    changes = [
        FlagChange(label=f"-O{level}", dropped=levels, added=(f"-O{level}",)) for level in _LEVELS
    ]
    changes += [
        FlagChange(label=f"without {flag}", dropped=(flag,))
        for flag in dict.fromkeys(flags)
        if flag not in levels and flag.partition("=")[0] not in _KEPT
    ]
    changes += [
        FlagChange(label=f"with {flag}", added=(flag,)) for flag in _INJECTED if flag not in flags
    ]
    return changes


def _level_words(flags: Sequence[str]) -> Iterator[str]:
    """The words that set the level; it may be a word of its own behind `--opt-level`."""
    for index, flag in enumerate(flags):
        if flag.startswith(_LEVEL_WORDS):
            yield flag
            if flag in _LEVEL_WORDS and index + 1 < len(flags):
                yield flags[index + 1]


def read_options(text: str) -> tuple[str, ...]:
    """The words of options that a user gives to ptxas.

    Raises:
        UsageError: they are no options, or say what cells say: the GPU, the input, the output.
    """
    words = tuple(text.split())
    for before, word in pairwise(("", *words)):
        is_value = bool(before) and "=" not in before and _VALUE.fullmatch(word)
        if not (_OPTION.fullmatch(word) or is_value) or _OF_CELLS.match(word):
            raise UsageError(
                f"--set ptx_options={text[:80]}: {word[:40]!r} is not an option for code, "
                "like -O0 or --maxrregcount=64"
            )
    return words


class PtxasOption(msgspec.Struct, frozen=True, kw_only=True):
    """Words of a command line; `meaning` is for the user.

    With `lowers_optimisation`, the figures of the cubin do not tell what the code costs: less was
    done to it.
    """

    words: str
    meaning: str
    lowers_optimisation: bool = False

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        """The long names that `ptxas --help` has to list, each with its value; "" for none."""
        words = self.words.replace("-O", "--opt-level ") if self.words[:2] == "-O" else self.words
        return tuple(_LONG_NAME.findall(words))

    @property
    def change(self) -> FlagChange:
        """The option as a change of a command."""
        return FlagChange(label=self.words, added=tuple(self.words.split()))


_BLOCKS = "asks for {} per SM; ptxas aims at no higher occupancy, and may use more registers"
_REGISTERS = "allows {} registers per thread, over what the PTX says of the block's size"
_LEVEL = "optimises less (ptxas does -O3 by default)"

# Likely ones first: what asks for nothing but more registers, then what optimises less.
OPTIONS = tuple(
    PtxasOption(words=words, meaning=meaning, lowers_optimisation=lowers_optimisation)
    for words, meaning, lowers_optimisation in (
        ("--minnctapersm 1", _BLOCKS.format("one block"), False),
        ("--maxrregcount 255 --override-directive-values", _REGISTERS.format(255), False),
        ("-O1", _LEVEL, True),
        ("--Ofast-compile min", "compiles faster, with fewer expensive optimisations", True),
        ("--minnctapersm 2", _BLOCKS.format("two blocks"), False),
        ("--maxrregcount 128 --override-directive-values", _REGISTERS.format(128), False),
        (
            "--register-usage-level 10",
            "trades the most registers for generated code (5 is the default)",
            False,
        ),
        (
            "--register-usage-level 0",
            "keeps from optimisations that use more registers (5 is the default)",
            False,
        ),
        ("--Ofast-compile mid", "compiles faster, without expensive optimisations", True),
        ("--Ofast-compile max", "compiles as fast as ptxas can, with few optimisations", True),
        ("-O0", _LEVEL, True),
    )
)
_BY_WORDS = {option.change.added: option for option in OPTIONS}

# `--name <values>    (-short)`, at the beginning of a line.
_HELP_LINE = re.compile(r"^(--[\w-]+)(?:[ \t]+<([^>]*)>)?(?:,\.\.\.)?[ \t]+\(-", re.MULTILINE)
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def known_options(help_text: str) -> dict[str, str]:
    """The long names that a `ptxas --help` lists, each with the values that it takes, as written.

    `<0|min|mid|max>` is `0|min|mid|max`; an option without a value has "".
    """
    return {name: values or "" for name, values in _HELP_LINE.findall(help_text)}


def usable(option: PtxasOption, options: Mapping[str, str]) -> bool:
    """Whether a ptxas with these options knows this one, and the value that it is given."""
    return all(name in options and _takes(options[name], value) for name, value in option.needs)


def _takes(values: str, value: str) -> bool:
    """`0|min|mid|max` takes its words, `0..10` its numbers, all else (`N`) anything but nothing."""
    if limits := _RANGE.fullmatch(values):
        return value.isdecimal() and int(limits[1]) <= int(value) <= int(limits[2])
    return value in values.split("|") if "|" in values else bool(value) == bool(values)


def option_of(change: FlagChange | None) -> PtxasOption | None:
    """The option that a change of a command is, if it is one of these."""
    return _BY_WORDS.get(change.added) if change else None


def lowers_optimisation(change: FlagChange | None) -> bool:
    """Whether ptxas does less to the code after this change."""
    option = option_of(change)
    return option is not None and option.lowers_optimisation
