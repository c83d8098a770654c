"""What ptxas makes of each form of PTX, executed: do the PTX and its cubins give the same bytes?

    python checks/sass_forms.py [--ptxas 13.5.37] [--target sm_90a] [--sample N] [OPCODE ...]
                                    [--constants | --uniform] [--forms]

Every form of `isa_forms.txt` whose operands are registers becomes an entry that loads them, edge
values and random ones, and stores the result. ptxas assembles it at -O0 and at -O3, nvdisasm lists
the cubins, and the emulator executes all three. An approximate instruction may differ by the band
of `emulator/tests/bands.py`, twice. `--constants` puts a constant in place of an operand,
`--uniform` reads operands from parameters, which ptxas for sm_120a keeps in uniform registers.
`--target sm_100a tcgen05` executes products, copies, loads and stores of tensor memory instead.
`--forms` adds the opcodes of cubins that agree to `sass_compared.txt` beside this file. Exit code
1: a cubin gives something else.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from isa_coverage import Form, accepted, forms, spelled
from sass_truth import forms_of

sys.path.append(str(Path(__file__).parents[1] / "emulator" / "tests"))
from bands import BANDS

from gpu_emulator.api import Allocation, Cubin, Launch, Outcome, Pointer, Scalar, run
from gpu_emulator.numbers.formats import FORMATS, to_float64
from gpu_emulator.steps import Array
from harness.io.toolchains.install import install_nvdisasm, install_ptxas

COMPARED = Path(__file__).with_name("results") / "sass_compared.txt"
LANES, SLOTS, SLOT, BATCH = 128, 12, 16, 150
UNIFORM = 16
"""So many lanes are given their operands as parameters, each in a launch of its own."""
LEVELS = ("-O0", "-O3")
WORDS = ("equal", "differs", "open", "PTX")
WIDTHS = {"p": 1, "h": 16, "r": 32, "rd": 64, "q": 128}
REGISTER = re.compile(r"%(p|h|rd|r|q)(\d+)\b")
HEAD = ".version 9.3\n.target {target}\n.address_size 64\n"
ENTRY = """.visible .entry k{number}(.param .u64 in, .param .u64 out)
{{
.reg .pred %p<24>; .reg .b16 %h<24>; .reg .b32 %r<24>; .reg .b64 %rd<24>; .reg .b128 %q<24>;
.reg .b64 from, to; .reg .b32 lane, word;
ld.param.u64 from, [in]; ld.param.u64 to, [out]; mov.u32 lane, %tid.x;
mad.wide.u32 from, lane, {row}, from; mad.wide.u32 to, lane, {row}, to;
{loads}{text}
{stores}ret;
}}
"""
ROW = SLOTS * SLOT


# Where ptxas 13.5.37 gives something else than the manual, at -O0 as well.
OPEN = {
    r"cvt\.(rm|rp)\.ftz(\.sat)?\.f16\.f32": "ptxas drops .ftz, which shows away from the nearest",
    r"cvt\.rna\.satfinite\.tf32\.f32": "which NaN",
    r"cvt\.(f32\.f32|f64\.f64)": "a signalling NaN: ptxas moves it at -O3",
    r"mma\.sync\.aligned\.m16n8k32\S*\.e[45]m\d": "before sm_120 it is two products of f16",
}


# Products of a warp, spelled as `isa_forms.txt` has it; registers of D, A, B and C behind them.
PRODUCTS = """
m16n8k8.row.col.f32.f16.f16.f32 4 2 1 4
m16n8k16.row.col.f32.f16.f16.f32 4 4 2 4
m16n8k8.row.col.f16.f16.f16.f16 2 2 1 2
m16n8k16.row.col.f16.f16.f16.f16 2 4 2 2
m16n8k8.row.col.f32.bf16.bf16.f32 4 2 1 4
m16n8k16.row.col.f32.bf16.bf16.f32 4 4 2 4
m16n8k4.row.col.f32.tf32.tf32.f32 4 2 1 4
m16n8k8.row.col.f32.tf32.tf32.f32 4 4 2 4
m16n8k16.row.col?{sat:satfinite}.s32.{t:u8|s8}.{u:u8|s8}.s32 4 2 1 4
m16n8k32.row.col?{sat:satfinite}.s32.{t:u8|s8}.{u:u8|s8}.s32 4 4 2 4
m8n8k16.row.col?{sat:satfinite}.s32.{t:u8|s8}.{u:u8|s8}.s32 2 1 1 2
m16n8k32.row.col.f32.{t:e4m3|e5m2}.{u:e4m3|e5m2}.f32 4 4 2 4
m16n8k32.row.col.f16.{t:e4m3|e5m2}.{u:e4m3|e5m2}.f16 2 4 2 2
m8n8k4.row.col.f64.f64.f64.f64 2 1 1 2
m16n8k8.row.col.f64.f64.f64.f64 4 4 2 4
"""


@dataclass(slots=True)
class Result:
    """What became of a form at each level: `equal`, `differs: ...` or the reason of a refusal."""

    form: Form
    levels: dict[str, str] = field(default_factory=dict)
    equal: set[str] = field(default_factory=set)
    """The opcodes of the cubins that agree."""


def products(only: tuple[str, ...] = ()) -> Iterator[Form]:
    """The forms of `PRODUCTS`, and `movmatrix`."""
    moved = Form("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", "Matrix", "movmatrix", "")
    made: list[Form] = []
    for line in PRODUCTS.split("\n")[1:-1]:
        shape, *counts = line.split()
        kind = "$b64" if "f64" in shape else "$b32"
        groups = ("{" + ", ".join([kind] * int(count)) + "}" for count in counts)
        texts = spelled(f"mma.sync.aligned.{shape} {', '.join(groups)}")
        made.extend(Form(text, "Matrix", "mma", "") for text in texts)
    yield from (form for form in (moved, *made) if not only or form.opcode in only)


# What one thread does to tensor memory; the operands are those of `TENSOR_ENTRY`.
TENSOR = """
mma.cta_group::1.kind::{k:f16|tf32|i8|f8f6f4} [%r4], {a:%rd4|[%r5]}, %rd5, %r8, {e:%p2|0|1}
mma.cta_group::1.kind::{k:f16|tf32|i8} [%r4], {a:%rd4|[%r5]}, %rd5, %r8, {%r11, %r12, 0, -1}, %p2
mma.cta_group::1.kind::{k:f16|tf32} [%r4], {a:%rd4|[%r5]}, %rd5, %r8, %p2, 3
mma.ws.cta_group::1.kind::{k:f16|tf32|i8|f8f6f4} [%r4], {a:%rd4|[%r5]}, %rd5, %r8, %p2
mma.cta_group::2.kind::{k:f16|tf32|i8|f8f6f4} [%r4], {a:%rd4|[%r5]}, %rd5, %r8, %p2
mma.cta_group::1.kind::mxf8f6f4.block_scale [%r4], {a:%rd4|[%r5]}, %rd5, %r8, SCALES
mma.cta_group::1.kind::mxf4.block_scale [%r4], {a:%rd4|[%r5]}, %rd5, %r8, SCALES
mma.cta_group::{g:1|2}.kind::mxf4nvf4.block_scale.{x:block32|block16} [%r4], %rd4, %rd5, %r8, SCALES
cp.cta_group::{g:1|2}.{shape:128x256b|4x256b|128x128b|32x128b.warpx4} [%r4], %rd4
cp.cta_group::{g:1|2}.64x128b.warpx2::{shape:02_13|01_23} [%r4], %rd4
shift.cta_group::{g:1|2}.down [%r4]
"""
# Of each shape of a load or a store how many registers and columns `x1` has.
TENSOR_SHAPES = {
    "32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1),
}  # fmt: skip
DESCRIPTORS = {
    "f16": 1 << 4, "tf32": 1 << 4 | 2 << 7 | 2 << 10, "i8": 2 << 4, "f8f6f4": 1 << 4,
    "mxf8f6f4": 1 << 23, "mxf4": 1 << 7 | 1 << 10 | 1 << 23, "mxf4nvf4": 1 << 7 | 1 << 10,
}  # fmt: skip
TENSOR_ENTRY = """.visible .entry k{number}(.param .u64 in, .param .u64 out) {cluster}
{{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<200>; .reg .b64 %rd<9>;
.shared .align 1024 .b8 bytes[24576]; .shared .align 8 .b64 done; .shared .align 4 .b32 base;
mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; setp.lt.u32 %p0, %r0, 32;
ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; ld.global.b32 %r2, [%rd0];
mad.wide.u32 %rd0, %r0, {row}, %rd0; mad.wide.u32 %rd1, %r0, {row}, %rd1;
mad.wide.u32 %rd1, %r1, 128, %rd1; setp.ne.u32 %p2, %r2, 77;
mov.u32 %r10, bytes; mad.lo.u32 %r3, %r0, {row}, %r10;
{loads}setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.init.shared.b64 [done], 1;
fence.proxy.async; mov.u32 %r4, 0;
{allocate}
and.b32 %r9, %r0, 96; shl.b32 %r9, %r9, 16; add.u32 %r9, %r9, %r4;
tcgen05.st.sync.aligned.32x32b.x32.b32 [%r9], {{{words}}};
tcgen05.st.sync.aligned.32x32b.x16.b32 [%r9+32], {{{more}}};
tcgen05.wait::st.sync.aligned; {meet}
add.u32 %r5, %r4, 32; add.u32 %r6, %r4, 40; add.u32 %r7, %r4, 44; mov.b32 %r8, {descriptor};
ld.global.b32 %r11, [%rd0]; ld.global.b32 %r12, [%rd0+4];
shr.u32 %r10, %r10, 4; cvt.u64.u32 %rd4, %r10; or.b64 %rd4, %rd4, {layout};
add.u64 %rd5, %rd4, 512;
{text}
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{words}}}, [%r9];
tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{more}}}, [%r9+32];
tcgen05.wait::ld.sync.aligned;
{stores}{free}
ret;
}}
"""
"""128 rows of 48 words go to shared memory and to columns of tensor memory, and columns come back.

D is columns 0 to 31, A in tensor memory 32 to 39, scales 40 and 44 and more. Of a pair of CTAs,
whose columns nothing allocates, the second one gives back its first 16 columns alone.
"""
ISSUED = """tcgen05.fence::after_thread_sync;
@!%p0 bra LATER; elect.sync _|%p3, -1; setp.eq.and.u32 %p3, %r1, 0, %p3; @!%p3 bra LATER;
mov.b16 %h1, 3;
{text}
tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{ranks}.b64 [done]{mask};
LATER:
mbarrier.try_wait.parity.shared.b64 %p3, [done], 0; @!%p3 bra LATER;"""


def tensor_forms() -> Iterator[Form]:
    """What one thread does to tensor memory, and loads and stores of each shape."""
    texts = [
        f"tcgen05.{text}".replace("SCALES", "[%r6], [%r7], %p2")
        for line in TENSOR.split("\n")[1:-1]
        for text in spelled(line)
    ]
    for shape, (each, columns) in TENSOR_SHAPES.items():
        for count, step in itertools.product((1, 2, 4, 8, 16, 32), (1, 2)):
            if columns * count * step > 32:
                continue
            split = ", 4" if shape == "16x32bx2" else ""
            some = "{" + ", ".join(f"%r{100 + at}" for at in range(each * count)) + "}"
            name = f"sync.aligned.{shape}.x{count}"
            words = ("", "") if step == 1 else (".pack::16b", ".unpack::16b")
            texts.append(f"tcgen05.ld.{name}{words[0]}.b32 {some}, [%r9]{split};")
            texts.append(f"tcgen05.st.{name}{words[1]}.b32 [%r9]{split}, {some};")
    yield from (Form(text, "Tensor memory", "tcgen05", "") for text in texts)


def tensor_entry(form: Form, number: int) -> str:
    """An entry that executes one of `tensor_forms`."""
    text, group = form.text, 2 if "cta_group::2" in form.text else 1
    registers = [f"%r{at}" for at in range(100, 148)]
    if ".sync.aligned" not in text:
        ranks, mask = (".multicast::cluster", ", %h1") if group == 2 else ("", "")
        text = ISSUED.format(text=text, group=group, ranks=ranks, mask=mask)
    elif ".ld." in text:
        text += "\ntcgen05.wait::ld.sync.aligned;"
        for at, one in enumerate(re.findall(r"%r1\d\d", form.text)):
            text += f"\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%r9+{at}], {{{one}}};"
    text += "\ntcgen05.wait::st.sync.aligned;"
    kind = re.search(r"kind::(\w+)", text)
    descriptor = DESCRIPTORS[kind[1]] if kind else 0
    fours = ["{" + ", ".join(registers[at : at + 4]) + "}" for at in range(0, 48, 4)]
    loads = "".join(
        f"ld.global.v4.b32 {four}, [%rd0+{16 * at}]; st.shared.v4.b32 [%r3+{16 * at}], {four};\n"
        for at, four in enumerate(fours)
    )
    stores = "".join(
        f"{'@%p4 ' * (group == 2 and at > 3)}st.global.v4.b32 [%rd1+{16 * at}], {four};\n"
        for at, four in enumerate(fours[: 8 if group == 2 else 12])
    )
    allocate, free, meet = "bar.sync 0;", "", "bar.sync 0;"
    if group == 1:
        allocate = """@!%p0 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 64;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED: bar.sync 0; ld.shared.b32 %r4, [base];"""
        free = "bar.sync 0; @!%p0 bra FREED; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 64;"
        free += "\nFREED:"
    else:
        stores = "setp.eq.u32 %p4, %r1, 0;\n" + stores
        meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        free = meet
    return TENSOR_ENTRY.format(
        number=number, row=ROW, loads=loads, stores=stores, allocate=allocate, free=free, text=text,
        meet=f"tcgen05.fence::before_thread_sync; {meet}", words=", ".join(registers[:32]),
        more=", ".join(registers[32:]), descriptor=descriptor | 8 << 24 | 4 << 17,
        layout=128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46,
        cluster=".reqnctapercluster 2, 1, 1" * (group == 2),
    )  # fmt: skip


# What reads addresses, which random bits are none, and whose result is opaque.
LEFT_OUT = ("createpolicy", "cvta", "getctarank", "isspacep", "mapa")


def is_of_registers(form: Form) -> bool:
    """Whether all that a form reads and writes are registers that may hold any bits."""
    if form.opcode in LEFT_OUT:
        return False
    rest = REGISTER.sub("", form.text.partition(" ")[2])
    return not form.reason and bool(re.fullmatch(r"[\s,;|{}!_\d.xa-f]*", rest)) and "%" in form.text


def split(form: Form) -> tuple[list[str], list[str]]:
    """The registers that a form writes, and those that it reads."""
    operands = form.text.partition(" ")[2]
    first = re.match(r"\{[^}]*\}|[^,]*", operands)
    assert first is not None
    names = [found[0] for found in REGISTER.finditer(first[0])]
    others = [found[0] for found in REGISTER.finditer(operands[first.end() :])]
    return names, others


def _letter(register: str) -> str:
    return register.strip("%0123456789")


def entry(
    form: Form, number: int, constants: dict[str, str] | None = None, *, uniform: bool = False
) -> str:
    """An entry that loads the operands of a form (from a parameter), and stores its results."""
    written, read = split(form)
    loads, stores, text = "", "", form.text
    for place, register in enumerate(read):
        if constants and register in constants:
            text = re.sub(re.escape(register) + r"\b", constants[register], text)
            continue
        letter, at = _letter(register), place * SLOT
        if letter == "p":
            loads += f"ld.global.u8 word, [from+{at}]; and.b32 word, word, 1;\n"
            loads += f"setp.ne.u32 {register}, word, 0;\n"
        else:
            loads += f"ld.global.b{WIDTHS[letter]} {register}, [from+{at}];\n"
    for place, register in enumerate(written):
        letter, at = _letter(register), place * SLOT
        if letter == "p":
            stores += f"selp.u32 word, 1, 0, {register}; st.global.u32 [to+{at}], word;\n"
        else:
            stores += f"st.global.b{WIDTHS[letter]} [to+{at}], {register};\n"
    whole = ENTRY.format(number=number, row=ROW, loads=loads, text=text, stores=stores)
    if uniform:
        whole = whole.replace(".param .u64 in", f".param .align 16 .b8 in[{ROW}]")
        whole = re.sub(r"(ld\.param\.u64|mad\.wide\.u32) from, .*?;", "", whole)
        whole = re.sub(r"ld\.global(\.\w+ \S+) \[from", r"ld.param\1 [in", whole)
    return whole


_F32 = "0 80000000 3f800000 bf800000 7f800000 ff800000 7fc00000 7f800001 ffffffff 1 807fffff 800000"
_F32 += " 7f7fffff 4b000001 3effffff 3f000000 3fc00000 40200000 4f000000 cf000000 5f000000 41480000"
_F16 = "0 8000 3c00 bc00 7c00 fc00 7e00 7c01 ffff 1 83ff 400 7bff 3f80 bf80 7f80 ff80 7f81 80 3555"
_F64 = "0 8000000000000000 3ff0000000000000 bff8000000000000 7ff0000000000000 fff0000000000000"
_F64 += " 7ff8000000000000 7ff0000000000001 fff8000000000123 1 800fffffffffffff 7fefffffffffffff"
_F64 += " 41dfffffffe00000 43e0000000000000 c1e0000000000000 3fefffffffffffff 380fffffe0000000"


def inputs(form: Form) -> Array:
    """(lanes, slots of 16 bytes): edge values, and random bits whose floats are near one or not."""
    rng = np.random.default_rng(zlib.crc32(form.text.encode()))
    raw = rng.integers(0, 256, (LANES, SLOTS, SLOT), dtype=np.uint8)
    edges = {
        kind: np.array([int(word, 16) for word in words.split()], kind)
        for kind, words in (("u4", _F32), ("u2", _F16), ("u8", _F64))
    }
    wide = "f64" in form.text
    halves = re.search(r"f16|16x2|bf16|[us]16|b16|e\d?m\d", form.text) is not None
    kinds = ["u8"] if wide and "f32" not in form.text else ["u2", "u4"] if halves else ["u4"]
    if wide and "f32" in form.text:
        kinds = ["u4", "u8"]
    for slot in range(SLOTS):
        for kind in kinds:
            view = raw[:, slot].view(kind)
            lanes = rng.random(LANES) < 0.55 / len(kinds)
            view[lanes] = rng.choice(edges[kind], (int(lanes.sum()), view.shape[1]))
        lanes = rng.random(LANES) < 0.15
        dtype = {"u8": np.float64, "u2": np.float16}.get(kinds[-1], np.float32)
        values = rng.normal(0, 4, (int(lanes.sum()), 16 // np.dtype(dtype).itemsize))
        raw[lanes, slot] = values.astype(dtype).view(np.uint8)
        lanes = rng.random(LANES) < 0.08
        raw[lanes, slot] = rng.integers(0, 70, (int(lanes.sum()), 2), np.uint64).view(np.uint8)
    return raw


def assembled(
    ptx: str, ptxas: Path, nvdisasm: Path, target: str, level: str
) -> tuple[Cubin | None, str]:
    """A cubin of a module and its listing; or what ptxas says."""
    with tempfile.TemporaryDirectory() as folder:
        path, cubin = Path(folder, "f.ptx"), Path(folder, "f.cubin")
        path.write_text(ptx)
        done = subprocess.run(
            [ptxas, f"-arch={target}", level, path, "-o", cubin],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return None, done.stdout + done.stderr
        listing = subprocess.run(
            [nvdisasm, "-c", "-hex", cubin], capture_output=True, text=True, check=True
        ).stdout
        return Cubin(elf=cubin.read_bytes(), listing=listing), ""


def launch(
    data: Array, ptx: str = "", cubin: Cubin | None = None, entry: str = "k0", *,
    uniform: bool = False, ctas: int = 1,
) -> Outcome:  # fmt: skip
    """Execute an entry on all lanes, or on some, one after another, with the row as a parameter.

    `ctas` are those of a cluster.
    """
    rows: list[Scalar | Pointer] = [Pointer(allocation=0)]
    if uniform:
        rows = [Scalar(raw=data[lane].tobytes()) for lane in range(UNIFORM)]
    left = np.full(LANES * ROW, 0xA5, np.uint8)
    for number, first in enumerate(rows):
        outcome = run(
            Launch(
                grid=(ctas, 1, 1), cluster=(ctas, 1, 1), block=(1 if uniform else LANES, 1, 1),
                allocations=(
                    Allocation(name="in", data=data.reshape(-1)),
                    Allocation(name="out", data=left),
                ),
                arguments=(first, Pointer(allocation=1, offset=ROW * number)),
                ptx=ptx,
                cubin=cubin,
                entry=entry,
            )
        )  # fmt: skip
        if outcome.not_run or outcome.faults:
            break
        left = outcome.allocations[1].data
    return outcome


def open_type(form: Form) -> str | None:
    """The format of a result that PTX leaves open: approximate, or the NaN of a sign operation."""
    opcode = form.text.partition(" ")[0]
    if re.search(r"\.(approx|full)\b", opcode) or re.match(r"(abs|neg)\..*f\d", opcode):
        return re.split(r"[.\s]", opcode)[-1].removesuffix("x2")
    return None


def is_near(form: Form, kind: str, operand: Array, expected: Array, got: Array) -> Array:
    """Where two results are as good as equal: both NaN, or within the bands of both."""
    one, two = (to_float64(x, kind) for x in (expected, got))
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    band = BANDS.get((form.opcode, kind))
    if band is None:
        return np.asarray(same)
    with np.errstate(all="ignore"):
        mantissa, tiny = FORMATS[kind].mantissa, 2.0 ** FORMATS[kind].exponent_min
        unit = np.maximum(np.abs(one), tiny) * 2.0**-mantissa
        room = 2 * np.maximum(band.ulp * unit, band.relative * np.abs(one)) + 2 * unit
        same |= np.abs(one - two) <= np.maximum(room, 2 * band.absolute)
        if form.opcode in ("sin", "cos"):
            same |= np.abs(to_float64(operand, kind)) > 2 * np.pi
    return np.asarray(same)


def difference(form: Form, data: Array, expected: Array, got: Array) -> str | None:
    """How two results differ, with the operands of the first lane that shows it."""
    bad = (expected != got).reshape(LANES, SLOTS, SLOT)
    kind = open_type(form)
    if kind and bad.any():
        width, size = WIDTHS[_letter(split(form)[0][0])] // 8, FORMATS[kind].width // 8
        values = [
            np.ascontiguousarray(x.reshape(LANES, SLOTS, SLOT)[:, 0, :width]).view(f"u{size}")
            for x in (data, expected, got)
        ]
        bad = ~is_near(form, kind, *values)[:, None, :]
    lanes = np.flatnonzero(bad.any(axis=(1, 2)))
    if not lanes.size:
        return None
    lane = int(lanes[0])
    if form.opcode == "tcgen05":
        return f"{lanes.size} lanes; lane {lane}"
    _, read = split(form)
    words = []
    for place, register in enumerate(read):
        size = max(WIDTHS[_letter(register)] // 8, 1)
        words.append(data[lane, place, :size][::-1].tobytes().hex())
    first = [x.reshape(LANES, ROW)[lane] for x in (expected, got)]
    size = max(WIDTHS[_letter(split(form)[0][0])] // 8, 4)
    shown = [x[:size][::-1].tobytes().hex() for x in first]
    return f"{lanes.size} lanes; ({', '.join(words)}) -> {shown[1]}, PTX {shown[0]}"


def verdict(form: Form, other: str | None) -> str:
    """`equal`, `open: ...` where it is known why not, or `differs: ...`."""
    if other is None:
        return "equal"
    why = (words for known, words in OPEN.items() if re.match(known + r"\b", form.text))
    reason = next(why, None)
    return f"open: {reason}" if reason else f"differs: {other}"


def check(
    some: Sequence[Form], ptxas: Path, nvdisasm: Path, target: str, *, constants: bool = False,
    uniform: bool = False,
) -> Iterator[Result]:  # fmt: skip
    """Execute forms, which ptxas takes, on PTX and on the cubins of both levels."""
    for start in range(0, len(some), BATCH):
        batch = some[start : start + BATCH]
        texts = [
            tensor_entry(form, number) if form.opcode == "tcgen05"
            else entry(form, number, _constants(form) if constants else None, uniform=uniform)
            for number, form in enumerate(batch)
        ]  # fmt: skip
        head = HEAD.format(target=target)
        cubins = {}
        for level in LEVELS:
            cubin, message = assembled(head + "\n".join(texts), ptxas, nvdisasm, target, level)
            if cubin is None:
                raise SystemExit(f"ptxas refuses what it takes without operands: {message[:800]}")
            cubins[level] = cubin
        for number, form in enumerate(batch):
            result, data = Result(form), inputs(form)
            name = f"k{number}"
            ctas = 2 if "cta_group::2" in form.text else 1
            reference = launch(
                data, ptx=head + texts[number], entry=name, uniform=uniform, ctas=ctas
            )
            for level, cubin in cubins.items():
                if reference.not_run or reference.faults:
                    result.levels[level] = f"PTX: {reference.not_run or reference.faults[0].what}"
                    continue
                outcome = launch(data, cubin=cubin, entry=name, uniform=uniform, ctas=ctas)
                if outcome.not_run:
                    result.levels[level] = outcome.not_run
                elif outcome.faults:
                    result.levels[level] = f"differs: {outcome.faults[0].what}"
                else:
                    buffers = (x.allocations[1].data for x in (reference, outcome))
                    result.levels[level] = verdict(form, difference(form, data, *buffers))
                    if result.levels[level] == "equal":
                        result.equal |= forms_of(cubin, name)
            yield result


def _constants(form: Form) -> dict[str, str]:
    """A constant in place of the last operand that may be one."""
    # Of sin and cos what is far out is open, and told by the operand.
    read = [] if form.opcode in ("sin", "cos") else split(form)[1]
    rng = random.Random(form.text)
    for register in reversed(read):
        letter = _letter(register)
        if letter != "r" or re.search(r"f16|f32x2|16x2|e\dm\d", form.text):
            continue
        if "f32" in form.text:
            return {register: f"0f{rng.choice(_F32.split()).zfill(8)}"}
        return {register: str(rng.choice([0, 1, 5, 0x3C003C00, 0x7FFFFFFF]))}
    return {}


def chosen(
    ptxas: Path,
    target: str,
    sample: int | None = None,
    opcodes: tuple[str, ...] = (),
    chapter: str = "",
) -> list[Form]:
    """The forms whose operands are registers and that ptxas takes for a target, or some of them."""
    every = [*forms(opcodes), *products(opcodes)]
    found = [f for f in every if is_of_registers(f) and chapter in f.chapter]
    if opcodes == ("tcgen05",):
        return list(tensor_forms())
    if sample is not None:
        found = random.Random(0).sample(found, min(sample, len(found)))
    return accepted(str(ptxas), found, target)


def main() -> int:
    """Check forms and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptxas", default="13.5.37")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--chapter", default="", help="part of the name of a chapter")
    parser.add_argument("--constants", action="store_true", help="an operand is a constant")
    parser.add_argument("--uniform", action="store_true", help="operands are parameters")
    parser.add_argument("--forms", action="store_true", help="write down opcodes that agree")
    parser.add_argument("opcodes", nargs="*", metavar="OPCODE")
    options = parser.parse_args()
    ptxas, nvdisasm = install_ptxas(options.ptxas).path, install_nvdisasm().path
    found = chosen(ptxas, options.target, options.sample, tuple(options.opcodes), options.chapter)
    if not found:
        parser.error(f"ptxas {options.ptxas} takes no such form for {options.target} (as PTX 9.3)")
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    equal = set(COMPARED.read_text().split()) if COMPARED.is_file() else set()
    how = {"constants": options.constants, "uniform": options.uniform}
    for result in check(found, ptxas, nvdisasm, options.target, **how):
        equal |= result.equal
        for level, answer in result.levels.items():
            word = answer.split(":")[0]
            counts[f"{level} {word if word in WORDS else 'refused'}"] += 1
            if word == "differs":
                print(f"{level} {result.form.text}  {answer}", flush=True)
            elif word != "equal":
                named = re.sub(r"^(unknown instructions|not known): ", "", answer).split(", in ")[0]
                for name in [answer] if word in WORDS else named.split(", "):
                    reasons[name] += 1
                    examples.setdefault(name, f"{level} {result.form.text} {answer[-60:]}")
    if options.forms:
        COMPARED.write_text("\n".join([*sorted(equal), ""]))
    for name, number in reasons.most_common():
        print(f"{number:5d}  {name:40s} {examples[name]}")
    print(f"{options.target}, ptxas {options.ptxas}: {len(found)} forms;",
          ", ".join(f"{key} {counts[key]}" for key in sorted(counts)))  # fmt: skip
    return 1 if any(key.endswith("differs") for key in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
