"""What the PTX ISA leaves open in a program, and the same program with other choices. Pure.

Two right compilers may differ in what is left open: how far an approximate instruction is from the
exact value, whether a product is rounded before it is added (contraction), what a register holds
that nothing wrote. A program whose result depends on one of these accuses no cubin. So the emulator
executes it with other choices too, written into its text: results moved by what is allowed, and
registers filled. Sources: PTX ISA, "Floating Point Instructions" (bounds of the approximations; "an
add with no rounding modifier may be contracted"), `emulator/gpu_emulator/numbers/arithmetic.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpu_emulator.ptx.text.document import Document, Statement, StatementKind, parse, statement
from gpu_emulator.ptx.text.facts import Instruction
from gpu_emulator.ptx.text.registers import read_registers, undefined_reads, without_scopes

_ALWAYS_APPROXIMATE = frozenset({"ex2", "lg2", "sin", "cos", "tanh"})
_CONTRACTED = frozenset({"mul", "add", "sub"})
_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
_FLOAT = re.compile(r"(?:b?f16(?:x2)?|f32(?:x2)?|f64)\Z")
_TENSOR_CORES = frozenset({"mma", "wmma", "wgmma", "tcgen05"})
_MULTIPLIES = frozenset({"mma", "mma_async"})
_ATOMIC = frozenset({"atom", "red", "multimem"})

# By type, the factors 1 + e and 1 - e. A contraction moves a product by half a unit in the last
# place, an approximation of f32 by two (`ex2`, `div`), one of f64 by 2**-20; e is at least twice
# that.
_FACTORS = {
    "f32": ("0f3F800002", "0f3F7FFFFC"),
    "f64": ("0d3FF0000200000000", "0d3FEFFFFC00000000"),
}
_EXACT_F64 = ("0d3FF0000000000002", "0d3FEFFFFFFFFFFFFC")
_OF_TANH = ("0f3F802000", "0f3F7FC000")
# Bounds that are absolute errors: 2**-20.5 of sin and cos, 2**-22 of lg2; these are 2**-20, 2**-21.
_SUMMANDS = {
    "sin": ("0f35800000", "0fB5800000"),
    "cos": ("0f35800000", "0fB5800000"),
    "lg2": ("0f35000000", "0fB5000000"),
}
_SIGNS: tuple[Callable[[int], int], ...] = (
    lambda _: 0,
    lambda _: 1,
    lambda number: number % 2,
    lambda number: (number + 1) % 2,
)
_FILLINGS = (0, 1, -1, 0x5A827999)
_WIDTH = re.compile(r"\.[bsuf](\d+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedom:
    """Opcodes that may be rounded otherwise, by whether `moved_variants` moves them; registers.

    `undefined` are registers that some way through the program reads before it writes them.
    `has_floats`: it computes with them, so that NaN may come out.
    """

    moved: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    has_floats: bool = False

    @property
    def is_exact(self) -> bool:
        """Every bit of every result is specified, registers apart."""
        return not self.moved and not self.unmoved

    @property
    def words(self) -> str:
        """The opcodes, a few of them."""
        names = list(dict.fromkeys((*self.unmoved, *self.moved)))
        return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def read_freedom(ptx: str) -> Freedom:
    """What a module leaves open, in whichever of its functions."""
    document = parse(ptx)
    moved: list[str] = []
    unmoved: list[str] = []
    for _, one in _free(document):
        (moved if _mover(one) else unmoved).append(one.opcode)
    return Freedom(
        moved=tuple(dict.fromkeys(moved)),
        unmoved=tuple(dict.fromkeys(unmoved)),
        undefined=tuple(_undefined(without_scopes(document))),
        has_floats=any(
            _FLOAT.match(word) for _, one in document.instructions for word in one.modifiers
        ),
    )


def _free(document: Document) -> Iterator[tuple[int, Instruction]]:
    """The instructions whose result is not specified to the bit."""
    instructions = document.instructions
    adds = any(_is_contracted(one) and one.base != "mul" for _, one in instructions)
    for place, one in instructions:
        is_product = adds and one.base == "mul" and _is_contracted(one)
        if is_product or _is_approximate(one) or _is_unordered(one):
            yield place, one


def _type(one: Instruction) -> str:
    return one.modifiers[-1] if one.modifiers else ""


def _is_contracted(one: Instruction) -> bool:
    is_float = bool(_FLOAT.match(_type(one)))
    return one.base in _CONTRACTED and is_float and not _ROUNDINGS & set(one.modifiers)


def _is_approximate(one: Instruction) -> bool:
    words = set(one.modifiers)
    return one.base in _ALWAYS_APPROXIMATE or "approx" in words or "full" in words


def _is_unordered(one: Instruction) -> bool:
    """Sums of floating-point numbers in an order of the chip's own."""
    if one.base in _ATOMIC:
        return any(_FLOAT.match(word) for word in one.modifiers)
    return one.base in _TENSOR_CORES and bool(_MULTIPLIES & {one.base, *one.modifiers})


def _mover(one: Instruction) -> Callable[[int], list[str]] | None:
    """The instructions that move the result up (0) or down (1); None where none can."""
    kind = _type(one)
    if kind not in _FACTORS or len(one.writes) != 1:
        return None
    [result] = one.writes
    factors = _FACTORS[kind]
    if one.base == "tanh":
        factors = _OF_TANH
    elif kind == "f64" and not _is_approximate(one):
        factors = _EXACT_F64
    summands = _SUMMANDS.get(one.base)

    def move(sign: int) -> list[str]:
        lines = [f"mul.rn.{kind} {result}, {result}, {factors[sign]};"]
        if summands:
            lines.append(f"add.rn.{kind} {result}, {result}, {summands[sign]};")
        return [f"{one.guard} {line}".strip() for line in lines]

    return move


def moved_variants(ptx: str) -> list[str]:
    """The program with what it leaves open chosen otherwise, in several ways."""
    document = parse(ptx)
    movers = [(place, mover) for place, one in _free(document) if (mover := _mover(one))]
    if not movers:
        return []
    variants = []
    for sign in _SIGNS:
        changes: dict[int, Sequence[Statement]] = {}
        for number, (place, move) in enumerate(movers):
            changes[place] = (document.statements[place], *_lines(move(sign(number))))
        variants.append(str(document.replaced(changes)))
    return variants


def _lines(texts: Sequence[str]) -> list[Statement]:
    return [statement(StatementKind.INSTRUCTION, text) for text in texts]


def _undefined(document: Document) -> list[str]:
    return list(
        dict.fromkeys(
            read.register
            for function in document.functions
            for read in undefined_reads(document, function)
        )
    )


def filled_variants(ptx: str) -> list[str]:
    """The program with every register that it may read undefined filled; none if there is none."""
    document = without_scopes(parse(ptx))
    variants = []
    for filling in _FILLINGS:
        changes: dict[int, Sequence[Statement]] = {}
        for function in document.functions:
            names = dict.fromkeys(each.register for each in undefined_reads(document, function))
            first = next(
                (n for n in function.body if document.statements[n].kind in _BEGINNINGS), None
            )
            if names and first is not None:
                types = read_registers(document, function)
                fill = [_filled(name, types.type_of(name) or "", filling) for name in names]
                changes[first] = (*_lines(fill), document.statements[first])
        if changes:
            variants.append(str(document.replaced(changes)))
    return variants


_BEGINNINGS = frozenset({StatementKind.INSTRUCTION, StatementKind.LABEL})


def _filled(name: str, kind: str, value: int) -> str:
    if kind == ".pred":
        return f"setp.eq.u32 {name}, {value & 1}, 1;"
    width = _WIDTH.match(kind)
    bits = int(width[1]) if width else 32
    return f"mov.b{bits} {name}, {value & ((1 << bits) - 1):#x};"
