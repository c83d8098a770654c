"""Tensor copies through tensor maps, mbarriers, and CTAs that reach into each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import HEAD, REGISTERS, SCHEDULES, execute, kernel, outcome

from gpu_emulator.api import run
from gpu_emulator.values import (
    Allocation,
    Argument,
    Checks,
    Launch,
    Pointer,
    Schedule,
    TensorMap,
    TensorMapArgument,
)

TILES = f"""{HEAD}.shared .align 128 .b8 tile[512];
.shared .align 8 .b64 bar;
.visible .entry k(.param .align 64 .b8 source[128], .param .align 64 .b8 target[128])
{{{REGISTERS}
    mov.u32 %r40, %tid.x; setp.eq.u32 %p1, %r40, 0; mov.u32 %r1, tile; mov.u32 %r2, bar;
    mov.b64 %rd1, source; cvta.param.u64 %rd2, %rd1; mov.b64 %rd3, target;
    cvta.param.u64 %rd4, %rd3;
    @%p1 mbarrier.init.shared::cta.b64 [bar], 1; bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
    mov.u32 %r3, %ctaid.x; mad.lo.s32 %r4, %r3, 16, -4; mov.u32 %r5, 2;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r1], [%rd2, {{%r4, %r5}}], [%r2];
again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra again;
    mad.lo.u32 %r6, %r40, 16, %r1; ld.shared.v4.b32 {{%r7, %r8, %r9, %r10}}, [%r6];
    add.u32 %r7, %r7, 1; st.shared.v4.b32 [%r6], {{%r7, %r8, %r9, %r10}};
    fence.proxy.async.shared::cta; bar.sync 0; mul.lo.u32 %r11, %r3, 16; mov.u32 %r12, 0;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd4, {{%r11, %r12}}], [%r1];
    @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0; ret;
}}
"""


def tensor(allocation: int, rows: int, columns: int, swizzle: int = 0) -> TensorMap:
    """A tensor of 32-bit integers and tiles of 8 rows of 16."""
    return TensorMap(
        allocation=allocation, element="u32", sizes=(columns, rows), strides=(4 * columns,),
        box=(16, 8), element_strides=(1, 1), swizzle=swizzle,
    )  # fmt: skip


def tiles(*arguments: Argument, source: Allocation, schedule: Schedule) -> np.ndarray[Any, Any]:
    target = Allocation(name="target", data=np.zeros(8 * 48 * 4, "u1"))
    launch = Launch(
        ptx=TILES, grid=(3, 1, 1), block=(32, 1, 1), allocations=(source, target),
        arguments=arguments,
    )  # fmt: skip
    result = run(launch, schedule, None, Checks(races=True, validity=True))
    assert result.not_run is None, result.not_run
    assert not result.faults, result.faults
    assert not result.races, result.races
    assert not result.uninitialised
    return result.allocations[1].data.view("u4").reshape(8, 48)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_tiles_out_of_bounds_read_zero_and_are_not_written(schedule: Schedule) -> None:
    matrix = np.arange(1, 9 * 40 + 1, dtype="u4").reshape(9, 40)
    source = Allocation(name="source", data=matrix.view("u1").ravel())
    maps = (tensor(0, 9, 40), tensor(1, 8, 48))
    found = tiles(
        *(TensorMapArgument(tensor_map=each) for each in maps), source=source, schedule=schedule
    )
    # The tile of CTA c begins in column 16 c - 4 and row 2; each fourth element gets 1 more.
    padded = np.zeros((16, 64), "u4")
    padded[:9, 4:44] = matrix
    wanted = padded[2:10, :48].copy()
    wanted[:, ::4] += 1
    assert np.array_equal(found, wanted)


def test_a_swizzle_on_one_side_permutes_and_on_both_does_not() -> None:
    matrix = np.arange(1, 9 * 40 + 1, dtype="u4").reshape(9, 40)
    source = Allocation(name="source", data=matrix.view("u1").ravel())
    results = []
    for one, other in ((0, 0), (64, 64), (64, 0)):
        maps = (tensor(0, 9, 40, one), tensor(1, 8, 48, other))
        arguments = (TensorMapArgument(tensor_map=each) for each in maps)
        results.append(tiles(*arguments, source=source, schedule=Schedule()))
    # What is stored has 1 added to the first of 4 neighbours, which a swizzle keeps together.
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    assert sorted(results[0].ravel().tolist()) == sorted(results[2].ravel().tolist())


def test_a_tile_that_is_larger_than_its_place() -> None:
    # A swizzle of 128 bytes gives each row of 64 bytes room for 128.
    source = Allocation(name="source", data=np.zeros(9 * 40 * 4, "u1"))
    launch = Launch(
        ptx=TILES, grid=(1, 1, 1), block=(32, 1, 1), allocations=(source,),
        arguments=(TensorMapArgument(tensor_map=tensor(0, 9, 40, 128)),) * 2,
    )  # fmt: skip
    (fault,) = run(launch).faults
    assert "a tensor copy" in fault.what
    assert "out of bounds" in fault.what


def test_a_map_that_the_driver_would_refuse() -> None:
    source = Allocation(name="source", data=np.zeros(9 * 41 * 4, "u1"))
    launch = Launch(
        ptx=TILES, grid=(1, 1, 1), block=(32, 1, 1), allocations=(source,),
        arguments=(TensorMapArgument(tensor_map=tensor(0, 9, 41)),) * 2,
    )  # fmt: skip
    assert "not multiples of 16" in str(run(launch).not_run)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_phases_of_an_mbarrier_between_a_producer_and_consumers(schedule: Schedule) -> None:
    ptx = kernel(
        "setp.eq.u32 %p1, %r40, 0; mov.u32 %r1, 0; mov.u32 %r2, 0;"
        " @%p1 mbarrier.init.shared::cta.b64 [full], 1;"
        " @%p1 mbarrier.init.shared::cta.b64 [free], 32;"
        " bar.sync 0; setp.lt.u32 %p2, %r40, 32; @%p2 bra producer;"
        " consume: and.b32 %r3, %r2, 1;"
        " c: mbarrier.try_wait.parity.shared::cta.b64 %p3, [full], %r3; @!%p3 bra c;"
        " ld.shared.u32 %r4, [value]; add.u32 %r1, %r1, %r4;"
        " mbarrier.arrive.shared::cta.b64 _, [free]; add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 5;"
        " @%p4 bra consume; bra end;"
        " producer: @!%p1 bra end; produce: setp.eq.u32 %p5, %r2, 0; @%p5 bra first;"
        " sub.u32 %r3, %r2, 1; and.b32 %r3, %r3, 1;"
        " p: mbarrier.try_wait.parity.shared::cta.b64 %p3, [free], %r3; @!%p3 bra p;"
        " first: mad.lo.u32 %r4, %r2, %r2, 3; st.shared.u32 [value], %r4;"
        " mbarrier.arrive.shared::cta.b64 _, [full]; add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 5;"
        " @%p4 bra produce; end: mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r1;",
        1,
        declarations=".shared .b64 full; .shared .b64 free; .shared .b32 value;",
    )
    result = outcome(
        ptx, np.zeros(64, "u4"), block=64, schedule=schedule, checks=Checks(races=True)
    )
    assert not result.faults, result.faults
    assert not result.races, result.races
    assert result.allocations[0].data.view("u4").tolist() == [0] * 32 + [45] * 32


def test_an_mbarrier_that_never_completes_is_a_hang() -> None:
    ptx = kernel(
        "mbarrier.init.shared::cta.b64 [bar], 2; mbarrier.arrive.shared::cta.b64 _, [bar];"
        " again: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra again;",
        1,
        declarations=".shared .b64 bar;",
    )
    (fault,) = outcome(ptx, np.zeros(1, "u4"), block=1).faults
    assert fault.kind == "hang"
    assert "the mbarrier at shared address 0x400" in fault.what


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_ctas_of_a_cluster_read_each_others_shared_memory(schedule: Schedule) -> None:
    ptx = kernel(
        "mov.u32 %r1, %cluster_ctarank; mad.lo.u32 %r2, %r1, 1000, %r40; mov.u32 %r3, buffer;"
        " mad.lo.u32 %r4, %r40, 4, %r3; st.shared.u32 [%r4], %r2;"
        " barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
        " add.u32 %r5, %r1, 1; and.b32 %r5, %r5, 3; mapa.shared::cluster.u32 %r6, %r4, %r5;"
        " ld.shared::cluster.u32 %r7, [%r6]; mov.u32 %r8, %ctaid.x;"
        " mad.lo.u32 %r9, %r8, 64, %r40; mad.wide.u32 %rd1, %r9, 4, %rd40;"
        " st.global.u32 [%rd1], %r7; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        1,
        declarations=".shared .align 16 .b8 buffer[256];",
    )
    (found,) = execute(ptx, np.zeros(512, "u4"), grid=8, block=64, cluster=4, schedule=schedule)
    wanted = [((cta + 1) % 4) * 1000 + t for cta in range(8) for t in range(64)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("schedule", SCHEDULES[:3], ids=str)
def test_one_bulk_load_for_several_ctas(schedule: Schedule) -> None:
    ptx = kernel(
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r40, 0; mov.u32 %r2, buffer;"
        " mov.u32 %r3, bar;"
        " @%p1 mbarrier.init.shared::cta.b64 [bar], 1;"
        " @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;"
        " barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setp.eq.u32 %p2, %r1, 1;"
        " and.pred %p3, %p1, %p2; mov.b16 %h1, 3;"
        " @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%r2], [%rd41], 128, [%r3], %h1;"
        " again: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0; @!%p4 bra again;"
        " mad.lo.u32 %r4, %r40, 4, %r2; ld.shared.u32 %r5, [%r4]; mad.lo.u32 %r6, %r1, 32, %r40;"
        " mad.wide.u32 %rd1, %r6, 4, %rd40; st.global.u32 [%rd1], %r5;",
        2,
        declarations=".shared .align 16 .b8 buffer[128]; .shared .b64 bar;",
    )
    found, _ = execute(
        ptx, np.zeros(64, "u4"), np.arange(32, dtype="u4"), grid=2, cluster=2, schedule=schedule
    )
    assert found.tolist() == list(range(32)) * 2


def test_pointers_to_tensor_maps_in_global_memory() -> None:
    ptx = TILES.replace(".param .align 64 .b8 source[128]", ".param .u64 source").replace(
        "mov.b64 %rd1, source; cvta.param.u64 %rd2, %rd1;", "ld.param.u64 %rd2, [source];"
    )
    matrix = np.arange(1, 9 * 40 + 1, dtype="u4").reshape(9, 40)
    buffers = (
        Allocation(name="source", data=matrix.view("u1").ravel()),
        Allocation(name="target", data=np.zeros(8 * 48 * 4, "u1")),
    )
    maps = (tensor(0, 9, 40), tensor(1, 8, 48))
    arguments = tuple(TensorMapArgument(tensor_map=each) for each in maps)
    results = [
        run(
            Launch(
                ptx=text, grid=(3, 1, 1), block=(32, 1, 1), allocations=buffers,
                arguments=arguments,
            )
        )
        for text in (ptx, TILES)
    ]  # fmt: skip
    assert not results[0].faults, results[0].faults
    assert np.array_equal(results[0].allocations[1].data, results[1].allocations[1].data)


def test_a_pointer_that_is_no_tensor_map() -> None:
    ptx = TILES.replace(".param .align 64 .b8 source[128]", ".param .u64 source").replace(
        "mov.b64 %rd1, source; cvta.param.u64 %rd2, %rd1;", "ld.param.u64 %rd2, [source];"
    )
    buffers = (
        Allocation(name="source", data=np.full(256, 255, "u1")),
        Allocation(name="target", data=np.zeros(8 * 48 * 4, "u1")),
    )
    launch = Launch(
        ptx=ptx, grid=(1, 1, 1), block=(32, 1, 1), allocations=buffers,
        arguments=(
            Pointer(allocation=0), TensorMapArgument(tensor_map=tensor(1, 8, 48)),
        ),
    )  # fmt: skip
    (fault,) = run(launch).faults
    assert "no tensor map" in fault.what
