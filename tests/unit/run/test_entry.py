"""The parameters of an entry as compilers write them."""

from __future__ import annotations

import re

import pytest

from harness.run.inputs import EntryError, read_entry
from harness.run.launch import may_lack_registers
from harness.values.limits import limits_of

PTX = """
.version 8.7
.target sm_90a
.address_size 64
.func (.param .b32 result) helper (.param .b32 x) { ret; }
.visible .entry first(
  .param .u64 .ptr .global .align 16 first_param_0,
  .param .u32 first_param_1, // a comment
  .param .align 64 .b8 first_param_2[128],
  .param .f32 first_param_3
)
.reqntid 128, 2
{ ret; }
.entry second() { ret; }
"""


def test_types_sizes_arrays_and_pointers() -> None:
    entry = read_entry(PTX, "first")
    assert [(each.name, each.type, each.size) for each in entry.parameters] == [
        ("first_param_0", "u64", 8),
        ("first_param_1", "u32", 4),
        ("first_param_2", "b8", 128),
        ("first_param_3", "f32", 4),
    ]
    assert [each.is_pointer for each in entry.parameters] == [True, False, False, False]
    assert entry.parameters[2].words == ".b8 first_param_2[128]"
    assert entry.block == (128, 2, 1)
    second = read_entry(PTX, "second")
    assert (second.parameters, second.block) == ((), None)


@pytest.mark.parametrize(
    ("ptx", "name", "said"),
    [
        (PTX, None, "several entries: first, second"),
        (PTX, "third", "no entry 'third'; entries are: first, second"),
        (".version 8.0 .target sm_80", None, "no .entry"),
        (".entry k(.param .texref t) { ret; }", None, "`.param .texref t`"),
    ],
)
def test_what_cannot_be_read_is_said(ptx: str, name: str | None, said: str) -> None:
    with pytest.raises(EntryError, match=re.escape(said)):
        read_entry(ptx, name)


@pytest.mark.parametrize(
    ("directives", "threads", "may"),
    [
        (".reqntid 512", 512, False),
        (".reqntid 512\n.maxnreg 255", 512, True),
        (".reqntid 512\n.maxnreg 128", 512, False),
        (".maxntid 512, 1, 1", 512, False),
        ("", 512, True),
        ("", 256, False),
    ],
)
def test_where_ptxas_may_give_a_block_too_many_registers(
    directives: str, threads: int, may: bool
) -> None:
    text = f".version 8.7\n.target sm_90a\n.entry k()\n{directives}\n{{ ret; }}\n"
    assert may_lack_registers(text, (threads, 1, 1), limits_of(90)) is may
    assert not may_lack_registers(text, (threads, 1, 1), None)


def test_numbers_of_thousands_of_digits_are_read() -> None:
    long = "9" * 5000
    block = f".entry k(.param .u32 n) .reqntid {long} .maxnreg {long} {{ ret; }}"
    assert read_entry(block).parameters[0].name == "n"
    assert may_lack_registers(block, (1024, 1, 1), limits_of(90))
    with pytest.raises(EntryError, match="bytes"):
        read_entry(f".entry k(.param .b8 p[{long}]) {{ ret; }}")


@pytest.mark.parametrize(("count", "is_taken"), [(4095, True), (4096, False)])
def test_more_bytes_of_parameters_than_any_ptxas_takes_are_refused(
    count: int, is_taken: bool
) -> None:
    parameters = ", ".join(f".param .u64 p{number}" for number in range(count))
    ptx = f".entry k({parameters}) {{ ret; }}"
    if is_taken:
        assert len(read_entry(ptx).parameters) == count
    else:
        with pytest.raises(EntryError, match="32,768 bytes, and no ptxas takes more than 32,764"):
            read_entry(ptx)
