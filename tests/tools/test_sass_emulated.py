"""Cubins of the real ptxas, at -O0 and at -O3, leave what their PTX leaves: both are emulated.

`checks/sass_truth.py` holds random programs against what a GPU gave.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Triage

from gpu_emulator.api import Allocation, Cubin, Launch, Pointer, Scalar, Schedule, run

pytestmark = pytest.mark.tools

HEAD = ".version 8.7\n.target sm_{target}\n.address_size 64\n"
THREADS, WORDS = 64, 8
OPERATIONS = (
    "add.u32 {d}, {a}, {b}", "sub.u32 {d}, {a}, {b}", "mul.lo.u32 {d}, {a}, {b}",
    "mul.hi.s32 {d}, {a}, {b}", "mad.lo.s32 {d}, {a}, {b}, {c}",
    "lop3.b32 {d}, {a}, {b}, {c}, 0x6a",
    "shf.l.wrap.b32 {d}, {a}, {b}, {c}", "shr.s32 {d}, {a}, {b}", "shl.b32 {d}, {a}, {b}",
    "prmt.b32 {d}, {a}, {b}, 0x4162", "bfe.s32 {d}, {a}, 5, 9", "bfi.b32 {d}, {a}, {b}, 7, 11",
    "popc.b32 {d}, {a}", "clz.b32 {d}, {a}", "brev.b32 {d}, {a}", "bfind.s32 {d}, {a}",
    "min.s32 {d}, {a}, {b}", "max.u32 {d}, {a}, {b}", "abs.s32 {d}, {a}",
    "sad.s32 {d}, {a}, {b}, {c}",
    "dp4a.s32.u32 {d}, {a}, {b}, {c}", "cvt.s32.s8 {d}, {a}", "xor.b32 {d}, {a}, {b}",
    "setp.lt.s32 %p1, {a}, {b}; selp.b32 {d}, {a}, {c}, %p1",
    "add.cc.u32 {d}, {a}, {b}; addc.u32 {d}, {d}, {c}",
    "mul.wide.s32 %d1, {a}, {b}; add.u64 %d1, %d1, 77; shr.u64 %d1, %d1, 13; cvt.u32.u64 {d}, %d1",
    "shfl.sync.bfly.b32 {d}, {a}, 5, 31, -1", "vote.sync.ballot.b32 {d}, %p1, -1",
    "match.any.sync.b32 {d}, {a}, -1", "redux.sync.add.u32 {d}, {a}, -1",
    "st.local.u32 [mine+8], {a}; ld.local.u32 {d}, [mine+8]",
    "atom.shared.add.u32 %r9, [own+256], {a}; mov.b32 {d}, {b}",
)  # fmt: skip


def program(number: int, target: str) -> str:
    """Random operations, some in a loop or in the arms of a branch, a barrier, and a table."""
    rng = random.Random(f"sass {number}")

    def some(count: int, *, together: bool = True) -> list[str]:
        lines = []
        for _ in range(count):
            form = rng.choice(OPERATIONS if together else OPERATIONS[:24])
            names = {name: f"%r{rng.randrange(6)}" for name in "abcd"}
            lines.append(form.format(**names) + ";")
        return lines

    lines = [
        "setp.ne.u32 %p1, %r0, 7; mov.u32 %r6, 0;", "st.shared.u32 [%t], %r0; bar.sync 0;",
        *some(6), "LOOP:", *some(4), f"and.b32 %r7, %r{rng.randrange(6)}, 3;",
        "setp.eq.u32 %p2, %r7, 1; @%p2 bra ODD;", *some(3, together=False), "bra MET;",
        "ODD:", *some(3, together=False), "MET: bar.warp.sync -1;",
        f"add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, {rng.randint(1, 4)}; @%p3 bra LOOP;",
        "and.b32 %r7, %r1, 3; T: .branchtargets A0, A1, A2, A3; brx.idx %r7, T;",
        "A0: add.u32 %r2, %r2, 5; bra END; A1: mul.lo.u32 %r2, %r2, 7; bra END;",
        "A2: xor.b32 %r2, %r2, 55; bra END; A3: shl.b32 %r2, %r2, 3;",
        "END: bar.sync 0; xor.b32 %r7, %thread, 33; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %base;",
        "ld.shared.u32 %r8, [%r7]; add.u32 %r3, %r3, %r8; mov.u32 %r7, %ntid.x;",
        "mad.lo.u32 %r4, %r7, %n, %r4;",
    ]  # fmt: skip
    loads = [f"ld.global.u32 %r{n}, [%in+{4 * n}];" for n in range(6)]
    stores = [f"st.global.u32 [%out+{4 * n}], %r{n};" for n in range(6)]
    return (
        HEAD.format(target=target)
        + f"""
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{{ .reg .b32 %r<12>; .reg .b32 %n, %t, %thread, %base; .reg .pred %p<4>;
.reg .b64 %in, %out, %x; .reg .b64 %d<4>;
.local .align 4 .b8 mine[32]; .shared .align 4 .b8 own[264];
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n]; mov.u32 %thread, %tid.x;
mov.u32 %base, own; shl.b32 %t, %thread, 2; add.u32 %t, %t, %base;
mul.wide.u32 %x, %thread, {4 * WORDS};
add.u64 %in, %in, %x; add.u64 %out, %out, %x;
{chr(10).join([*loads, *lines, *stores])}
ret; }}"""
    )


_LONG = [pytest.param(target, marks=pytest.mark.long) for target in ("100a", "120a")]


@pytest.mark.parametrize("target", ["80", "90a", *_LONG])
def test_a_cubin_leaves_what_its_ptx_leaves(
    triage: Triage, toolchain_cache: Path, tmp_path: Path, target: str
) -> None:
    for number in range(4):
        text = program(number, target)
        expected = left(Launch(ptx=text, **launched(number)))
        for level, cubin in cubins(triage, toolchain_cache, tmp_path, text, target):
            for warps in ("lockstep", "first", "last"):
                found = left(Launch(cubin=cubin, **launched(number)), Schedule(warps=warps))
                assert found == expected, f"program {number}, -O{level}, {warps}\n{text}"


ATOMICS = """
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{ .reg .b32 %r<16>; .reg .b16 %h<9>; .reg .b64 %in, %out, %x, %d<9>; .reg .b128 %q<6>;
.shared .align 16 .b8 own[2048]; .reg .pred %p<3>;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p1, %r0, 0;
@%p1 ret; mov.u32 %r0, %tid.x; setp.eq.u32 %p2, %r0, 0;
@%p2 st.shared.v4.b32 [own+1024], {0, 0, 0, 0}; bar.sync 0;
mul.wide.u32 %x, %r0, 32; shl.b32 %r9, %r0, 4;
add.u64 %in, %in, %x; add.u64 %out, %out, %x; mov.u32 %r10, own; add.u32 %r9, %r9, %r10;
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%in]; ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%in+16];
ld.global.v2.b64 {%d1, %d2}, [%in]; ld.global.v4.b16 {%h1, %h2, %h3, %h4}, [%in+8];
st.global.v4.b32 [%out], {%r5, %r6, %r7, %r8};
red.global.add.v4.f32 [%out], {%r1, %r2, %r3, %r4};
atom.global.add.v2.f32 {%r11, %r12}, [%out+8], {%r2, %r1};
red.global.min.noftz.v4.f16x2 [%out], {%r12, %r11, %r1, %r4};
atom.global.max.noftz.v2.bf16x2 {%r13, %r14}, [%out+8], {%r1, %r3};
red.global.max.noftz.v2.f16 [%out], {%h1, %h2};
atom.global.add.noftz.v4.f16 {%h5, %h6, %h7, %h8}, [%out+8], {%h1, %h2, %h3, %h4};
red.global.add.noftz.v8.bf16 [%out], {%h5, %h1, %h6, %h2, %h7, %h3, %h8, %h4};
st.global.v4.b32 [%out+16], {%r1, %r2, %r3, %r4}; cvt.u64.u32 %d4, %r13; cvt.u64.u32 %d5, %r14;
mov.b128 %q1, {%d1, %d2}; mov.b128 %q2, {%d4, %d5};
atom.global.exch.b128 %q2, [%out+16], %q2; setp.lt.s32 %p2, %r3, 0;
@%p2 mov.b128 %q1, {%d2, %d1}; atom.global.cas.b128 %q3, [%out+16], %q1, %q2;
st.shared.v4.b32 [%r9], {%r5, %r6, %r7, %r8};
atom.shared.exch.b128 %q4, [%r9], %q3; atom.shared.cas.b128 %q5, [%r9], %q3, %q4;
mov.b128 {%d6, %d7}, %q5; ld.shared.b64 %d8, [%r9]; xor.b64 %d6, %d6, %d7;
xor.b64 %d6, %d6, %d8; st.global.b64 [%in], %d6; st.global.b64 [%in+8], %d7;
and.b32 %r7, %r1, 4; add.u32 %r7, %r7, %r10; setp.ne.u32 %p2, %r5, 15;
@%p2 red.shared.add.u32 [%r7+1032], 1;
red.shared.add.u64 [own+1024], %d1; atom.shared.add.f32 %r11, [%r9], %r1; bar.sync 0;
ld.shared.b64 %d8, [own+1024]; ld.shared.b32 %r12, [%r9]; st.global.b64 [%in+16], %d8;
ld.shared.b64 %d7, [own+1032]; st.global.b64 [%in+8], %d7;
st.global.v2.b32 [%in+24], {%r11, %r12};
ret; }"""


@pytest.mark.parametrize("target", ["90a", *_LONG])
def test_atomics_leave_what_their_ptx_leaves(
    triage: Triage, toolchain_cache: Path, tmp_path: Path, target: str
) -> None:
    text = HEAD.format(target=target) + ATOMICS
    expected = left(Launch(ptx=text, **launched(0)))
    for level, cubin in cubins(triage, toolchain_cache, tmp_path, text, target):
        assert left(Launch(cubin=cubin, **launched(0))) == expected, level


def cubins(
    triage: Triage, cache: Path, folder: Path, text: str, target: str
) -> Iterator[tuple[str, Cubin]]:
    """Cubins of both levels."""
    for tool in ("ptxas-13.5.37", "nvdisasm-13.5.37"):
        installed = triage("toolchain", "install", tool)
        assert installed.returncode == 0, installed.stderr
    ptxas, nvdisasm = (
        cache / "toolchains" / f"{tool}-13.5.37" / "bin" / tool for tool in ("ptxas", "nvdisasm")
    )
    source, file = folder / "k.ptx", folder / "k.cubin"
    source.write_text(text)
    for level in "03":
        words = [str(ptxas), f"-O{level}", f"--gpu-name=sm_{target}", str(source), "-o", str(file)]
        subprocess.run(words, check=True)
        listing = subprocess.run(
            [str(nvdisasm), "-c", "-hex", str(file)], check=True, capture_output=True, text=True
        ).stdout
        yield level, Cubin(elf=file.read_bytes(), listing=listing)


def launched(number: int) -> dict[str, Any]:
    words = np.random.default_rng(number).integers(0, 1 << 32, THREADS * WORDS, np.uint32)
    words[::5] &= 15
    return {
        "grid": (2, 1, 1), "block": (THREADS, 1, 1),
        "allocations": (
            Allocation(name="in", data=words.view(np.uint8)),
            Allocation(name="out", data=np.zeros(4 * len(words), np.uint8)),
        ),
        "arguments": (*(Pointer(allocation=n) for n in (0, 1)), Scalar(raw=bytes([3, 0, 0, 0]))),
    }  # fmt: skip


def left(launch: Launch, schedule: Schedule | None = None) -> bytes:
    """What is in both buffers afterwards; nothing is refused."""
    outcome = run(launch, schedule)
    assert outcome.not_run is None, outcome.not_run
    assert outcome.faults == ()
    return b"".join(allocation.data.tobytes() for allocation in outcome.allocations)
