"""Changes of real PTX: the same for a seed, each alone, and of one entry."""

from __future__ import annotations

import random

import pytest

from gpu_emulator.ptx.text.facts import PtxError, read_ptx, retarget
from harness.hunt.corpus import CorpusSource, acquainted, changed_program

TEXT = """.version 8.6
.target sm_90
.address_size 64
.visible .entry matmul(.param .u64 out)
{
.reg .b32 %r<5>;
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
add.s32 %r2, %r1, 7;
add.u32 %r3, %r2, %r1;
shl.b32 %r4, %r3, 2;
st.global.u32 [%rd1], %r4;
ret;
}
"""


def source() -> CorpusSource:
    return acquainted(read(TEXT))[0]


def read(*texts: str) -> list[CorpusSource]:
    return [made for text in texts if (made := CorpusSource.read(text))]


def test_a_source_has_one_entry_and_a_target() -> None:
    assert ".entry k(" in source().text
    assert CorpusSource.read(TEXT + TEXT) is None
    assert CorpusSource.read("no PTX") is None
    # Many copies of an entry are one module: what stands behind it is not repeated.
    lines = TEXT.replace("add.s32", ".loc 1 3 0\nadd.s32") + '.file 1 "a.py"\n'
    assert read(lines)[0].text.strip() == read(TEXT)[0].text.strip()
    assert read_ptx(retarget(TEXT, target="sm_100a")).target == "sm_100a"
    with pytest.raises(PtxError):
        retarget("", target="sm_100a")


def test_a_seed_makes_one_program_and_seeds_make_many() -> None:
    texts = [changed_program(seed, [source()]).text for seed in range(60)]
    assert [changed_program(seed, [source()]).text for seed in range(60)] == texts
    assert len(set(texts)) > 40
    assert source().changed(()) == source().text


def test_a_source_takes_opcodes_and_instructions_of_others() -> None:
    other = TEXT.replace("add.s32", "add.sat.s32").replace("shl.b32 %r4, %r3", "shr.s32 %r9, %r9")
    sources = acquainted(read(TEXT, other))
    texts = [changed_program(seed, sources[:1]).text for seed in range(200)]
    assert any("add.sat.s32" in text for text in texts)
    grafted = [line for text in texts for line in text.splitlines() if "shr.s32" in line]
    assert grafted
    # It works on the registers of the source that took it.
    assert not any("%r9" in line for line in grafted)


def test_a_step_changes_its_place_whatever_other_steps_do() -> None:
    draw, original = random.Random(5), source().text.splitlines()
    for _ in range(80):
        first, second = draw.getrandbits(32), draw.getrandbits(32)
        alone = source().changed([first]).splitlines()
        both = source().changed([first, second]).splitlines()
        other = source().changed([second]).splitlines()
        if len(alone) == len(other) == len(original):
            # Where only one of two steps changes a line, its change stands beside the other.
            for old, one, two, joint in zip(original, alone, other, both, strict=True):
                if one == old:
                    assert joint == two
                elif two == old:
                    assert joint == one
