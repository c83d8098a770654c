"""The page that says which instructions are executed, held against the table of opcodes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "checks"))

import isa_coverage  # noqa: E402

from gpu_emulator.ptx.program.binder import TABLE  # noqa: E402

PAGE = (ROOT / "docs" / "measured" / "instructions.md").read_text()
LINES = [
    line for line in (ROOT / "checks" / "results" / "isa_forms.txt").read_text().splitlines()
    if line and not line.startswith(("#", "==", "-"))
]  # fmt: skip
SCALAR = {
    found[1]: int(found[2].replace(",", ""))
    for found in re.finditer(r"`(\w+)` ([0-9,]+)(?: of [0-9,]+)?(?=[,| ])", PAGE)
}


def test_every_opcode_of_the_table_is_on_the_page_and_the_other_way_round() -> None:
    known = {each for each in TABLE.rows if not each.startswith("%")}
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert known - named == set()
    executed = {name for name, count in SCALAR.items() if count}
    # Control flow is not a row: it ends blocks.
    assert executed - known == {"bra", "brx", "call", "ret", "exit"}


@pytest.mark.parametrize("line", LINES)
def test_a_form_of_the_list_is_executed_unless_a_reason_stands_above_it(line: str) -> None:
    text = next(isa_coverage.spelled(line))
    [form] = [each for each in FORMS if each.text == text][:1]
    why = isa_coverage.refusal(form, "sm_100a")
    assert bool(why) == bool(form.reason), why


FORMS = list(isa_coverage.forms())


def test_what_is_refused_has_its_reason_on_the_page() -> None:
    for reason in {form.reason for form in FORMS if form.reason}:
        assert reason in PAGE
