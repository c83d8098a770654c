"""Makes PTX that is well defined by construction, from the emulator's own table of opcodes. Pure.

An opcode is taken if its row says, while a line is bound, what its operands are (`opcode_forms`):
what the emulator learns is generated from then on. Left out is what the PTX ISA leaves open:
approximate operations, sums and products that may be contracted, the sign of a NaN where it decides
something, division by what may be zero. Every register that is read is written first, loops are
bounded, a warp is whole where it works as one, and a carry is read directly behind what sets it.

A program follows from its seed, the opcodes and what is left out. Each thread has inputs of its
own; a third of them are edge values.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from gpu_emulator.ptx.forms import LOP3_TABLE, TYPE_BITS, OpcodeForm
from gpu_emulator.ptx.forms import opcode_forms as emulated_forms
from gpu_emulator.values import Allocation, Launch, Pointer, Scalar
from harness.hunt.changes import Program
from harness.run.comparing import Array

# Which opcodes there are, and of which types their operands.

_FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2", "tf32")
_LEFT_OUT = frozenset((
    "approx", "full", "rs", "xorsign", "oob", "copysign", "cvta", "isspacep", "mov", "activemask",
    "elect", "fns", "movmatrix", "mapa", "getctarank", "stacksave", "stackrestore", "alloca", "bar",
    "barrier", "clusterlaunchcontrol", "addc", "subc", "madc", "ld", "st", "ldu", "atom", "red",
    "cp", "mma", "wgmma", "wmma", "tcgen05", "mbarrier", "multimem", "tensormap", "prefetch",
    "createpolicy", "ldmatrix", "stmatrix", "applypriority", "discard",
))  # fmt: skip
"""Words of opcodes that are open, tell of the machine, or have a statement of their own."""
_MANY, _FEW = 160, 16
"""Opcodes of one first word in a hunt; of video instructions, which no GPU has any more."""


@cache
def opcode_forms() -> tuple[OpcodeForm, ...]:
    """The opcodes that are generated: what comes out is said by the PTX ISA, whatever goes in."""
    forms: dict[tuple[str, int, int], OpcodeForm] = {}
    for form in emulated_forms(_LEFT_OUT):
        kinds = [_domain(form.opcode, kind) for kind in form.operands]
        if form.meets:
            kinds[-1] = "b32"
        results = tuple(_domain(form.opcode, kind, is_result=True) for kind in form.results)
        typed = replace(form, results=results, operands=tuple(kinds))
        if _is_closed(typed):
            forms.setdefault((form.opcode, len(kinds), len(results)), typed)
    return tuple(forms.values())


def some_forms(seed: int) -> list[OpcodeForm]:
    """Some opcodes of each first word: a hunt with another seed has others of the largest."""
    draw, bases = random.Random(seed), dict[str, list[OpcodeForm]]()  # noqa: S311 - to repeat
    for form in opcode_forms():
        bases.setdefault(form.base, []).append(form)
    return [
        form
        for base, forms in sorted(bases.items())
        for form in draw.sample(forms, min(len(forms), _FEW if _is_video(base) else _MANY))
    ]


def _domain(opcode: str, kind: str, *, is_result: bool = False) -> str:
    """What kind of value it is: floats are bits to a row, and no others may be taken for them."""
    words = opcode.split(".")
    if words[0] == "cvt" and words[1] != "pack":
        *_, to, source = words
        kind = to if is_result else source
        bits = "b16" if kind.startswith(("e4", "e5", "e2", "e3", "ue")) else "b32"
        return {"tf32": "f32"}.get(kind, kind if kind in TYPE_BITS else bits)
    fitting = [word for word in words if word in _FLOATS and TYPE_BITS[word] == TYPE_BITS[kind]]
    return fitting[0] if kind[0] == "b" and fitting else kind


def _is_closed(form: OpcodeForm) -> bool:
    """Whether the PTX ISA says what comes out, whatever goes in."""
    is_float = bool({*form.results, *form.operands} & set(_FLOATS))
    is_rounded = not {"rn", "rz", "rm", "rp"}.isdisjoint(form.opcode.split("."))
    if form.base in ("add", "sub", "mul", "mad"):
        return is_rounded or not is_float  # else it may be contracted
    return is_float or form.base not in ("div", "rem")


# Programs.

THREADS, WORDS, RESULTS = 64, 16, 64
"""Threads of the one block; 4-byte words that each reads, bytes that each writes."""

_PREFIXES = {
    "pred": "p", "b16": "h", "b32": "r", "b64": "d", "f16": "x", "bf16": "y", "f32": "f",
    "f64": "g", "f16x2": "w", "bf16x2": "v", "f32x2": "s",
}  # fmt: skip
_WIDTHS = {"pred": ".pred", 16: ".b16", 32: ".b32", 64: ".b64"}
_DOMAINS = {
    **{f"{letter}{bits}": f"b{max(bits, 16)}" for letter in "bus" for bits in (8, 16, 32, 64)},
    "tf32": "f32",
    "u16x2": "b32", "s16x2": "b32",
}  # fmt: skip
"""Which registers hold values of a type: integers of a width are one kind, floats their own."""

_EDGES = (
    0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000,
    0xFFFF, 0x1_0000, 0xFF_FFFF, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFE, 0xFFFF_FFFF,
    0xFFFF_0000, 0xFF00_FF00, 0x00FF_00FF, 0x5555_5555, 0x3F80_0000,
)  # fmt: skip
_WIDE_EDGES = (
    1 << 32, (1 << 32) - 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 0xFFFF_FFFF_0000_0000,
    0x8000_0000_8000_0000,
)  # fmt: skip
_AMOUNTS = (0, 1, 2, 4, 7, 8, 12, 15, 16, 17, 24, 30, 31, 32, 33, 63, 64, 255)
_SELECTORS = (0x8888, 0x9999, 0xBA98, 0x0123, 0x3210, 0x7654, 0x8080, 0x4440, 0x0004, 0xF0F0)
_FLOAT_EDGES = (
    0x0000_0000, 0x8000_0000, 0x3F80_0000, 0xBF80_0000, 0x3F00_0000, 0x7F80_0000, 0xFF80_0000,
    0x7FC0_0000, 0x0080_0000, 0x0000_0001, 0x807F_FFFF, 0x7F7F_FFFF, 0x4B80_0000, 0x4F00_0000,
    0xCF00_0000, 0x4780_0000, 0x437F_0000, 0x3EAA_AAAB, 0x4B7F_FFFF,
)  # fmt: skip
_SHIFTING = ("shl", "shr", "shf", "bfe", "bfi", "szext", "bmsk")
_CARRY_CHAINS = (
    ("add.cc.u32", "addc.cc.u32", "addc.u32", "u32"), ("sub.cc.u32", "subc.cc.u32", "subc.u32",
    "u32"), ("mad.lo.cc.u32", "madc.hi.cc.u32", "madc.lo.u32", "u32"), ("add.cc.u64", "addc.cc.u64",
    "addc.u64", "u64"), ("add.cc.s32", "addc.cc.s32", "addc.s32", "s32"),
)  # fmt: skip
_ORDERS = ("eq", "ne", "lt", "le", "gt", "ge")


def program_text(head: str, lines: Iterable[str]) -> str:
    """A module of one entry: its first lines, and those of its body."""
    parameters = ".param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m"
    body = "\n".join(lines)
    return f"{head}.visible .entry k({parameters})\n{{\n{body}\n}}\n"


def launch_of(seed: int, text: str, entry: str | None = None) -> Launch:
    """A program with the inputs of its seed; the results begin as bytes that nothing wrote."""
    draw = np.random.default_rng(seed)
    words = draw.integers(0, 1 << 32, (THREADS, WORDS), np.uint32)
    edges = np.where(draw.random((THREADS, WORDS)) < 1 / 3, draw.choice(_EDGES, words.shape), words)
    small = np.where(draw.random((THREADS, WORDS)) < 1 / 4, edges % 67, edges).astype(np.uint32)
    # The last words are floats: of an exponent near 0, or edges.
    floats = small[:, WORDS // 2 :]
    floats[:] = (floats & 0x8FFF_FFFF) | 0x3800_0000
    at = draw.random(floats.shape) < 1 / 3
    floats[at] = draw.choice(np.array(_FLOAT_EDGES, np.uint32), int(at.sum()))
    results = np.full(THREADS * RESULTS, 0xA5, np.uint8)
    scalars = draw.choice(np.array(_EDGES, np.uint32), 2)
    return Launch(
        ptx=text,
        entry=entry,
        grid=(1, 1, 1),
        block=(THREADS, 1, 1),
        allocations=(
            Allocation(name="in", data=np.ascontiguousarray(small).view(np.uint8).reshape(-1)),
            Allocation(name="out", data=results),
        ),
        arguments=(
            Pointer(allocation=0),
            Pointer(allocation=1),
            *(Scalar(raw=int(value).to_bytes(4, "little")) for value in scalars),
        ),
    )


# Where a thread's results lie, as (first byte, bytes, how many), of each kind of register.
_SLOTS = {"b32": (0, 4, 4), "b64": (16, 8, 2), "f32": (32, 4, 2), "f64": (40, 8, 2)}
_NARROW = {"f16": (56, 2, 2), "bf16": (60, 2, 2)}


def comparable(out: Array) -> Array:
    """The bytes of a result with one NaN for all: which one it is, is left open."""
    rows = np.array(out, np.uint8).reshape(THREADS, RESULTS)
    for first, size, count in (_SLOTS["f32"], _SLOTS["f64"], *_NARROW.values()):
        part = np.ascontiguousarray(rows[:, first : first + size * count])
        bits = part.view(f"u{size}")
        shift, mask = {4: (23, 0xFF), 8: (52, 0x7FF), 2: (10, 0x1F)}[size]
        if first == _NARROW["bf16"][0]:
            shift, mask = 7, 0xFF
        one = bits.dtype.type
        is_nan = ((bits >> one(shift)) & one(mask) == one(mask)) & (
            bits & one((1 << shift) - 1) != 0
        )
        bits[is_nan] = one(~one(0))
        rows[:, first : first + size * count] = bits.view(np.uint8)
    return rows


@dataclass
class _ProgramWriter:
    """One program while it is written."""

    draw: random.Random
    forms: Sequence[Sequence[OpcodeForm]]
    sizes: dict[str, int]
    lines: list[str] = field(default_factory=list)
    used: dict[str, dict[str, None]] = field(default_factory=dict)
    recent: dict[str, list[str]] = field(default_factory=dict)
    counters: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    labels: int = 0
    depth: int = 0
    is_parted: bool = False

    def register(self, domain: str, *, is_written: bool = False) -> str:
        """A register to read, most often one that was written lately; or one to write."""
        names = self.recent.setdefault(domain, [])
        if not is_written and names and self.draw.random() < 0.65:
            return self.draw.choice(names[-3:])
        name = f"%{_PREFIXES[domain]}{self.draw.randrange(self.sizes.get(domain, 3))}"
        self.used.setdefault(domain, {})[name] = None
        if is_written:
            names.append(name)
        return name

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def operand(self, form: OpcodeForm, number: int) -> str:
        kind = form.operands[number]
        domain = _DOMAINS.get(kind, kind)
        if form.meets and number == len(form.operands) - 1:
            return "0xffffffff"
        if form.base == "shfl" and number:
            values = (1, 2, 4, 16, 31) if number == 1 else (0x1F, 0x1F, 0, 0x1C1F, 0x1807)
            return str(self.draw.choice(values))
        if kind == "pred" and form.base in ("setp", "set") and self.draw.random() < 0.2:
            return f"!{self.register('pred')}"
        has_none = kind in ("pred", "f16", "bf16", "u8", "s8") or kind.endswith("x2")
        share = 0.0 if has_none else 0.3
        if form.base in _SHIFTING and number and kind == "u32":
            is_amount = self.draw.random() < 0.7
            return str(self.draw.choice(_AMOUNTS)) if is_amount else self.register(domain)
        if form.base == "prmt" and number == 2:
            share = 0.8
        if _is_video(form.base):
            share = 0.0  # a constant there has no parts to select
        if number == 0:
            share /= 4
        if self.draw.random() < share:
            return self.selector() if form.base == "prmt" and number == 2 else self.constant(kind)
        return self.register(domain)

    def selector(self) -> str:
        if self.draw.random() < 0.5:
            return hex(self.draw.choice(_SELECTORS))
        return hex(self.draw.randrange(1 << 16))

    def constant(self, kind: str) -> str:
        draw, bits = self.draw, TYPE_BITS[kind]
        if kind == "f32":
            return f"0f{draw.choice(_FLOAT_EDGES):08X}"
        if kind == "f64":
            single = np.array([draw.choice(_FLOAT_EDGES)], np.uint32).view(np.float32)
            return f"0d{int(single.astype(np.float64).view(np.uint64)[0]):016X}"
        edges = [*_EDGES, *(_WIDE_EDGES if bits == 64 else ())]
        value = draw.choice(edges) if draw.random() < 0.8 else draw.getrandbits(bits)
        value = -value if draw.random() < 0.15 else value
        value %= 1 << bits
        if kind[0] == "s" or draw.random() < 0.3:
            is_low = kind[0] != "u" and value >= 1 << (bits - 1)
            return str(value - (1 << bits)) if is_low else str(value)
        return hex(value)

    def put(self, line: str) -> None:
        self.lines.append(f"\t{line}")

    def compute(self) -> None:
        """One opcode; where threads parted, none for which a warp has to be whole."""
        forms = self.draw.choice(self.forms)
        form = self.draw.choice(forms)
        if form.meets and self.is_parted:
            return
        operands = [self.operand(form, number) for number in range(len(form.operands))]
        if form.table is not None:
            operands.insert(form.table, hex(self.draw.randrange(256)))
        guard = ""
        if not form.meets and self.draw.random() < 0.08:
            guard = f"@{self.draw.choice(('', '!'))}{self.register('pred')} "
        results = [self.register(_DOMAINS.get(k, k), is_written=True) for k in form.results]
        if len(set(results)) < len(results):
            return
        self.put(f"{guard}{form.opcode} {'|'.join(results)}, {', '.join(operands)};")

    def carry(self) -> None:
        """A sum of two or three words: the carry is read directly behind what sets it."""
        first, middle, last, kind = self.draw.choice(_CARRY_CHAINS)
        for opcode in (first, *([middle] if self.draw.random() < 0.4 else []), last):
            count = 3 if opcode.startswith("mad") else 2
            form = OpcodeForm(opcode, (kind,), (kind,) * count)
            operands = [self.operand(form, number) for number in range(count)]
            result = self.register(_DOMAINS[kind], is_written=True)
            self.put(f"{opcode} {result}, {', '.join(operands)};")

    def parts(self) -> None:
        """Halves of a register, or a register of halves."""
        wide, narrow, opcode = self.draw.choice(
            (("b32", "b16", "mov.b32"), ("b64", "b32", "mov.b64"))
        )
        halves = [self.register(narrow), self.register(narrow)]
        if self.draw.random() < 0.5:
            self.put(f"{opcode} {self.register(wide, is_written=True)}, {{{', '.join(halves)}}};")
            return
        whole = self.register(wide)
        halves = [self.register(narrow, is_written=True) for _ in range(2)]
        if halves[0] != halves[1]:
            self.put(f"{opcode} {{{', '.join(halves)}}}, {whole};")

    def give(self) -> None:
        """A constant, or what a thread is: its number, its lane."""
        domains = [name for name in ("b32", "b32", "b64", "b16") if name in self.used]
        domain = self.draw.choice(domains or ["b32"])
        value = self.constant(domain)
        if domain == "b32" and self.draw.random() < 0.4:
            value = self.draw.choice(("%tid.x", "%laneid", "%ntid.x", "%ctaid.x"))
        if domain == "b16" and value.startswith("0x"):
            value = str(int(value, 0))
        opcode = f"mov.{domain.replace('b', 'u')}"
        self.put(f"{opcode} {self.register(domain, is_written=True)}, {value};")

    def condition(self) -> str:
        if self.draw.random() < 0.4 and self.used.get("pred"):
            return self.register("pred")
        flag = self.register("pred", is_written=True)
        kind = self.draw.choice(("u32", "s32", "u32", "s32", "s64", "u16"))
        form = OpcodeForm("setp", ("pred",), (kind, kind))
        order = self.draw.choice(_ORDERS)
        self.put(f"setp.{order}.{kind} {flag}, {self.operand(form, 0)}, {self.operand(form, 1)};")
        return flag

    def branch(self, budget: int) -> None:
        """Two ways, or one way round."""
        flag, other, end = self.condition(), self.label(), self.label()
        was_parted, self.is_parted = self.is_parted, True
        has_else = self.draw.random() < 0.5
        self.put(f"@{self.draw.choice(('', '!'))}{flag} bra {other if has_else else end};")
        self.block(max(1, budget // 2))
        if has_else:
            self.put(f"bra {end};")
            self.lines.append(f"{other}:")
            self.block(max(1, budget // 2))
        self.lines.append(f"{end}:")
        self.is_parted = was_parted

    def loop(self, budget: int) -> None:
        """A few rounds: as many for all threads, or for each as many as it has."""
        number = len(self.counters)
        counter, flag, top = f"%k{number}", f"%q{number}", self.label()
        self.counters.append(counter)
        bound = str(self.draw.randrange(1, 6))
        was_parted = self.is_parted
        if self.draw.random() < 0.5:
            bound, self.is_parted = f"%b{number}", True
            self.put(f"and.b32 {bound}, {self.register('b32')}, {self.draw.choice((1, 3, 7))};")
        else:
            self.declared.append(f"%b{number}")
        is_down = self.draw.random() < 0.3
        self.put(f"mov.u32 {counter}, {bound if is_down else 0};")
        self.lines.append(f"{top}:")
        self.block(budget)
        if self.draw.random() < 0.4:
            register = self.register("b32")
            self.put(
                f"{self.draw.choice(('add.u32', 'xor.b32', 'sub.u32', 'mul.lo.u32'))} "
                f"{self.register('b32', is_written=True)}, {register}, {counter};"
            )
        if is_down:
            self.put(f"sub.u32 {counter}, {counter}, 1;")
            self.put(f"setp.gt.s32 {flag}, {counter}, 0;")
        else:
            self.put(f"add.u32 {counter}, {counter}, 1;")
            self.put(f"setp.lt.u32 {flag}, {counter}, {bound};")
        self.put(f"@{flag} bra {top};")
        self.is_parted = was_parted

    def local(self) -> None:
        """A small array of the thread's own, read where a register says."""
        index, address = self.register("b32"), "%la"
        self.declared.append("local")
        for place in range(4):
            self.put(f"st.local.u32 [buffer+{4 * place}], {self.register('b32')};")
        self.put(f"and.b32 %li, {index}, 3;")
        self.put("shl.b32 %li, %li, 2;")
        self.put(f"mov.u64 {address}, buffer;")
        self.put("cvt.u64.u32 %lo, %li;")
        self.put(f"add.u64 {address}, {address}, %lo;")
        self.put(f"ld.local.u32 {self.register('b32', is_written=True)}, [{address}];")

    def exchange(self) -> None:
        """What another thread of the block has, through shared memory."""
        self.declared.append("shared")
        self.put(f"st.shared.u32 [%sa], {self.register('b32')};")
        self.put("bar.sync 0;")
        self.put(f"xor.b32 %si, %sa, {4 * self.draw.choice((1, 2, 16, 31, 32, 63))};")
        kind = self.draw.choice(("u32", "u32", "s16", "u8", "s8"))
        self.put(f"ld.shared.{kind} {self.register('b32', is_written=True)}, [%si];")
        self.put("bar.sync 0;")

    def block(self, budget: int) -> None:
        """Statements, `budget` of them, one inside the other."""
        self.depth += 1
        while budget > 0:
            kind = self.draw.random()
            cost = 1
            if kind < 0.06 and self.depth <= 3 and budget > 2:
                cost = self.draw.randrange(2, min(budget, 10) + 1)
                self.branch(cost)
            elif kind < 0.11 and self.depth <= 2 and budget > 2:
                cost = self.draw.randrange(2, min(budget, 10) + 1)
                self.loop(cost)
            elif kind < 0.14:
                self.carry()
            elif kind < 0.18:
                self.parts()
            elif kind < 0.22:
                self.give()
            elif kind < 0.225:
                self.local()
            elif kind < 0.235 and not self.is_parted:
                self.exchange()
            else:
                self.compute()
            budget -= cost
        self.depth -= 1


# What a program may work on besides words of 32 bits, and how often.
_CHANCES = {
    "pred": 0.9, "b64": 0.35, "b16": 0.35, "f32": 0.25, "f64": 0.08, "f16": 0.1, "bf16": 0.08,
    "f16x2": 0.1, "bf16x2": 0.08, "f32x2": 0.08,
}  # fmt: skip
_VIDEO = 0.02
# The share of programs that may go wrong as is known, since another cause may hide behind that.
_NOT_WALKED_AROUND = 1 / 16


class Generator:
    """Makes programs that begin with the lines of `head`, of some opcodes."""

    def __init__(self, head: str, forms: Sequence[OpcodeForm]) -> None:
        self.head = head
        self._bases: dict[str, dict[frozenset[str], list[OpcodeForm]]] = {}
        for form in forms:
            kinds = (*form.results, *form.operands)
            domains = frozenset(_DOMAINS.get(kind, kind) for kind in kinds)
            self._bases.setdefault(form.base, {}).setdefault(domains, []).append(form)

    def program(self, seed: int, known: Collection[str] = ()) -> Program:
        """The program of a seed; the same each time.

        Most programs have none of the opcodes and first words that are `known` to go wrong.
        """
        draw = random.Random(seed)  # noqa: S311 - to repeat, not to hide
        if draw.random() < _NOT_WALKED_AROUND:
            known = ()
        domains = {"b32", *(name for name, chance in _CHANCES.items() if draw.random() < chance)}
        has_video = draw.random() < _VIDEO
        fitting = {
            base: [there for there in groups if there <= domains]
            for base, groups in self._bases.items()
            if base not in known and (has_video or not _is_video(base))
        }
        bases = sorted(base for base, groups in fitting.items() if groups)
        chosen = draw.sample(bases, min(len(bases), draw.randrange(3, 16)))
        forms = [
            [
                form
                for group in fitting[base]
                for form in self._bases[base][group]
                if form.opcode not in known
            ]
            for base in chosen
        ]
        forms = [some for some in forms if some]
        sizes = {domain: draw.randrange(2, 7 if domain == "b32" else 5) for domain in _PREFIXES}
        writer = _ProgramWriter(draw, forms or [[_COPY]], sizes)
        writer.block(draw.randrange(4, 34))
        results = _results(writer)
        lines = [*_declared(writer), *_beginning(writer), *writer.lines, *results, "\tret;"]
        words = (line.strip().rstrip(";").split(" ") for line in lines)
        opcodes = {line[1] if line[0].startswith("@") else line[0] for line in words}
        return Program(seed, program_text(self.head, lines), opcodes)


def listing(head: str, forms: Sequence[OpcodeForm]) -> tuple[str, dict[int, OpcodeForm]]:
    """A module with each opcode once, and on which line (from 1), for ptxas and in its line table.

    The result of each is stored: ptxas takes away what nothing uses, at every level.
    """
    lines = [*head.splitlines(), '.file 1 "k"', ".visible .entry k(.param .u64 out)", "{"]
    lines += [
        f".reg {_WIDTHS['pred' if domain == 'pred' else TYPE_BITS[domain]]} %{prefix}<6>;"
        for domain, prefix in _PREFIXES.items()
    ]
    lines += [".reg .b64 %out;", ".reg .b32 %z;", "ld.param.u64 %out, [out];"]
    places = {}
    for form in forms:
        kinds = [_DOMAINS.get(kind, kind) for kind in form.results + form.operands]
        names = [f"%{_PREFIXES[kind]}{number}" for number, kind in enumerate(kinds)]
        results, operands = names[: len(form.results)], names[len(form.results) :]
        if form.table is not None:
            operands.insert(form.table, LOP3_TABLE)
        if form.meets:
            operands[-1] = "0xffffffff"
        lines.append(f".loc 1 {len(lines) + 2} 0")
        lines.append(f"{form.opcode} {'|'.join(results)}, {', '.join(operands)};")
        places[len(lines)] = form
        for name, kind in zip(results, kinds, strict=False):
            if kind == "pred":
                lines += [f"selp.u32 %z, 1, 0, {name};", "st.global.u32 [%out], %z;"]
            else:
                lines.append(f"st.global.b{TYPE_BITS[kind]} [%out], {name};")
    return "\n".join([*lines, "ret;", "}", ""]), places


_COPY = OpcodeForm("mov.b32", ("b32",), ("b32",))


def _is_video(base: str) -> bool:
    return base[0] == "v" and base != "vote"


def _results(writer: _ProgramWriter) -> list[str]:
    """Stores of what was written last, each kind where `comparable` looks for it."""
    lines, at = [], {name: first for name, (first, _, _) in (_SLOTS | _NARROW).items()}

    def newest(domain: str) -> list[str]:
        return list(dict.fromkeys(reversed(writer.recent.get(domain, ()))))

    def store(domain: str, name: str) -> None:
        first, size, count = (_SLOTS | _NARROW)[domain]
        if at[domain] < first + size * count:
            lines.append(f"\tst.global.b{8 * size} [%out+{at[domain]}], {name};")
            at[domain] += size

    order = ["b32", "b64", "f32", "f64", "f16", "bf16", "b16", "pred"]
    for domain in order:
        for name in newest(domain)[: writer.draw.randrange(1, 4)]:
            writer.used.setdefault(domain, {})[name] = None
            if domain == "b16":
                lines.append(f"\tcvt.u32.u16 %z0, {name};")
                store("b32", "%z0")
            elif domain == "pred":
                lines.append(f"\tselp.u32 %z0, 1, 0, {name};")
                store("b32", "%z0")
            else:
                store(domain, name)
    for part, bits, letter in (("f16", 32, "y"), ("bf16", 32, "y"), ("f32", 64, "f")):
        for name in newest(f"{part}x2")[:1]:
            lines.append(f"\tmov.b{bits} {{%{letter}8, %{letter}9}}, {name};")
            store(part, f"%{letter}8")
            store(part, f"%{letter}9")
    return lines


def _declared(writer: _ProgramWriter) -> Iterator[str]:
    for domain, names in writer.used.items():
        width = _WIDTHS["pred"] if domain == "pred" else _WIDTHS[TYPE_BITS[domain]]
        yield f"\t.reg {width} {', '.join(names)};"
    for number, _ in enumerate(writer.counters):
        yield f"\t.reg .b32 %k{number}, %b{number};"
        yield f"\t.reg .pred %q{number};"
    yield "\t.reg .b64 %in, %out, %to, %la, %lo;"
    yield "\t.reg .b32 %t, %li, %sa, %si, %z0, %f8, %f9;"
    yield "\t.reg .b16 %y8, %y9;"
    if "local" in writer.declared:
        yield "\t.local .align 16 .b8 buffer[16];"
    if "shared" in writer.declared:
        yield f"\t.shared .align 16 .b8 block[{4 * THREADS}];"


def _beginning(writer: _ProgramWriter) -> Iterator[str]:
    """Addresses, and a value for every register: an input, a parameter, a constant."""
    yield "\tld.param.u64 %in, [in];"
    yield "\tld.param.u64 %out, [out];"
    yield "\tmov.u32 %t, %tid.x;"
    yield f"\tmad.wide.u32 %in, %t, {4 * WORDS}, %in;"
    yield f"\tmad.wide.u32 %out, %t, {RESULTS}, %out;"
    if "shared" in writer.declared:
        yield "\tmov.u32 %sa, block;"
        yield "\tmad.lo.u32 %sa, %t, 4, %sa;"
    for domain, names in writer.used.items():
        for name in names:
            yield from _first_value(writer, domain, name)


def _first_value(writer: _ProgramWriter, domain: str, name: str) -> Iterator[str]:
    draw, half = writer.draw, 2 * WORDS
    word = f"[%in+{4 * draw.randrange(WORDS // 2)}]"
    way = draw.random()
    if domain == "pred":
        yield f"\tld.global.u32 %z0, {word};"
        yield f"\tsetp.{draw.choice(_ORDERS)}.s32 {name}, %z0, {writer.constant('s32')};"
    elif domain in ("b64", "f32x2"):
        first = half if domain == "f32x2" else 0
        yield f"\tld.global.u64 {name}, [%in+{first + 8 * draw.randrange(WORDS // 4)}];"
    elif domain == "f64":
        yield f"\tld.global.f32 %z0, [%in+{half + 4 * draw.randrange(WORDS // 2)}];"
        yield f"\tcvt.f64.f32 {name}, %z0;"
    elif domain == "f32":
        yield f"\tld.global.f32 {name}, [%in+{half + 4 * draw.randrange(WORDS // 2)}];"
    elif TYPE_BITS[domain] == 16:
        kind = "u16" if domain == "b16" else "b16"
        yield f"\tld.global.{kind} {name}, [%in+{2 * draw.randrange(WORDS)}];"
    elif domain == "b32" and way < 0.12:
        yield f"\tld.param.u32 {name}, [{draw.choice('nm')}];"
    elif domain == "b32" and way < 0.25:
        yield f"\tmov.u32 {name}, {writer.constant('u32')};"
    elif domain == "b32" and way < 0.35:
        yield f"\tld.global.{draw.choice(('u8', 's8', 'u16', 's16'))} {name}, {word};"
    else:
        yield f"\tld.global.u32 {name}, {word};"
