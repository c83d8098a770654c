"""Faults and races of a run in words, and what of them identifies a bug. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_emulator.values import Fault, Place, Race
from harness.values.execution import RaceFacts


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
    """An instruction's name without types and widths: `ld.global`, `cp.async`, `tcgen05.mma`.

    `.shared` is `.shared::cta` (PTX ISA, "State Spaces: .shared"), and is written so.
    """
    words = instruction.split()
    opcode = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
    return ".".join(opcode.rstrip(";").split(".")[:2]).replace(".shared::cta", ".shared")


def race_words(race: Race) -> str:
    """What stays the same of a race in other configs and versions."""
    opcodes = [family(place.instruction) for place in (race.first, race.second)]
    return f"{race.kind} {race.space}: {' and '.join(opcodes)}"


def is_formal(race: Race, *, is_alike: bool) -> bool:
    """Whether only the letter of the memory model is broken.

    `is_alike`: with the warps in either order every byte comes out the same, so what was read of a
    warp beside it shows nowhere. So it is where threads that hold copies of an element read it, and
    one of them updates it.
    """
    return race.formal or (is_alike and race.within_cta)


def race_facts(races: Iterable[Race], *, is_alike: bool = False) -> tuple[RaceFacts, ...]:
    """Each pair of lines once, those with effect first; `is_alike` as in `is_formal`."""
    found: dict[object, RaceFacts] = {}
    for race in races:
        formal = is_formal(race, is_alike=is_alike)
        key = (race.kind, formal, race.first.ptx_line, race.second.ptx_line)
        found.setdefault(
            key,
            RaceFacts(
                kind=race.kind,
                space=race.space,
                formal=formal,
                ptx_lines=(race.first.ptx_line, race.second.ptx_line),
                source_lines=(source_line(race.first), source_line(race.second)),
                what=race.what,
            ),
        )
    return tuple(sorted(found.values(), key=lambda each: each.formal))
