"""Matrix products as whole programs: registers, shared memory, tensor memory, and their waits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from programs import SCHEDULES, kernel, outcome

from gpu_emulator.values import Checks, Outcome, Schedule

BF16 = ml_dtypes.bfloat16


def whole(rows: int, columns: int, seed: int) -> NDArray[np.float32]:
    """Small whole numbers: every sum of products is exact, in any order."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(np.float32)


def run(ptx: str, *buffers: NDArray[np.generic], schedule: Schedule | None = None) -> Outcome:
    result = outcome(ptx, *buffers, block=128, schedule=schedule, checks=Checks(races=True))
    assert result.not_run is None, result.not_run
    assert not result.faults, result.faults
    return result


def core_matrices(matrix: NDArray[np.float32], leading: int) -> NDArray[np.generic]:
    """K-major without swizzle: 8 rows of 16 bytes follow each other, K goes on after `leading`."""
    rows, k = matrix.shape
    raw = matrix.astype(BF16).view("u1").reshape(rows, k // 8, 16)
    placed = np.zeros(leading * (k // 8), "u1")
    for row in range(rows):
        for piece in range(k // 8):
            start = row % 8 * 16 + row // 8 * 128 + piece * leading
            placed[start : start + 16] = raw[row, piece]
    return placed


def test_mma_sync_and_ldmatrix() -> None:
    a, b = whole(16, 16, 1), whole(16, 8, 2)
    # Rows of A and of B's transpose, 32 bytes each; lane l gives row l % 16, half l / 16.
    ptx = kernel(
        "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 16, %r2; mad.wide.u32 %rd2, %r40, 16, %rd41;"
        " ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2];"
        " st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};"
        " add.u64 %rd3, %rd2, 512; setp.lt.u32 %p1, %r40, 16;"
        " @%p1 ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd3];"
        " @%p1 st.shared.v4.b32 [%r3+512], {%r4, %r5, %r6, %r7}; bar.warp.sync -1;"
        " and.b32 %r8, %r40, 15; shr.u32 %r9, %r40, 4; mad.lo.u32 %r10, %r8, 32, %r2;"
        " mad.lo.u32 %r10, %r9, 16, %r10;"
        " ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r10];"
        " and.b32 %r15, %r40, 7; shr.u32 %r16, %r40, 3; and.b32 %r16, %r16, 1;"
        " mad.lo.u32 %r17, %r15, 32, %r2; mad.lo.u32 %r17, %r16, 16, %r17;"
        " ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r18, %r19}, [%r17+512];"
        " mov.b32 %r20, 0x3f800000;"
        " mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r21, %r22, %r23, %r24},"
        " {%r11, %r12, %r13, %r14}, {%r18, %r19}, {%r20, %r20, %r20, %r20};"
        " mad.wide.u32 %rd1, %r40, 16, %rd40; st.global.v4.b32 [%rd1], {%r21, %r22, %r23, %r24};",
        2,
        declarations=".shared .align 16 .b8 buffer[768];",
    )
    data = np.concatenate([each.astype(BF16).view("u1").ravel() for each in (a, b.T.copy())])
    result = outcome(ptx, np.zeros(128, "f4"), data)
    assert not result.faults, result.faults
    held = result.allocations[0].data.view("f4").reshape(32, 4)
    wanted = a @ b + 1
    for lane in range(32):
        for slot in range(4):
            row, column = lane // 4 + 8 * (slot // 2), 2 * (lane % 4) + slot % 2
            assert held[lane, slot] == wanted[row, column]


WGMMA = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 16, %r2; mad.wide.u32 %rd2, %r40, 16, %rd41;"
    " ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};"
    " setp.lt.u32 %p1, %r40, 16; @%p1 ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2+2048];"
    " @%p1 st.shared.v4.b32 [%r3+2048], {%r4, %r5, %r6, %r7}; {fence} bar.sync 0;"
    " shr.u32 %r8, %r2, 4; cvt.u64.u32 %rd3, %r8; mov.u64 %rd4, 0x0000000800400000;"
    " or.b64 %rd5, %rd3, %rd4; add.u64 %rd6, %rd3, 128; mov.u64 %rd7, 0x0000000800080000;"
    " or.b64 %rd8, %rd6, %rd7; mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;"
    " setp.ne.u32 %p2, %r2, 0; wgmma.fence.sync.aligned;"
    " wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r10, %r11, %r12, %r13},"
    " %rd5, %rd8, %p2, 1, 1, 0, 0;"
    " wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r10, %r11, %r12, %r13},"
    " %rd5, %rd8, %p2, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; {wait} {after}"
    " mad.wide.u32 %rd1, %r40, 16, %rd40; st.global.v4.b32 [%rd1], {%r10, %r11, %r12, %r13};"
)


def wgmma(fence: str, wait: str, after: str = "") -> str:
    body = WGMMA.replace("{fence}", fence).replace("{wait}", wait).replace("{after}", after)
    return kernel(body, 2, declarations=".shared .align 128 .b8 buffer[2304];")


def wgmma_data() -> tuple[NDArray[np.float32], NDArray[np.generic]]:
    a, b = whole(64, 16, 3), whole(16, 8, 4)
    data = np.concatenate([core_matrices(a, 1024), core_matrices(b.T.copy(), 128)])
    return 2 * (a @ b), data


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_wgmma(schedule: Schedule) -> None:
    wanted, data = wgmma_data()
    ptx = wgmma("fence.proxy.async;", "wgmma.wait_group.sync.aligned 0;")
    result = run(ptx, np.zeros(512, "f4"), data, schedule=schedule)
    assert not result.races
    held = result.allocations[0].data.view("f4").reshape(128, 4)
    for thread in range(128):
        for slot in range(4):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (slot // 2)
            assert held[thread, slot] == wanted[row, 2 * (thread % 4) + slot % 2]


@pytest.mark.parametrize("schedule", SCHEDULES[:3], ids=str)
def test_wgmma_reads_shared_memory_until_it_is_waited_for(schedule: Schedule) -> None:
    _, data = wgmma_data()
    overwrite = "st.shared.u32 [%r3], 0x3f803f80;"
    wait = "wgmma.wait_group.sync.aligned 0;"
    fence = "fence.proxy.async;"
    buffers = (np.zeros(512, "f4"), data)
    (race,) = run(wgmma(fence, "", overwrite), *buffers, schedule=schedule).races
    # In whichever order they ran.
    assert {race.first.instruction[:5], race.second.instruction[:5]} == {"wgmma", "st.sh"}
    assert not race.formal
    right = run(wgmma(fence, wait, "bar.sync 0;" + overwrite), *buffers, schedule=schedule)
    assert not right.races
    (formal, *_) = run(wgmma("", wait), *buffers, schedule=schedule).races
    assert formal.formal


TCGEN05 = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 16, %r2; mad.wide.u32 %rd2, %r40, 16, %rd41;"
    " ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};"
    " ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2+2048];"
    " st.shared.v4.b32 [%r3+2048], {%r4, %r5, %r6, %r7}; setp.lt.u32 %p1, %r40, 32;"
    " @%p1 ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2+4096];"
    " @%p1 st.shared.v4.b32 [%r3+4096], {%r4, %r5, %r6, %r7};"
    " @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;"
    " @%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    " setp.eq.u32 %p2, %r40, 0; @%p2 mbarrier.init.shared::cta.b64 [bar], 1;"
    " fence.proxy.async; bar.sync 0; ld.shared.u32 %r9, [place]; shr.u32 %r8, %r2, 4;"
    " cvt.u64.u32 %rd3, %r8; mov.u64 %rd4, 0x0000400800800000; or.b64 %rd5, %rd3, %rd4;"
    " add.u64 %rd6, %rd3, 256; mov.u64 %rd7, 0x0000400800100000; or.b64 %rd8, %rd6, %rd7;"
    " mov.b32 %r10, {instruction}; setp.ne.u32 %p3, %r2, %r2; setp.eq.u32 %p4, %r2, %r2;"
    " @%p2 tcgen05.mma.cta_group::1.kind::f16 [%r9], %rd5, %rd8, %r10, %p3;"
    " @%p2 tcgen05.mma.cta_group::1.kind::f16 [%r9], %rd5, %rd8, %r10, %p4; mov.u32 %r11, bar;"
    " @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11]; {wait}"
    " shr.u32 %r12, %r40, 5; shl.b32 %r13, %r12, 21; add.u32 %r14, %r9, %r13;"
    " tcgen05.ld.sync.aligned.32x32b.x16.b32 {REGISTERS}, [%r14]; tcgen05.wait::ld.sync.aligned;"
    " {stores} bar.sync 0; @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;"
)
WAIT = "again: mbarrier.try_wait.parity.shared::cta.b64 %p5, [bar], 0; @!%p5 bra again;"


def tcgen05(wait: str) -> str:
    names = [f"%r{number}" for number in range(20, 36)]
    stores = "mad.wide.u32 %rd1, %r40, 64, %rd40;" + "".join(
        f"st.global.b32 [%rd1+{4 * number}], {name};" for number, name in enumerate(names)
    )
    instruction = 1 << 4 | 1 << 7 | 1 << 10 | 16 >> 3 << 17 | 128 >> 4 << 24
    body = TCGEN05.replace("REGISTERS", ", ".join(names)).replace("{stores}", stores)
    return kernel(
        body.replace("{wait}", wait).replace("{instruction}", str(instruction)), 2,
        declarations=".shared .align 128 .b8 buffer[4608];\n.shared .align 8 .b64 bar;\n"
        ".shared .align 4 .b32 place;",
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_tcgen05(schedule: Schedule) -> None:
    a, b = whole(128, 16, 5), whole(16, 16, 6)
    data = np.concatenate([core_matrices(a, 2048), core_matrices(b.T.copy(), 256)])
    result = run(tcgen05(WAIT), np.zeros(2048, "f4"), data, schedule=schedule)
    assert not result.races
    held = result.allocations[0].data.view("f4").reshape(128, 16)
    assert np.array_equal(held, 2 * (a @ b))


def test_threads_that_do_not_commit_may_hold_any_address() -> None:
    """Of a generic address the threads that execute the commit say whether it is of shared memory.

    So it is where blocks turn a loop a different number of times.
    """
    shared = "one.shared::cluster.b64 [%r11];"
    assert shared in TCGEN05
    text = tcgen05(WAIT).replace(shared, "one.b64 [%rd9];")
    text = text.replace(
        "mov.u32 %r11, bar;",
        "mov.u32 %r11, bar; cvt.u64.u32 %rd9, %r11; @!%p2 mov.u64 %rd9, 0x1000000000000;",
    )
    a, b = whole(128, 16, 5), whole(16, 16, 6)
    data = np.concatenate([core_matrices(a, 2048), core_matrices(b.T.copy(), 256)])
    result = run(text, np.zeros(2048, "f4"), data)
    assert np.array_equal(result.allocations[0].data.view("f4").reshape(128, 16), 2 * (a @ b))


def test_tcgen05_that_nobody_waits_for_is_not_there_yet() -> None:
    a, b = whole(128, 16, 5), whole(16, 16, 6)
    data = np.concatenate([core_matrices(a, 2048), core_matrices(b.T.copy(), 256)])
    results = [
        run(tcgen05(""), np.zeros(2048, "f4"), data, schedule=Schedule(completion=completion))
        for completion in ("early", "late")
    ]
    held = [each.allocations[0].data.view("f4").reshape(128, 16) for each in results]
    assert np.array_equal(held[0], 2 * (a @ b))
    assert not np.array_equal(held[1], 2 * (a @ b))
    for result in results:
        spaces = {each.space for each in result.races if not each.formal}
        assert spaces == {"tensor_memory"}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_registers_of_a_load_may_be_used_before_the_wait(schedule: Schedule) -> None:
    # What compilers do, and the assembler puts right.
    body = (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;"
        " ld.shared.u32 %r2, [place]; add.u32 %r3, %r40, 7;"
        " tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r3};"
        " tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r2];"
        " add.u32 %r1, %r4, 1; tcgen05.wait::ld.sync.aligned; mad.wide.u32 %rd1, %r40, 4, %rd40;"
        " st.global.u32 [%rd1], %r1;"
    )
    ptx = kernel(body, 1, declarations=".shared .b32 place;")
    result = outcome(ptx, np.zeros(32, "u4"), schedule=schedule)
    assert not result.faults, result.faults
    assert result.allocations[0].data.view("u4").tolist() == [t + 8 for t in range(32)]


# Warps 0 and 4 share lanes of tensor memory: the first writes or reads them, then the other.
TENSOR_EXCHANGE = (
    "setp.lt.u32 %p1, %r40, 32; setp.ge.u32 %p2, %r40, 128;"
    " @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32; bar.sync 0;"
    " ld.shared.u32 %r2, [place]; @!%p1 bra skip; {first} skip: bar.sync 0; @!%p2 bra end;"
    " {second} mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r4; end:"
)
TENSOR_STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r40};"
TENSOR_LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r2];"
STORED, LOADED = "tcgen05.wait::st.sync.aligned;", "tcgen05.wait::ld.sync.aligned;"


@pytest.mark.parametrize("schedule", SCHEDULES[::2], ids=str)
@pytest.mark.parametrize(
    ("first", "second", "is_right"),
    [
        (TENSOR_STORE + STORED, TENSOR_LOAD + LOADED, True),
        (TENSOR_LOAD + LOADED, TENSOR_STORE + STORED, True),
        (TENSOR_STORE, TENSOR_LOAD + LOADED, False),
        (TENSOR_LOAD, TENSOR_STORE + STORED, False),
        (TENSOR_LOAD + STORED, TENSOR_STORE + STORED, False),
    ],
)
def test_tensor_memory_is_ordered_by_waits_and_barriers(
    first: str, second: str, is_right: bool, schedule: Schedule
) -> None:
    body = TENSOR_EXCHANGE.replace("{first}", first).replace("{second}", second)
    ptx = kernel(body, 1, declarations=".shared .b32 place;")
    check = Checks(races=True)
    result = outcome(ptx, np.zeros(160, "u4"), block=160, schedule=schedule, checks=check)
    assert not result.faults, result.faults
    assert [each.space for each in result.races] == ([] if is_right else ["tensor_memory"])


def test_registers_of_a_load_want_its_wait_by_the_letter() -> None:
    body = (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;"
        f" ld.shared.u32 %r2, [place]; {TENSOR_STORE} {STORED} {TENSOR_LOAD} {{one}}"
        " mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r4; {two}"
    )
    found = []
    for one, two in ((LOADED, ""), ("", LOADED)):
        text = body.replace("{one}", one).replace("{two}", two)
        ptx = kernel(text, 1, declarations=".shared .b32 place;")
        result = outcome(ptx, np.zeros(32, "u4"), checks=Checks(races=True))
        found.append([(each.formal, each.second.instruction[:2]) for each in result.races])
    assert found == [[], [(True, "st")]]


@pytest.mark.parametrize("stored", [2304, 4608])
def test_products_of_shared_memory_that_nothing_wrote(stored: int) -> None:
    a, b = whole(128, 16, 5), whole(16, 16, 6)
    data = np.concatenate([core_matrices(a, 2048), core_matrices(b.T.copy(), 256)])
    ptx = tcgen05(WAIT)
    if stored < 4608:
        ptx = ptx.replace("st.shared.v4.b32 [%r3+2048], {%r4, %r5, %r6, %r7};", "")
    result = outcome(ptx, np.zeros(2048, "f4"), data, block=128, checks=Checks(validity=True))
    assert not result.faults, result.faults
    found = {each.place.instruction.split(".cta")[0] for each in result.uninitialised}
    assert found == ({"@%p2 tcgen05.mma"} if stored < 4608 else set())


@pytest.mark.parametrize("is_written", [False, True])
def test_bulk_copies_of_shared_memory_that_nothing_wrote(is_written: bool) -> None:
    body = (
        "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; {store} bar.sync 0;"
        " setp.eq.u32 %p1, %r40, 0; @%p1 cp.async.bulk.global.shared::cta.bulk_group"
        " [%rd40], [%r2], 128; @%p1 cp.async.bulk.commit_group;"
        " @%p1 cp.async.bulk.wait_group 0;"
    ).replace("{store}", "st.shared.u32 [%r3], 5;" if is_written else "")
    ptx = kernel(body, 1, declarations=".shared .align 16 .b8 buffer[128];")
    result = outcome(ptx, np.zeros(32, "u4"), checks=Checks(validity=True))
    assert not result.faults, result.faults
    found = [each.place.instruction.split(".bulk_")[0] for each in result.uninitialised]
    assert found == ([] if is_written else ["@%p1 cp.async.bulk.global.shared::cta"])


def test_tensor_memory_that_nothing_wrote() -> None:
    body = (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;"
        f" ld.shared.u32 %r2, [place]; {{store}} {TENSOR_LOAD} {LOADED}"
        " mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r4;"
    )
    spaces = []
    for store in ("", TENSOR_STORE + STORED):
        ptx = kernel(body.replace("{store}", store), 1, declarations=".shared .b32 place;")
        result = outcome(ptx, np.zeros(32, "u4"), checks=Checks(validity=True))
        spaces.append([(each.space, each.count) for each in result.uninitialised])
    assert spaces == [[("tensor memory", 32)], []]


def test_tensor_memory_is_asked_for_and_given_back() -> None:
    body = (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 512;"
        " tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;"
    )
    result = outcome(kernel(body, 1, declarations=".shared .b32 place;"), np.zeros(1, "u4"))
    assert result.faults[0].kind == "hang"
    assert "tensor memory" in result.faults[0].what
    wrong = "mov.b32 %r1, 0; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;"
    result = outcome(kernel(wrong, 1), np.zeros(1, "u4"))
    assert "no block of 32 columns" in result.faults[0].what
