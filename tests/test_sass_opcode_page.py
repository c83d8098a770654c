"""The page of SASS opcodes says what the tables of the emulator say."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "checks"))

import sass_opcodes  # noqa: E402

from gpu_emulator.opcodes import parts_of  # noqa: E402
from gpu_emulator.sass.binder import TABLE  # noqa: E402
from gpu_emulator.sass.decoding import is_known  # noqa: E402


def test_the_page_is_what_the_tables_make() -> None:
    assert sass_opcodes.PAGE.read_text() == sass_opcodes.page(), (
        "PYTHONPATH=.:emulator python checks/sass_opcodes.py writes it"
    )


def test_forms_are_counted_and_spelled_as_templates_match_them() -> None:
    template = "SHF.{way:L|R}?{wrap:W}.{type:U32|S32}"
    assert sass_opcodes.spelled(template) == "SHF.(L|R)[.W].(U32|S32)"
    assert sass_opcodes.forms_of(template) == 8
    assert parts_of(template, ["SHF", "L", "W", "S32"]) is not None


def test_each_row_has_evidence_and_what_was_measured_is_known() -> None:
    assert all(row.evidence.strip() for own in TABLE.rows.values() for row in own)
    for file in (sass_opcodes.MEASURED, sass_opcodes.COMPARED):
        names = file.read_text().split()
        assert names
        assert [name for name in names if not is_known(name)] == []
