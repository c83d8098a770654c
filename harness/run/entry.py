"""What an entry of a PTX module takes: its parameters, its block, its target. Pure.

Source: PTX ISA, "Kernel and Function Directives" and "Parameterized State Space".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_emulator.ptx.text.document import StatementKind, parse, read_head

_SIZES = {
    **{f"{kind}{bits}": bits // 8 for kind in "usb" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "f16x2": 4,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
}
_TYPE = re.compile(r"\.(?P<type>[usbf]\d+|bf16|f16x2|b128)(?![\w.])")
_COUNT = re.compile(r"\[\s*(\d+)\s*\]\s*\Z")
_REQNTID = re.compile(r"\.reqntid\s+([\d\s,]+)")


class EntryError(ValueError):
    """The module has no such entry, or its parameters cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryParameter:
    """A parameter: its PTX type without the dot, its size in bytes, `count` elements if an array.

    `is_pointer`: declared with `.ptr`. Compilers leave that out as often as not.
    """

    name: str
    type: str
    size: int
    count: int | None = None
    is_pointer: bool = False

    @property
    def words(self) -> str:
        """As PTX spells it."""
        return f".{self.type} {self.name}" + (f"[{self.count}]" if self.count is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry; `block` is its `.reqntid`, None where it does not say."""

    name: str
    parameters: tuple[EntryParameter, ...]
    block: tuple[int, int, int] | None


def read_entry(ptx: str, name: str | None = None) -> Entry:
    """Read the parameters of an entry; the only one where no name is given.

    Raises:
        EntryError: there is none, or several, or a parameter is not to be understood.
    """
    document = parse(ptx)
    heads = [
        read_head(each.code) for each in document.statements if each.kind is StatementKind.HEAD
    ]
    entries = [head for head in heads if head and head.is_entry]
    wanted = [head for head in entries if name in (None, head.name)]
    if not wanted:
        known = ", ".join(head.name for head in entries[:8]) or "none"
        raise EntryError(f"no entry {name!r}; entries are: {known}" if name else "no .entry")
    if len(wanted) > 1:
        names = ", ".join(head.name for head in wanted[:8])
        raise EntryError(f"several entries: {names}; name one")
    head = wanted[0]
    return Entry(
        name=head.name,
        parameters=tuple(_parameter(each.name, each.text) for each in head.parameters),
        block=_block(" ".join(head.directives)),
    )


def _parameter(name: str, text: str) -> EntryParameter:
    kinds = [found["type"] for found in _TYPE.finditer(text) if found["type"] in _SIZES]
    if len(kinds) != 1:
        raise EntryError(f"the parameter `{' '.join(text.split())}` is not to be understood")
    counted = _COUNT.search(text)
    count = int(counted[1]) if counted else None
    return EntryParameter(
        name=name,
        type=kinds[0],
        size=_SIZES[kinds[0]] * (1 if count is None else count),
        count=count,
        is_pointer=bool(re.search(r"\.ptr\b", text)),
    )


def _block(directives: str) -> tuple[int, int, int] | None:
    found = _REQNTID.search(directives)
    if not found:
        return None
    sizes = [int(word) for word in found[1].split(",")]
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z
