"""From a cubin and its listing to a program that is ready to run.

Blocks are numbered by address. Where lanes part, they meet again at BSYNC and WARPSYNC alone; which
of them run first is open until then, and `Schedule.warps` chooses: those further behind; with
`last`, those further on, each with all that are there; with `first`, those that ran, until they
wait, as an H200 does where FuzzX m001 has four threads (of 32, it does otherwise).

A barrier register holds the lanes that BSSY found active; BREAK takes lanes out. BSYNC waits until
all of them that live are there, and then empties the register, so that it holds back no other lane:
what hardware does where BSSY is executed again while lanes wait is not documented, and this
agrees with all that was seen on an H200.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gpu_emulator.sass.binder import (
    BRANCH,
    Binder,
    Words,
    bank_slot,
    bind,
    find_row,
    guard_slot,
    joined,
    slot_of,
    slots_of,
)
from gpu_emulator.sass.cubin import CubinEntry, read_entry
from gpu_emulator.sass.instructions.catalogue import CHAPTERS
from gpu_emulator.sass.instructions.copies import await_reads
from gpu_emulator.sass.listing import (
    Instruction,
    SassLine,
    code_sections,
    read_instruction,
    read_section,
)
from gpu_emulator.state.barriers import COPIES, await_groups
from gpu_emulator.state.frame import Frame
from gpu_emulator.steps import (
    Array,
    Program,
    Reader,
    Region,
    Registers,
    Run,
    Section,
    SectionEntry,
    Step,
    Variable,
    entry_of,
)
from gpu_emulator.values import Cubin, Launch, NotExecutable, Place

_WIDEST = 16
_EVERYONE = np.full((1, 1), 0xFFFF_FFFF, dtype=np.uint32)
BRANCHES = frozenset(("BRA", "BRX", "BRXU", "CALL", "RET", "EXIT", "KILL"))
"""What ends a block. No rows: `read_branch` knows their forms."""
_COUNTED: dict[str, tuple[int, Run]] = {
    "LDGDEPBAR": (5, lambda registers: await_groups(registers, 0, COPIES)),
    "UTMACMDFLUSH": (8, lambda registers: await_reads(registers, 0)),
}
"""What ends a group: where its control bits have the scoreboard that counts it, and the wait."""
SERIAL = 0x7E0
"""The control bits of all that ptxas 13.5 makes at -O0: no scoreboards, and no stall."""
_INDIRECT = re.compile(r"(U?R)([0-9]+)(?:[ ]+(-?0x[0-9a-f]+|[0-9]+|`\([^)]*\)))?\Z")


@dataclass(slots=True)
class _Branch:
    """What leaves a block: where to, on which condition (a slot of a predicate).

    `table` reads the offset of the target, of an indirect branch.
    """

    line: SassLine | None
    target: int | None = None
    table: Reader | None = None
    leaves: bool = False
    reads: frozenset[int] = frozenset()
    predicate: int | None = None
    is_negated: bool = False
    goes_on: bool = False
    # What joins a guard and a condition, where it has both.
    joint: Binder | None = None


@dataclass(slots=True)
class _Block:
    lines: list[tuple[SassLine, Binder]] = field(default_factory=list)
    branch: _Branch | None = None


@lru_cache(maxsize=8)
def decode_cubin(cubin: Cubin, entry: str | None) -> Program:
    """Make an entry of a cubin ready; NotExecutable names all opcodes that no row knows."""
    assert CHAPTERS
    return _program(*code_of(cubin, entry))


def code_of(cubin: Cubin, entry: str | None) -> tuple[CubinEntry, list[SassLine], dict[str, int]]:
    """An entry of a cubin, its instructions, and the offset of each label; or NotExecutable."""
    header = read_entry(cubin.elf, entry)
    sections = code_sections(cubin.listing)
    if header.name not in sections:
        raise NotExecutable(f"the listing has no code of {header.name}")
    lines, labels = read_section(sections[header.name])
    return header, _until_padding(lines), labels | header.functions


def is_known(opcode: str) -> bool:
    """Whether an instruction of this name, with its modifiers, can be executed."""
    assert CHAPTERS
    return opcode.split(".", maxsplit=1)[0] in BRANCHES or find_row(opcode) is not None


def _program(header: CubinEntry, lines: list[SassLine], labels: dict[str, int]) -> Program:
    opcodes = {read_instruction(line.text).opcode for line in lines}
    unknown = sorted(name for name in opcodes if not is_known(name))
    if unknown:
        raise NotExecutable("unknown instructions: " + ", ".join(unknown), tuple(unknown))
    blocks, starts = _blocks(header, lines, labels)
    known = header.known_words
    touched: set[int] = set()
    accesses: set[tuple[str, int]] = set()
    is_plain = True
    for block in blocks:
        for line, own in block.lines:
            touched |= own.reads
            accesses |= own.accesses
            is_plain = is_plain and own.is_plain
            for bank, offset in own.constants:
                words = len(header.banks[bank][0]) // 4 if bank in header.banks else 0
                is_known_word = offset in known if bank == 0 else offset // 4 < words
                if offset >= 0 and not is_known_word:
                    raise NotExecutable(
                        f"not known: c[{bank:#x}][{offset:#x}], in {line.text}",
                        (f"c[{bank:#x}][{offset:#x}]",),
                    )
        if block.branch:
            touched |= block.branch.reads
    sections = tuple(
        _section(number, block, starts, touched) for number, block in enumerate(blocks)
    )
    start, stop = header.shared_start, header.shared_start + header.shared
    shared = [Region("shared memory", start, stop)] if header.shared else []
    if header.columns:
        # All columns are free when a block begins.
        shared.append(Region("the driver's shared memory", *header.columns, is_zero=True))
    local = (Region("the stack", 0, header.stack),) if header.stack else ()
    grains = {space: min((size for own, size in accesses if own in (space, "generic")),
                         default=_WIDEST) for space in ("shared", "global")}  # fmt: skip
    return Program(
        header, slots_of(touched), sections, tuple(shared), stop,
        Variable("dynamic shared memory", "shared", "b8", 0, 16), local, header.stack, len(touched),
        grains["shared"], grains["global"], is_plain, _banks_of(header), is_free=True,
    )  # fmt: skip


def _banks_of(header: CubinEntry) -> Callable[..., dict[int, Words]]:
    def fill(
        launch: Launch, parameters: Array, addresses: dict[str, int], windows: dict[str, int]
    ) -> dict[int, Words]:
        """The constant banks of a launch, by slot."""
        filled = {}
        for number, (data, relocations) in header.banks.items():
            size = -(-len(data) // 4) * 4
            raw = np.frombuffer(data.ljust(size, b"\0"), np.uint8).copy()
            words = raw.view(np.uint32)
            known = np.ones(len(words), np.bool_)
            for offset, name, addend in relocations:
                address = addresses.get(name, header.functions.get(name))
                if address is None:
                    raise NotExecutable(f"the address of {name} is not known")
                raw[offset : offset + 8] = np.array([address + addend], np.uint64).view(np.uint8)
            if number == 0:
                start = header.parameters_at
                raw[start:] = parameters[: size - start]
                for offset, word in header.launch_words(launch, windows).items():
                    words[offset // 4] = word
                known = np.isin(np.arange(len(words)) * 4, list(header.known_words))
            filled[bank_slot(number)] = Words(number, words, known)
        return filled

    return fill


def _until_padding(lines: list[SassLine]) -> list[SassLine]:
    """Without the NOPs behind the last branch."""
    last = len(lines)
    while last and lines[last - 1].text == "NOP":
        last -= 1
    return lines[:last]


def _blocks(
    header: CubinEntry, lines: list[SassLine], labels: dict[str, int]
) -> tuple[list[_Block], list[int]]:
    """The blocks in the order of their addresses, and the number of that at each instruction.

    Instructions inside of a block have the number -1.
    """
    begins = {0}
    branches: dict[int, _Branch] = {}
    for line in lines:
        opcode = read_instruction(line.text).opcode
        base = opcode.split(".")[0]
        if base in BRANCHES:
            branch = branches[line.offset] = read_branch(header, line, labels)
            begins.add(line.offset + 16)
            if branch.target is not None:
                begins.add(branch.target)
            begins.update(header.branches.get(line.offset, ()))
            continue
        match = find_row(opcode)
        if match and (match[0].waits or match[0].meets):
            begins.add(line.offset)
        if match and match[0].waits:
            begins.add(line.offset + 16)
    blocks: list[_Block] = []
    starts = [-1] * (len(lines) + 1)
    for number, line in enumerate(lines):
        if line.offset in begins:
            starts[number] = len(blocks)
            blocks.append(_Block())
        if line.offset in branches:
            branch = blocks[-1].branch = branches[line.offset]
            if branch.joint is not None:
                blocks[-1].lines.append((line, branch.joint))
        else:
            bound = bind(line.text)
            _check_collective(line, lines, labels)
            blocks[-1].lines.append((line, bound))
            if wait := _wait_at_once(line, lines[number + 1 :][:1]):
                blocks[-1].lines.append((line, Binder.of(Step(wait))))
    return blocks, starts


def _wait_at_once(line: SassLine, behind: list[SassLine]) -> Run | None:
    """The wait for a group that ends here, where it is not for DEPBAR.LE of scoreboard 0.

    Another scoreboard counts it, for which the next instruction waits by its control bits: behind
    each bulk store at -O0 of ptxas 12.8 and 13.0, and where a tensor map is made visible.
    """
    at, wait = _COUNTED.get(read_instruction(line.text).opcode, (0, None))
    if wait is None or line.control in (None, SERIAL):
        return None
    counter = line.control >> at & 7
    waits = next((one.control >> 11 for one in behind if one.control is not None), 0)
    if counter and (counter > 5 or not waits >> counter & 1):
        raise NotExecutable(f"{line.text} counts by scoreboard {counter}, not by 0")
    return wait if counter else None


def _check_collective(line: SassLine, lines: list[SassLine], labels: dict[str, int]) -> None:
    """Lanes go on behind ENDCOLLECTIVE where WARPSYNC.COLLECTIVE says: only if that is next."""
    if "WARPSYNC.COLLECTIVE" not in line.text:
        return
    label = read_instruction(line.text).operands[-1].base
    end = next((n for n in lines[line.offset // 16 :] if n.text.startswith("ENDCOLLECTIVE")), None)
    if end is None or labels.get(label) != end.offset + 16:
        raise NotExecutable(f"not known: where lanes go on after {line.text}")


def read_branch(header: CubinEntry, line: SassLine, labels: dict[str, int]) -> _Branch:
    instruction = read_instruction(line.text)
    opcode, operands = instruction.opcode, list(instruction.operands)
    branch = _Branch(line)
    guard, is_never = guard_slot(instruction)
    if is_never:
        branch.goes_on, branch.target = True, line.offset + 16
        return branch
    condition = _condition(instruction) if opcode.startswith(("BRA", "RET")) else None
    if condition is not None:
        operands = operands[1:]
        if condition[0] is not None:
            if guard is not None:
                branch.joint = _joint((guard, instruction.is_negated), condition)
                condition = BRANCH, False
            guard, branch.is_negated = condition
    else:
        branch.is_negated = instruction.is_negated
    if opcode == "BRA.U.ANY" and guard is not None:
        branch.joint = _for_warps(guard, is_negated=branch.is_negated)
        guard, branch.is_negated = BRANCH, False
    branch.predicate = guard
    branch.goes_on = guard is not None
    branch.reads = frozenset(() if guard is None else (guard,))
    if opcode in ("EXIT", "KILL") and not operands:
        branch.leaves = True
        return branch
    if opcode in _TO_LABELS and len(operands) == 1 and operands[0].kind == "label":
        target = labels.get(operands[0].base)
        if target is None:
            raise NotExecutable(f"{line.text} at {line.offset:#x} leads out of the code")
        branch.target = target
        return branch
    match = _INDIRECT.match(operands[-1].text) if operands else None
    if opcode in _TO_REGISTERS and match:
        kind, number = match[1], int(match[2])
        low, high = slot_of(kind, number), slot_of(kind, number + 1)
        base = _base(match[3], line, labels)
        branch.reads |= {low, high}
        branch.table = lambda registers: (
            joined(registers[low], registers[high]).astype(np.int64) + base
        )
        if opcode.startswith("BRX") and line.offset not in header.branches:
            raise NotExecutable(f"the cubin does not say where {line.text} leads")
        return branch
    raise NotExecutable(f"not known: {line.text}", (opcode,))


# CUDA Binary Utilities has these; the targets are labels of the listing, and offsets in the cubin.
_TO_LABELS = ("BRA", "BRA.U", "BRA.U.ANY", "CALL.REL.NOINC", "BRA.CONV", "BRA.DIV")
_TO_REGISTERS = ("BRX", "BRXU", "RET.REL.NODEC")


def _base(text: str | None, line: SassLine, labels: dict[str, int]) -> int:
    """What is added to the register of an indirect branch: the next instruction, or a function."""
    if text and text.startswith("`("):
        if text[2:-1] not in labels:
            raise NotExecutable(f"{line.text} at {line.offset:#x} leads out of the code")
        return labels[text[2:-1]]
    return line.offset + 16 + int(text or "0", 0)


def _condition(instruction: Instruction) -> tuple[int | None, bool] | None:
    """The predicate operand of a branch, and whether it is negated; None: it has none."""
    first = instruction.operands[0] if len(instruction.operands) == 2 else None
    if first is None or first.kind not in ("P", "UP"):
        return None
    if first.number is None:
        raise NotExecutable(f"not known: {instruction.opcode} {first.text}")
    return slot_of(first.kind, first.number), first.sign == "!"


def _joint(*conditions: tuple[int | None, bool]) -> Binder:
    """A step that writes whether both predicates hold: slots, and whether each is negated."""
    slots = [slot for slot, _ in conditions if slot is not None]
    flips = [np.bool_(is_negated) for _, is_negated in conditions]

    def run(registers: Registers) -> None:
        one, other = (registers[slot] ^ flip for slot, flip in zip(slots, flips, strict=True))
        registers[BRANCH] = one & other

    return Binder.of(Step(run, (BRANCH,), is_pure=True), slots)


def _for_warps(slot: int, *, is_negated: bool) -> Binder:
    """A step that writes for all active lanes of a warp whether a predicate holds in any."""

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        holds = frame.active() & (registers[slot] ^ np.bool_(is_negated))
        registers[BRANCH] = frame.whole_warps(holds)

    return Binder.of(Step(run, (BRANCH,)), [slot])


def _section(number: int, block: _Block, starts: list[int], touched: set[int]) -> Section:
    entries: list[SectionEntry] = []
    meeting: Reader | None = None
    for line, bound in block.lines:
        place = Place(sass_offset=line.offset, instruction=line.text, source=line.source)
        entries.append(entry_of(bound.step, place, bound.reads))
        touched |= bound.reads
        touched.update(bound.step.writes)
        meeting = bound.meeting or meeting
    branch = block.branch or _Branch(None, goes_on=True)
    targets: tuple[int, ...] = ()
    table: Reader | None = None
    if branch.target is not None:
        targets = (starts[branch.target // 16],)
    if branch.table is not None:
        targets = tuple(range(max(starts) + 1))
        table = _block_of(branch, starts)
    return Section.of(
        entries, number=number, count=len(block.lines) + (block.branch is not None),
        targets=targets, following=number + 1 if branch.goes_on and number < max(starts) else None,
        predicate=branch.predicate, is_negated=branch.is_negated, table=table, leaves=branch.leaves,
        meeting=meeting, apart=bool(entries) and "WARPSYNC" in entries[0][2].instruction,
    )  # fmt: skip


def _block_of(branch: _Branch, starts: list[int]) -> Reader:
    """The number of the block that begins where an indirect branch leads."""
    numbers, offset, predicate = np.array(starts), branch.table, branch.predicate
    assert offset is not None

    def read(registers: Registers) -> Array:
        at = offset(registers)
        inside = (at >= 0) & (at < 16 * len(starts)) & (at & 15 == 0)
        blocks = np.where(inside, numbers[np.where(inside, at >> 4, 0)], -1)
        goes = registers[0].active()
        if predicate is not None:
            goes = goes & (registers[predicate] != branch.is_negated)
        lost = goes & (blocks < 0)
        if lost.any():
            where = int(np.broadcast_to(at, lost.shape)[lost].flat[0])
            text = branch.line.text if branch.line else ""
            raise NotExecutable(f"{text} leads to {where:#x}, where no block begins")
        return np.maximum(blocks, 0)

    return read
