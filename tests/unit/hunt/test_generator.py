"""What is generated is well defined, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_emulator.api import Checks, Schedule, run
from harness.hunt.generator import (
    RESULTS,
    THREADS,
    Generator,
    comparable,
    launch_of,
    listing,
    opcode_forms,
)
from harness.hunt.oracles import HuntCase, module_of
from harness.hunt.variants import is_closed, without
from harness.minimize.ptx.reduce import count_instructions, count_unwritten

HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n"
GENERATOR = Generator(HEAD, opcode_forms())


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_every_program_is_well_defined(first: int) -> None:
    for seed in range(first, first + 40):
        program = GENERATOR.program(seed)
        launch = launch_of(seed, program.text)
        outcome = run(launch, check=Checks(races=True, validity=True))
        assert outcome.not_run is None, program.text
        assert (outcome.faults, outcome.races, outcome.uninitialised) == ((), (), ())
        assert outcome.executed > THREADS
        other = run(launch, Schedule(garbage=1))
        results = [comparable(one.allocations[1].data) for one in (outcome, other)]
        assert (results[0] == results[1]).all(), program.text
        assert count_unwritten(program.text) == 0
        assert is_closed(program.text)


def test_a_seed_makes_one_text_and_another_seed_another() -> None:
    texts = [GENERATOR.program(seed).text for seed in range(50)]
    again = Generator(HEAD, opcode_forms())
    assert [again.program(seed).text for seed in range(50)] == texts
    assert len(set(texts)) == len(texts)


def test_the_table_of_the_emulator_decides_what_there_is() -> None:
    forms = {form.opcode: form for form in opcode_forms()}
    assert forms["bfi.b64"].operands == ("b64", "b64", "u32", "u32")
    assert forms["cvt.rzi.s32.f64"].results == ("s32",)
    assert forms["fma.rn.f16x2"].operands == ("f16x2",) * 3
    assert forms["shfl.sync.idx.b32"].meets
    left_open = (
        "add.f32",
        "ex2.approx.f32",
        "copysign.f32",
        "div.u32",
        "addc.u32",
        "activemask.b32",
    )
    assert not forms.keys() & set(left_open)


def test_the_listing_has_each_opcode_on_the_line_that_it_names() -> None:
    forms = opcode_forms()[:200]
    text, places = listing(HEAD, forms)
    lines = text.splitlines()
    assert {lines[line - 1].split()[0] for line in places} == {form.opcode for form in forms}


def test_a_module_has_each_program_as_it_is_alone() -> None:
    programs = [GENERATOR.program(seed) for seed in range(3)]
    text, _ = module_of([HuntCase(program.text, program.seed) for program in programs])
    parts = text.split(".visible .entry ")[1:]
    alone = [program.text.split(".visible .entry k")[1] for program in programs]
    assert [part[2:] for part in parts] == alone


def test_a_program_without_an_opcode_is_still_defined() -> None:
    program = next(p for p in map(GENERATOR.program, range(200)) if "add.cc.u32" in p.opcodes)
    less = without(program.text, "add.cc.u32")
    assert "addc" not in less
    assert count_instructions(less) < count_instructions(program.text)
    assert count_unwritten(less) == 0
    assert is_closed(less)


@pytest.mark.parametrize(
    "line", ["add.f32 %f1, %f1, %f1;", "addc.u32 %r1, %r1, %r1;", "ex2.approx.f32 %f1, %f1;"]
)
def test_a_candidate_that_is_open_is_refused(line: str) -> None:
    body = ".visible .entry k(.param .u64 in)\n{\n.reg .b32 %f<2>, %r<2>;\nmov.u32 %r1, 1;\n"
    assert is_closed(f"{HEAD}{body}ret;\n}}\n")
    assert not is_closed(f"{HEAD}{body}{line}\nret;\n}}\n")


def test_one_nan_is_like_another_and_a_number_is_not() -> None:
    rows = np.zeros((THREADS, RESULTS), np.uint8)
    other = rows.copy()
    rows[0, 32:36] = np.array([0x7FC0_0000], np.uint32).view(np.uint8)
    other[0, 32:36] = np.array([0xFFFF_FFFF], np.uint32).view(np.uint8)
    assert (comparable(rows) == comparable(other)).all()
    other[0, 32:36] = np.array([0x7F80_0000], np.uint32).view(np.uint8)
    assert (comparable(rows) != comparable(other)).any()
    # Integers are no NaN.
    rows[1, :4] = 0xFF
    assert (comparable(rows)[1, :4] == 0xFF).all()


def test_most_programs_have_nothing_of_what_is_known_and_some_still_have() -> None:
    known = {"popc.b32", "bfi"}
    programs = [GENERATOR.program(seed, known) for seed in range(400)]
    hits = [
        seed
        for seed, program in enumerate(programs)
        if any(op == "popc.b32" or op.startswith("bfi.") for op in program.opcodes)
    ]
    plain = [GENERATOR.program(seed) for seed in range(400)]
    share = sum(any(op.startswith("bfi.") for op in program.opcodes) for program in plain)
    assert 0 < len(hits) < share
    assert programs[hits[0]].text == plain[hits[0]].text
