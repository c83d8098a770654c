"""Inputs of raw PTX as they are written on a command line, and guesses where they are not. Pure.

`--buffer NAME=DTYPE[N]` with `:VALUE`, `:random` or `:FILE.npy` behind it; `--scalar NAME=VALUE`.
NAME is a parameter of the entry, or its number; any other name takes the next parameter of its kind
that has no name yet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_emulator.values import LARGEST_SIZES, MOST_THREADS
from harness.run.entry import Entry, EntryParameter
from harness.run.numbers.scalars import ELEMENTS, pack_float, pack_integer
from harness.values.errors import UsageError

_BUFFER = re.compile(
    r"(?P<name>[\w$%.]+)=(?P<type>\w+)\[(?P<count>\d*)\](?::(?P<fill>.+))?", re.DOTALL
)
_POINTER_BYTES = 8
LARGEST = 1 << 28
"""No buffer has more bytes."""

_GUESSED_ELEMENTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferWords:
    """A buffer: `count` elements (None: as many as the file has) that begin as `fill` says.

    `fill` is a number for all of them, `random`, the path of an `.npy` file, or empty: zeros.
    """

    name: str
    type: str
    count: int | None
    fill: str = ""

    def __str__(self) -> str:
        count = "" if self.count is None else self.count
        return f"{self.name}={self.type}[{count}]" + (f":{self.fill}" if self.fill else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawArgument:
    """What a parameter gets: a buffer or the text of a number; `is_guess`: the user did not say so.

    `name` is the user's for it.
    """

    name: str
    parameter: EntryParameter
    buffer: BufferWords | None = None
    scalar: str = ""
    is_guess: bool = False

    @property
    def words(self) -> str:
        """As the option that would say so."""
        if self.buffer:
            return f"--buffer {self.buffer}"
        return f"--scalar {self.parameter.name}={self.scalar}"


def read_buffer(text: str) -> BufferWords:
    """Read `NAME=DTYPE[N]:FILL`.

    Raises:
        UsageError: it is none.
    """
    found = _BUFFER.fullmatch(text)
    if not found:
        raise UsageError(
            f"--buffer {text}: write NAME=DTYPE[N], for example out=u32[128], x=f32[64]:random, "
            "y=f32[64]:0x3f800000 or z=f16[64]:z.npy"
        )
    if found["type"] not in ELEMENTS:
        known = ", ".join(ELEMENTS)
        raise UsageError(f"--buffer {text}: no type {found['type']!r}; known are {known}")
    fill = found["fill"] or ""
    count = int(found["count"]) if found["count"] else None
    if count is None and not fill.endswith(".npy"):
        raise UsageError(f"--buffer {text}: say how many elements, for example {found['type']}[64]")
    if count is not None and count * ELEMENTS[found["type"]].itemsize > LARGEST:
        raise UsageError(f"--buffer {text}: more than {LARGEST >> 20} MiB are too large")
    return BufferWords(name=found["name"], type=found["type"], count=count, fill=fill)


def read_sizes(option: str, text: str) -> tuple[int, int, int]:
    """Read `X[,Y[,Z]]` of a grid or a block, each at least 1 and at most what a driver takes.

    Raises:
        UsageError: it is none.
    """
    words = [word.strip() for word in re.split(r"[,x]", text)]
    if not 1 <= len(words) <= 3 or not all(word.isdecimal() and int(word) for word in words):
        raise UsageError(f"{option} {text}: write X[,Y[,Z]], each at least 1, for example 4,2")
    x, y, z = (*map(int, words), 1, 1, 1)[:3]
    what = option.lstrip("-")
    if any(size > most for size, most in zip((x, y, z), LARGEST_SIZES[what], strict=True)):
        largest = ",".join(map(str, LARGEST_SIZES[what]))
        raise UsageError(f"{option} {text}: no GPU takes so large a {what}: at most {largest}")
    if what == "block" and x * y * z > MOST_THREADS:
        raise UsageError(
            f"{option} {text}: {x * y * z:,} threads, and a block has at most {MOST_THREADS:,}"
        )
    return x, y, z


def assign(
    entry: Entry,
    ptx: str,
    buffers: Sequence[BufferWords],
    scalars: Sequence[tuple[str, str]],
    threads: int,
) -> list[RawArgument]:
    """What each parameter of the entry gets; what the user does not say is guessed.

    A pointer is guessed to be a buffer of random bits, an integer to be the number of `threads` of
    the launch, any other number to be 1.

    Raises:
        UsageError: more is given than there are parameters, or one is named twice.
    """
    given: dict[int, RawArgument] = {}
    left: list[tuple[str, BufferWords | None, str]] = []
    everything: list[tuple[str, BufferWords | None, str]] = [
        *((buffer.name, buffer, "") for buffer in buffers),
        *((name, None, text) for name, text in scalars),
    ]
    for name, buffer, text in everything:
        place = _place_of(name, entry)
        if place is None:
            left.append((name, buffer, text))
        elif place in given:
            raise UsageError(f"{name} is given twice")
        else:
            given[place] = _argument(name, entry.parameters[place], buffer, text)
    for name, buffer, text in left:
        place = next(
            (
                n
                for n, each in enumerate(entry.parameters)
                if n not in given
                and (buffer is None or _may_point(each))
                and (buffer is not None or not _points(each, ptx))
            ),
            None,
        )
        if place is None:
            names = ", ".join(each.name for each in entry.parameters) or "none"
            raise UsageError(f"{name}: no parameter of {entry.name} is left; it has {names}")
        given[place] = _argument(name, entry.parameters[place], buffer, text)
    return [given.get(n) or _guess(each, ptx, threads) for n, each in enumerate(entry.parameters)]


def _place_of(name: str, entry: Entry) -> int | None:
    names = [each.name for each in entry.parameters]
    if name in names:
        return names.index(name)
    return int(name) if name.isdecimal() and int(name) < len(names) else None


def _argument(
    name: str, parameter: EntryParameter, buffer: BufferWords | None, text: str
) -> RawArgument:
    if buffer is not None and not _may_point(parameter):
        raise UsageError(
            f"--buffer {buffer}: the parameter `{parameter.words}` is not a pointer; use --scalar"
        )
    return RawArgument(name=name, parameter=parameter, buffer=buffer, scalar=text)


def _may_point(parameter: EntryParameter) -> bool:
    return (
        parameter.size == _POINTER_BYTES and parameter.count is None and (parameter.type[0] in "ub")
    )


def _points(parameter: EntryParameter, ptx: str) -> bool:
    """Whether the text takes a parameter for an address."""
    if parameter.is_pointer:
        return True
    if not _may_point(parameter):
        return False
    name = re.escape(parameter.name)
    for found in re.finditer(rf"ld\.param\.\w+\s+(%\w+)\s*,\s*\[\s*{name}\s*\]", ptx):
        register = re.escape(found[1])
        if re.search(rf"cvta[\w.:]*\s+%\w+\s*,\s*{register}\b|\[\s*{register}\b", ptx):
            return True
    return False


def _guess(parameter: EntryParameter, ptx: str, threads: int) -> RawArgument:
    if _points(parameter, ptx):
        buffer = BufferWords(
            name=parameter.name, type="u32", count=_GUESSED_ELEMENTS, fill="random"
        )
        return RawArgument(name=parameter.name, parameter=parameter, buffer=buffer, is_guess=True)
    if parameter.count is not None:
        raise UsageError(
            f"the parameter `{parameter.words}` is passed by value; such cannot be given here yet"
        )
    is_count = parameter.type[0] in "usb" and parameter.size >= 4
    return RawArgument(
        name=parameter.name,
        parameter=parameter,
        scalar=str(min(threads, (1 << (8 * parameter.size - 1)) - 1)) if is_count else "1",
        is_guess=True,
    )


def pack_scalar(parameter: EntryParameter, text: str) -> bytes:
    """A number as the parameter holds it; `0x...` is its bits.

    Raises:
        UsageError: it is not a number, or too large.
    """
    said = f"--scalar {parameter.name}={text}"
    try:
        if text.lower().startswith("0x"):
            return pack_integer(int(text, 16), parameter.size)
        if parameter.type in ("f16", "bf16", "f32", "f64"):
            return pack_float(float(text), parameter.type)
        return pack_integer(int(text, 0), parameter.size)
    except ValueError as error:
        raise UsageError(f"{said}: no number that fits `{parameter.words}` ({error})") from error
