"""Which registers a PTX module reads and never writes: ptxas allows it, a program has no use."""

from __future__ import annotations

from harness.logic.ptx_document import parse
from harness.logic.ptx_registers import read_registers

__all__ = ["undefined_registers"]


def undefined_registers(text: str) -> frozenset[tuple[int, str]]:
    """The number of the function and the name of each; writes count wherever they are."""
    document = parse(text)
    found = set()
    for number, function in enumerate(document.functions):
        registers = read_registers(document, function)
        inside = [one for place, one in document.instructions if place in function.body]
        written = {name for one in inside for name in one.writes}
        read = {name for one in inside for name in one.reads}
        found |= {(number, name) for name in read - written if registers.type_of(name)}
    return frozenset(found)
