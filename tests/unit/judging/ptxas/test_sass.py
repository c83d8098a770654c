from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import assert_linear

from harness.judging.ptxas.sass import (
    InstructionMix,
    code_sections,
    instruction_mix,
    mixes,
    opcodes,
)

SASS = Path(__file__).parents[3] / "data" / "sass"


def text_of(case: str) -> str:
    return (SASS / f"{case}.sass").read_text()


def test_one_of_each_class_on_sm_80() -> None:
    text = text_of("mixed-sm_80")
    assert mixes(text) == {
        "mixed": InstructionMix(
            tensor=1, vector=5, special=1, memory=4, local=3, control=6, other=19, total=39
        )
    }
    found = opcodes(code_sections(text)["mixed"])
    expected = {"HMMA": 1, "MUFU": 1, "FFMA": 1, "FMUL": 3, "FADD": 1, "LDL": 1, "STL": 2}
    expected |= {"LDGSTS": 1, "LDSM": 1, "RED": 1, "STG": 1, "BRA": 1, "EXIT": 1}
    assert {opcode: found[opcode] for opcode in expected} == expected
    assert "NOP" not in found


def test_the_spacers_of_sm_120_do_not_count() -> None:
    text = text_of("mixed-sm_120")
    assert text.count("@!UPT UIADD3") == 3
    assert "UIADD3" not in opcodes(text)
    assert mixes(text)["mixed"].total == 41


def test_hopper_matrix_instructions() -> None:
    mix = mixes(text_of("wgmma_serialized-sm_90a"))["wgmma"]
    assert (mix.tensor, mix.vector) == (1, 2)
    assert mix.memory == 1


def test_blackwell_tensor_memory() -> None:
    text = text_of("tensor_memory-sm_100a")
    mix = mixes(text)["tensor_memory"]
    found = opcodes(text)
    assert (found["UTCHMMA"], found["LDTM"], found["STTM"], found["UBLKCP"]) == (1, 1, 1, 1)
    assert mix.tensor == 1
    # The one FFMA2 is two FFMA.
    assert (found["FFMA2"], mix.vector) == (1, 2)
    assert mix.memory == sum(
        found[opcode] for opcode in ("ATOMS", "LDS", "LDTM", "STG", "STS", "STTM", "UBLKCP")
    )
    assert mix.total == sum(found.values())


def test_each_kernel_by_itself() -> None:
    found = mixes(text_of("two_entries-sm_80"))
    assert list(found) == ["calls_helper", "uses_shared"]
    called, shared = found.values()
    # The function that it calls lies in the same section: its own spills are counted.
    assert called.local >= 5
    assert (shared.local, shared.tensor, shared.vector) == (0, 0, 0)
    assert shared.memory == 3


def test_the_loop_at_the_end_is_not_counted() -> None:
    section = code_sections(text_of("two_entries-sm_80"))["uses_shared"]
    assert section.count("BRA `(") == 1
    assert "BRA" not in opcodes(section)
    assert opcodes(section)["EXIT"] == 1


def test_a_real_loop_is_counted() -> None:
    text = ".text.k:\n.L_x_0:\n" + line("FADD R0, R0, R1") + line("BRA `(.L_x_0)")
    assert opcodes(text) == {"BRA": 1, "FADD": 1}


def line(instruction: str, at: int = 0) -> str:
    return f"        /*{at:04x}*/                   {instruction} ;\n"


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("HMMA.16816.F32.BF16 R4, R8, R8, R4", "tensor"),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R8.COL, R4", "tensor"),
        ("DMMA.8x8x4 R4, R8, R8, R4", "tensor"),
        ("QMMA.16832.F32.E4M3.E4M3 R4, R8, R8, R4", "tensor"),
        ("OMMA.SF.16864.F32 R4, R8, R8, R4", "tensor"),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4], R24", "tensor"),
        ("QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24", "tensor"),
        ("IGMMA.64x8x32.S8.S8 R24, gdesc[UR4], R24", "tensor"),
        ("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0", "tensor"),
        ("UTCQMMA.2CTA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11]", "tensor"),
        ("@P0 FFMA R0, R1, R2, R3", "vector"),
        ("FFMA.FTZ R0, R1, c[0x0][0x160], R3", "vector"),
        ("@!UP0 FADD R0, R1, R2", "vector"),
        ("FMUL.FTZ R0, R1, 0.5", "vector"),
        ("HFMA2.BF16_V2 R0, R1, R2, R3", "vector"),
        ("HFMA2 R0, -RZ, R3, 1, 1", "vector"),
        ("DFMA R0, R2, R4, R6", "vector"),
        ("MUFU.EX2 R0, R1", "special"),
        ("LDG.E.128 R4, desc[UR4][R2.64]", "memory"),
        ("@P1 STG.E desc[UR4][R2.64], R0", "memory"),
        ("LDSM.16.MT88.4 R4, [R0]", "memory"),
        ("STSM.16.M88.4 [R0], R4", "memory"),
        ("UTMALDG.2D [UR4], [UR6]", "memory"),
        ("UTMASTG.3D [UR4], [UR6]", "memory"),
        ("UBLKCP.S.G [UR4], [UR6], UR7", "memory"),
        ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR6][R4.64], R2", "memory"),
        ("ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R2.64], R0", "memory"),
        ("LDTM.x32 R4, tmem[UR4]", "memory"),
        ("LDL.64 R2, [R1+0x8]", "local"),
        ("STL [R1], R0", "local"),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "control"),
        ("@P0 EXIT", "control"),
        ("LDC R1, c[0x0][0x37c]", "other"),
        ("HFMA2 R0, -RZ, RZ, 0, 0", "other"),
        ("HFMA2.MMA R7, -RZ, RZ, 0, 5.9604644775390625e-08", "other"),
        ("IMAD.MOV.U32 R1, RZ, RZ, R2", "other"),
        ("REDUX.SUM UR4, R0", "other"),
        ("FSETP.GEU.AND P0, PT, R5, 100, PT", "other"),
        ("NEWOPCODE.X R0, R1", "other"),
    ],
)
def test_classes(instruction: str, name: str) -> None:
    mix = instruction_mix(opcodes(line(instruction)))
    assert getattr(mix, name) == 1
    assert mix.total == 1


@pytest.mark.parametrize("opcode", ["FFMA2", "FADD2", "FMUL2"])
def test_packed_instructions_count_as_two(opcode: str) -> None:
    mix = instruction_mix(opcodes(line(f"{opcode} R0, R2, R4, R6") * 3))
    assert (mix.vector, mix.total) == (6, 3)


@pytest.mark.parametrize("instruction", ["NOP", "@!PT LDS RZ, [RZ]", "@!UPT UIADD3 URZ, UPT, UPT"])
def test_what_does_no_work(instruction: str) -> None:
    assert opcodes(line(instruction) * 4 + line("FADD R0, R1, R2")) == {"FADD": 1}


def test_encodings_are_skipped() -> None:
    plain = line("FADD R0, R1, R2")
    hexed = plain[:-1] + " /* 0x0000000201007221 */\n      /* 0x000fe20000000000 */\n"
    assert opcodes(hexed) == opcodes(plain)


def test_names_as_they_are() -> None:
    name = "_Z6kernelIfLi4EEvPT_$helper.part.0"
    text = f'\t.section\t.text.{name},"ax",@progbits\n.text.{name}:\n{line("EXIT")}'
    assert mixes(text) == {name: InstructionMix(control=1, total=1)}


def test_what_follows_the_code_is_not_code() -> None:
    tail = "\n//--------------------- .nv.info ---------\n\t.section\t.nv.info\n" + line("EXIT")
    text = ".text.k:\n" + line("EXIT") + tail
    assert mixes(text)["k"].total == 1


@pytest.mark.parametrize("text", ["", "\n", "nvdisasm fatal   : no", "\x00" * 500, ".text.:\n"])
def test_no_code(text: str) -> None:
    assert mixes(text) == {}


def test_truncated_anywhere_it_counts_what_is_there() -> None:
    text = text_of("tensor_memory-sm_100a")
    lines = text.splitlines(keepends=True)
    totals = []
    for count in range(len(lines) + 1):
        found = mixes("".join(lines[:count]))
        totals.append(found["tensor_memory"].total if found else 0)
    assert totals[0] == 0
    assert totals[-1] == mixes(text)["tensor_memory"].total
    # A branch to itself is taken out again only once its line is there: never more than one off.
    assert all(after >= before for before, after in pairwise(totals))


@pytest.mark.parametrize("case", sorted(path.stem for path in SASS.glob("*.sass")))
def test_five_megabytes_take_linear_time(case: str) -> None:
    text = text_of(case)
    body = max(code_sections(text).values(), key=len)

    def read(size: int) -> dict[str, InstructionMix]:
        return mixes(".text.k:\n" + body * (size // len(body) + 1))

    assert read(5_000_000)["k"].total > 10_000
    assert_linear(read, 600_000)


@pytest.mark.parametrize(
    "unit", ["/*0000", " ", "\t", ".text.", ".L_x_0:\n", "\n", "/*0000*/ ", "@P0 "]
)
def test_huge_noise_takes_linear_time(unit: str) -> None:
    def read(size: int) -> None:
        text = ".text.k:\n" + unit * (size // len(unit))
        mixes(text)
        opcodes(text)

    assert_linear(read, 125_000)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    assert isinstance(mixes(text), dict)
    assert all(count > 0 for count in opcodes(text).values())


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 1000)))
def test_no_instruction_is_lost(counts: dict[str, int]) -> None:
    mix = instruction_mix(counts)
    by_class = mix.tensor + mix.vector + mix.special + mix.memory + mix.local
    packed = sum(counts.get(opcode, 0) for opcode in ("FFMA2", "FADD2", "FMUL2"))
    assert mix.total == sum(counts.values())
    assert by_class + mix.control + mix.other == mix.total + packed
