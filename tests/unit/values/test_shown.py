"""Control characters of a text from outside are shown."""

from __future__ import annotations

import pytest

from harness.values.shown import shown, shown_in_a_line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\x1b]0;owned\x07\x1b[31mred", r"\x1b]0;owned\x07\x1b[31mred"),
        ("one\rtwo\x08", r"one\rtwo\x08"),
        ("\x9b31m", r"\x9b31m"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("caf\udcc3\udca9", r"caf\udcc3\udca9"),
        ("\x00\x7f", r"\x00\x7f"),
    ],
)
def test_control_characters_are_spelled_out(text: str, said: str) -> None:
    assert shown(text) == said
    assert shown_in_a_line(text) == said


def test_ordinary_text_stays() -> None:
    text = "kernel · naïve 核 \U0001f600\n\tx = 1\n"
    assert shown(text) == text
    assert shown_in_a_line(text) == "kernel · naïve 核 \U0001f600\\n\\tx = 1\\n"
