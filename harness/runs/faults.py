"""Faults and races of a run in words, and what of them identifies a bug. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.emulator.values import Fault, Place, Race

__all__ = ["family", "fault_identity", "fault_words", "race_words", "source_line"]


def source_line(place: Place) -> str | None:
    """`kernel.py:12`: the folder of the file is this machine's."""
    return place.source and place.source.rpartition("/")[2]


def fault_words(fault: Fault) -> str:
    """What went wrong, and where."""
    if fault.place is None:
        return fault.what
    where = f"PTX line {fault.place.ptx_line}: {fault.place.instruction}"
    source = f" ({source_line(fault.place)})" if fault.place.source else ""
    return f"{fault.what}; {where}{source}"


def fault_identity(fault: Fault) -> str:
    """What stays the same in other configs and versions: not registers, nor widths."""
    if fault.place is None:
        return fault.what
    source = f" ({source_line(fault.place)})" if fault.place.source else ""
    return f"{fault.what}; {family(fault.place.instruction)}{source}"


def family(instruction: str) -> str:
    """An instruction's name without types and widths: `ld.global`, `cp.async`, `tcgen05.mma`."""
    words = instruction.split()
    opcode = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
    return ".".join(opcode.rstrip(";").split(".")[:2])


def race_words(race: Race) -> str:
    """What stays the same of a race in other configs and versions."""
    opcodes = [family(place.instruction) for place in (race.first, race.second)]
    return f"{race.kind} {race.space}: {' and '.join(opcodes)}"
