from __future__ import annotations

import pytest

from harness.run.launch import Trusted
from harness.run.references import prevailing


def left(by: str, value: str) -> Trusted:
    return Trusted(words=f"plain with {by}", buffers=(value, None), is_emulated=True)


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        ("1", "", "plain with own"),
        # One against one: nothing says which of them is wrong.
        ("1", "2", "plain with own"),
        ("1", "123", "plain with own"),
        ("1", "122", "plain with own"),
        ("1", "322", "plain with B, and bit for bit by 1 more"),
        ("1", "3222", "plain with B, and bit for bit by 2 more"),
        ("", "2", "plain with A"),
        ("", "122", "plain with B, and bit for bit by 1 more"),
        ("", "12", "plain with A"),
    ],
)
def test_what_most_agree_on_prevails(own: str, others: str, words: str) -> None:
    named = [left(name, value) for name, value in zip("ABCD", others, strict=False)]
    found = prevailing(left("own", own) if own else None, named)
    assert found is not None
    assert found.words == words
    assert found.is_emulated
    # What is said is what is held.
    assert found.buffers == next(
        each.buffers for each in [left("own", own), *named] if words.startswith(each.words)
    )


def test_without_any_result_nothing_is_trusted() -> None:
    assert prevailing(None, []) is None
