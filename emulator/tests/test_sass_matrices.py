"""SASS of matrices of a warp, and of copies that are waited for."""

from __future__ import annotations

import numpy as np
import pytest
from sass_programs import EPILOGUE, PROLOGUE, results, run_sass, sass

from gpu_emulator.api import Schedule
from gpu_emulator.sass.decoding import decode_cubin
from gpu_emulator.values import NotExecutable

LANES = list(range(32))


@pytest.mark.parametrize(
    ("opcode", "ones", "k"),
    [("HMMA.16816.F32", 0x3C003C00, 16), ("QMMA.16832.F32.E4M3.E4M3", 0x38383838, 32)],
)
def test_a_product_of_a_warp_adds_up_what_each_lane_holds(opcode: str, ones: int, k: int) -> None:
    """A and B are all ones, so each element is k, and C is added."""
    code = f"MOV R8, {ones:#x}\n" + "".join(f"MOV R{n}, R8\n" for n in range(9, 14))
    code += "MOV R14, R6\nMOV R15, R6\nMOV R16, R6\nMOV R17, R6\n"
    code += f"{opcode} R20, R8, R12, R14\nMOV R7, R22"
    values = np.full(32, 2.0, np.float32).view(np.uint32)
    assert results(code, values) == [int(np.float32(k + 2).view(np.uint32))] * 32


def test_a_product_of_integers_saturates() -> None:
    code = "MOV R8, 0x7f7f7f7f\nMOV R9, R8\nMOV R10, R8\nMOV R14, R6\nMOV R15, R6\nMOV R16, R6\n"
    code += "MOV R17, R6\nIMMA.16816.S8.S8.SAT R20, R8.ROW, R10.COL, R14\nMOV R7, R20"
    assert results(code, [0x7FFFFFF0] * 32) == [0x7FFFFFFF] * 32


def test_a_matrix_is_transposed() -> None:
    """Lane l holds elements (l / 4, 2 (l % 4)) and the one beside it."""
    code = "PRMT R8, R6, 0x5410, R6\nMOVM.16.MT88 R7, R8"
    found = results(code, LANES)
    row, column = 2, 1
    lane = 4 * row + column
    assert found[lane] == (8 * column + 4) << 16 | (8 * column) | 0x10001 * (row // 2)


LOADED = """
    IMAD.SHL.U32 R9, R0, 0x4, RZ
    STS [R9+0x400], R6
    BAR.SYNC.DEFER_BLOCKING 0x0
    IMAD.SHL.U32 R9, R0, 0x10, RZ
    LOP3.LUT R9, R9, 0x7f, RZ, 0xc0, !PT
    LDSM.16.M88 R7, [R9+0x400]
"""


def test_rows_of_shared_memory_are_loaded_as_a_matrix() -> None:
    """Row r has 16 bytes from lanes 4 r to 4 r + 3: each lane gets its own word again."""
    assert results(LOADED, LANES, shared=128) == LANES


COPY = """
    IMAD.SHL.U32 R9, R0, 0x4, RZ
    STS [R9+0x400], RZ
    LDGSTS.E [R9+0x400], desc[UR4][R2.64]{predicate}
    LDGDEPBAR
    {wait}
    LDS R7, [R9+0x400]
"""


@pytest.mark.parametrize("completion", ["early", "late"])
@pytest.mark.parametrize("others", ["", ", {1}", ", {4,2}"])
def test_a_copy_that_is_waited_for_is_there(completion: str, others: str) -> None:
    code = COPY.format(predicate="", wait=f"DEPBAR.LE SB0, 0x0{others}")
    schedule = Schedule(completion=completion)  # type: ignore[arg-type]
    assert results(code, LANES, shared=128, schedule=schedule) == LANES


def test_a_wait_for_all_scoreboards_is_refused_while_copies_are_under_way() -> None:
    code = COPY.format(predicate="", wait="DEPBAR.LE SB0, 0x0\nDEPBAR {5,4,3,2,1,0}")
    late = Schedule(completion="late")
    assert results(code, LANES, shared=128, schedule=late) == LANES
    wait = COPY.format(predicate="", wait="DEPBAR {0}")
    outcome = run_sass(wait, LANES, shared=128, schedule=late)
    assert outcome.not_run == "DEPBAR {0} while copies or bulk stores are under way"


def test_a_copy_that_is_not_waited_for_may_come_late() -> None:
    code = COPY.format(predicate="", wait="DEPBAR.LE SB0, 0x1")
    assert results(code, LANES, shared=128, schedule=Schedule(completion="early")) == LANES
    assert results(code, LANES, shared=128, schedule=Schedule(completion="late")) == [0] * 32


def test_where_the_predicate_is_false_zeros_are_copied() -> None:
    code = "ISETP.NE.AND P0, PT, R0, 0x3, PT" + COPY.format(
        predicate=", P0", wait="DEPBAR.LE SB0, 0x0"
    )
    assert results(code, [7] * 32, shared=128) == [7] * 3 + [0] + [7] * 28


def controlled(code: str, bits: int) -> str:
    """An instruction with its encoding behind it, of which only the control bits count."""
    return f"{code} ; /* 0x0000000000000000 */ /* 0x{bits << 41:016x} */"


@pytest.mark.parametrize(
    ("code", "ends", "behind", "is_known"),
    [
        # Write barrier, read barrier, and the mask of what the next instruction waits for.
        ("UTMACMDFLUSH", 0x0E0, 0x7E0, True),
        ("UTMACMDFLUSH", 0x7E0, 0x7E0, True),
        ("UTMACMDFLUSH", 0x1E0, 0x7E0 | 0b10 << 11, True),
        ("UTMACMDFLUSH", 0x1E0, 0x7E0, False),
        ("UTMACMDFLUSH", 0x1E0, 0x7E0 | 0b101 << 11, False),
        ("UTMACMDFLUSH", 0x7E1, 0x7E0, False),
        ("LDGDEPBAR", 0x700, 0x7E0, True),
        ("LDGDEPBAR", 0x720, 0x7E0, False),
    ],
)
def test_what_counts_a_group_is_scoreboard_0_or_is_refused(
    code: str, ends: int, behind: int, is_known: bool
) -> None:
    lines = f"{controlled(code, ends)}\n{controlled('DEPBAR.LE SB0, 0x1', behind)}\n"
    cubin = sass(PROLOGUE + lines + EPILOGUE)
    if is_known:
        assert decode_cubin(cubin, None)
    else:
        with pytest.raises(NotExecutable, match=f"{code} counts by scoreboard"):
            decode_cubin(cubin, None)


def test_a_group_that_the_next_instruction_waits_for_is_there() -> None:
    code = COPY.format(predicate="", wait=controlled("NOP", 0x7E0 | 0b10 << 11))
    code = code.replace("LDGDEPBAR", controlled("LDGDEPBAR", 0x720))
    assert results(code, LANES, shared=128, schedule=Schedule(completion="late")) == LANES


@pytest.mark.parametrize(
    "text",
    [
        "HMMA.16816.F32.FOO R8, R8, R8, R8", "HMMA.16816.F32 R8, -R8, R8, R8", "BMMA.88128 R8, R8",
        "IMMA.16816.S8.S8 R8, R8, R8.COL, R8", "LDSM.8.M88 R7, [R9]",
        "LDGSTS.E.128.ZFILL [R9], desc[UR4][R2.64]", "DEPBAR {6}",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(text: str) -> None:
    outcome = run_sass(text, [1] * 32)
    assert outcome.not_run is not None
    assert any(word in outcome.not_run for word in text.split())
