"""SASS of floating point: selectors of halves, signs, NaN, constants, and what is refused."""

from __future__ import annotations

import pytest
from sass_programs import results, run_sass

from gpu_emulator.sass.listing import read_section

ONE, TWO, HALF, NAN, NEGATIVE_ZERO = 0x3F800000, 0x40000000, 0x3F000000, 0x7FFFFFFF, 0x80000000


@pytest.mark.parametrize(
    ("code", "operand", "expected"),
    [
        ("FADD R7, R6, 1", ONE, TWO),
        ("FADD R7, |R6|, -RZ", 0xBF800000, ONE),
        ("FADD R7, -RZ, -R6", 0xFF800001, NAN),
        ("FADD.RP R7, R6, 1.4012984643248170709e-45", ONE, 0x3F800001),
        ("FADD.FTZ R7, R6, -RZ", 1, 0),
        ("FADD R7, R6, +SNAN", ONE, NAN),
        ("FMUL.SAT R7, R6, 4", HALF, ONE),
        ("FFMA R7, R6, R6, -1", 0x3F800001, 0x34800000),
        ("FSEL R7, -R6, RZ, !PT", ONE, 0),
        ("FMNMX R7, R6, RZ, PT", NEGATIVE_ZERO, NEGATIVE_ZERO),
        ("FMNMX.NAN R7, R6, RZ, !PT", 0x7F800001, NAN),
        ("FMNMX.XORSIGN R7, |R6|, |R6|, PT", 0xBF800000, ONE),
        ("MUFU.RCP R7, R6", TWO, HALF),
        ("MUFU.COS R7, R6", HALF, 0xBF800000),
        ("MUFU.RCP R7, R6", 1, 0x7F800000),
        ("MUFU.RCP64H R7, R6", 0x3FE00000, 0x40000000),
        ("MUFU.RCP64H R7, 0.5", 0, 0x40000000),
        # Uniform registers.
        ("UMOV UR6, 0x3f800000\nUFADD.FTZ UR6, -UR6, 2\nUFMUL UR6, UR6, 0.5\nMOV R7, UR6", 0, HALF),
        ("UMOV UR6, 0xfffffffd\nUI2F UR7, UR6\nUF2I.TRUNC.NTZ UR7, UR7\nMOV R7, UR7", 0,
         0xFFFFFFFD),
        ("UMOV UR6, 0x40200000\nUFRND UR6, UR6\nUF2F.F16.F32 UR6, UR6\nMOV R7, UR6", 0, 0x4000),
        ("UFSETP.GEU.AND UP0, UPT, |URZ|, 2, UPT\nUFSEL UR6, URZ, 2, UP0\nMOV R7, UR6", 0, TWO),
        ("UMOV UR6, 0x40000000\nUFFMA.FTZ UR6, UR6, UR6, -1\nMOV R7, UR6", 0, 0x40400000),
        # Halves: the first of two numbers is the upper one.
        ("HFMA2.MMA R7, -RZ, RZ, 1, 2", 0, 0x3C004000),
        ("HADD2 R7, R6.H1_H1, -R6.H0_H0", 0x40003C00, 0x3C003C00),
        ("HADD2.F32 R7, -RZ, R6.H1_H1", 0x3C000000, ONE),
        ("HFMA2.BF16_V2 R7, R6, 1, 1, |R6|.H0_H0", 0x3F80BF80, 0x40000000),
        ("HMNMX2 R7, R6, RZ, !PT", 0xBC003C00, 0x00003C00),
        ("VHMNMX R7, R6, 1, 2, RZ, !PT", 0x42003C00, 0x42004000),
        ("HFMA2.MMA R7, -RZ, RZ, 0h7e00, 0h3c00", 0, 0x7FFF3C00),
        ("HSET2.BF.GT.AND R7, R6, RZ, PT", 0x3C00BC00, 0x3C000000),
        ("HSETP2.GT.AND P0, P1, R6, RZ, PT\nSEL R7, RZ, 0x1, P1", 0xBC003C00, 1),
        # Conversions.
        ("I2F.S64.RZ R7, -0x80000000", 0, 0xDF000000),
        ("I2F.U64 R7, 0x1", 0, 0x4F800000),
        ("MOV R8, RZ\nMOV R9, R6\nF2I.F64.TRUNC R7, |R8|", 0xC0080000, 3),
        ("F2FP.BF16.F32.PACK_AB R7, RZ, R6", ONE, 0x3F80),
        ("F2FP.F16.F32.PACK_AB R7, R6, RZ", ONE, 0x3C000000),
        ("F2FP.F16.E4M3.UNPACK_B R7, R6", 0x38B8, 0x3C00BC00),
        ("F2FP.BF16.E4M3.UNPACK_B R7, R6, 4.5736980577097704378e-41.H0", 0x38B8, 0x3F80BF80),
        ("F2I.TRUNC.NTZ R7, R6", 0xC0200000, 0xFFFFFFFE),
        ("F2I.S8.NTZ R7, R6", 0xC3800000, 0xFFFFFF80),
        ("F2I.FTZ.U32.TRUNC.NTZ R7, R6", 0xBF800000, 0),
        ("F2I.U32.F16.NTZ R7, |R6|", 0xC000, 2),
        ("F2I.F16.NTZ R7, -R6.H1", 0x40000000, 0xFFFFFFFE),
        ("I2F.U8 R7, R6.B3", 0x02000000, TWO),
        ("I2FP.F32.U32.RZ R7, R6", 0xFFFFFFFF, 0x4F7FFFFF),
        ("FRND.FLOOR R7, R6", 0xBF000000, 0xBF800000),
        ("I2IP.S8.S32.SAT R7, R6, RZ, RZ", 300, 0x7F00),
        ("I2IP.S8.S32.SAT R7, RZ, RZ, R6.H1", 0x12345678, 0x12340000),
        ("I2IP.U2.S32.SAT R7, R6, RZ, RZ.28", 300, 0xC),
        ("VIMNMX3.RELU R7, R6, RZ, 0x5, PT", 0xFFFFFFFB, 0),
        # 64 bits: a constant is the upper half.
        ("MOV R8, RZ\nMOV R9, R6\nDADD R10, R8, 1\nMOV R7, R11", 0x3FF00000, 0x40000000),
        ("MOV R8, RZ\nMOV R9, R6\nF2F.F32.F64 R7, R8", 0x3FF00000, ONE),
        ("MOV R8, RZ\nMOV R9, R6\nDSETP.MIN.AND P0, P1, R8, RZ, PT\nSEL R7, RZ, 0x1, P0",
         0x80000000, 0),
    ],
)  # fmt: skip
def test_what_an_instruction_gives(code: str, operand: int, expected: int) -> None:
    assert results(code, [operand, operand]) == [expected, expected]


@pytest.mark.parametrize(
    "text",
    [
        "FADD.RX R7, R6, R6", "FADD R7, ~R6, RZ", "HADD2 R7, R6.H0_NH1, R6",
        "FSEL R7, R6, +QNAN, P0", "HFMA2 R7, R6, 1, R6", "HADD2.F32 R7, R6, R6.H0_H0",
        "FMNMX.XORSIGN R7, R6, |R6|, PT",
        "F2FP.F16.F32.MERGE_C R7, R6, R6", "I2F.U8 R7, R6.B4", "MUFU.FOO R7, R6",
        "F2FP.BF16.E4M3.UNPACK_B R7, R6, R7.H0",
        "F2IP.U8.F32.NTZ R7, R6, R6, RZ", "DSETP.MIN.AND P0, P1, R6, R8, P2", "DADD R8, R6, +QNAN",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(text: str) -> None:
    outcome = run_sass(text, [1])
    assert outcome.not_run is not None
    assert any(word in outcome.not_run for word in text.split())


def test_the_encoding_says_which_nan_a_constant_is() -> None:
    listing = """
        /*0000*/ FSEL R7, R6, +QNAN , P0 ;  /* 0x7fc1234506077808 */
                                            /* 0x000fca0000000000 */
        /*0010*/ DADD R6, R2, -QNAN ;       /* 0xfff8001002067429 */
                                            /* 0x000fca0000000000 */
        /*0020*/ HFMA2 R7, R6, 1, +QNAN , R8 ;  /* 0x3c007e0106077431 */
                                            /* 0x000fca0000000000 */
    """
    lines, _ = read_section(listing)
    assert [line.text for line in lines] == [
        "FSEL R7, R6, 0f7fc12345 , P0",
        "DADD R6, R2, 0ffff80010",
        "HFMA2 R7, R6, 0h3c00, 0h7e01 , R8",
    ]
    assert results("FSEL R7, R6, 0f7fc12345, !PT", [1]) == [0x7FC12345]
    assert results("MOV R2, RZ\nMOV R3, RZ\nDADD R6, R2, 0ffff80010", [1]) == [0xFFF80010]


def test_a_predicate_may_choose_between_least_and_greatest_in_each_lane() -> None:
    code = "ISETP.NE.AND P0, PT, R0, RZ, PT\nFMNMX R7, R6, 1, P0"
    assert results(code, [TWO, TWO]) == [TWO, ONE]
