"""Instructions on scalars: PTX of each, and the function of the emulator that it must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.arithmetic import approximate, approximate_divide, dp2a, dp4a
from gpu_emulator.numbers.conversion import convert, integer_type, pack_integers
from gpu_emulator.numbers.formats import FORMATS, from_float64, to_float64

__all__ = ["Case", "cases", "inputs", "module_text"]

Compute = Callable[..., np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An instruction: `widths` are the bits of its operands, `width` those of its result.

    `format` is that of the result where the comparison is in units in the last place, else None:
    then every bit counts. `kinds` are the types of the operands, for inputs of interest.
    """

    opcode: str
    kinds: tuple[str, ...]
    width: int
    compute: Compute
    approximate: str | None = None
    body: str | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each operand."""
        return tuple(_width(kind) for kind in self.kinds)


def _width(kind: str) -> int:
    digits = "".join(c for c in kind if c.isdigit()) if kind[0] in "sub" else ""
    if (digits and kind[0] in "su") or (kind.startswith("b") and not kind.startswith("bf")):
        return int(digits)
    if kind.endswith("x2"):
        return 2 * _width(kind.removesuffix("x2"))
    return FORMATS[kind].width


def _pair(operation: Compute) -> Compute:
    return partial(arithmetic.packed, operation, 16)


MODES = ("rn", "rz", "rm", "rp")
BINARY = {"add": arithmetic.add, "sub": arithmetic.subtract, "mul": arithmetic.multiply}


def _single() -> Iterator[Case]:
    f32 = "f32"
    for mode in MODES:
        for ftz in (False, True):
            tail = ".ftz" * ftz
            for name, function in BINARY.items():
                for sat in (False, True):
                    yield Case(
                        opcode=f"{name}.{mode}{tail}{'.sat' * sat}.f32", kinds=(f32, f32), width=32,
                        compute=partial(function, f32, rounding=mode, ftz=ftz, sat=sat),
                    )  # fmt: skip
            for sat in (False, True):
                yield Case(
                    opcode=f"fma.{mode}{tail}{'.sat' * sat}.f32", kinds=(f32,) * 3, width=32,
                    compute=partial(arithmetic.fma, f32, rounding=mode, ftz=ftz, sat=sat),
                )  # fmt: skip
            yield Case(
                opcode=f"div.{mode}{tail}.f32", kinds=(f32, f32), width=32,
                compute=partial(arithmetic.divide, f32, rounding=mode, ftz=ftz),
            )  # fmt: skip
            yield Case(
                opcode=f"sqrt.{mode}{tail}.f32", kinds=(f32,), width=32,
                compute=partial(arithmetic.square_root, f32, rounding=mode, ftz=ftz),
            )  # fmt: skip
            yield Case(
                opcode=f"rcp.{mode}{tail}.f32", kinds=(f32,), width=32,
                compute=partial(arithmetic.reciprocal, f32, rounding=mode, ftz=ftz),
            )  # fmt: skip


def _double() -> Iterator[Case]:
    f64 = "f64"
    for mode in MODES:
        for name, function in BINARY.items():
            yield Case(
                opcode=f"{name}.{mode}.f64", kinds=(f64, f64), width=64,
                compute=partial(function, f64, rounding=mode),
            )  # fmt: skip
        for name, other, count in (
            ("fma", arithmetic.fma, 3), ("div", arithmetic.divide, 2),
            ("sqrt", arithmetic.square_root, 1), ("rcp", arithmetic.reciprocal, 1),
        ):  # fmt: skip
            yield Case(
                opcode=f"{name}.{mode}.f64", kinds=(f64,) * count, width=64,
                compute=partial(other, f64, rounding=mode),
            )  # fmt: skip
    for largest, name in ((False, "min"), (True, "max")):
        yield Case(
            opcode=f"{name}.f64", kinds=(f64, f64), width=64,
            compute=partial(arithmetic.extremum, f64, largest=largest),
        )  # fmt: skip


def _half() -> Iterator[Case]:
    for kind in ("f16", "bf16"):
        tails = ("", ".ftz", ".sat", ".ftz.sat") if kind == "f16" else ("",)
        for tail in tails:
            flags: dict[str, Any] = {"ftz": ".ftz" in tail, "sat": ".sat" in tail}
            for name, function in BINARY.items():
                op = partial(function, kind, **flags)
                yield Case(
                    opcode=f"{name}.rn{tail}.{kind}", kinds=(kind, kind), width=16, compute=op
                )
                yield Case(
                    opcode=f"{name}.rn{tail}.{kind}x2", kinds=(f"{kind}x2",) * 2, width=32,
                    compute=_pair(op),
                )  # fmt: skip
        for tail in (*tails, ".relu", *((".ftz.relu",) if kind == "f16" else ())):
            op = partial(
                arithmetic.fma, kind, ftz=".ftz" in tail, sat=".sat" in tail, relu=".relu" in tail
            )
            yield Case(opcode=f"fma.rn{tail}.{kind}", kinds=(kind,) * 3, width=16, compute=op)
            yield Case(
                opcode=f"fma.rn{tail}.{kind}x2", kinds=(f"{kind}x2",) * 3, width=32,
                compute=_pair(op),
            )  # fmt: skip


def _extremes() -> Iterator[Case]:
    for kind in ("f32", "f16", "bf16"):
        for ftz in (False, True):
            if ftz and kind == "bf16":
                continue
            for nan in (False, True):
                for xorsign in (False, True):
                    for largest, name in ((False, "min"), (True, "max")):
                        tail = ".ftz" * ftz + ".NaN" * nan + ".xorsign.abs" * xorsign
                        yield Case(
                            opcode=f"{name}{tail}.{kind}", kinds=(kind, kind), width=_width(kind),
                            compute=partial(
                                arithmetic.extremum, kind, largest=largest, ftz=ftz, nan=nan,
                                xorsign=xorsign,
                            ),
                        )  # fmt: skip


def _holds(to: str, source: str) -> bool:
    """Whether a type has every value of another: ptxas refuses `.sat` then."""
    kinds = integer_type(to), integer_type(source)
    assert kinds[0] is not None
    assert kinds[1] is not None
    outer, inner = np.iinfo(kinds[0]), np.iinfo(kinds[1])
    return outer.min <= inner.min and outer.max >= inner.max


def _conversions() -> Iterator[Case]:
    def case(opcode: str, to: str, source: str, **flags: Any) -> Case:
        return Case(
            opcode=opcode, kinds=(source,), width=_width(to),
            compute=partial(convert, to=to, source=source, **flags),
        )  # fmt: skip

    integers = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
    for to in integers:
        for source in integers:
            if to != source:
                yield case(f"cvt.{to}.{source}", to, source)
                if not _holds(to, source):
                    yield case(f"cvt.sat.{to}.{source}", to, source, sat=True)
        for source in ("f16", "bf16", "f32", "f64"):
            if source == "bf16" and to.endswith("8"):
                continue
            for mode in ("rni", "rzi", "rmi", "rpi"):
                yield case(f"cvt.{mode}.{to}.{source}", to, source, rounding=mode)
                if source == "f32":
                    yield case(f"cvt.{mode}.ftz.{to}.f32", to, source, rounding=mode, ftz=True)
            for mode in MODES:
                yield case(f"cvt.{mode}.{source}.{to}", source, to, rounding=mode)
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for kind in ("f16", "f32", "f64"):
            yield case(f"cvt.{mode}.{kind}.{kind}", kind, kind, rounding=mode)
    for mode in MODES:
        yield case(f"cvt.{mode}.f32.f64", "f32", "f64", rounding=mode)
        yield case(f"cvt.{mode}.ftz.f32.f64", "f32", "f64", rounding=mode, ftz=True)
        yield case(f"cvt.{mode}.sat.f32.f64", "f32", "f64", rounding=mode, sat=True)
        yield case(f"cvt.{mode}.f16.f32", "f16", "f32", rounding=mode)
        yield case(f"cvt.{mode}.f16.f64", "f16", "f64", rounding=mode)
    yield case("cvt.f64.f32", "f64", "f32")
    yield case("cvt.ftz.f64.f32", "f64", "f32", ftz=True)
    yield case("cvt.f32.f16", "f32", "f16")
    yield case("cvt.f32.bf16", "f32", "bf16")
    yield case("cvt.f64.f16", "f64", "f16")
    for mode in ("rn", "rz"):
        for relu in (False, True):
            tail = ".relu" * relu
            yield case(f"cvt.{mode}{tail}.bf16.f32", "bf16", "f32", rounding=mode, relu=relu)
            yield case(f"cvt.{mode}{tail}.f16.f32", "f16", "f32", rounding=mode, relu=relu)
            if mode == "rn":
                yield case(f"cvt.rn{tail}.tf32.f32", "tf32", "f32", rounding="rn", relu=relu)
    yield case("cvt.rz.tf32.f32", "tf32", "f32", rounding="rz")
    yield case("cvt.rna.tf32.f32", "tf32", "f32", rounding="rna")
    yield from _packed_conversions()


def _two(to: str, source: str, width: int, **flags: Any) -> Compute:
    """The first operand goes to the upper half."""

    def compute(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        upper, lower = (convert(x, to, source, **flags) for x in (a, b))
        whole = np.dtype(f"u{width // 8}").type
        return np.asarray((upper.astype(whole) << whole(width // 2)) | lower.astype(whole))

    return compute


def _halves(to: str, source: str, **flags: Any) -> Compute:
    """Each half of a register on its own: 16 bits to two of 8, or the other way."""

    def compute(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        own = a.dtype.itemsize * 4
        parts = [(a >> a.dtype.type(s)) & a.dtype.type((1 << own) - 1) for s in (0, own)]
        low, high = (convert(x, to, source, **flags) for x in parts)
        width = 16 * low.dtype.itemsize
        whole = np.dtype(f"u{width // 8}").type
        return np.asarray(low.astype(whole) | (high.astype(whole) << whole(width // 2)))

    return compute


def _packed_conversions() -> Iterator[Case]:
    for to in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            for relu in (False, True):
                yield Case(
                    opcode=f"cvt.{mode}{'.relu' * relu}.{to}x2.f32", kinds=("f32", "f32"), width=32,
                    compute=_two(to, "f32", 32, rounding=mode, relu=relu),
                )  # fmt: skip
    for to in ("e4m3", "e5m2"):
        for relu in (False, True):
            flags = {"rounding": "rn", "satfinite": True, "relu": relu}
            tail = ".relu" * relu
            yield Case(
                opcode=f"cvt.rn.satfinite{tail}.{to}x2.f32", kinds=("f32", "f32"), width=16,
                compute=_two(to, "f32", 16, **flags),
            )  # fmt: skip
            yield Case(
                opcode=f"cvt.rn.satfinite{tail}.{to}x2.f16x2", kinds=("f16x2",), width=16,
                compute=_halves(to, "f16", **flags),
            )  # fmt: skip
            yield Case(
                opcode=f"cvt.rn{tail}.f16x2.{to}x2", kinds=(f"{to}x2",), width=32,
                compute=_halves("f16", to, rounding="rn", relu=relu),
            )  # fmt: skip
    for to in ("u8", "s8"):
        yield Case(
            opcode=f"cvt.pack.sat.{to}.s32.b32", kinds=("s32", "s32", "b32"), width=32,
            compute=partial(pack_integers, to=to),
        )  # fmt: skip
    for to in ("u16", "s16"):
        yield Case(
            opcode=f"cvt.pack.sat.{to}.s32", kinds=("s32", "s32"), width=32,
            compute=partial(pack_integers, c=None, to=to),
        )  # fmt: skip


def _dots() -> Iterator[Case]:
    for x in ("u32", "s32"):
        for y in ("u32", "s32"):
            signs: dict[str, Any] = {"a_signed": x == "s32", "b_signed": y == "s32"}
            yield Case(
                opcode=f"dp4a.{x}.{y}", kinds=("b32",) * 3, width=32, compute=partial(dp4a, **signs)
            )
            for high, part in ((False, "lo"), (True, "hi")):
                yield Case(
                    opcode=f"dp2a.{part}.{x}.{y}", kinds=("b32",) * 3, width=32,
                    compute=partial(dp2a, high=high, **signs),
                )  # fmt: skip


def _approximations() -> Iterator[Case]:
    for name in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"):
        for ftz in (False, True):
            yield Case(
                opcode=f"{name}.approx{'.ftz' * ftz}.f32", kinds=("f32",), width=32,
                compute=partial(approximate, name, "f32", ftz=ftz), approximate="f32",
            )  # fmt: skip
    for name, kind, tail in (
        ("tanh", "f32", ""), ("tanh", "f16", ""), ("tanh", "bf16", ""),
        ("ex2", "f16", ""), ("ex2", "bf16", ".ftz"),
    ):  # fmt: skip
        yield Case(
            opcode=f"{name}.approx{tail}.{kind}", kinds=(kind,), width=_width(kind),
            compute=partial(approximate, name, kind, ftz=bool(tail)), approximate=kind,
        )  # fmt: skip
    for full, word in ((False, "approx"), (True, "full")):
        for ftz in (False, True):
            yield Case(
                opcode=f"div.{word}{'.ftz' * ftz}.f32", kinds=("f32", "f32"), width=32,
                compute=partial(approximate_divide, full=full, ftz=ftz), approximate="f32",
            )  # fmt: skip
    for name in ("rcp", "rsqrt"):
        yield Case(
            opcode=f"{name}.approx.ftz.f64", kinds=("f64",), width=64,
            compute=partial(approximate, name, "f64", ftz=True), approximate="f64",
        )  # fmt: skip


def cases() -> list[Case]:
    """Every instruction that sm_90a has of those that the emulator computes."""
    groups = (_single, _double, _half, _extremes, _conversions, _dots, _approximations)
    return [case for group in groups for case in group()]


def _special(kind: str) -> np.ndarray[Any, Any]:
    """Zeros, ones, the ends of the ranges, halves, infinities and NaN of a type."""
    width = _width(kind)
    unsigned = np.dtype(f"u{width // 8}")
    if kind.endswith("x2") or (kind.startswith("b") and not kind.startswith("bf")):
        return np.array([0, 1, (1 << width) - 1, 1 << (width - 1)], unsigned)
    if integer_type(kind) is not None:
        edges = [
            0,
            1,
            2,
            (1 << width) - 1,
            (1 << width) - 2,
            1 << (width - 1),
            (1 << (width - 1)) - 1,
        ]
        return np.array(edges, unsigned)
    form = FORMATS[kind]
    if width < 16:
        return np.arange(256, dtype=np.uint8)
    values = np.array([0.0, 1.0, 1.5, 2.0, 3.0, 0.5, 2.5, 0.25, 1 / 3, 127.5, 255.5, 448.0, 464.0])
    codes = [0, 1, 2, (1 << form.mantissa) - 1, 1 << form.mantissa, (1 << form.mantissa) + 1]
    codes += [form.top, form.top - 1, form.top + 1, form.top + 2, (1 << (width - 1)) - 1]
    powers = 2.0 ** np.array(
        [7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64, 126, 127, -126, -24, -25]
    )
    # Ties of narrower formats, and a little to each side.
    ties = np.concatenate([1 + 2.0 ** -np.arange(4, 13), 1 + 3 * 2.0 ** -np.arange(4, 13)])
    positive = np.concatenate(
        [from_float64(np.concatenate([values, powers, ties]), kind), np.array(codes, unsigned)]
    )
    near = np.concatenate([positive, positive + unsigned.type(1), positive - unsigned.type(1)])
    sign = unsigned.type(1 << (width - 1))
    of_both_signs: np.ndarray[Any, Any] = np.unique(np.concatenate([near & ~sign, near | sign]))
    return of_both_signs


def inputs(case: Case, count: int) -> list[np.ndarray[Any, Any]]:
    """Operands: all pairs of special values, then random ones, some of them close to each other."""
    rng = np.random.default_rng(len(case.opcode))
    special = [_special(kind) for kind in case.kinds]
    if len(special) > 1:
        first = [x[rng.integers(0, x.size, count // 2)] for x in special]
    else:
        first = [special[0]]
    rest = count - first[0].size
    columns = []
    for kind, start in zip(case.kinds, first, strict=True):
        width = _width(kind)
        bits = rng.integers(0, (1 << width) - 1, rest, dtype=np.uint64, endpoint=True)
        columns.append(np.concatenate([start, bits.astype(start.dtype)]))
    if len(columns) == 3 and case.kinds[0] in FORMATS:
        _cancel(case.kinds[0], columns, count - rest // 2)
    elif case.kinds[0] in ("f32", "f64") and len(columns) == 1:
        # Half of the random ones in the range where functions are not trivial.
        tail = rng.normal(0, 20, rest // 2)
        columns[0][-tail.size :] = from_float64(tail, case.kinds[0])
    return columns


def _cancel(kind: str, columns: list[np.ndarray[Any, Any]], start: int) -> None:
    """Give the last elements addends that nearly cancel the product, or are half a unit of it."""
    a, b = (to_float64(x[start:], kind) for x in columns[:2])
    with np.errstate(all="ignore"):
        product = a * b
    third = product.size // 3
    shift = FORMATS[kind].mantissa + 1
    columns[2][start : start + third] = from_float64(-product[:third], kind)
    tiny = product[third : 2 * third] * 2.0**-shift
    columns[2][start + third : start + 2 * third] = from_float64(tiny, kind)


_HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def _entry(case: Case, name: str) -> str:
    """A kernel: thread i computes element i."""
    parameters = ", ".join(f".param .u64 p{i}" for i in range(len(case.kinds) + 1))
    lines, arguments = [], []
    for i, width in enumerate((case.width, *case.widths)):
        register = f"%v{i}"
        lines.append(f".reg .b{max(16, width)} {register};")
        lines.append(f"ld.param.u64 %a{i}, [p{i}];")
        lines.append(f"mad.wide.u32 %a{i}, %i, {width // 8}, %a{i};")
        if i:
            kind = f"u{width}" if width == 8 else f"b{width}"
            lines.append(f"ld.global.{kind} {register}, [%a{i}];")
            arguments.append(register)
    lines.append(f"{case.opcode} %v0, {', '.join(arguments)};")
    kind = f"u{case.width}" if case.width == 8 else f"b{case.width}"
    lines.append(f"st.global.{kind} [%a0], %v0;")
    body = "\n".join(lines)
    return (
        f".visible .entry {name}({parameters}, .param .u64 n)\n{{\n.reg .b32 %i, %b, %t;\n"
        f".reg .b64 %a<4>, %n, %w;\n.reg .pred %q;\nmov.u32 %i, %ctaid.x;\nmov.u32 %b, %ntid.x;\n"
        "mov.u32 %t, %tid.x;\nmad.lo.u32 %i, %i, %b, %t;\nld.param.u64 %n, [n];\n"
        "cvt.u64.u32 %w, %i;\nsetp.ge.u64 %q, %w, %n;\n@%q ret;\n"
        f"{body}\nret;\n}}\n"
    )


def module_text(some: list[Case]) -> str:
    """One module with an entry `k<number>` for each case."""
    return _HEADER + "".join(_entry(case, f"k{i}") for i, case in enumerate(some))
