"""SASS of tensor memory: columns that are taken and given back, loads, stores, products."""

from __future__ import annotations

import numpy as np
import pytest
from sass_programs import results, run_sass

from gpu_emulator.api import Schedule

THREADS = 128
VALUES = list(range(5, 5 + THREADS))
# The lanes of tensor memory that are a warp's own: their address is in UR8.
OWN = """
    SHF.R.U32.HI R8, RZ, 0x5, R0
    IMAD.SHL.U32 R8, R8, 0x200000, RZ
    R2UR UR8, R8
"""
# A: 128 rows of 16 halves without swizzle, B: its first 8 rows, all 1; the mbarrier is behind them.
PRODUCT = (
    OWN
    + """
    STTM tmem[UR8], R6
    FENCE.VIEW.ASYNC.T
    MOV R8, 0x3c003c00
    MOV R9, R8
    MOV R10, R8
    MOV R11, R8
    IMAD.SHL.U32 R12, R0, 0x20, RZ
    STS.128 [R12+0x400], R8
    STS.128 [R12+0x410], R8
    ISETP.EQ.U32.AND P0, PT, R0, RZ, PT
    UMOV UR6, 0x1400
    UMOV UR20, 0x1ffffe
    UMOV UR21, 0x7ffff800
    @P0 SYNCS.EXCH.64 URZ, [UR6], UR20
    FENCE.VIEW.ASYNC.S
    BAR.SYNC.DEFER_BLOCKING 0x0
    UMOV UR10, 0x00080040
    UMOV UR11, 0x4010
    UMOV UR12, URZ
    UMOV UR13, {instruction}
    ISETP.GE.U32.AND P1, PT, R0, 0x20, PT
    @P1 BRA `(LATER)
    UTCHMMA gdesc[UR10], gdesc[UR10], tmem[URZ], tmem[UR12], idesc[UR13], {flag}
    UTCBAR [UR6], URZ
LATER:
    {wait}
    LDTM R7, tmem[UR8]
"""
)
WAIT = """
AGAIN:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P2, [UR6], RZ
    @!P2 BRA `(AGAIN)
"""
F32_N8_M128 = 1 << 4 | 1 << 17 | 8 << 24
SPARSE = 1 << 2
THREE = [int(np.float32(3).view(np.uint32))] * THREADS


def _product(
    flag: str = "UPT", wait: str = WAIT, instruction: int = F32_N8_M128, **options: object
) -> list[int]:
    code = PRODUCT.format(flag=flag, wait=wait, instruction=hex(instruction))
    return results(code, THREE, shared=8192, **options)


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize("completion", ["early", "late"])
def test_what_is_stored_is_loaded_when_it_was_waited_for(completion: str) -> None:
    code = OWN + "STTM tmem[UR8+0x4], R6\nFENCE.VIEW.ASYNC.T\nLDTM R7, tmem[UR8+0x4]\n"
    schedule = Schedule(completion=completion)  # type: ignore[arg-type]
    assert results(code, VALUES, schedule=schedule) == VALUES


def test_a_store_that_is_not_waited_for_may_come_late() -> None:
    code = OWN + "STTM tmem[UR8], R6\nLDTM R7, tmem[UR8]\n"
    assert results(code, VALUES, schedule=Schedule(completion="early")) == VALUES
    late = results(code, VALUES, schedule=Schedule(completion="late"))
    assert set(late).isdisjoint(VALUES)


def test_half_of_a_warp_loads_and_the_other_keeps_what_it_has() -> None:
    code = OWN + "STTM tmem[UR8], R6\nFENCE.VIEW.ASYNC.T\nMOV R7, 0x1\n"
    code += "LDTM.16dp32bit_t16_t31 R7, tmem[UR8]\n"
    expected = [1 if at % 32 < 16 else VALUES[at - 16] for at in range(THREADS)]
    assert results(code, VALUES) == expected


@pytest.mark.parametrize("completion", ["early", "late"])
@pytest.mark.parametrize(("flag", "expected"), [("UPT", 19.0), ("!UPT", 16.0)])
def test_a_product_is_there_when_its_commit_was_waited_for(
    flag: str, expected: float, completion: str
) -> None:
    schedule = Schedule(completion=completion)  # type: ignore[arg-type]
    assert _product(flag, schedule=schedule) == [_bits(expected)] * THREADS


def test_a_product_that_is_not_waited_for_may_come_late() -> None:
    assert _product(wait="NOP", schedule=Schedule(completion="late")) == THREE


def test_columns_are_taken_once_and_given_back() -> None:
    take = "UMOV UR6, {n}\nUTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR7, UR6\n"
    code = take.format(n="0x8") + take.format(n="0x10") + "@UP0 BRA.U `(BAD)\n"
    code += take.format(n="0x8") + "UMOV UR9, 0xffffff00\nUTCATOMSWS.AND URZ, UR9\n"
    code += "UMOV UR9, 0xffff00ff\nUTCATOMSWS.AND URZ, UR9\n" + take.format(n="0x10")
    code += "SEL R7, RZ, 0x1, !UP0\nBRA `(GOOD)\nBAD:\nMOV R7, 0x7\nGOOD:\n"
    assert results(code, [0] * 32) == [1] * 32


def test_columns_that_were_not_taken_are_a_fault_of_the_program() -> None:
    outcome = run_sass("UMOV UR9, 0xfffffffe\nUTCATOMSWS.AND URZ, UR9\n", [0] * 32)
    assert [fault.what for fault in outcome.faults] == [
        "tcgen05.dealloc: no block of 32 columns starts at 0"
    ]


def test_a_sparse_matrix_is_not_known_and_no_fault() -> None:
    with pytest.raises(AssertionError, match="sparse matrix A is not known, in UTCHMMA"):
        _product(instruction=F32_N8_M128 | SPARSE)


@pytest.mark.parametrize(
    "text",
    [
        "UTCHMMA.2CTA.WS gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0",
        "UTCHMMA.ASHIFT tmem[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0",
        "UTCHMMA gdesc[UR4].A_REUSE, gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0",
        "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], tmem[UR12], UP0",
        "UTCOMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0",
        "LDTM.32dp32bit R7, tmem[UR4]", "LDTM R7, gdesc[UR4]", "UTCBAR [UR4], UR6",
        "UTCATOMSWS.2CTA.FIND_AND_SET.ALIGN UP0, UR4, UR4", "UVIRTCOUNT.DEALLOC.SMPOOL 0x40",
        "UTCCP.T.S.U6x16P32 tmem[UR4], gdesc[UR6]",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(text: str) -> None:
    outcome = run_sass(text, [1] * 32)
    assert outcome.not_run is not None
    assert text.split(maxsplit=1)[0] in outcome.not_run
