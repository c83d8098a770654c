"""What ptxas makes of single instructions gives what the instructions give, at -O0 and at -O3."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from harness.io.toolchains.install import install_nvdisasm, install_ptxas

sys.path.insert(0, str(Path(__file__).parents[2] / "checks"))

import sass_forms

pytestmark = [pytest.mark.tools, pytest.mark.long]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("chapter", ["Floating-Point", "Comparison", "Conversion"])
def test_cubins_of_single_instructions_give_what_the_ptx_gives(target: str, chapter: str) -> None:
    ptxas, nvdisasm = install_ptxas("13.5.37").path, install_nvdisasm().path
    some = sass_forms.chosen(ptxas, target, 300, chapter=chapter)
    assert len(some) > 50
    results = list(sass_forms.check(some, ptxas, nvdisasm, target))
    answers = [
        (result.form.text, level, answer)
        for result in results
        for level, answer in result.levels.items()
    ]
    assert [answer for answer in answers if answer[2].startswith("differs")] == []
    equal = sum(answer[2] == "equal" for answer in answers)
    assert equal > 0.95 * len(answers)


def test_operands_of_a_warp_give_the_same_in_uniform_registers() -> None:
    ptxas, nvdisasm = install_ptxas("13.5.37").path, install_nvdisasm().path
    some = sass_forms.chosen(ptxas, "sm_120a", 40, ("add", "mul", "cvt"))
    results = list(sass_forms.check(some, ptxas, nvdisasm, "sm_120a", uniform=True))
    answers = [answer for result in results for answer in result.levels.values()]
    assert [answer for answer in answers if answer.startswith("differs")] == []
    executed = set().union(*(result.equal for result in results))
    assert {"UFADD", "UI2F", "UF2I"} <= {name.split(".")[0] for name in executed}


def test_tensor_memory_holds_what_the_ptx_leaves_there() -> None:
    ptxas, nvdisasm = install_ptxas("13.5.37").path, install_nvdisasm().path
    some = random.Random(0).sample(sass_forms.chosen(ptxas, "sm_100a", opcodes=("tcgen05",)), 25)
    results = list(sass_forms.check(some, ptxas, nvdisasm, "sm_100a"))
    assert {answer for result in results for answer in result.levels.values()} == {"equal"}
    executed = {name.split(".")[0] for result in results for name in result.equal}
    assert {"LDTM", "STTM", "UTCHMMA", "UTCCP", "UTCBAR"} <= executed
