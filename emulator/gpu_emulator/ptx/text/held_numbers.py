"""Which number an operand is, or holds: what a compiler moves into a register just to use it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpu_emulator.ptx.text.instruction import read_instruction

_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,8}|0[xX][0-9a-fA-F]{1,8})U?")
_MOVE = re.compile(r"mov\.[bus]32")
# How many moves a number may go through.
_MOVES = 4


def held_numbers(
    operands: set[str], code: Callable[[], Iterable[tuple[str, bool, str]]]
) -> set[int | None]:
    """The numbers that operands are, or hold wherever they are read; None for another.

    `code` begins again with the instructions of a body: opcode, whether it is guarded, and all of
    it without the semicolon.
    """
    for _ in range(_MOVES):
        names = {each for each in operands if not _NUMBER.fullmatch(each)}
        if not names:
            break
        operands = (operands - names) | _moved_to(code(), names)
    found = {_NUMBER.fullmatch(each) for each in operands}
    return {int(each[0].rstrip("U"), 0) if each else None for each in found}


def _moved_to(code: Iterable[tuple[str, bool, str]], names: set[str]) -> set[str]:
    """What each register is set to, if by one move alone; an empty operand stands for another."""
    written: dict[str, list[str]] = {name: [] for name in names}
    for opcode, guarded, statement in code:
        if not any(name in statement for name in names):
            continue
        read = read_instruction(f"{statement};")
        is_move = not guarded and _MOVE.fullmatch(opcode) and read and len(read.operands) == 2
        for name in names.intersection(read.writes if read else names):
            written[name].append(read.operands[1] if is_move and read else "")
    return {values[0] if len(values) == 1 else "" for values in written.values()}
