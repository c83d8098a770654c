"""What an entry declares of its launches, and what no GPU launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import kernel

from gpu_emulator.api import run
from gpu_emulator.values import Allocation, Budget, Launch, Outcome, Pointer

# Each CTA writes its number to its own shared memory, and reads that of the next of its cluster.
EXCHANGE = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, word; st.shared.u32 [%r2], %r1;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank; add.u32 %r5, %r3, 1;
    rem.u32 %r5, %r5, %r4; mapa.shared::cluster.u32 %r6, %r2, {rank};
    ld.shared::cluster.u32 %r7, [%r6]; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r8, %clusterid.x; mov.u32 %r9, %cluster_nctaid.x; mov.u32 %r10, %nclusterid.x;
    mov.u32 %r11, %cluster_ctaid.x; mul.lo.u32 %r12, %r1, 24; cvt.u64.u32 %rd1, %r12;
    add.u64 %rd2, %rd40, %rd1; st.global.v2.u32 [%rd2], {{%r7, %r3}};
    st.global.v2.u32 [%rd2+8], {{%r4, %r8}}; st.global.v2.u32 [%rd2+16], {{%r9, %r10}};
"""
WORD = ".shared .align 4 .b8 word[4];"


def launched(
    directives: str,
    body: str = "",
    *,
    grid: tuple[int, int, int] = (4, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    limits: Budget | None = None,
) -> Outcome:
    ptx = kernel(body, 1, declarations=WORD).replace("\n{", f" {directives}\n{{", 1)
    allocation = Allocation(name="out", data=np.zeros(4 * 24, "u1"))
    launch = Launch(
        ptx=ptx, grid=grid, block=block, cluster=cluster, allocations=(allocation,),
        arguments=(Pointer(allocation=0),),
    )  # fmt: skip
    return run(launch, None, limits)


@pytest.mark.parametrize(
    ("directives", "size"),
    [
        ("", 1), (".reqnctapercluster 1", 1), (".reqnctapercluster 2", 2),
        (".explicitcluster .reqnctapercluster 2, 1, 1", 2), (".reqnctapercluster 4,1", 4),
        (".maxntid 32 .reqnctapercluster 4 .minnctapersm 1", 4),
    ],
)  # fmt: skip
def test_clusters_are_as_the_entry_declares(directives: str, size: int) -> None:
    result = launched(directives, EXCHANGE.format(rank="%r5"))
    assert result.not_run is None
    assert not result.faults
    found = result.allocations[0].data.view("u4").reshape(4, 6).tolist()
    for cta, row in enumerate(found):
        first, rank = cta // size * size, cta % size
        assert row == [first + (rank + 1) % size, rank, size, cta // size, size, 4 // size]


@pytest.mark.parametrize("rank", ["2", "%r4", "255", "0xffffffff"])
def test_mapa_to_a_rank_that_the_cluster_has_not(rank: str) -> None:
    result = launched(".reqnctapercluster 2", EXCHANGE.format(rank=rank))
    (fault,) = result.faults
    assert fault.kind == "memory_fault"
    number = {"%r4": 2}.get(rank) or int(rank, 0)
    assert f"mapa to rank {number} of a cluster of 2" in fault.what


@pytest.mark.parametrize(
    "body", ["st.shared::cluster.u32 [%r1], %r40;", "ld.shared.u32 %r2, [%r1];"]
)
def test_an_address_of_a_cta_that_the_cluster_has_not(body: str) -> None:
    result = launched(
        ".reqnctapercluster 2", f"mov.u32 %r1, word; or.b32 %r1, %r1, 0x5000000; {body}"
    )
    (fault,) = result.faults
    assert "CTA 4 of a cluster of 2" in fault.what


@pytest.mark.parametrize(
    ("directives", "sizes", "words"),
    [
        (".maxntid 32", {"block": (64, 1, 1)}, "64 threads, and the entry declares .maxntid 32"),
        (".maxntid 8, 4", {"block": (33, 1, 1)}, ".maxntid 8,4,1"),
        (".reqntid 64", {}, "a block of 32,1,1: the entry declares .reqntid 64,1,1"),
        (".reqntid 16, 2", {}, ".reqntid 16,2,1"),
        (".reqnctapercluster 2", {"grid": (3, 1, 1)}, "a grid of 3,1,1: each size has to be a"),
        (".reqnctapercluster 1, 2", {}, "multiple of the cluster's, 1,2,1"),
        (".reqnctapercluster 2", {"cluster": (4, 1, 1)}, "declares .reqnctapercluster 2,1,1"),
        (".explicitcluster", {}, "declares .explicitcluster"),
        (".maxclusterrank 2", {"cluster": (4, 1, 1)}, "4 blocks, and it may have at most 2"),
        ("", {"cluster": (32, 1, 1), "grid": (32, 1, 1)}, "32 blocks, and it may have at most 16"),
        ("", {"block": (1, 2, 65)}, "a block of 1,2,65: each size is from 1 to 1024,1024,64"),
        ("", {"block": (64, 32, 1)}, "2,048 threads, and a block has at most 1,024"),
        ("", {"block": (4294967296, 1, 1)}, "a block of 4294967296,1,1"),
        ("", {"grid": (1, 65536, 1)}, "a grid of 1,65536,1"),
        ("", {"grid": (0, 1, 1)}, "a grid of 0,1,1"),
    ],
)  # fmt: skip
def test_a_launch_that_a_driver_refuses_is_not_run(
    directives: str, sizes: dict[str, Any], words: str
) -> None:
    result = launched(directives, **sizes)
    assert result.not_run is not None
    assert words in result.not_run


@pytest.mark.parametrize(
    ("directives", "sizes"),
    [
        (".maxntid 64", {}), (".maxntid 8, 4", {}), (".reqntid 32", {}), (".reqntid 32, 1, 1", {}),
        (".maxclusterrank 4", {"cluster": (4, 1, 1)}), ("", {"block": (16, 1, 64)}),
        (".explicitcluster", {"cluster": (2, 1, 1)}),
    ],
)  # fmt: skip
def test_a_launch_within_the_bounds_runs(directives: str, sizes: dict[str, Any]) -> None:
    assert launched(directives, **sizes).not_run is None


def test_registers_of_a_function_are_counted_too() -> None:
    function = ".func f() { .reg .b32 %q<99999999>; ret; }"
    ptx = kernel("call f;", 1, functions=function)
    found = run(Launch(ptx=ptx, grid=(1, 1, 1), block=(32, 1, 1)))
    assert "registers are declared" in str(found.not_run)


def test_the_largest_grid_is_sampled_at_once() -> None:
    largest = ((1 << 31) - 1, 65535, 65535)
    found = launched("", grid=largest, limits=Budget(max_ctas=8))
    assert (found.ctas, found.is_sample) == (8, True)
    clusters = launched(".reqnctapercluster 1,3", grid=largest, limits=Budget(max_ctas=8))
    assert (clusters.ctas, clusters.is_sample) == (6, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (".reg .b32 %q<99999999>;", "registers are declared"),
        (".shared .b8 big[1000000000000000000000000000000];", "cannot be read"),
        (".shared .b8 big[99999999999];", "no GPU has so much"),
        (".local .b8 big[99999999999];", "one CTA needs"),
        (".shared .align 1000000000000000 .b8 big[4];", "no GPU has so much"),
        (".global .b8 big[999999999999];", "big has 999,999,999,999 bytes"),
        (".global .b8 big[999999999999] = {1};", "big has 999,999,999,999 bytes"),
        (".global .align 1099511627776 .b8 big[4];", "bytes: at most"),
        ("bar.sync 1000000000000000000000000000000;", "bar.sync"),
        ("shl.b32 %r1, %r2, 1000000000000000000000000000000;", "shl.b32"),
    ],
)
def test_what_is_too_large_to_be_run_is_refused_in_one_line(body: str, words: str) -> None:
    found = launched("", body)
    assert found.not_run is not None
    assert words in found.not_run
    assert "\n" not in found.not_run
