"""Every spelling of a number in PTX: as an operand, in an address, in an initial value."""

from __future__ import annotations

import numpy as np
import pytest
from programs import execute, kernel, outcome

from gpu_emulator.ptx.text.constants import constant

# PTX ISA 4.5, "Constants"; held against ptxas 13.5.37.
WHOLE = {
    "0": 0, "7": 7, "017": 15, "-017": -15, "00017U": 15, "0x1F": 31, "0X1fU": 31, "0b101": 5,
    "0B101U": 5, "5U": 5, "+5": 5, "- 5": -5, "~5": -6, "!5": 0, "!0": 1, "-(5)": -5,
    "(1 + 2) * 3": 9, "1 + 2 * 3": 7, "((1 << 4) - 1)": 15, "(1 << 4) | 3": 19, "6 & 3 ^ 1": 3,
    "5 > 3 ? 7 : 8": 7, "1 == 2 ? 7 : 010": 8, "(.s64) 5": 5, "-1 >> 1": -1, "7 / -2": -3,
    "-7 % 3": -1, "0xffffffffffffffff / 2": (1 << 63) - 1, "-1U / 2": (1 << 63) - 1,
    "1 << 63": -(1 << 63), "WARP_SZ": 32, "WARP_SZ * 2": 64, "3 && 0 || 2": 1,
    "18446744073709551615": (1 << 64) - 1, "(.u64) -1": (1 << 64) - 1,
}  # fmt: skip
BAD = ["018", "08", "0X1fu", "5u", "0xg", "$", "1 2", "5 / 0", "1.0f", "0f3F8", "%q1", "1 +"]
FLOATS = {
    "1.0": 1.0, "1.": 1.0, ".5": 0.5, "1e3": 1000.0, "-1.5e-3": -0.0015, "1.0 + 2.0": 3.0,
    "0f3F800000": 1.0, "0F3F800000": 1.0, "0d3FF0000000000000": 1.0, "0D3FF0000000000000": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("text", WHOLE)
def test_an_operand(text: str) -> None:
    ptx = kernel(f"mov.u64 %rd1, {text}; st.global.u64 [%rd40], %rd1;", 1)
    (found,) = execute(ptx, np.zeros(1, "u8"))
    assert found.tolist() == [WHOLE[text] % (1 << 64)]


@pytest.mark.parametrize("text", ["010", "0x8U", "4 * 2", "(4 + 4)", "-(-010)", "0b1000"])
def test_an_offset_of_an_address(text: str) -> None:
    (found,) = execute(kernel(f"st.global.u32 [%rd40 + {text}], 7;", 1), np.zeros(4, "u4"))
    assert found.tolist() == [0, 0, 7, 0]


@pytest.mark.parametrize("text", [*WHOLE])
def test_an_initial_value(text: str) -> None:
    declarations = f".global .align 8 .u64 x[2] = {{ {text}, 017 }};"
    ptx = kernel(
        "ld.global.v2.u64 {%rd1, %rd2}, [x]; st.global.v2.u64 [%rd40], {%rd1, %rd2};", 1,
        declarations=declarations,
    )  # fmt: skip
    (found,) = execute(ptx, np.zeros(2, "u8"))
    assert found.tolist() == [WHOLE[text] % (1 << 64), 15]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("text", FLOATS)
def test_a_float(text: str, kind: str) -> None:
    width = int(kind[1:]) // 8
    body = f".reg .{kind} %v; mov.{kind} %v, {text}; st.global.{kind} [%rd40], %v;"
    (found,) = execute(kernel(body, 1), np.zeros(1, f"f{width}"))
    assert found[0] == np.dtype(f"f{width}").type(FLOATS[text])


def test_a_float_written_as_bits_keeps_them() -> None:
    body = "mov.b32 %r1, 0fFFA00001; st.global.b32 [%rd40], %r1;"
    (found,) = execute(kernel(body, 1), np.zeros(1, "u4"))
    assert found.tolist() == [0xFFA0_0001]


def test_an_address_of_a_variable_and_an_offset() -> None:
    body = "mov.u64 %rd1, x + 010; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd40], %r1;"
    ptx = kernel(body, 1, declarations=".global .u32 x[4] = { 1, 2, 3, 4 };")
    (found,) = execute(ptx, np.zeros(1, "u4"))
    assert found.tolist() == [3]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_number_is_refused_with_its_line(text: str) -> None:
    assert constant(text) is None
    result = outcome(kernel(f"add.u32 %r1, %r1, {text};", 1), np.zeros(1, "u4"))
    assert result.not_run is not None
    assert "PTX line" in result.not_run
