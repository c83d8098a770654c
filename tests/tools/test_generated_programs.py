"""Generated programs over every scalar form that the newest ptxas takes: the emulator executes all.

What it computes is held against a GPU by `tests/gpu/programs_against_gpu.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Triage
from programs_against_gpu import HEAD, emulate, programs
from scalar_programs import accepted_by, inputs

from gpu_emulator.ptx.instructions.catalogue import CHAPTERS
from gpu_emulator.ptx.program.binder import find_row

pytestmark = pytest.mark.tools


def test_each_form_is_known_and_programs_of_them_come_to_their_end(
    triage: Triage, toolchain_cache: Path, tmp_path: Path
) -> None:
    assert CHAPTERS
    installed = triage("toolchain", "install", "ptxas-13.5.37")
    assert installed.returncode == 0, installed.stderr
    ptxas = toolchain_cache / "toolchains" / "ptxas-13.5.37" / "bin" / "ptxas"
    forms = accepted_by(str(ptxas), HEAD, tmp_path)
    assert len(forms) > 5000
    assert [form.opcode for form in forms if find_row(form.opcode) is None] == []
    for number in range(0, 600, 20):
        data = b"".join(word.to_bytes(4, "little") for word in inputs(number))
        (program,) = programs(forms, 2, range(number, number + 1))
        left, why = emulate(program, data)
        assert left is not None, f"{why}\n{program.text}"
