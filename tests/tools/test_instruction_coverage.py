"""Every scalar instruction that ptxas takes is executed by the emulator, or has a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Triage

sys.path.insert(0, str(Path(__file__).parents[2] / "checks"))

import isa_coverage

pytestmark = [pytest.mark.tools, pytest.mark.long]


def test_what_ptxas_takes_is_executed_or_has_a_reason(
    triage: Triage, toolchain_cache: Path
) -> None:
    installed = triage("toolchain", "install", "ptxas-13.5.37")
    assert installed.returncode == 0, installed.stderr
    ptxas = toolchain_cache / "toolchains" / "ptxas-13.5.37" / "bin" / "ptxas"
    taken = isa_coverage.taken_by_ptxas(str(ptxas), list(isa_coverage.forms()))
    assert len(taken) > 10_000
    assert isa_coverage.unexplained(taken) == []
