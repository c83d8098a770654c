"""Instructions of a kernel by the loops that they lie in, from the text of `nvdisasm -c`. Pure.

Loops are the natural loops of the control-flow graph: a branch to a block that every way to the
branch leads through (its header), and the blocks from which that branch is reached without the
header. How often a loop turns is not in the code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_emulator.ptx.text.registers import dominators
from harness.judging.ptxas.sass import InstructionMix, instruction_mix

_LINE = re.compile(
    r"^(?:(?P<label>\.L_\w+):"
    r"|[ \t]*/\*[0-9a-f]{4,16}\*/[ \t{]*(?:@(?P<guard>!?[A-Z0-9]+)[ \t]+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_]*)(?P<rest>[^;\n]*))",
    re.MULTILINE,
)
_TO = re.compile(r"`\((\.L_\w+)\)")
_NEVER = frozenset({"!PT", "!UPT"})
_JUMPS = frozenset({"BRA", "BRX", "JMP", "BREAK"})
_ENDS = frozenset({"EXIT", "RET", "KILL"})
_MMA = re.compile(r"\.(\d+)x(\d+)x(\d+)|\.(16)(8)(4|8|16|32|64|128)\b")
_BITS = re.compile(r"\.(U8|S8|U16|S16|32|64|128)\b")
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}
_GLOBAL = frozenset({"LDG", "STG", "LDGSTS", "LD", "ST"})
_GROUP = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop, without the loops in it; depth 0 is what lies in none.

    `mix` counts instructions, `opcodes` them by name. `tensor_work` are multiply-adds of a warp's
    matrix instructions, `global_bytes` what a thread loads and stores in global memory.
    """

    depth: int
    mix: InstructionMix
    opcodes: Mapping[str, int]
    tensor_work: float = 0.0
    global_bytes: int = 0


@dataclass(slots=True)
class _Block:
    """Straight code: opcodes with what follows them, and where it goes on."""

    code: list[tuple[str, str]] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    falls: bool = True
    after: list[int] = field(default_factory=list)


def loops_of(text: str) -> list[Loop]:
    """The loops of one function (as `code_sections` has its text), what lies in none first."""
    blocks = _blocks(text)
    loops = _natural_loops(blocks)
    inside: dict[frozenset[int], list[int]] = {}
    for number in range(len(blocks)):
        headers = frozenset(header for header, body in loops.items() if number in body)
        inside.setdefault(headers, []).append(number)
    order = sorted(inside.items(), key=lambda pair: (len(pair[0]), min(pair[1])))
    return [_loop(len(headers), [blocks[n] for n in numbers]) for headers, numbers in order]


def _blocks(text: str) -> list[_Block]:
    """The blocks in the order of the text, each with the numbers of those that may follow."""
    blocks = [_Block()]
    labels: dict[str, int] = {}
    for line in _LINE.finditer(text):
        label, opcode, guard = line["label"], line["opcode"], line["guard"]
        if label:
            if blocks[-1].code:
                blocks.append(_Block())
            labels[label] = len(blocks) - 1
            continue
        if guard in _NEVER or opcode == "NOP":
            continue
        here = blocks[-1]
        here.code.append((opcode, line["rest"]))
        if opcode in _JUMPS or opcode in _ENDS:
            here.jumps += _TO.findall(line["rest"]) if opcode in _JUMPS else []
            here.falls = bool(guard) or opcode == "BREAK" or ".DIV" in line["rest"]
            blocks.append(_Block())
    for number, block in enumerate(blocks):
        block.after = [labels[each] for each in block.jumps if each in labels]
        if block.falls and number + 1 < len(blocks):
            block.after.append(number + 1)
    return blocks


def _natural_loops(blocks: list[_Block]) -> dict[int, set[int]]:
    """The blocks of each loop by the number of its header."""
    dominator = dominators([block.after for block in blocks], 0)
    place = {block: number for number, block in enumerate(dominator)}
    before: dict[int, list[int]] = {block: [] for block in place}
    for block in place:
        for after in blocks[block].after:
            before[after].append(block)
    loops: dict[int, set[int]] = {}
    for tail in place:
        for header in blocks[tail].after:
            # A block that is nothing but a branch to itself ends every function.
            if len(blocks[tail].code) > 1 or header != tail:
                at = tail
                while at != header and place[at] > place[header]:
                    at = dominator[at]
                if at == header:
                    _fill(loops.setdefault(header, {header}), tail, before)
    return loops


def _fill(body: set[int], tail: int, before: Mapping[int, list[int]]) -> None:
    waiting = [tail]
    while waiting:
        block = waiting.pop()
        if block not in body:
            body.add(block)
            waiting += before[block]


def _loop(depth: int, blocks: list[_Block]) -> Loop:
    counts: Counter[str] = Counter()
    work, moved = 0.0, 0
    for opcode, rest in (line for block in blocks for line in block.code):
        counts[opcode] += 1
        if opcode.endswith("MMA"):
            work += _work(opcode, rest)
        elif opcode in _GLOBAL:
            size = _BITS.search(rest.partition(" ")[0])
            moved += _BYTES[size[1]] if size else 4
    return Loop(
        depth=depth,
        mix=instruction_mix(counts),
        opcodes=dict(counts),
        tensor_work=work,
        global_bytes=moved,
    )


def _work(opcode: str, rest: str) -> float:
    """Multiply-adds of one warp; those of a group of four warps are shared by it."""
    shape = _MMA.search(rest)
    if shape is None:
        return 0.0
    m, n, k = (int(each) for each in shape.groups() if each)
    return m * n * k / (_GROUP if "GMMA" in opcode else 1)
