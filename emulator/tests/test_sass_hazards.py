"""SASS: registers that a schedule does not wait for. Programs of ptxas, with other control bits."""

from __future__ import annotations

import pytest

from gpu_emulator.sass.cubin import CubinEntry
from gpu_emulator.sass.hazards import Hazard, hazards_of
from gpu_emulator.sass.listing import SassLine
from gpu_emulator.values import NotExecutable

# Control bits, then the instruction: a loop that adds up, by ptxas 13.5.37 -O3 for sm_90.
LOOP = """
7f1 LDC R1, c[0x0][0x28]
717 S2R R7, SR_TID.X
711 LDC.64 R2, c[0x0][0x210]
7f1 ULDC.64 UR6, c[0x0][0x208]
7e6 UMOV UR4, URZ
738 LDC.64 R4, c[0x0][0x218]
751 LDC R8, c[0x0][0x220]
fe3 IMAD.WIDE.U32 R2, R7, 0x4, R2
7f2 MOV R6, R2
7f1 MOV R9, R3
17f1 IMAD.WIDE.U32 R2, R7, 0x4, R4
7eb HFMA2.MMA R7, -RZ, RZ, 0, 0
again: 7f1 IMAD.MOV.U32 R4, RZ, RZ, R6
7e5 MOV R5, R9
771 LDG.E R0, desc[UR6][R4.64]
7f1 UIADD3 UR4, UR4, 0x1, URZ
7e5 IADD3 R6, P1, R6, 0x80, RZ
27f1 ISETP.LE.U32.AND P0, PT, R8, UR4, PT
7f2 IMAD.X R9, RZ, RZ, R9, P1
4fe5 FADD R7, R0, R7
f5 STG.E desc[UR6][R2.64], R7
7f5 @!P0 BRA `(again)
f12 MUFU.RCP R7, R7
ff1 STG.E desc[UR6][R2.64+0x4], R7
7f5 EXIT
"""
HEAD, LDG, ADD, STG, MUFU, LAST = 0xC0, 0xE0, 0x130, 0x140, 0x160, 0x170
NO_WRITE, NO_READ = 7 << 5, 7 << 8


def found(code: str, change: dict[int, int] | None = None) -> list[Hazard]:
    """What is wrong with a program; `change` flips control bits at offsets."""
    lines, labels = [], {}
    for number, text in enumerate(filter(None, code.splitlines())):
        label, _, rest = text.rpartition(": ")
        control, _, instruction = rest.partition(" ")
        labels[label] = 16 * number
        bits = int(control, 16) ^ (change or {}).get(16 * number, 0)
        lines.append(SassLine(16 * number, instruction, bits, None))
    return hazards_of(CubinEntry("k"), lines, labels)


def brief(hazards: list[Hazard]) -> list[tuple[object, ...]]:
    return [
        (each.use, each.register, each.scoreboard, each.first.offset, each.second.offset, each.path)
        for each in hazards
    ]


def test_what_ptxas_wrote_waits_for_all() -> None:
    assert found(LOOP) == []


def test_a_wait_that_is_lost() -> None:
    """The address of the load may be written in the next turn before it has been read."""
    result, operand = found(LOOP, {ADD: 1 << 11 + 3})
    assert brief([result]) == [("result read", "R0", 3, LDG, ADD, ())]
    assert str(result) == (
        "R0, which LDG.E R0, desc[UR6][R4.64] at 0xe0 writes, is read by FADD R7, R0, R7 at 0x130: "
        "no wait for scoreboard 3"
    )
    assert brief([operand]) == [("operand overwritten", "R4", 3, LDG, HEAD, (HEAD,))]
    assert str(operand).endswith("at 0xc0, by way of 0xc0: no wait for scoreboard 3")


def test_a_scoreboard_that_is_not_named() -> None:
    result, operand = found(LOOP, {LDG: (3 << 5) ^ NO_WRITE})
    assert brief([result]) == [("result read", "R0", None, LDG, ADD, ())]
    assert str(result).endswith("no scoreboard says when")
    assert brief([operand]) == [("operand overwritten", "R4", None, LDG, HEAD, (HEAD,))]


def test_an_operand_that_may_not_have_been_read() -> None:
    """In the loop the load is behind the store in one queue, and is waited for."""
    for change, board in (({STG: NO_READ}, None), ({MUFU: 1 << 11}, 0)):
        [hazard] = found(LOOP, change)
        assert brief([hazard]) == [("operand overwritten", "R7", board, STG, MUFU, ())]


def test_a_result_that_arrives_after_another() -> None:
    code = LOOP.replace("ff1 STG", "7f1 MOV R7, RZ\nff1 STG")
    assert brief(found(code)) == [
        ("result overwritten", "R7", 0, MUFU, LAST, ()),
        ("operand overwritten", "R7", 0, MUFU, LAST, ()),
    ]


def test_results_that_come_in_order_share_a_scoreboard() -> None:
    code = "7f1 LDS R1, [RZ]\n711 LDS R2, [RZ+0x4]\nfe5 FADD R3, R1, R2\n7f5 EXIT"
    assert found(code) == []
    [hazard] = found(code.replace("711 LDS R2, [RZ+0x4]", "711 LDC R2, c[0x0][0x210]"))
    assert (hazard.register, hazard.scoreboard) == ("R1", None)


def test_uniform_registers_are_read_at_once() -> None:
    code = "711 LDS R4, [R4+UR4]\n7f2 ULDC UR4, c[0x0][0x220]\nfe5 IMAD R5, R4, UR4, R5\n7f5 EXIT"
    assert found(code) == []
    uses = [each.use for each in found(code.replace("ULDC UR4,", "MOV R4,"))]
    assert uses == ["result overwritten", "operand overwritten"]


def test_calls_return_to_where_they_were_made() -> None:
    code = """
731 LDG.E R0, desc[UR6][R4.64]
7e5 MOV R20, 0x30
7f5 CALL.REL.NOINC `(f)
7f1 FADD R1, R0, R0
7e5 MOV R20, 0x60
7f5 CALL.REL.NOINC `(f)
7f1 FADD R2, R0, R0
7f5 EXIT
f: 7e5 RET.REL.NODEC R20 `(k)
k: 7f5 EXIT
"""
    hazards = found(code)
    assert brief(hazards) == [("result read", "R0", 1, 0, 0x30, (0x80, 0x30))]
    assert found(code.replace("f: 7e5", "f: 17e5")) == []


def test_code_without_scoreboards_waits_by_itself() -> None:
    """What ptxas makes at -O0: each instruction is done before the next begins."""
    code = "7e0 LDG.E R0, desc[UR6][R4.64]\n7e0 FADD R1, R0, R0\n7e0 EXIT"
    assert found(code) == []
    assert found(code.replace("7e0", "7e1"))


def test_what_cannot_be_followed_is_refused() -> None:
    with pytest.raises(NotExecutable, match="leads out of the code"):
        found("7f5 BRA `(nowhere)")
    with pytest.raises(NotExecutable, match="no encoding"):
        hazards_of(CubinEntry("k"), [SassLine(0, "EXIT", None, None)], {})
