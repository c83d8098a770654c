"""SASS: what single instructions give, where lanes meet, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sass_programs import EPILOGUE, PROLOGUE, results, run_sass

from gpu_emulator.api import Schedule
from gpu_emulator.sass.listing import read_instruction

LANES = list(range(32))


def test_a_kernel_runs() -> None:
    assert results("IMAD R7, R6, 0x3, R0", LANES) == [4 * lane for lane in LANES]


@pytest.mark.parametrize(
    ("code", "left", "right"),
    [
        ("IADD3 R7, R6, -0x1, RZ", 5, 4),
        # A minus is a complement and one more: nothing taken away carries.
        ("IADD3 R8, P0, R6, -R9, RZ\nIADD3.X R7, RZ, RZ, RZ, P0, !PT", 5, 1),
        # `fold_carry_of_zero` by ptxas 13.0.88 -O3, which leaves x + 1 on an H200.
        ("IADD3.X R7, RZ, R6, RZ, PT, !PT", 5, 6),
        ("IADD3.X R7, RZ, R6, RZ, !PT, !PT", 5, 5),
        ("LEA.HI R7, R6, 0x1, RZ, 0x4", 0xF0000000, 0x10),
        ("LEA R7, -R6, 0x1, 0x2", 3, 0xFFFFFFF5),
        ("SHF.R.S32.HI R7, RZ, 0x21, R6", 0x80000000, 0xFFFFFFFF),
        ("SHF.L.U32 R7, R6, 0x20, RZ", 7, 0),
        ("SHF.L.W.U32.HI R7, R6, 0x21, R6", 0x80000000, 1),
        ("LOP3.LUT R7, R6, 0xf, RZ, 0x3c, !PT", 0xFF, 0xF0),
        ("FLO.U32 R7, R6", 0, 0xFFFFFFFF),
        ("SGXT R7, R6, 0x8", 0x80, 0xFFFFFF80),
        ("PRMT R7, R6, 0x4321, RZ", 0x11223344, 0x00112233),
        ("ISETP.GT.AND P0, PT, R6, RZ, PT\nSEL R7, RZ, 0x1, P0", 0xFFFFFFFF, 1),
    ],
)
def test_integer_instructions(code: str, left: int, right: int) -> None:
    assert results(f"MOV R9, RZ\n{code}", [left] * 2) == [right] * 2


@pytest.mark.parametrize(
    "text",
    [
        "VIADD.8x4 R7, R6, 0x1", "IADD3 R7, |R6|, R6, RZ", "MOV R7, R6.H0_H0", "FOO.BAR R7, R6",
        "IMAD.WIDE R8, R6, 0x4, -0x10", "LDG.E R7, desc[UR4][R2.64+UR6]", "MOV R7, c[0x0][0x100]",
        "ATOMS.POPC.INC.32 R7, [RZ]", "RPCMOV.32 R7, R6", "RPCMOV.32 Rpc.LO, Rpc.HI",
        "LOP3.LUT R7, R6, 0xf, RZ, 0x3c, R8", "S2R R7, SR_CLOCKLO", "BRA `(.L_nowhere)",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(text: str) -> None:
    outcome = run_sass(text, [1])
    assert outcome.not_run is not None
    assert any(word in outcome.not_run for word in text.split())


LOOP = """
    BSSY B0, `(.L_out)
    MOV R7, RZ
.L_loop:
    ISETP.GE.U32.AND P0, PT, R7, R6, PT
    @P0 BREAK B0
    @P0 BRA `(.L_left)
    VIADD R7, R7, 0x1
    BRA `(.L_loop)
.L_left:
    VIADD R7, R7, 0x64
    BRA `(.L_end)
.L_out:
    BSYNC B0
.L_end:
    NOP
"""


# A loop that lane 0 enters further on, with a flag of the whole warp (FuzzX m001, on an H200 1).
ENTERED_LATE = """
    UPLOP3.LUT UP0, UPT, UPT, UPT, UPT, 0x80, 0x0
    BSSY B0, `(.L_out)
    MOV R7, 0x1
    ISETP.NE.U32.AND P0, PT, R6, RZ, PT
    @!P0 BRA `(.L_late)
.L_loop:
    MOV R7, RZ
.L_late:
    PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0
    @UP0 UPLOP3.LUT UP0, UPT, UPT, UPT, UPT, 0x40, 0x0
    @P0 BRA `(.L_loop)
    BSYNC B0
.L_out:
    NOP
"""


@pytest.mark.parametrize(("warps", "right"), [("lockstep", 0), ("first", 1), ("last", 0)])
def test_lanes_that_run_do_not_take_along_whom_they_pass(warps: Any, right: int) -> None:
    found = results(ENTERED_LATE, LANES, schedule=Schedule(warps=warps))
    assert found == [right, *[0] * 31]


@pytest.mark.parametrize("warps", ["lockstep", "first", "last"])
def test_lanes_leave_a_loop_one_after_the_other(warps: str) -> None:
    schedule = Schedule(warps=warps)  # type: ignore[arg-type]
    assert results(LOOP, LANES, schedule=schedule) == [lane + 100 for lane in LANES]


MEET = """
    MOV R8, 0x7
    ISETP.NE.AND P0, PT, R0, RZ, PT
    BSSY B0, `(.L_meet)
    @P0 BRA `(.L_meet)
    MOV R8, 0x2a
.L_meet:
    BSYNC B0
    SHFL.IDX PT, R7, R8, RZ, 0x1f
"""


@pytest.mark.parametrize("warps", ["lockstep", "last"])
def test_lanes_wait_for_each_other_where_they_are_to_meet(warps: str) -> None:
    """Lane 0 takes the longer way, and all read what it has there."""
    schedule = Schedule(warps=warps)  # type: ignore[arg-type]
    assert results(MEET, LANES, schedule=schedule) == [0x2A] * 32


def test_lanes_that_have_left_are_not_waited_for() -> None:
    code = PROLOGUE + MEET.replace("MOV R8, 0x2a", "EXIT").replace("SHFL", "NOP\nMOV R7, R8 ;#")
    code = code.split("#")[0] + EPILOGUE
    assert results(code, LANES) == [0] + [7] * 31


def test_a_product_takes_a_carry() -> None:
    code = "IADD3 R8, P0, R6, R6, RZ\nIMAD.U32.X R7, R6, 0x3, RZ, P0"
    assert results(code, [1, 0x80000000]) == [3, 0x80000001]


BOTH = """
    ISETP.GT.AND P0, PT, R6, 0x1, PT
    ISETP.LT.AND P1, PT, R6, 0x5, PT
    MOV R7, 0x1
    @P0 BRA !P1, `(.L_end)
    MOV R7, 0x2
.L_end:
    NOP
"""


def test_a_branch_may_have_a_guard_and_a_condition() -> None:
    assert results(BOTH, range(8)) == [2, 2, 2, 2, 2, 1, 1, 1]


def test_bytes_of_a_constant_bank_are_read_at_addresses_of_lanes() -> None:
    """The first parameter, whose words are read besides."""
    low, high = (results(f"LDC R7, c[0x0][{at:#x}]", [0])[0] for at in (0x210, 0x214))
    pointer = list((low | high << 32).to_bytes(8, "little"))
    assert results("LDC.U8 R7, c[0x0][R6+0x210]", range(8)) == pointer
    pairs = [pointer[at] | pointer[at + 1] << 8 for at in (0, 2, 4, 6)]
    assert results("LDC.U16 R7, c[0x0][R6+0x210]", [0, 2, 4, 6]) == pairs


UNIFORM = """
    UMOV UR6, 0x1
    ISETP.NE.AND P0, PT, R0, RZ, PT
    BSSY B0, `(.L_meet)
    @P0 BRA `(.L_other)
    UMOV UR6, 0x2
    BRA `(.L_meet)
.L_other:
    UIADD3 UR6, UR6, 0x10, URZ
.L_meet:
    BSYNC B0
    MOV R7, UR6
"""


def test_a_uniform_register_belongs_to_the_warp_whoever_writes_it() -> None:
    """The arms run one after the other, so one order sees what the other arm wrote."""
    assert results(UNIFORM, LANES) == [0x12] * 32
    assert results(UNIFORM, LANES, schedule=Schedule(warps="last")) == [0x2] * 32


INDIRECT = """
    MOV R8, 0xd0
    MOV R9, 0x0
    CALL.REL.NOINC `(.L_function)
    MOV R20, 0xd0
    NOP
    VIADD R7, R7, 0x1
    BRA `(.L_end)
.L_function:
    IMAD R7, R6, 0x2, RZ
    RET.REL.NODEC R8 `(k)
.L_end:
    NOP
"""


def test_a_function_returns_to_where_its_registers_say() -> None:
    assert results(INDIRECT.replace("0xd0", "0xb0"), LANES) == [2 * lane + 1 for lane in LANES]


def test_a_return_of_two_predicates_needs_both() -> None:
    both = (
        "    ISETP.GT.AND P0, PT, R6, 0x10, PT\n    ISETP.GT.AND P1, PT, R6, 0x4, PT\n"
        "    @!P0 RET.REL.NODEC P1, R8 `(k)\n    VIADD R7, R7, 0x64\n    RET.REL.NODEC R8 `(k)"
    )
    code = INDIRECT.replace("0xd0", "0xb0").replace("    RET.REL.NODEC R8 `(k)", both)
    assert results(code, LANES) == [2 * lane + (1 if 4 < lane <= 16 else 101) for lane in LANES]


def test_a_return_to_the_middle_of_a_block_is_refused() -> None:
    outcome = run_sass(INDIRECT, LANES)
    assert outcome.not_run == "RET.REL.NODEC R8 `(k) leads to 0xd0, where no block begins"


def test_what_nothing_wrote_differs_with_the_garbage() -> None:
    values = {
        garbage: results("MOV R7, R30", [0] * 4, schedule=Schedule(garbage=garbage))
        for garbage in (0, 1)
    }
    assert values[0] != values[1]


def test_the_stack_is_checked() -> None:
    inside = "STL [R1+-0x8], R6\nLDL R7, [R1+-0x8]"
    assert results(inside, LANES, stack=16) == LANES
    outside = run_sass("STL [R1], R6", LANES, stack=16)
    assert "out of bounds" in outside.faults[0].what
    assert outside.faults[0].place is not None
    assert outside.faults[0].place.words == "SASS offset 0x0080"


def test_a_launch_says_how_large_its_grid_is() -> None:
    code = "LDC R8, c[0x0][0xc]\nLDC R9, c[0x0][RZ]\nIMAD R7, R8, 0x100, R9"
    assert results(code, [0] * 4, grid=3) == [0x304] * 4


def test_constants_that_mean_something_unknown_are_not_read() -> None:
    outcome = run_sass("MOV R8, 0x100\nLDC R7, c[0x0][R8]", [1])
    assert outcome.not_run is not None
    assert "bank 0 at 0x100" in outcome.not_run


def test_operands_are_read_with_all_that_stands_at_them() -> None:
    line = read_instruction("@!P0 FFMA R1, -|R2.reuse|, c[0x0][R3+0x10], desc[UR4][R6.64+-0x8]")
    assert (line.opcode, line.guard, line.is_negated) == ("FFMA", "P0", True)
    absolute, bank, address = line.operands[1:]
    assert (absolute.kind, absolute.number, absolute.sign) == ("R", 2, "-")
    assert absolute.is_absolute
    assert absolute.suffixes == ()
    assert (bank.kind, bank.base, bank.offset) == ("bank", "R3", 16)
    assert (address.kind, address.parts) == ("address", ("R6.64", "-0x8"))


def test_all_rows_say_where_their_meaning_comes_from() -> None:
    from gpu_emulator.sass.binder import TABLE

    assert all(row.evidence for rows in TABLE.rows.values() for row in rows)


def test_values_of_a_pair_are_joined() -> None:
    code = "IMAD.WIDE.U32 R8, R6, R6, RZ\nMOV R7, R9"
    assert results(code, [0xFFFFFFFF]) == [0xFFFFFFFE]
    assert np.uint64(0xFFFFFFFF) ** 2 >> np.uint64(32) == 0xFFFFFFFE


BALLOT = """
    ISETP.GE.AND P0, PT, R6, 0x1e, PT
    VOTE.ANY R7, P1, P0
    VOTE.ALL P2, P0
    @!P1 MOV R7, 0xbad
    @P2 MOV R7, 0xbad
"""


def test_votes_are_of_active_lanes() -> None:
    assert results(BALLOT, LANES) == [0xC0000000] * 32
    some = BALLOT.replace("VOTE.ANY R7, P1", "MOV R7, R0\nMOV R8, RZ\n@P0 VOTE.ALL R8, P2")
    assert results(some.split("VOTE.ALL P2")[0] + "\nMOV R7, R8", LANES)[29:] == [
        0,
        3 << 30,
        3 << 30,
    ]


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("REDUX.SUM UR6, R6\nMOV R7, UR6", [496] * 32),
        ("REDUX.MAX.S32 UR6, R6\nMOV R7, UR6", [31] * 32),
        ("REDUX UR6, R6\nMOV R7, UR6", [0] * 32),
        ("LOP3.LUT R8, R6, 0x1, RZ, 0xc0, !PT\nMATCH.ANY R7, R8", [0x55555555, 0xAAAAAAAA] * 16),
        ("MATCH.ALL P0, R7, R6\nSEL R7, R7, 0x5, P0", [5] * 32),
        ("VOTEU.ANY UR6, UPT, PT\nUPOPC UR7, UR6\nMOV R7, UR7", [32] * 32),
        ("SHFL.UP PT, R7, R6, 0x1, RZ", [0, *range(31)]),
        ("SHFL.BFLY P0, R7, R6, 0x1, 0x1f", [lane ^ 1 for lane in LANES]),
    ],
)
def test_lanes_of_a_warp_together(code: str, right: list[int]) -> None:
    assert results(code, LANES) == right


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("MOV R8, RZ\nIADD.64 R8, R6, 0x7fffffff\nMOV R7, R8", 0x80000004),
        ("MOV R9, RZ\nMOV R8, R6\nIADD.64 R8, -R8, RZ\nMOV R7, R9", 0xFFFFFFFF),
        ("MOV R9, RZ\nMOV R8, R6\nSEL.64 R8, R8, -0x1, !PT\nMOV R7, R9", 0xFFFFFFFF),
        ("MOV R9, R6\nMOV R8, R6\nSEL.64 R8, R8, 0xfffffff0, !PT\nMOV R7, R9", 0),
        ("MOV R9, R6\nMOV R8, R6\nSEL.64 R8, R8, 0xfffffff0, !PT\nMOV R7, R8", 0xFFFFFFF0),
        ("MOV R9, R6\nMOV R8, RZ\nISETP.GE.U64.AND P0, PT, R8, 0x7, PT\nSEL R7, 0x1, RZ, P0", 1),
        (
            "UMOV.64 UR8, 0x1ffffffffffffff\nUIADD3.64 UR8, UPT, UPT, UR8, -0x1, URZ\nMOV R7, UR9",
            0x1FFFFFF,
        ),
        ("UIMNMX.S64 UPT, UPT, UR8, URZ, 0x7, !UPT, !UPT\nMOV R7, UR8", 7),
        ("MOV R8, RZ\nMOV R9, RZ\nIADD.64 RZ, P0, R8, -0x1\nSEL R7, R6, 0x2, P0", 2),
        (
            (
                "MOV R8, RZ\nMOV R9, RZ\nIADD.64 RZ, P0, R8, -R8\n"
                "IADD.64.X R8, P1, R8, -0x1, P0\nMOV R7, R9\n@P1 IADD3 R7, R7, R6, RZ"
            ),
            5,
        ),
        ("VIADD.S32.ISAT R7, -R6, 0x80000000", 0x80000000),
        ("IADD RZ, P0, R6, -0x1\nIADD.X R7, RZ, RZ, P0", 1),
        ("VIMNMX.S32 R7, R6, -0x1, PT", 0xFFFFFFFF),
        ("VIMNMX.S16x2 R7, R6, 0xffff0009, !PT", 9),
        ("VIADD.16x2 R7, R6, 0xffff", 4),
        ("I2IP.S8.S32.SAT R7, R6, 0x100, 0x3", 0x3057F),
        ("MOV R9, RZ\nMOV R8, R6\nIMNMX.S64 PT, PT, R8, R8, -0x1, PT, !PT\nMOV R7, R9", 0xFFFFFFFF),
        (
            "MOV R9, RZ\nMOV R8, R6\nIMNMX.U64 PT, PT, R8, R8, -0x1, !PT, !PT\nMOV R7, R9",
            0xFFFFFFFF,
        ),
        (
            (
                "LDCU.128 UR8, c[0x0][0x210]\nUIADD3 UR8, UR8, -UR10, URZ\nMOV R7, UR8\n"
                "ISETP.NE.AND P0, PT, R7, RZ, PT\nSEL R7, RZ, 0x1, !P0"
            ),
            1,
        ),
        ("VIMNMX.U8x4 R7, R6, 0x1040103, PT", 3),
        ("MOV R8, 0x106\nVIADD.U8x4 R7, R6, -R8", 0xFFFF),
        ("VABSDIFF4.U8 R7, R6, 0x1020306, RZ", 0x1020301),
        ("VABSDIFF4.U8.ACC R7, R6, 0x1020306, 0x64", 0x6B),
        (
            (
                "MOV R8, RZ\nMOV R9, 0x40000000\nFADD2 R8, R8.F32x2.HI_LO, -R8.F32x2.HI_LO\n"
                "IADD3 R7, R8, R9, RZ"
            ),
            0,
        ),
        ("MOV R8, 0x3c00\nMOV R9, 0x40000000\nFHADD R7, R8, -R9", 0xBF800000),
        ("MOV R8, 0x40003c00\nMOV R9, 0x3f800000\nFHFMA R7, R8, R8.H1, R9", 0x40400000),
        ("MOV R8, 0xbf800000\nFMNMX3 R7, |R8|, RZ, 2, PT", 0),
        ("MOV R8, 0xc0400000\nFMNMX.XORSIGN R7, |R8|, 1.5, PT", 0xBFC00000),
        ("ISETP.NE.AND P3, PT, R6, RZ, PT\nP2R R7, PR, R6, 0x8", 0xD),
        ("R2P PR, R6, 0x3\nSEL R7, RZ, 0x1, P1\n@P0 IADD3 R7, R7, 0x2, RZ", 3),
        ("PLOP3.LUT P0, P1, R6.SIGN, PT, PT, 0x8, 0x80\nSEL R7, 0x1, RZ, P0", 1),
        ("BSSY B3, `(.L_on)\nBMOV.32.CLEAR R7, B3\nBMOV.32 B3, R7\nBSYNC B3\n.L_on:\nNOP", 1),
        (
            (
                "MOV R8, 0x40000000\nMOV R9, 0x3f800000\n"
                "FFMA2 R8, R8.F32x2.LO_HI, -R8.F32, R8.F32x2.HI_LO\nIADD3 R7, R8, R9, RZ"
            ),
            0xC0400000,
        ),
        ("MOV R8, 0x3f800001\nFMUL.M4 R7, R8, R8", 0x40800002),
        ("DEPBAR.LE SB1, 0x36\nMOV R7, R6", 5),
        ("RPCMOV.32 Rpc.LO, R6\nRPCMOV.32 Rpc.HI, RZ\nRPCMOV.32 R7, Rpc.LO", 5),
        ("WARPSYNC.COLLECTIVE.ALL `(.L_on)\nMOV R7, R6\nENDCOLLECTIVE\n.L_on:\nNOP", 5),
    ],
)
def test_moves_and_newer_forms(code: str, right: int) -> None:
    assert results(f"MOV R7, RZ\n{code}", [5]) == [right]


def test_where_lanes_that_are_elsewhere_would_read_a_constant_does_not_matter() -> None:
    code = "ISETP.NE.AND P0, PT, R6, RZ, PT\nMOV R7, RZ\nBSSY B0, `(.L_on)\n@P0 BRA `(.L_on)\n"
    code += "LDC.U16 R7, c[0x0][R6+0x210]\n.L_on:\nBSYNC B0\nISETP.NE.AND P0, PT, R7, RZ, PT\n"
    assert results(code + "SEL R7, RZ, 0x1, !P0", [0, 1]) == [1, 0]


def test_a_uniform_register_says_which_lanes_have_something_else() -> None:
    """OR adds to what was said before: here lanes 1 and 3, and then 2 and 3."""
    code = "LOP3.LUT R8, R6, 0x1, RZ, 0xc0, !PT\nLOP3.LUT R9, R6, 0x2, RZ, 0xc0, !PT\n"
    code += "R2UR P0, UR6, R8\nSEL R7, RZ, 0x1, !P0\nR2UR.OR P0, UR7, R9\n@P0 IADD3 R7, R7, 0x2, RZ"
    assert results(code, [0, 1, 2, 3]) == [0, 3, 2, 3]


@pytest.mark.parametrize(
    ("code", "right"),
    [
        # Halves (9, 5) and (9, 3): the lower one is the first, the upper one is either.
        ("VIMNMX.S16x2 R8, P0, P1, R6, 0x90003, !PT", 0x9000503),
        ("VIMNMX.S16x2 R8, P0, P1, R6, 0x90003, PT", 0x9000302),
        ("VIMNMX.U16x2 R8, P0, P1, R6, 0x80003, PT", 0x8000300),
        ("VIMNMX.S16x2 R8, P0, P1, R6, 0xffff0006, PT", 0xFF000501),
        # Both in one register: that of the lower half stays, whatever the upper one is.
        ("VIMNMX.S16x2 R8, P0, P0, R6, 0xa0004, !PT\nPLOP3.LUT P1, PT, P0, PT, PT, 0x80, 0x0",
         0xA000503),
        ("VIMNMX.S16x2 R8, P0, P0, R6, 0x80006, !PT\nPLOP3.LUT P1, PT, P0, PT, PT, 0x80, 0x0",
         0x9000600),
        ("VIMNMX3.S16x2 R8, R6, 0x60006, RZ, !PT\nISETP.NE.AND P0, P1, RZ, RZ, PT", 0x9000602),
        ("VIADDMNMX.U16x2 R8, R6, 0xfffffffb, RZ, !PT\nISETP.NE.AND P0, P1, RZ, RZ, PT",
         0x8000002),
    ],
)  # fmt: skip
def test_packed_halves_and_which_of_them_was_chosen(code: str, right: int) -> None:
    bits = "SEL R7, RZ, 0x1, !P0\n@P1 IADD3 R7, R7, 0x2, RZ\nPRMT R7, R7, 0x6540, R8"
    assert results(f"{code}\n{bits}", [0x90005]) == [right]


def test_atomic_operations_give_what_was_there() -> None:
    code = "ATOMS.ADD.S32 R7, [UR6+0x400], R6"
    before = results("UMOV UR6, RZ\nSTS [UR6+0x400], RZ\n" + code, LANES, shared=4)
    assert before == [sum(range(lane)) for lane in LANES]
    counted = "@P0 ATOMS.POPC.INC.32 RZ, [UR6+0x400]\nLDS R7, [UR6+0x400]"
    counted = f"ISETP.GT.AND P0, PT, R6, 0x4, PT\n{counted}"
    found = results("UMOV UR6, RZ\nSTS [UR6+0x400], R6\n" + counted, LANES, shared=4)
    assert found == [31 + 27] * 32
    for size in ("", ".64"):
        stored = f"STS{size} [UR6+0x400], RZ\nATOMS.CAST.SPIN{size} P0, [UR6+0x400], RZ, R8\n"
        stored = f"UMOV UR6, RZ\nMOV R9, RZ\nVIADD R8, R6, 0x8\n{stored}SEL R7, R8, RZ, P0"
        assert results(stored, LANES, shared=8) == [8, *[0] * 31]
    swapped = "ATOMG.E.CAS.STRONG.GPU PT, R7, [R4], RZ, R6\nLDG.E R7, desc[UR4][R4.64]"
    assert results(swapped, LANES) == LANES
    added = "REDG.E.ADD.STRONG.GPU desc[UR4][R4.64], R6\nLDG.E R7, desc[UR4][R4.64]"
    assert results(added, LANES) == LANES


def test_atomic_operations_of_vectors_change_their_words() -> None:
    """Lane 0 adds to four words, the halves of which are 1 and 2, 3 and 4, ..."""
    code = "ISETP.NE.AND P0, PT, R0, RZ, PT\nMOV R8, 0x40003c00\nMOV R9, 0x44004200\n"
    code += "STG.E desc[UR4][R4.64], R6\nMOV R10, RZ\nMOV R11, R8\n"
    red = "@!P0 REDG.E.ADD.{} desc[UR4][R4.64], R8\nLDG.E R7, desc[UR4][R4.64]"
    ones = [0x3C003C00] * 4
    found = results(code + red.format("F16x8.RN.STRONG.GPU"), ones)
    assert found == [0x42004000, 0x45004400, 0x3C003C00, 0x42004000]
    found = results(code + red.format("F32x2.FTZ.RN.STRONG.GPU"), [0x3F800000] * 4)
    assert found == [0x40403C00, 0x44008200, 0x3F800000, 0x3F800000]
    swap = "@!P0 ATOMG.E.CAS.128.STRONG.GPU PT, R12, desc[UR4][R4.64], {}, R8\n"
    code += "@!P0 LDG.E.128 R12, desc[UR4][R2.64]\n"
    assert results(code + swap.format("R12") + "LDG.E R7, desc[UR4][R4.64]", ones) == [
        0x40003C00, 0x44004200, 0, 0x40003C00,
    ]  # fmt: skip
    assert results(code + swap.format("R8") + "LDG.E R7, desc[UR4][R4.64]", ones) == ones


def test_256_bits_are_eight_registers_and_the_first_has_the_upper_ones() -> None:
    load = "@!P0 LDG.E.ENL2.256 R12, R8, desc[UR4][R2.64]\n"
    code = f"ISETP.NE.AND P0, PT, R0, RZ, PT\nMOV R7, R6\n{load}"
    assert results(code + "@!P0 MOV R7, R15", range(8)) == [7, *range(1, 8)]
    assert results(code + "@!P0 MOV R7, R8", range(3, 11)) == list(range(3, 11))
    stored = "@!P0 STG.E.ENL2.256 desc[UR4][R4.64], R12, R8\nLDG.E R7, desc[UR4][R4.64]"
    swapped = stored.replace("R12, R8", "R8, R12")
    assert results(code + stored, range(8)) == [*range(4, 8), *range(4)]
    assert results(code + swapped, range(8)) == list(range(8))
    assert "LDG.E.ENL2.256" in str(run_sass(load.replace("64]", "64], 0x91"), [1]).not_run)


def test_a_store_of_fewer_than_four_bytes_leaves_the_others() -> None:
    code = "UMOV UR6, RZ\nSTS [UR6+0x400], R6\n"
    read = "LDS R7, [UR6+0x400]"
    assert results(f"{code}STS.U16 [UR6+0x402], RZ\n{read}", [0x12345678], shared=4) == [0x5678]
    assert results(f"{code}STS.U8 [UR6+0x401], RZ\n{read}", [0x12345678], shared=4) == [0x12340078]


EXCHANGE = """
    UMOV UR6, 0x400
    LEA R8, R0, UR6, 0x2
    STS [R8], R6
    BAR.SYNC.DEFER_BLOCKING 0x0
    LOP3.LUT R9, R0, 0x20, RZ, 0x3c, !PT
    LEA R9, R9, UR6, 0x2
    LDS R7, [R9]
"""


@pytest.mark.parametrize("barrier", ["0x0", "0x0, 0x40", "R12, R12"])
def test_warps_wait_at_a_barrier_and_a_missing_one_is_a_race(barrier: str) -> None:
    """A register has the number, and above it a count; 0 is all threads."""
    from gpu_emulator.api import Checks

    numbers = list(range(64))
    right = [number ^ 32 for number in numbers]
    for warps in ("lockstep", "first", "last"):
        options: dict[str, Any] = {"schedule": Schedule(warps=warps), "check": Checks(races=True)}
        code = "MOV R12, RZ\n" + EXCHANGE.replace("BLOCKING 0x0", f"BLOCKING {barrier}")
        outcome = run_sass(code, numbers, shared=256, **options)
        assert outcome.allocations[1].data.view(np.uint32).tolist() == right
        assert outcome.races == ()
        without = EXCHANGE.replace("BAR.SYNC.DEFER_BLOCKING 0x0", "NOP")
        races = run_sass(without, numbers, shared=256, **options).races
        assert {race.kind for race in races} <= {"write-read", "read-write"}
        assert races


def test_a_reduction_at_a_barrier_is_read_afterwards() -> None:
    code = """
        ISETP.GE.AND P0, PT, R6, 0xa, PT
        BAR.RED.POPC.DEFER_BLOCKING 0x0, P0
        B2R.RESULT R7, P1
        @!P1 MOV R7, 0xbad
    """
    assert results(code, list(range(64))) == [54] * 64


def test_a_trap_is_a_fault() -> None:
    outcome = run_sass("ISETP.EQ.AND P0, PT, R0, 0x3, PT\n@P0 BPT.TRAP 0x1\nMOV R7, R6", LANES)
    assert outcome.faults[0].kind == "trap"
    assert "thread 3 " in outcome.faults[0].what


def test_lanes_of_two_masks_do_not_see_each_other() -> None:
    code = """
        ISETP.GE.AND P0, PT, R6, 0x10, PT
        MOV R8, 0xffff
        SEL R8, 0xffff0000, R8, P0
        WARPSYNC.EXCLUSIVE R8
        REDUX.SUM UR6, R6
        MOV R7, UR6
    """
    assert results(code, LANES) == [120] * 16 + [376] * 16


PHASES = """
    UMOV UR6, 0x400
    UMOV UR8, 0xfffe0
    USHF.L.U32 UR9, UR8, 0xb, URZ
    USHF.L.U32 UR8, UR8, 0x1, URZ
    ELECT P0, UR10, PT
    @P0 SYNCS.EXCH.64 URZ, [UR6], UR8
    BAR.SYNC.DEFER_BLOCKING 0x0
    SYNCS.ARRIVE.TRANS64.A1T0 R8, [UR6], RZ
.L_wait:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR6], RZ
    @!P1 BRA `(.L_wait)
    SHF.R.U32.HI R7, RZ, 0x1f, R9
    SYNCS.PHASECHK.TRANS64 P2, [UR6], R9
    SEL R7, R7, 0x5, P2
"""


@pytest.mark.parametrize("warps", ["lockstep", "last"])
def test_lanes_wait_for_a_phase_of_an_mbarrier(warps: str) -> None:
    """32 arrivals; the high word of a state has its parity in bit 31."""
    schedule = Schedule(warps=warps)  # type: ignore[arg-type]
    assert results(PHASES, LANES, shared=8, schedule=schedule) == [0] * 32
    missing = PHASES.replace("UMOV UR8, 0xfffe0", "UMOV UR8, 0xfffdf")
    faults = run_sass(missing, LANES, shared=8, schedule=schedule).faults
    assert faults[0].kind == "hang"
    assert "1 arrivals and 0 bytes are still to come" in faults[0].what


@pytest.mark.parametrize(
    ("last", "right"),
    [
        # The lanes at one object; the arrivals that were left before the first of them.
        ("MOV R7, R8", [0, 0, *[0x55555554, 0xAAAAAAA8] * 15]),
        ("SHF.R.U32.HI R7, RZ, 0xb, R9", [0, 0, *[0xFFF9C, 0xFFF38] * 15]),
    ],
)
def test_arrivals_that_complete_no_phase_say_who_arrives(last: str, right: list[int]) -> None:
    code = """
        UMOV UR6, 0x400
        UMOV UR8, 0xfff9c
        USHF.L.U32 UR9, UR8, 0xb, URZ
        USHF.L.U32 UR8, UR8, 0x1, URZ
        ELECT P0, UR10, PT
        @P0 SYNCS.EXCH.64 URZ, [UR6], UR8
        UMOV UR8, 0xfff38
        USHF.L.U32 UR9, UR8, 0xb, URZ
        USHF.L.U32 UR8, UR8, 0x1, URZ
        @P0 SYNCS.EXCH.64 URZ, [UR6+0x8], UR8
        BAR.SYNC.DEFER_BLOCKING 0x0
        LOP3.LUT R10, R0, 0x1, RZ, 0xc0, !PT
        ISETP.GT.AND P0, PT, R0, 0x1, PT
        MOV R7, RZ
        MOV R11, 0x3
        @P0 SYNCS.ARRIVE.TRANS64.TMASK.ART0 R8, [R10.X8+0x400], R11
    """
    assert results(code + f"@P0 {last}", LANES, shared=16) == right


def test_a_warp_branches_together() -> None:
    """`BRA.U.ANY`: lanes whose predicate is false go along with those whose is true."""
    code = """
        ISETP.EQ.AND P0, PT, R6, 0x3, PT
        MOV R7, 0x1
        @P0 BRA.U.ANY `(.L_end)
        MOV R7, 0x2
    .L_end:
        NOP
    """
    assert results(code, LANES) == [1] * 32
    assert results(code, [lane + 4 for lane in LANES]) == [2] * 32


def test_lanes_that_parted_meet_where_all_of_a_warp_have_to() -> None:
    code = MEET.replace("BSYNC B0", "WARPSYNC.ALL").replace("BSSY B0, `(.L_meet)", "NOP")
    for warps in ("lockstep", "last"):
        schedule = Schedule(warps=warps)
        assert results(code, LANES, schedule=schedule) == [0x2A] * 32
