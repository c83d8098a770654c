"""What the schedule of a cubin does not wait for: registers that are used too early. Pure.

An instruction of variable latency names two of six scoreboards: one that says when its results are
there, and one that says when its operands have been read. A later instruction is not issued before
those of its wait mask are done. All this is in bits 110 to 121 of each instruction; ptxas alone
sees to it that it is right.

Which opcodes are of variable latency, and what stays in order without a scoreboard, is documented
nowhere. The tables have what ptxas 12.8 to 13.5 rely on in cubins of sm_80, sm_90 and sm_90a; any
other instruction is held to the scoreboards that it names itself. Of all others nothing is said,
nor of fixed latencies (the stall counts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gpu_emulator.sass.binder import bind, slot_of
from gpu_emulator.sass.cubin import CubinEntry
from gpu_emulator.sass.decoding import BRANCHES, SERIAL, code_of, is_known, read_branch
from gpu_emulator.sass.listing import SassLine, read_instruction
from gpu_emulator.values import Cubin, NotExecutable

# Opcodes whose results come in the order in which they were issued, those of a line together.
_IN_ORDER = ("MUFU I2F F2I F2F FRND POPC FLO BREV", "SHFL LDS LDSM", "S2R S2UR", "LDC")
# Opcodes whose operands are fetched in that order.
_FETCHED_IN_ORDER = (
    "MUFU I2F F2I F2F FRND POPC FLO BREV",
    "LD LDG LDGSTS LDL LDS LDSM ST STG STL STS STSM ATOM ATOMG ATOMS RED REDG MATCH REDUX SHFL",
)
_RESULTS = {opcode: line for line in _IN_ORDER for opcode in line.split()}
_FETCHES = {opcode: line for line in _FETCHED_IN_ORDER for opcode in line.split()}
VARIABLE = frozenset((*_RESULTS, *_FETCHES))
"""Opcodes that are known to be of variable latency."""

_NAMES = {
    slot_of(kind, number): f"{kind}{number}"
    for kind, count in (("R", 255), ("UR", 255), ("P", 7), ("UP", 7))
    for number in range(count)
}
_NONE: frozenset[int] = frozenset()
_DEPTH = 8
# Where it is, the scoreboards, where calls return to, and the path so far.
_Way: TypeAlias = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Hazard:
    """A `register` of an instruction, `first`, that another, `second`, uses too early.

    `use` says of what: `result read`, `result overwritten` or `operand overwritten`. `scoreboard`
    is what had to be waited for; None: `first` names none. `path` has the offsets to which branches
    lead between the two.
    """

    use: str
    register: str
    scoreboard: int | None
    first: SassLine
    second: SassLine
    path: tuple[int, ...]

    def __str__(self) -> str:
        """One sentence."""
        what, how = self.use.split()
        does = "writes" if what == "result" else "reads"
        board = self.scoreboard
        until = "no scoreboard says when" if board is None else f"no wait for scoreboard {board}"
        by_way = f", by way of {', '.join(map(hex, self.path))}" if self.path else ""
        return (
            f"{self.register}, which {self.first.text} at {self.first.offset:#x} {does}, is {how} "
            f"by {self.second.text} at {self.second.offset:#x}{by_way}: {until}"
        )


@dataclass(slots=True)
class _Issue:
    """An instruction. Registers are slots, scoreboards are bits; `following` are numbers of others.

    `fetched` are the operands that are read after it was issued: guards and predicates are not, nor
    the uniform registers of what is known to vary (ptxas overwrites them at once).
    """

    line: SassLine
    opcode: str
    reads: frozenset[int]
    fetched: frozenset[int]
    writes: frozenset[int]
    waits: int
    written: int
    read: int
    following: tuple[int, ...]


def find_hazards(cubin: Cubin, entry: str) -> list[Hazard]:
    """All hazards of an entry of a cubin, in the order of their first instructions.

    Raises:
        NotExecutable: there is no such entry, it is not known where a branch leads, or the listing
            has no encoding.
    """
    return hazards_of(*code_of(cubin, entry))


def hazards_of(
    header: CubinEntry, lines: Sequence[SassLine], labels: dict[str, int]
) -> list[Hazard]:
    """As `find_hazards`, of an entry as `code_of` gives it."""
    code = [_issue(header, line, labels) for line in lines]
    found: list[Hazard] = []
    for number, issue in enumerate(code):
        # At -O0 each instruction waits for all before it.
        if issue.line.control == SERIAL:
            continue
        if issue.written or issue.opcode in VARIABLE:
            found += _early(code, number, issue.writes, issue.written, _RESULTS)
        if issue.read or issue.opcode in VARIABLE:
            found += _early(code, number, issue.fetched, issue.read | issue.written, _FETCHES)
    return found


def _early(
    code: list[_Issue], number: int, slots: frozenset[int], boards: int, order: dict[str, str]
) -> Iterator[Hazard]:
    """Follow all ways from an instruction on to where one of its scoreboards is waited for.

    Another that is in order with it adds its own scoreboards: when they are done, so is this one.
    """
    first, is_result = code[number], order is _RESULTS
    board = (first.written if is_result else first.read or first.written).bit_length() - 1
    own = order.get(first.opcode)
    said: set[int] = set()
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    ways: list[_Way] = [(number + 1, boards, (), ())] if slots else []
    while ways:
        now, boards, callers, path = ways.pop()
        if (now, boards, callers) in seen:
            continue
        seen.add((now, boards, callers))
        while now < len(code) and not boards & code[now].waits:
            issue = code[now]
            is_in_order = own is not None and order.get(issue.opcode) == own
            used = _NONE if is_in_order else slots & issue.writes
            use = "result overwritten" if is_result else "operand overwritten"
            if is_result and not slots.isdisjoint(issue.reads):
                used, use = slots & issue.reads, "result read"
            if used:
                if now not in said:
                    said.add(now)
                    yield Hazard(
                        use, _NAMES[min(used)], None if board < 0 else board, first.line,
                        issue.line, path,
                    )  # fmt: skip
                break
            if is_in_order:
                boards |= issue.written if is_result else issue.written | issue.read
            if issue.following == (now + 1,):
                now += 1
                continue
            following, behind = issue.following, callers
            if issue.opcode == "CALL":
                behind = (*callers, now + 1)[-_DEPTH:]
            elif issue.opcode == "RET":
                calls = (n + 1 for n, other in enumerate(code) if other.opcode == "CALL")
                following, behind = (*following, *(callers[-1:] or calls)), callers[:-1]
            ways += [
                (to, boards, callers, path) if to == now + 1 else
                (to, boards, behind, (*path, 16 * to))
                for to in following
            ]  # fmt: skip
            break


def _issue(header: CubinEntry, line: SassLine, labels: dict[str, int]) -> _Issue:
    if line.control is None:
        raise NotExecutable("the listing has no encoding")
    opcode = read_instruction(line.text).opcode.split(".")[0]
    following: tuple[int, ...] = (line.offset // 16 + 1,)
    reads, writes = _NONE, _NONE
    if opcode in BRANCHES:
        branch = read_branch(header, line, labels)
        targets = header.branches.get(line.offset, [])
        targets = targets if branch.target is None else [*targets, branch.target]
        following = (following if branch.goes_on else ()) + tuple(to // 16 for to in targets)
        reads = branch.reads & _NAMES.keys()
    else:
        reads, writes = _registers(line.text)
    waits = line.control >> 11 & 0x3F
    if opcode == "DEPBAR":
        # It may leave some open, and only those that are counted know which: none is said to be.
        for word in re.findall(r"SB([0-5])|\{([0-5,]+)\}", line.text):
            waits |= sum(1 << int(digit) for digit in "".join(word).replace(",", ""))
    late = ("R",) if opcode in VARIABLE else ("R", "UR")
    fetched = frozenset(slot for slot in reads if _NAMES[slot].startswith(late))
    written, read = (1 << (line.control >> at & 7) & 0x3F for at in (5, 8))
    return _Issue(line, opcode, reads, fetched, writes, waits, written, read, following)


@lru_cache(maxsize=1 << 14)
def _registers(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """The registers that an instruction reads and writes; none where its form is not known."""
    try:
        bound = bind(text) if is_known(read_instruction(text).opcode) else None
    except NotExecutable:
        bound = None
    if bound is None:
        return _NONE, _NONE
    return frozenset(bound.reads & _NAMES.keys()), frozenset(bound.step.writes) & _NAMES.keys()
