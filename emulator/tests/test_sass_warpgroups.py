"""SASS of warpgroups: products that are waited for, in registers and from shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from sass_programs import results, run_sass

from gpu_emulator.api import Schedule

THREADS = 128
# B: 8 rows of 16 halves without swizzle, all 2; its descriptor is in UR6 and UR7.
PRODUCT = """
    MOV R8, 0x40004000
    IMAD.SHL.U32 R9, R0, 0x4, RZ
    STS [R9+0x400], R8
    FENCE.VIEW.ASYNC.S
    BAR.SYNC.DEFER_BLOCKING 0x0
    UMOV UR6, 0x00080040
    UMOV UR7, 0x8
    MOV R8, 0x3c003c00
    MOV R9, R8
    MOV R10, R8
    MOV R11, R8
    MOV R12, R6
    MOV R13, R6
    MOV R14, R6
    MOV R15, R6
    WARPGROUP.ARRIVE
    HGMMA.64x8x16.F32 R20, R8, gdesc[UR4], R12{flag}, gsb0
    WARPGROUP.DEPBAR.LE gsb0, {pending}
    MOV R7, R21
"""
THREE = [int(np.float32(3).view(np.uint32))] * THREADS


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize(("flag", "expected"), [("", 35.0), (", UPT", 35.0), (", !UPT", 32.0)])
@pytest.mark.parametrize("completion", ["early", "late"])
def test_a_product_is_there_when_it_was_waited_for(
    flag: str, expected: float, completion: str
) -> None:
    code = PRODUCT.format(flag=flag, pending="0x0")
    schedule = Schedule(completion=completion)  # type: ignore[arg-type]
    found = results(code, THREE, shared=512, schedule=schedule)
    assert found == [_bits(expected)] * THREADS


def test_a_product_that_is_not_waited_for_may_come_late() -> None:
    code = PRODUCT.format(flag="", pending="0x1").replace("MOV R15, R6", "MOV R21, R6")
    code = code.replace("R14, R6", "R14, R6\nMOV R15, R6")
    late = results(code, THREE, shared=512, schedule=Schedule(completion="late"))
    assert late == THREE


@pytest.mark.parametrize(
    "text",
    [
        "HGMMA.64x8x16.F32 R20, R8, gdesc[UR4].foo, R12", "HGMMA.64x12x16.F32 R20, gdesc[UR4], RZ",
        "WARPGROUP.DEPBAR.LE gsb1, 0x0", "BGMMA.64x8x256.AND.POPC R20, gdesc[UR4], R20",
        "HGMMA.64x8x16.F32 R20, -R8, gdesc[UR4], R12", "FENCE.VIEW.ASYNC.X",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(text: str) -> None:
    outcome = run_sass(text, [1] * THREADS)
    assert outcome.not_run is not None
    assert any(word in outcome.not_run for word in text.split())
