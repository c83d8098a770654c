"""The document model of PTX: prints what it read, and reads anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ptx_texts import FILES, MODULE, mutated, texts

from gpu_emulator.ptx.text.document import StatementKind, parse
from gpu_emulator.ptx.text.facts import read_instruction, read_ptx


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_prints_byte_for_byte(path: Path) -> None:
    text = path.read_bytes().decode()
    assert str(parse(text)) == text


def test_the_small_module_is_read_statement_by_statement() -> None:
    document = parse(MODULE)
    assert str(document) == MODULE
    kinds = [one.kind for one in document.statements]
    assert StatementKind.OPAQUE not in kinds
    assert kinds.count(StatementKind.HEAD) == len(document.functions) == 2
    assert [one.label for one in document.statements if one.label] == [
        "TABLE",
        "LOOP",
        "inner",
        "DONE",
    ]
    counts = [read_ptx(MODULE, entry).instructions for entry in ("first", "second")]
    assert len(document.instructions) == sum(counts)


@given(texts)
@settings(deadline=None)
def test_what_can_be_written_is_printed_byte_for_byte(text: str) -> None:
    document = parse(text)
    assert str(document) == text
    assert all(one.text for one in document.statements)


@given(mutated)
@settings(deadline=None)
@example("x{x{x{;")
@example(".entry k(")
@example("{{{{{{{{;}}}}}}}}")
@example("/* never closed")
@example('.file 1 "no end')
@example("a:b:c::d:;")
def test_damaged_ptx_is_kept_as_it_is(text: str) -> None:
    assert str(parse(text)) == text


@given(mutated, st.data())
@settings(deadline=None)
def test_any_statement_may_be_taken_out(text: str, data: st.DataObject) -> None:
    document = parse(text)
    places = st.sets(st.integers(0, max(0, len(document.statements) - 1)))
    gone = data.draw(places) if document.statements else set()
    rest = document.without(gone)
    kept = [one.code for place, one in enumerate(document.statements) if place not in gone]
    assert [one.code for one in rest.statements] == kept


@pytest.mark.parametrize(
    "line",
    ["x{x{x{", "{" * 1000, "}" * 1000, "a" * 1000, "a;" * 500, "x{a}" * 300, "@%p ", ".reg ;"],
)
def test_long_nonsense_costs_no_more_than_its_length(line: str) -> None:
    text = line * 200
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("code", "guard", "opcode", "operands", "reads", "writes"),
    [
        ("ret;", "", "ret", (), [], []),
        ("@!%p1 bra.uni L;", "@!%p1", "bra.uni", ("L",), ["%p1", "L"], []),
        ("mov.u32 %r1, %tid.x;", "", "mov.u32", ("%r1", "%tid.x"), ["%tid"], ["%r1"]),
        (
            "ld.v2.b32 {%r1, _}, [%rd1+0x10];",
            "",
            "ld.v2.b32",
            ("{%r1, _}", "[%rd1+0x10]"),
            ["%rd1"],
            ["%r1"],
        ),
        ("st.b32 [a], %r1;", "", "st.b32", ("[a]", "%r1"), ["a", "%r1"], []),
        ("bar.sync %r1;", "", "bar.sync", ("%r1",), ["%r1"], []),
        (
            "setp.lt.s32 %p1|%p2, %r1, -1;",
            "",
            "setp.lt.s32",
            ("%p1|%p2", "%r1", "-1"),
            ["%r1"],
            ["%p1", "%p2"],
        ),
        (
            "call.uni (r), f, (a, b);",
            "",
            "call.uni",
            ("(r)", "f", "(a, b)"),
            ["f", "a", "b"],
            ["r"],
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r2, 0}], [%r3];",
            "",
            "cp.async.bulk.tensor.2d.shared::cluster.global",
            ("[%r1]", "[%rd1, {%r2, 0}]", "[%r3]"),
            ["%r1", "%rd1", "%r2", "%r3"],
            [],
        ),
        ("fma.rn.f32 %f1, %f1, 0f3F800000, %f2;", "", "fma.rn.f32", None, ["%f1", "%f2"], ["%f1"]),
        ("wgmma.mma_async.x {%f1}, %rd1;", "", "wgmma.mma_async.x", None, ["%f1", "%rd1"], ["%f1"]),
    ],
)
def test_an_instruction_is_read_into_its_parts(
    code: str,
    guard: str,
    opcode: str,
    operands: tuple[str, ...] | None,
    reads: list[str],
    writes: list[str],
) -> None:
    one = read_instruction(code)
    assert one is not None
    assert (one.guard, one.opcode) == (guard, opcode)
    assert operands is None or one.operands == operands
    assert one.reads == reads
    assert one.writes == writes
    assert str(one) == code


@pytest.mark.parametrize("code", ["", ";", "MOV;", "mov.u32 %r1, %r2", "%r1 = 2;", "1;"])
def test_what_is_no_instruction_is_told(code: str) -> None:
    assert read_instruction(code) is None
