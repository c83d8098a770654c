"""ptxas' flags, changed one at a time: the optimisation level, and what Triton may add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LEVELS = ("0", "1", "2", "3")
# What some Triton passes for some option or knob (`make_cubin` of its NVIDIA backend), besides the
# optimisation level and the target.
_INJECTED = ("-lineinfo", "-suppress-debug-info", "-g", "--fmad=false", "--regAllocOptLevel=2")
# Not a part of the compilation: what it prints, and for which GPU.
_KEPT = ("-v", "--verbose", "--gpu-name", "-arch")
_LEVEL_WORDS = ("--opt-level", "-O")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagChange:
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
