"""mbarriers, bulk copies, tiles and clusters: cubins of the real ptxas leave what their PTX leaves.

Under each order of warps and of asynchronous copies, also where the program forgets to wait. Both
are emulated; no GPU gave what is right.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import Triage

from gpu_emulator.api import Allocation, Cubin, Launch, Outcome, Pointer, Schedule, run
from gpu_emulator.values import TensorMap, TensorMapArgument

pytestmark = pytest.mark.tools

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b8 bar[8];
.visible .entry k(.param .u64 a, .param .u64 b, .param .align 64 .b8 map[128]) {directive}
{{ .reg .b32 %r<30>; .reg .b64 %d<20>; .reg .pred %p<10>; .reg .b16 %h<4>;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u64 %d9, map; cvta.param.u64 %d9, %d9;
mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.u64 %d4, %d2, %d3;
mov.u32 %r2, tile; mov.u32 %r3, bar; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4;
setp.eq.u32 %p1, %r1, 0; mov.u32 %r6, %cluster_ctarank; mov.u32 %r14, %ctaid.x;
{body}
ret; }}
"""
WAIT = """
WAIT{phase}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], {phase}; @!%p2 bra WAIT{phase};
"""
FIRST, SECOND = WAIT.format(phase=0), WAIT.format(phase=1)
# Of two tensor maps the fields that a kernel writes, and their values.
FIELDS = """%d10 b64 global_address %d1
%d10 b64 global_stride 0, 128
%d10 b32 rank 1
%d10 b32 global_dim 0, 32
%d10 b32 global_dim 1, 32
%d10 b32 box_dim 0, 32
%d10 b32 box_dim 1, 4
%d10 b32 element_stride 0, 1
%d10 b32 element_stride 1, 1
%d10 b32 elemtype 2
%d10 b32 swizzle_mode 0
%d10 b32 interleave_layout 0
%d10 b32 fill_mode 0
%d11 b64 global_address %d12
%d11 b64 global_stride 3, %d12
%d11 b32 rank 4
%d11 b32 global_dim 4, 77
%d11 b32 box_dim 4, 256
%d11 b32 element_stride 4, 8
%d11 b32 elemtype 12
%d11 b32 swizzle_mode 3
%d11 b32 fill_mode 1"""
WRITTEN = "\n".join(
    f"tensormap.replace.tile.{field}.global.b1024.{kind} [{at}], {value};"
    for at, kind, field, value in (line.split(" ", 3) for line in FIELDS.splitlines())
)
PROGRAMS = {
    "a bulk load": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
@!%p1 bra S; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 512, [bar]; S:
""" + FIRST + """
ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6;
""",
    "a bulk load that is not waited for": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; st.shared.u32 [%r5], 7; fence.proxy.async;
bar.sync 0; @!%p1 bra S; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 512, [bar];
S: ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6;
""",
    "tiles, bulk stores and a reduction": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
@!%p1 bra S; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; mov.u32 %r10, 0;
mov.u32 %r11, 2;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
[tile], [%d9, {%r10, %r11}], [bar];
S:
""" + FIRST + """
ld.shared.u32 %r6, [%r5]; add.u32 %r6, %r6, 1; st.shared.u32 [%r5], %r6;
fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra T;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d9, {%r10, %r10}], [tile];
cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 512;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d2], [tile], 256;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; T:
""",
    "a tensor map that the kernel writes": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
add.u64 %d10, %d2, 1024; add.u64 %d11, %d2, 1152; mov.u64 %d12, 0xfedcba98f0; @!%p1 bra M;
""" + WRITTEN + """
fence.proxy.tensormap::generic.release.gpu; M: bar.sync 0;
fence.proxy.tensormap::generic.acquire.gpu [%d10], 128; @!%p1 bra S;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; mov.u32 %r10, 0; mov.u32 %r11, 2;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
[tile], [%d10, {%r10, %r11}], [bar]; S:
""" + FIRST + """
ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6;
""",
    "arrivals of all threads": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 128; bar.sync 0;
mbarrier.arrive.shared::cta.b64 %d5, [bar];
""" + FIRST + """
mbarrier.pending_count.b64 %r6, %d5; min.u32 %r6, %r6, 200; setp.gt.u32 %p3, %r6, 0;
selp.u32 %r7, 1, 0, %p3; st.global.u32 [%d4], %r7; and.b32 %r8, %r1, 3; setp.eq.u32 %p4, %r8, 0;
@%p4 mbarrier.arrive.shared::cta.b64 _, [bar], 4;
""" + SECOND + """
mbarrier.arrive.shared::cta.b64 %d6, [bar];
V: mbarrier.test_wait.shared::cta.b64 %p5, [bar], %d6; @!%p5 bra V; ld.global.u32 %r9, [%d4];
add.u32 %r9, %r9, 5; st.global.u32 [%d4], %r9;
""",
    "elect": """
elect.sync %r6|%p3, -1; selp.u32 %r7, 1, 0, %p3; mad.lo.u32 %r7, %r6, 100, %r7;
st.global.u32 [%d4], %r7;
""",
    "copies of all lanes": """
setp.lt.u32 %p5, %r1, 32; @%p1 mbarrier.init.shared::cta.b64 [bar], 32; bar.sync 0; @!%p5 bra S;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16; shl.b32 %r12, %r1, 4;
add.u32 %r13, %r2, %r12; cvt.u64.u32 %d7, %r12; add.u64 %d8, %d1, %d7;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [%d8], 16, [bar]; S:
""" + FIRST + """
ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6;
""",
    "counted bytes and a thread that drops out": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 2; bar.sync 0; @!%p1 bra S;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 64;
mbarrier.arrive_drop.shared::cta.b64 %d5, [bar]; mbarrier.arrive.shared::cta.b64 _, [bar];
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64; S:
""" + FIRST + """
bar.sync 0; @%p1 mbarrier.arrive.shared::cta.b64 _, [bar];
""" + SECOND + """
st.global.u32 [%d4], %r1;
""",
    "arrivals behind cp.async": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 256; bar.sync 0; add.u64 %d8, %d1, %d3;
cp.async.ca.shared.global [%r5], [%d8], 4; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];
mbarrier.arrive.shared::cta.b64 _, [bar];
""" + FIRST + """
cp.async.ca.shared.global [%r5], [%d8], 4; cp.async.mbarrier.arrive.shared::cta.b64 [bar];
mbarrier.arrive.shared::cta.b64 _, [bar], 2;
""" + SECOND + """
ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6;
""",
    "memory of another CTA": """
xor.b32 %r7, %r6, 1; mapa.shared::cluster.u32 %r8, %r5, %r7; add.u32 %r9, %r1, %r6;
mad.lo.u32 %r9, %r14, 1000, %r9; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
st.shared::cluster.u32 [%r8], %r9; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ld.shared.u32 %r10, [%r5]; mul.wide.u32 %d5, %r14, 512; add.u64 %d4, %d4, %d5;
st.global.u32 [%d4], %r10;
""",
    "a tile for two CTAs": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; setp.eq.u32 %p3, %r6, 0;
and.pred %p3, %p3, %p1; mov.b16 %h1, 3; mov.u32 %r10, 0; mov.u32 %r11, 1;

@%p3 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
[tile], [%d9, {%r10, %r11}], [bar], %h1;
""" + FIRST + """
ld.shared.u32 %r10, [%r5]; mul.wide.u32 %d5, %r14, 512; add.u64 %d4, %d4, %d5;
st.global.u32 [%d4], %r10; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
    "stores that another CTA's mbarrier counts": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
st.shared.u32 [%r5+2048], %r1;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 5120;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; xor.b32 %r7, %r6, 1;
shl.b32 %r12, %r1, 4; add.u32 %r12, %r12, %r2; mapa.shared::cluster.u32 %r8, %r12, %r7;
mapa.shared::cluster.u32 %r9, %r3, %r7; mapa.shared::cluster.u32 %r10, %r5, %r7;
add.u32 %r11, %r1, %r6; cvt.u64.u32 %d7, %r11;
add.u32 %r19, %r5, %r4; mapa.shared::cluster.u32 %r20, %r19, %r7;
st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%r8], {%r11, %r1, %r6, %r7}, [%r9];
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r10+2560], %r11, [%r9];
st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r20+3072], %d7, [%r9];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
[%r10+2048], %r11, [%r9];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.s32
[%r10+2048], -5, [%r9];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.xor.b32
[%r10+2048], 77, [%r9];
""" + FIRST + """
ld.shared.u32 %r15, [%r5]; ld.shared.u32 %r16, [%r5+512]; ld.shared.u32 %r17, [%r5+2048];
ld.shared.u32 %r18, [%r5+2560]; mad.lo.u32 %r15, %r16, 1000, %r15;
mad.lo.u32 %r15, %r17, 1001, %r15; mad.lo.u32 %r15, %r18, 1003, %r15;
mul.wide.u32 %d5, %r14, 512; add.u64 %d4, %d4, %d5; st.global.u32 [%d4], %r15;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
    "arrivals that complete no phase": """
and.b32 %r7, %r1, 1; shl.b32 %r8, %r7, 3; add.u32 %r8, %r8, %r2; rem.u32 %r9, %r1, 5;
setp.ne.u32 %p3, %r9, 0; setp.lt.and.u32 %p3, %r1, 32, %p3;
@%p1 mbarrier.init.shared::cta.b64 [tile], 300; @%p1 mbarrier.init.shared::cta.b64 [tile+8], 200;
bar.sync 0; @!%p3 bra S; mbarrier.arrive.noComplete.shared::cta.b64 %d5, [%r8], 2;
mbarrier.pending_count.b64 %r10, %d5;
mbarrier.arrive_drop.noComplete.shared::cta.b64 %d6, [%r8], 1;
mbarrier.pending_count.b64 %r11, %d6; mad.lo.u32 %r10, %r10, 1000, %r11;
st.global.u32 [%d4], %r10; S: bar.sync 0;
@%p1 mbarrier.arrive.shared::cta.b64 _, [tile], 264;
@%p1 mbarrier.arrive.shared::cta.b64 _, [tile+8], 161; @!%p3 bra U;
V: mbarrier.test_wait.shared::cta.b64 %p5, [%r8], %d5; @!%p5 bra V; U: bar.sync 0;
@%p1 mbarrier.arrive.shared::cta.b64 _, [tile], 288;
@%p1 mbarrier.arrive.shared::cta.b64 _, [tile+8], 187;
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 1; @!%p2 bra W;
""",
    "reductions in memory of another CTA": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
mad.lo.u32 %r9, %r1, 77777777, %r14; st.shared.u32 [%r5], %r9; xor.b32 %r9, %r9, 0x80000005;
st.shared.u32 [%r5+2048], %r9; fence.proxy.async;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 384;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p1 bra S;
xor.b32 %r7, %r6, 1; add.u32 %r8, %r2, 2048; mapa.shared::cluster.u32 %r8, %r8, %r7;
mapa.shared::cluster.u32 %r10, %r3, %r7; mov.u32 %r12, 32;
""" + "\n".join(
        f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{form}\n"
        f"[%r8+{32 * at}], [tile+{32 * at}], {'%r12' if at % 2 else 32}, [%r10];"
        for at, form in enumerate(
            ("and.b32", "or.b32", "xor.b32", "add.u32", "add.s32", "add.u64", "min.u32", "min.s32",
             "max.u32", "max.s32", "inc.u32", "dec.u32")
        )
    ) + """
S: """ + FIRST + """
ld.shared.u32 %r10, [%r5+2048]; mul.wide.u32 %d5, %r14, 512; add.u64 %d4, %d4, %d5;
st.global.u32 [%d4], %r10; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
    "arrivals at another CTA": """
@%p1 mbarrier.init.shared::cta.b64 [bar], 128; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; xor.b32 %r7, %r6, 1;
mapa.shared::cluster.u32 %r8, %r3, %r7;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
""" + FIRST + """
mul.wide.u32 %d5, %r14, 512; add.u64 %d4, %d4, %d5; st.global.u32 [%d4], %r6;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
}  # fmt: skip
LEVELS = ("-O3", "-O0")


@pytest.mark.parametrize(
    "version",
    [*(pytest.param(v, marks=pytest.mark.long) for v in ("12.8.93", "13.0.88")), "13.5.37"],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cubins_leave_what_their_ptx_leaves(
    triage: Triage, toolchain_cache: Path, tmp_path: Path, name: str, version: str
) -> None:
    for tool, number in (("ptxas", version), ("nvdisasm", "13.5.37")):
        installed = triage("toolchain", "install", f"{tool}-{number}")
        assert installed.returncode == 0, installed.stderr
    tools = toolchain_cache / "toolchains"
    ptxas = tools / f"ptxas-{version}" / "bin" / "ptxas"
    nvdisasm = tools / "nvdisasm-13.5.37" / "bin" / "nvdisasm"
    body = PROGRAMS[name]
    is_cluster = "barrier.cluster" in body
    directive = ".reqnctapercluster 2, 1, 1" if is_cluster else ""
    source, file = tmp_path / "k.ptx", tmp_path / "k.cubin"
    text = HEAD.format(body=body, directive=directive)
    source.write_text(text)
    schedules = [
        Schedule(warps=warps, completion=completion)
        for warps in ("lockstep", "first", "last")
        for completion in ("early", "late")
    ]
    expected = [left(run(launch(is_cluster, ptx=text), each)) for each in schedules]
    forgets = "not waited" in name
    assert (len(set(expected)) > 1) == forgets
    for level in LEVELS:
        command = [str(ptxas), level, "--gpu-name=sm_90a", str(source), "-o", str(file)]
        subprocess.run(command, check=True)
        listing = subprocess.run(
            [str(nvdisasm), "-c", "-hex", str(file)], check=True, capture_output=True, text=True
        ).stdout
        cubin = Cubin(elf=file.read_bytes(), listing=listing)
        outcomes = [run(launch(is_cluster, cubin=cubin), each) for each in schedules]
        assert list(map(left, outcomes)) == expected, level


def launch(is_cluster: bool, ptx: str = "", cubin: Cubin | None = None) -> Launch:
    """128 threads in one CTA, or in each of two clusters' four; a map of 32 x 32 numbers."""
    numbers = np.arange(1024, dtype=np.uint32) * 3 + 1
    tensor_map = TensorMap(
        allocation=0, element="u32", sizes=(32, 32), strides=(128,), box=(32, 4),
        element_strides=(1, 1),
    )  # fmt: skip
    return Launch(
        ptx=ptx,
        cubin=cubin,
        grid=(4 if is_cluster else 1, 1, 1),
        cluster=(2, 1, 1) if is_cluster else (1, 1, 1),
        block=(128, 1, 1),
        allocations=(
            Allocation(name="in", data=numbers.view(np.uint8)),
            Allocation(name="out", data=np.zeros(2048, np.uint8)),
        ),
        arguments=(
            Pointer(allocation=0), Pointer(allocation=1), TensorMapArgument(tensor_map=tensor_map)
        ),
    )  # fmt: skip


def left(outcome: Outcome) -> bytes:
    """What is in both buffers afterwards; nothing is refused."""
    assert outcome.not_run is None, outcome.not_run
    assert outcome.faults == ()
    return b"".join(allocation.data.tobytes() for allocation in outcome.allocations)
