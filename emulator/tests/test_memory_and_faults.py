"""Spaces, bounds, alignment, what nothing wrote, and where it happened."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from programs import execute, kernel, outcome

from gpu_emulator.api import run
from gpu_emulator.values import Allocation, Budget, Checks, Launch, Pointer, Scalar, Schedule

PLACE = "mad.wide.u32 %rd1, %r40, 4, %rd40;"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("st.global.u32 [%rd40+128], 1;", "byte 128 of p0, which has 128"),
        ("ld.global.u32 %r1, [%rd40+-4];", "out of bounds"),
        ("ld.global.u32 %r1, [%rd40+2];", "no multiple of 4"),
        ("mov.u64 %rd2, 0; ld.global.u32 %r1, [%rd2];", "out of bounds"),
        ("mov.u64 %rd2, 0; ld.u32 %r1, [%rd2];", "out of bounds"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd40+8];", "no multiple of 16"),
        ("st.shared.u32 [buffer+64], 1;", "out of bounds"),
        ("st.shared.u32 [%r0], 1;", "shared address"),
        (
            "mad.wide.u32 %rd2, %r40, 4, %rd40; add.u64 %rd2, %rd2, 64; ld.global.u32 %r1, [%rd2];",
            "(16 threads)",
        ),
        ("atom.global.add.u32 %r1, [%rd40+256], 1;", "out of bounds"),
        ("trap;", "thread 0 of CTA (0, 0, 0)"),
    ],
)  # fmt: skip
def test_a_fault_names_line_and_place(body: str, words: str) -> None:
    ptx = kernel(
        f'.file 1 "kernel.py"\n.loc 1 42 0\nmov.u32 %r0, 3;\n{body}', 1,
        declarations=".shared .align 16 .b8 buffer[64];",
    )  # fmt: skip
    result = outcome(ptx, np.zeros(32, "u4"))
    (fault,) = result.faults
    assert words in fault.what
    assert fault.place is not None
    assert fault.place.source == "kernel.py:42"
    lines = ptx.splitlines()
    assert fault.place.instruction.split(";")[0] in lines[fault.place.ptx_line - 1]


def test_a_line_behind_scopes_is_that_of_the_file() -> None:
    """Triton's inline assembly has scopes; their braces are lines of the file too."""
    scope = "{\n.reg .b32 t;\nmov.u32 t, 1;\n{\n.reg .b32 t;\nmov.u32 t, 2;\n}\n}\n"
    ptx = kernel(f"{scope}{scope}st.global.u32 [%rd40+128], 1;", 1)
    (fault,) = outcome(ptx, np.zeros(32, "u4")).faults
    assert fault.place is not None
    assert "st.global.u32 [%rd40+128]" in ptx.splitlines()[fault.place.ptx_line - 1]


@pytest.mark.parametrize(
    "body",
    [
        "add.u64 %rd2, %rd40, 8; ld.global.u32 %r1, [%rd2+18446744073709551612];",
        "add.u64 %rd2, %rd40, 8; ld.global.u32 %r1, [%rd2+0xFFFFFFFFFFFFFFFCU];",
        "add.u64 %rd2, %rd40, 8; ld.global.u32 %r1, [%rd2-4];",
        (
            "mov.u64 %rd3, 0x8000000000000004; add.u64 %rd2, %rd40, %rd3;"
            " ld.global.u32 %r1, [%rd2+9223372036854775808];"
        ),
        "mov.u32 %r2, -4; mad.wide.s32 %rd2, %r2, 4, %rd40; ld.global.u32 %r1, [%rd2+20];",
        (
            "mov.u32 %r2, -4; cvt.u64.u32 %rd3, %r2; shl.b64 %rd3, %rd3, 2;"
            " add.s64 %rd2, %rd3, %rd40; ld.global.u32 %r1, [%rd2+-17179869164];"
        ),
        (
            "ld.global.u32 %r2, [%rd40+4]; mov.u32 %r3, buffer; st.shared.u32 [buffer], %r2;"
            " bar.sync 0; add.s32 %r3, %r3, -2147483648; ld.shared.u32 %r1, [%r3+2147483648];"
        ),
    ],
)
def test_addresses_wrap(body: str) -> None:
    declared = ".shared .align 16 .b8 buffer[64];"
    ptx = kernel(f"{body} {PLACE} st.global.u32 [%rd1], %r1;", 1, declarations=declared)
    (found,) = execute(ptx, np.arange(5, 37, dtype="u4"))
    assert set(found.tolist()) == {6}


@pytest.mark.parametrize(
    "address", ["0x7ffffffffffffffc", "0x8000000000000000", "0xfffffffffffffffc"]
)
def test_the_ends_of_the_address_space_are_out_of_bounds(address: str) -> None:
    ptx = kernel(
        f"setp.eq.u32 %p1, %r40, 3; selp.b64 %rd2, {address}, %rd40, %p1; ld.u32 %r1, [%rd2];", 1
    )
    (fault,) = outcome(ptx, np.zeros(32, "u4")).faults
    assert f"{address} is out of bounds (1 threads)" in fault.what


def test_memory_between_buffers_is_guarded() -> None:
    ptx = kernel("st.global.u32 [%rd40+300], 1;", 2)
    result = outcome(ptx, np.zeros(64, "u4"), np.zeros(64, "u4"))
    assert "out of bounds" in result.faults[0].what


def test_local_memory_is_each_threads_own() -> None:
    ptx = kernel(
        ".local .align 8 .b8 mine[32]; mov.u64 %rd2, mine; cvta.local.u64 %rd3, %rd2;"
        " and.b32 %r1, %r40, 7; mad.wide.u32 %rd4, %r1, 4, %rd2; st.local.u32 [%rd4], %r40;"
        " mad.wide.u32 %rd5, %r1, 4, %rd3; ld.u32 %r2, [%rd5]; add.u32 %r2, %r2, %r40;"
        f" {PLACE} st.global.u32 [%rd1], %r2;",
        1,
    )
    (found,) = execute(ptx, np.zeros(64, "u4"), block=64)
    assert found.tolist() == [2 * t for t in range(64)]


def test_shared_memory_is_each_ctas_own_and_has_generic_addresses() -> None:
    ptx = kernel(
        "mov.u32 %r1, buffer; mad.lo.u32 %r2, %r40, 4, %r1; mov.u32 %r3, %ctaid.x;"
        " mad.lo.u32 %r4, %r3, 100, %r40; st.shared.u32 [%r2], %r4; bar.sync 0;"
        " mov.u64 %rd2, buffer; cvta.shared.u64 %rd3, %rd2; xor.b32 %r5, %r40, 1;"
        " mad.wide.u32 %rd4, %r5, 4, %rd3; ld.u32 %r6, [%rd4]; mad.lo.u32 %r7, %r3, 32, %r40;"
        " mad.wide.u32 %rd1, %r7, 4, %rd40; st.global.u32 [%rd1], %r6;",
        1,
        declarations=".shared .align 16 .b8 buffer[128];",
    )
    (found,) = execute(ptx, np.zeros(96, "u4"), grid=3)
    assert found.tolist() == [100 * cta + (t ^ 1) for cta in range(3) for t in range(32)]


def test_one_instruction_may_reach_several_spaces() -> None:
    ptx = kernel(
        ".shared .align 4 .b32 here; mov.u64 %rd2, here; st.shared.u32 [%rd2], 7;"
        " cvta.shared.u64 %rd3, %rd2; setp.lt.u32 %p1, %r40, 16; selp.b64 %rd4, %rd3, %rd41, %p1;"
        f" ld.u32 %r1, [%rd4]; {PLACE} st.global.u32 [%rd1], %r1;",
        2,
    )
    found, _ = execute(ptx, np.zeros(32, "u4"), np.array([9], "u4"))
    assert found.tolist() == [7] * 16 + [9] * 16


def test_variables_of_the_module() -> None:
    ptx = kernel(
        f"mov.u64 %rd2, table; and.b32 %r1, %r40, 3; mad.wide.u32 %rd3, %r1, 4, %rd2;"
        f" ld.global.u32 %r2, [%rd3]; ld.const.s16 %r3, [small+2]; add.s32 %r2, %r2, %r3;"
        f" ld.global.u64 %rd5, [pointer]; ld.u32 %r4, [%rd5]; add.s32 %r2, %r2, %r4;"
        f" {PLACE} st.global.u32 [%rd1], %r2;",
        1,
        declarations=".global .align 4 .u32 table[4] = {5, 6, 7, 8};\n"
        ".const .align 2 .s16 small[2] = {1, -3};\n.global .align 8 .u64 pointer = table+8;",
    )
    (found,) = execute(ptx, np.zeros(32, "u4"))
    assert found.tolist() == [(5, 6, 7, 8)[t & 3] - 3 + 7 for t in range(32)]


def test_what_nothing_wrote_is_found_and_differs_by_garbage() -> None:
    ptx = kernel(
        f"add.u32 %r2, %r9, 1; ld.shared.u32 %r1, [buffer]; xor.b32 %r1, %r1, %r2; {PLACE}"
        " st.global.u32 [%rd1], %r1;",
        1,
        declarations=".shared .align 16 .b8 buffer[64];",
    )
    results = [
        outcome(
            ptx, np.zeros(32, "u4"), schedule=Schedule(garbage=seed), checks=Checks(validity=True)
        )
        for seed in (1, 1, 2)
    ]
    first, again, other = (each.allocations[0].data.tolist() for each in results)
    assert first == again
    assert first != other
    (finding,) = results[0].uninitialised
    assert finding.space == "shared"
    assert finding.place.instruction.startswith("ld.shared")


def test_bytes_that_the_launch_left_unwritten() -> None:
    ptx = kernel("ld.global.u32 %r1, [%rd40]; st.global.u32 [%rd40+4], %r1;", 1)
    buffer = Allocation(name="out", data=np.zeros(8, "u1"), written=np.zeros(8, dtype=np.bool_))
    launch = Launch(
        ptx=ptx, grid=(1, 1, 1), block=(32, 1, 1), allocations=(buffer,),
        arguments=(Pointer(allocation=0),),
    )  # fmt: skip
    result = run(launch, check=Checks(validity=True))
    (finding,) = result.uninitialised
    assert "out" in finding.what
    written = result.allocations[0].written
    assert written is not None
    assert written.tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize("vector", ["v2.u64", "v4.u32", "v8.u32", "v2.u8", "v4.u16"])
def test_vectors(vector: str) -> None:
    count, kind = int(vector[1]), vector[3:]
    size = int(kind[1:]) // 8 * count
    letter = {"u64": "%rd2{}", "u32": "%r2{}", "u8": "%h{}", "u16": "%h{}"}[kind]
    names = "{" + ", ".join(letter.format(each) for each in range(count)) + "}"
    ptx = kernel(
        f"mad.wide.u32 %rd1, %r40, {size}, %rd41; ld.global.{vector} {names}, [%rd1];"
        f" mad.wide.u32 %rd2, %r40, {size}, %rd40; st.global.{vector} [%rd2], {names};",
        2,
    )
    source = np.random.default_rng(1).integers(0, 256, 32 * size, dtype=np.uint8)
    found, _ = execute(ptx, np.zeros(32 * size, "u1"), source)
    assert np.array_equal(found, source)


def test_scalars_and_wrong_arguments() -> None:
    ptx = kernel("", 1).replace(".param .u64 p0", ".param .u64 p0, .param .u32 n")
    ptx = ptx.replace(
        "mov.u32 %r40", "ld.param.u32 %r1, [n]; st.global.u32 [%rd40], %r1;\nmov.u32 %r40"
    )
    buffer = Allocation(name="out", data=np.zeros(4, "u1"))

    def launch(*arguments: Pointer | Scalar) -> Launch:
        return Launch(
            ptx=ptx, grid=(1, 1, 1), block=(1, 1, 1), allocations=(buffer,), arguments=arguments
        )

    result = run(launch(Pointer(allocation=0), Scalar(raw=(1234).to_bytes(4, "little"))))
    assert result.allocations[0].data.view("u4").tolist() == [1234]
    assert "no argument" in str(run(launch(Pointer(allocation=0))).not_run)
    assert "8 bytes" in str(run(launch(Pointer(allocation=0), Scalar(raw=bytes(8)))).not_run)


@pytest.mark.parametrize(
    ("grid", "cluster", "most", "ran"),
    [
        (10, 1, 20, range(10)),
        (10, 1, 4, (0, 3, 6, 9)),
        (12, 2, 5, (0, 1, 10, 11)),
        (10, 1, 1, (0,)),
    ],
)
def test_of_a_large_grid_a_sample_is_run(
    grid: int, cluster: int, most: int, ran: Sequence[int]
) -> None:
    body = "mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd1, %r1, 4, %rd40; st.global.u32 [%rd1], 1;"
    result = outcome(
        kernel(body, 1), np.zeros(grid, "u4"), grid=grid, cluster=cluster,
        limits=Budget(max_ctas=most),
    )  # fmt: skip
    assert np.flatnonzero(result.allocations[0].data.view("u4")).tolist() == list(ran)
    assert (result.ctas, result.ctas_of) == (len(ran), grid)
    assert result.is_sample == (most < grid)


def test_an_address_of_32_bits_is_a_sum_of_32_bits() -> None:
    """LLVM folds `buffer[i - 3]` to a register below zero and an offset."""
    ptx = kernel(
        ".local .align 16 .b8 buffer[64];\n"
        "mov.u32 %r1, buffer; sub.u32 %r1, %r1, 12; st.local.u32 [%r1+16], 7;\n"
        "ld.local.u32 %r2, [buffer+4]; ld.local.u32 %r3, [%r1+16]; add.u32 %r2, %r2, %r3;\n"
        f"{PLACE} st.global.u32 [%rd1], %r2;", 1,
    )  # fmt: skip
    assert outcome(ptx, np.zeros(32, "u4")).faults == ()
    assert (execute(ptx, np.zeros(32, "u4"))[0] == 14).all()


def test_a_store_where_there_is_no_memory_at_all_is_a_fault() -> None:
    ptx = kernel("st.global.u32 [%rd4 + 4], %r1;", 0)
    result = outcome(ptx)
    assert result.not_run is None
    assert result.faults[0].kind == "memory_fault"
