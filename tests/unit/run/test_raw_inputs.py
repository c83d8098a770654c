"""Inputs of raw PTX as they are written, and what is guessed."""

from __future__ import annotations

import re
import struct

import pytest

from harness.run.comparing import ELEMENTS
from harness.run.inputs import Entry, read_entry
from harness.run.raw import BufferWords, RawArgument, assign, pack_scalar, read_buffer, read_sizes
from harness.run.schedules import DEFAULT, read_schedules, trials_of
from harness.values.errors import UsageError

PTX = """
.entry k(.param .u64 p0, .param .u64 .ptr .global .align 4 p1, .param .u32 p2, .param .f32 p3,
         .param .u64 p4)
{
  ld.param.u64 %rd1, [p0];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.u64 %rd9, [p4];
  ret;
}
"""
ENTRY: Entry = read_entry(PTX)
LONG = "9" * 5000
"""Python makes no integer of a text with that many digits."""


def words(arguments: list[RawArgument]) -> list[str]:
    return [each.words for each in arguments]


def test_a_buffer_is_read_with_type_size_and_fill() -> None:
    assert read_buffer("out=u32[128]") == BufferWords(name="out", type="u32", count=128)
    assert read_buffer("x=bf16[4]:random").fill == "random"
    assert read_buffer("x=f32[4]:0x3f800000").fill == "0x3f800000"
    assert read_buffer("x=f32[]:some/x.npy") == BufferWords(
        name="x", type="f32", count=None, fill="some/x.npy"
    )
    for text in ("out=u32[128]", "x=f32[4]:-1.5", "$p%0=s8[2]:a.npy"):
        assert str(read_buffer(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("out", "write NAME=DTYPE[N]"),
        ("out=u32", "write NAME=DTYPE[N]"),
        ("out=u33[4]", "no type 'u33'"),
        ("out=u32[]", "say how many elements"),
        ("out=u32[99999999999]", "too large"),
        (f"out=u32[{LONG}]", "write NAME=DTYPE[N]"),
    ],
)
def test_a_buffer_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        read_buffer(text)


def test_names_and_numbers_of_parameters_come_first() -> None:
    buffers = [read_buffer("p1=f32[2]"), read_buffer("0=f32[1]")]
    found = assign(ENTRY, PTX, buffers, [("p3", "1.5"), ("p2", "7"), ("p4", "3")], 64)
    assert words(found) == [
        "--buffer 0=f32[1]",
        "--buffer p1=f32[2]",
        "--scalar p2=7",
        "--scalar p3=1.5",
        "--scalar p4=3",
    ]
    assert not any(each.is_guess for each in found)


def test_other_names_take_what_is_left_in_order() -> None:
    buffers = [read_buffer("out=f32[2]"), read_buffer("x=f32[1]")]
    found = assign(ENTRY, PTX, buffers, [("n", "7"), ("scale", "2"), ("m", "3")], 64)
    assert words(found) == [
        "--buffer out=f32[2]",
        "--buffer x=f32[1]",
        "--scalar p2=7",
        "--scalar p3=2",
        "--scalar p4=3",
    ]


def test_the_rest_is_guessed_from_the_parameter_list() -> None:
    found = assign(ENTRY, PTX, [], [], 64)
    assert all(each.is_guess for each in found)
    assert words(found) == [
        "--buffer p0=u32[4096]:random",
        "--buffer p1=u32[4096]:random",
        "--scalar p2=64",
        "--scalar p3=1",
        # Nothing takes it for an address.
        "--scalar p4=64",
    ]


@pytest.mark.parametrize(
    ("body", "types"),
    [
        ("ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2], %f1;", ["f32", "f32"]),
        (("cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2; mul.wide.s32 %rd5, %r1, 2;"
         "add.s64 %rd6, %rd5, %rd3; add.s64 %rd7, %rd4, %rd5; ld.global.nc.L1::no_allocate"
         ".L2::128B.v4.s16 {%rs1, %rs2, %rs3, %rs4}, [%rd6+8]; st.global.f64 [%rd7], %fd1;"),
         ["s16", "f64"]),
        (("mad.wide.s32 %rd3, %r1, 4, %rd1; @%p1 ld.global.b32 %r2, [%rd3]; ld.global.f32 %f1, "
         "[%rd1+4]; atom.global.add.noftz.bf16x2 %r3, [%rd2], %r4;"), ["f32", "bf16"]),
        ("ld.global.b16 %rs1, [ %rd1 + 0 ]; red.global.add.f32 [%rd2], %f1;", ["u16", "f32"]),
        (("cp.async.ca.shared.global [%r1], [%rd1], 16; st.shared.f32 [%r1], %f1;"
         "redux.sync.add.s32 %r2, %r3, 1; cvta.to.global.u64 %rd3, %rd2;"), ["u32", "u32"]),
    ],
)  # fmt: skip
def test_a_pointer_is_guessed_to_be_of_what_is_loaded_and_stored(
    body: str, types: list[str]
) -> None:
    ptx = (
        ".entry k(.param .u64 a, .param .u64 b) { ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; "
        f"{body} ret; }}"
    )
    found = assign(read_entry(ptx), ptx, [], [], 64)
    assert words(found) == [
        f"--buffer {name}={kind}[4096]:random" for name, kind in zip("ab", types, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "size"),
    [("i8", 1), ("i16", 2), ("i32", 4), ("i64", 8), ("fp16", 2), ("bf16", 2), ("fp32", 4)],
)
def test_a_buffer_may_be_of_a_type_as_triton_spells_it(name: str, size: int) -> None:
    assert ELEMENTS[read_buffer(f"x={name}[4]").type].itemsize == size


def test_a_number_that_is_no_parameters_is_a_name_of_the_users() -> None:
    for name in (LONG, "5", "²"):
        found = assign(ENTRY, PTX, [], [(name, "7")], 64)
        assert [(each.name, each.scalar) for each in found if not each.is_guess] == [(name, "7")]


def test_more_than_there_are_parameters_is_refused() -> None:
    with pytest.raises(UsageError, match="no parameter of k is left; it has p0"):
        assign(ENTRY, PTX, [read_buffer(f"b{n}=u32[1]") for n in range(4)], [], 1)
    with pytest.raises(UsageError, match="given twice"):
        assign(ENTRY, PTX, [read_buffer("p0=u32[1]"), read_buffer("0=u32[1]")], [], 1)
    with pytest.raises(UsageError, match=re.escape("`.f32 p3` is not a pointer; use --scalar")):
        assign(ENTRY, PTX, [read_buffer("p3=u32[1]")], [], 1)


def test_numbers_are_packed_as_their_parameters_want_them() -> None:
    p2, p3, p4 = ENTRY.parameters[2:]
    assert pack_scalar(p2, "-1") == b"\xff" * 4
    assert pack_scalar(p2, "0x10") == b"\x10\0\0\0"
    assert pack_scalar(p3, "0.5") == struct.pack("<f", 0.5)
    assert pack_scalar(p3, "0x3f800000") == struct.pack("<f", 1.0)
    assert pack_scalar(p4, str((1 << 64) - 1)) == b"\xff" * 8
    for parameter, text in ((p2, "1.5"), (p2, "many"), (p2, str(1 << 32)), (p3, "half")):
        with pytest.raises(UsageError, match="no number that fits"):
            pack_scalar(parameter, text)


def test_sizes_of_grids_and_blocks() -> None:
    assert read_sizes("--grid", "4") == (4, 1, 1)
    assert read_sizes("--block", "32,2") == (32, 2, 1)
    for text in ("0", "a", "1,2,3,4", "", "-1", LONG, "0" * 5000 + "1"):
        with pytest.raises(UsageError, match="--grid"):
            read_sizes("--grid", text)
    assert read_sizes("--block", "16,1,64") == (16, 1, 64)
    assert read_sizes("--grid", "2147483647,65535,65535") == (2147483647, 65535, 65535)
    for text in ("4294967296", "1025", "1,2,65", "64,32"):
        with pytest.raises(UsageError, match=r"--block .*at most"):
            read_sizes("--block", text)
    for text in ("4294967296", "1,65536", "1,1,65536"):
        with pytest.raises(UsageError, match=r"--grid .*at most 2147483647,65535,65535"):
            read_sizes("--grid", text)


def test_schedules_as_they_are_written() -> None:
    assert [(each.warps, each.completion) for each in read_schedules(DEFAULT)] == [
        ("first", "early"),
        ("first", "late"),
        ("last", "early"),
        ("last", "late"),
    ]
    assert read_schedules("last/early@7")[0].resident == 7
    [random] = read_schedules("random/random:7")
    assert (random.warps, random.completion, random.seed) == ("random", "random", 7)
    for text in ("first", "first/never", "middle/early", ",", "first/early:x"):
        with pytest.raises(UsageError, match="--schedules"):
            read_schedules(text)


def test_the_first_run_looks_for_races_and_is_repeated_with_other_garbage() -> None:
    trials = trials_of(read_schedules(DEFAULT), races=True)
    assert [each.checks.races for each in trials] == [True, False, False, False, False]
    assert [each.schedule.garbage for each in trials] == [0, 0, 0, 0, 1]
    assert not any(each.checks.races for each in trials_of(read_schedules(DEFAULT), races=False))
