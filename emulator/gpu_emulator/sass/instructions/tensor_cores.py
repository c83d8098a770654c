"""Tensor memory of sm_100a: columns, loads and stores, products and copies, commits.

`gpu_emulator.state.tensor_memory` has them, as PTX's `tcgen05`. What each opcode means is what PTX
says of the instruction that ptxas 13.5.37 makes of it; no GPU of sm_100a was asked.

A uniform instruction (`U...`) is executed once by a warp: for the first of its active lanes. Loads
are complete at once here: `tcgen05.wait::ld` becomes the wait for a scoreboard, as behind loads
from other memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_emulator.engines.tcgen05 import Scales, address_parts, decode_instruction, warp_cells
from gpu_emulator.sass.binder import Binder, acting, acts, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.state import tensor_memory
from gpu_emulator.state.barriers import await_groups
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.lanes import leaders, whole_warps, write_all
from gpu_emulator.state.tensor_memory import STORES, Group, Move, begin_store
from gpu_emulator.steps import WARP, Array, Reader, Registers, Step
from gpu_emulator.values import NotExecutable

_SEEN = (
    "of which ptxas 13.5.37 makes it; compared with the PTX that it was made of; no GPU of sm_100a"
    " was asked"
)
_UNIT = 32
"""Columns for which a bit of a mask stands."""
_SHAPES = {
    "": ("32x32b", slice(None)), "16dp64bit": ("16x64b", slice(None)),
    "16dp128bit": ("16x128b", slice(None)), "16dp256bit": ("16x256b", slice(None)),
    "16dp32bit_t0_t15": ("16x32bx2", slice(16)), "16dp32bit_t16_t31": ("16x32bx2", slice(16, None)),
}  # fmt: skip
"""Of each word the shape of PTX, and the lanes that take part."""
_COPIES = {
    "": "128x256b", "4dp256bit": "4x256b", "128dp128bit": "128x128b",
    "2x64dp128bit_lw02_lw13": "64x128b.warpx2::02_13",
    "2x64dp128bit_lw01_lw23": "64x128b.warpx2::01_23", "4x32dp128bit": "32x128b.warpx4",
}  # fmt: skip
_IN_BRACKETS = re.compile(r"(tmem|gdesc|idesc)\[UR([0-9]+|Z)(?:\+(-?0x[0-9a-f]+))?\]\Z")


def _in_brackets(line: Binder, operand: Operand, *words: str) -> tuple[str, Reader]:
    """The word before the brackets, and what the register in them has: 64 bits of `gdesc`."""
    found = _IN_BRACKETS.match(operand.text)
    if found is None or found[1] not in words:
        raise line.refuse(operand)
    kind = "b64" if found[1] == "gdesc" else "b32"
    number = None if found[2] == "Z" else int(found[2])
    read = line.read(Operand(operand.text, "UR", number), kind)
    if found[3] is None:
        return found[1], read
    if found[1] != "tmem":
        raise line.refuse(operand)
    more = np.uint32(int(found[3], 16) % (1 << 32))
    return found[1], lambda registers: read(registers) + more


_WORDS = f"?{{shape:{'|'.join(filter(None, _SHAPES))}}}?{{count:x2|x4|x8|x16|x32|x64|x128}}"


def _move(line: Binder) -> tuple[Move, int, Array]:
    """What is moved, in how many registers, and the lanes that take part, (1, 32)."""
    shape, lanes = _SHAPES[line.parts["shape"]]
    count, packed = int(line.parts["count"][1:] or 1), bool(line.parts["pack"])
    cells = warp_cells(shape, count, packed=packed)
    chosen = np.zeros((1, WARP), np.bool_)
    chosen[:, lanes] = True
    return Move(cells, lanes), cells.lane.shape[1], chosen


@opcode(f"LDTM{_WORDS}?{{pack:PACK16BIT}}", evidence=f"PTX ISA: tcgen05.ld, {_SEEN}")
def _load(line: Binder) -> Step:
    line.has(2)
    move, count, chosen = _move(line)
    slots = line.vector_results(line.operands[0], count)
    _, address = _in_brackets(line, line.operands[1], "tmem")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        values = move.loaded(frame, address(registers))
        lanes = np.broadcast_to(chosen, (frame.lanes // WARP, WARP)).reshape(1, -1)
        with frame.only(frame.active() & lanes):
            write_all(frame, slots, values)

    return Step(run, tuple(slots), reads_old=True)


@opcode(f"STTM{_WORDS}?{{pack:EXPAND16BIT}}", evidence=f"PTX ISA: tcgen05.st, {_SEEN}")
def _store(line: Binder) -> Step:
    line.has(2)
    move, count, _ = _move(line)
    _, address = _in_brackets(line, line.operands[0], "tmem")
    readers = line.vector(line.operands[1], count)
    return Step(lambda rs: begin_store(rs, move, address(rs), [read(rs) for read in readers]))


acts("FENCE.VIEW.ASYNC.T", evidence=f"PTX ISA: tcgen05.wait::st, {_SEEN}")(
    lambda registers: await_groups(registers, -1, STORES)
)


@opcode("UTCATOMSWS.FIND_AND_SET.ALIGN", evidence=f"PTX ISA: tcgen05.alloc, {_SEEN}")
def _allocate(line: Binder) -> Step:
    """Whether so many units of 32 columns are free, which are then taken, and the first of them.

    A loop of ptxas asks again until they are, and keeps masks of them in shared memory.
    """

    def allocate(registers: Registers, count: Array) -> tuple[Array, Array]:
        frame: Frame = registers[0]
        found = np.zeros(frame.shape, np.bool_)
        unit = np.zeros(frame.shape, np.uint32)
        amount = frame.full(count)
        for row, column in np.argwhere(leaders(frame)).tolist():
            first = tensor_memory.allocate(frame, row, _UNIT * int(amount[row, column]))
            if first is not None:
                warp = slice(column // WARP * WARP, column // WARP * WARP + WARP)
                found[row, warp], unit[row, warp] = True, first // _UNIT
        return found, unit

    return acting(line, "UP:pred UR:b32 = b32", allocate, reads_old=True)


@acts("UTCATOMSWS.AND", signature="RZ = b32", evidence=f"PTX ISA: tcgen05.dealloc, {_SEEN}")
def _free(registers: Registers, kept: Array) -> None:
    """The units whose bits are not set are given back: a block, as it was taken."""
    frame: Frame = registers[0]
    mask = frame.full(kept)
    for row, column in np.argwhere(leaders(frame)).tolist():
        units = [unit for unit in range(16) if not int(mask[row, column]) >> unit & 1]
        tensor_memory.free(frame, row, _UNIT * min(units, default=0), _UNIT * len(units))


@opcode("UVIRTCOUNT.DEALLOC.SMPOOL", evidence=f"PTX ISA: tcgen05.relinquish_alloc_permit, {_SEEN}")
def _relinquish(line: Binder) -> Step:
    if [operand.text for operand in line.operands] != ["0x80"]:
        raise line.refuse()
    return Step(tensor_memory.relinquish)


def _issued(
    line: Binder, readers: Sequence[Reader], operation: Callable[[Group, Sequence[int]], None]
) -> Step:
    """Issued once by each warp."""
    ctas = 2 if line.parts.get("pair") else 1
    line.is_plain = ctas == 1

    def run(registers: Registers) -> None:
        values = [read(registers) for read in readers]
        with registers[0].only(leaders(registers[0])):
            tensor_memory.issue(registers, ctas, values, operation)

    return Step(run)


_KINDS = {"H": "f16", "Q": "f8f6f4", "I": "i8", "O": "mxf4nvf4"}


@opcode(
    "UTCHMMA|UTCQMMA|UTCIMMA?{pair:2CTA}", "UTCHMMA|UTCQMMA|UTCIMMA.{ws:WS}",
    "UTCOMMA?{pair:2CTA}?{blocks:4X}", evidence=f"PTX ISA: tcgen05.mma, {_SEEN}",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    """A, B, D, metadata, the instruction, (scales or lanes that are off), enable, (shift).

    The metadata of a dense product are not looked at. HMMA is `kind::f16` or `kind::tf32`, as the
    instruction says. Scales of A and of B are in two registers; with WS there is a mask of columns.
    """
    kind, is_ws, is_pair = _KINDS[line.base[3]], "ws" in line.parts, bool(line.parts.get("pair"))
    operands, scale_input = list(line.operands), 0
    if operands and operands[-1].kind == "number":
        scale_input = int(operands.pop().text, 0)
    if not 6 <= len(operands) <= 7 or operands[-1].kind != "UP":
        raise line.refuse()
    enable, more = line.read(operands.pop(), "pred"), operands[5:]
    words = (("gdesc", "tmem"), ("gdesc",), ("tmem",), ("tmem",), ("idesc",))
    found = [
        _in_brackets(line, operand, *own) for operand, own in zip(operands[:5], words, strict=True)
    ]
    in_tensor, (a, b, d, _, instruction) = found[0][0] == "tmem", (read for _, read in found)
    is_scaled, others = False, []
    for operand in more:
        pair = _IN_BRACKETS.match(operand.text)
        is_scaled = pair is not None and pair[1] == "tmem" and pair[2] != "Z" and not pair[3]
        first = int(pair[2]) if pair is not None and is_scaled else operand.number
        if operand.kind != "UR" and not is_scaled:
            raise line.refuse(operand)
        count = 2 if is_scaled or is_ws else 8 if is_pair else 4
        if first is not None:
            others = [line.read(Operand("", "UR", first + at), "b32") for at in range(count)]
    if is_scaled != (kind == "mxf4nvf4") and (is_ws or kind != "f8f6f4"):
        raise line.refuse()
    blocks = 1 if kind == "f8f6f4" else 4 if line.parts.get("blocks") else 2

    def multiply(group: Group, values: Sequence[int]) -> None:
        at_a, at_b, at_d, descriptor, adds, *own = values
        scales, disabled, own_kind = None, own if any(own) else None, kind
        if is_scaled:
            columns = [address_parts(address)[1] for address in own]
            scales = Scales(a_column=columns[0], b_column=columns[1], blocks=blocks)
            disabled, own_kind = None, "mxf8f6f4" if kind == "f8f6f4" else kind
        elif kind == "f16" and descriptor >> 7 & 7 == 2:
            own_kind = "tf32"
        if is_ws and disabled:
            raise NotExecutable(f"not known: {line.text} with a mask of columns")
        try:
            decoded = decode_instruction(own_kind, descriptor)
        except ValueError as error:
            raise NotExecutable(f"{error}, in {line.text}") from None
        tensor_memory.multiply(
            group, (at_d, at_a, at_b), decoded, in_tensor=in_tensor, ws=is_ws,
            accumulate=bool(adds), scale_input=scale_input, scales=scales, disabled=disabled,
        )  # fmt: skip

    return _issued(line, [a, b, d, instruction, enable, *others], multiply)


@opcode(
    f"UTCCP.T.S?{{pair:2CTA}}?{{shape:{'|'.join(filter(None, _COPIES))}}}",
    evidence=f"PTX ISA: tcgen05.cp, {_SEEN}",
)
def _copy(line: Binder) -> Step:
    line.has(2)
    _, address = _in_brackets(line, line.operands[0], "tmem")
    _, descriptor = _in_brackets(line, line.operands[1], "gdesc")
    operation = partial(tensor_memory.copy, _COPIES[line.parts["shape"]])
    return _issued(line, [address, descriptor], operation)


@opcode("UTCSHIFT?{pair:2CTA}.DOWN", evidence=f"PTX ISA: tcgen05.shift, {_SEEN}")
def _shift(line: Binder) -> Step:
    line.has(1)
    _, address = _in_brackets(line, line.operands[0], "tmem")
    return _issued(line, [address], tensor_memory.shift)


@opcode(
    "UTCBAR?{pair:2CTA}?{ranks:MULTICAST}", evidence=f"PTX ISA: tcgen05.commit, {_SEEN}"
)  # fmt: skip
def _commit(line: Binder) -> Step:
    """The address of an mbarrier, nothing, and the CTAs whose mbarriers count it."""
    has_ranks = bool(line.parts["ranks"])
    if len(line.operands) != 2 + has_ranks or line.operands[1].text != "URZ":
        raise line.refuse()
    found = re.fullmatch(r"\[UR([0-9]+)\]", line.operands[0].text)
    if found is None:
        raise line.refuse(line.operands[0])
    address = line.read(Operand("", "UR", int(found[1])), "b32")
    targets = line.read(line.operands[2], "b32") if has_ranks else None
    line.accesses.add(("shared", 8))
    line.is_plain = not has_ranks

    def run(registers: Registers) -> None:
        at = address(registers).astype(np.int64)
        ranks = None if targets is None else targets(registers)
        with registers[0].only(leaders(registers[0])):
            tensor_memory.commit(registers, "shared", at, ranks)

    return Step(run)
