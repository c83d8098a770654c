"""Words of a cubin and their texts: a branch leads where it stands, and each word is asked once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from gpu_emulator.sass.cubin import code_bytes
from gpu_emulator.sass.listing import code_sections, read_section
from harness.hunt.disassembly import BASE, read_texts, sass_of, words_of

CUBIN = Path(__file__).parents[2] / "data/cubins/13.5.37/two_entries-sm_90a.cubin"
SIZE = 16


def printed(count: int) -> str:
    """As nvdisasm prints so many words: each leads to the instruction behind it."""
    places = range(BASE, BASE + SIZE * count, SIZE)
    return "".join(f"        /*{at:x}*/        @!P0 BRA {at + SIZE:#x} ;\n" for at in places)


def test_a_branch_is_as_far_away_wherever_its_word_stands() -> None:
    elf = CUBIN.read_bytes()
    words = words_of([elf, elf])
    codes = code_bytes(elf)
    assert len(codes) == 2
    assert len(words) < sum(map(len, codes.values())) // SIZE
    sections = code_sections(sass_of(elf, read_texts(words, printed(len(words)))))
    for name, code in codes.items():
        lines, labels = read_section(sections[name])
        assert [line.offset for line in lines] == list(range(0, len(code), SIZE))
        for line, following in pairwise(lines):
            label = line.text.removeprefix("@!P0 BRA `(").removesuffix(")")
            assert labels[label] == following.offset


def test_a_constant_of_64_bits_is_no_target() -> None:
    text = "MOV.64 R2, 0x8000000000000000"
    [word, *_] = words_of([CUBIN.read_bytes()])
    [told] = read_texts([word], f"        /*{BASE:x}*/        {text} ;\n").values()
    assert (told.text, told.distance) == (text, None)


def test_which_nan_a_constant_is_says_its_word() -> None:
    elf = CUBIN.read_bytes()
    words = words_of([elf])
    [(low, _), *_] = words
    said = "".join(
        f"        /*{BASE + SIZE * number:x}*/        FSEL R7, R6, +QNAN , P0 ;\n"
        for number in range(len(words))
    )
    [text, *_] = code_sections(sass_of(elf, read_texts(words, said))).values()
    assert read_section(text)[0][0].text == f"FSEL R7, R6, 0f{low >> 32:08x} , P0"


def test_fewer_lines_than_words_are_an_error() -> None:
    words = words_of([CUBIN.read_bytes()])
    with pytest.raises(ValueError, match="zip"):
        read_texts(words, printed(len(words) - 1))


def test_code_with_addresses_of_its_launch_has_no_text() -> None:
    elf = CUBIN.with_name("two_entries-sm_90.cubin").read_bytes()
    assert code_bytes(elf) == {}
    assert sass_of(elf, {}) == ""
