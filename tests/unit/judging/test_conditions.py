"""Conditions of `--while`: what they say of a row, and that what is spelled can be read again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judging.conditions import (
    Both,
    Comparison,
    Condition,
    Either,
    Field,
    Negation,
    fields_of,
    holds,
    parse_condition,
    spell,
    truth,
)
from harness.values.errors import UsageError
from harness.values.kernel import Scalar

ROW: dict[str, Scalar | None] = {
    "verdict": "sick",
    "spill_stores": 40,
    "spill_loads": 8,
    "n_regs": None,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("spill_stores > spill_loads", True),
        ("spill_stores < spill_loads", False),
        ("not spill_stores < spill_loads", True),
        ("not spill_stores > spill_loads", False),
        ("verdict = sick and spill_stores >= 40", True),
        ("verdict = ok or spill_stores <= 39", False),
        ("verdict != ok and not (spill_loads = 8 or spill_loads = 9)", False),
        # What is not known of a row decides nothing, and is not decided by what else is.
        ("n_regs > 8", None),
        ("not n_regs > 8", None),
        ("n_regs > 8 and verdict = sick", None),
        ("n_regs > 8 or verdict = ok", None),
        ("n_regs > 8 and verdict = ok", False),
        ("verdict = sick or n_regs > 8", True),
        ("spill_stores > n_regs", None),
    ],
)
def test_what_a_condition_says_of_a_row(text: str, value: bool | None) -> None:
    condition = parse_condition(text)
    assert truth(condition, ROW) is value
    assert holds(condition, ROW) == (value is True)


CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    st.builds(
        Comparison,
        field=st.sampled_from(["spill_stores", "n_regs"]),
        operator=st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        value=st.integers(0, 300) | st.builds(Field, name=st.just("spill_loads")),
    )
    | st.builds(
        Comparison,
        field=st.just("verdict"),
        operator=st.sampled_from(["==", "!="]),
        value=st.sampled_from(["ok", "out_of_memory"]),
    ),
    lambda parts: (
        st.builds(Negation, part=parts)
        | st.builds(Both, left=parts, right=parts)
        | st.builds(Either, left=parts, right=parts)
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(CONDITIONS)
def test_what_is_spelled_is_read_again(condition: Condition) -> None:
    assert parse_condition(spell(condition)) == condition


def test_a_word_is_quoted_where_it_has_to_be() -> None:
    assert spell(parse_condition("verdict='sick' and not code = 'C 1'")) == (
        "verdict == sick and not code == 'C 1'"
    )
    assert fields_of(parse_condition("n_regs > spill_loads or n_regs = 1")) == (
        "n_regs",
        "spill_loads",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spills > 1", "no field 'spills'; near: "),
        ("verdict > ok", "verdict is a word; compare it by = or !="),
        ("verdict = okay", "no verdict 'okay'; near: ok"),
        ("n_regs = many", "n_regs is a number; 'many' is none"),
        ("n_regs and", "'and' after n_regs is not a comparison"),
        ("n_regs >", "it ends where a value should be"),
        ("(n_regs > 1", "it ends where a closing parenthesis should be"),
        ("n_regs > 1 n_regs", "what is 'n_regs' doing there? join conditions by `and` or `or`"),
        ("n_regs > 1 ;", "cannot read ';'"),
        ("not " * 41 + "n_regs > 1", "it is nested too deeply"),
        ("n_regs > 1 and " * 40 + "not " * 41 + "n_regs > 1", "it is nested too deeply"),
        (" " * 1991 + "n_regs > 1", "a condition of 2,001 characters is too long"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_condition(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    # At the very bound of its length it is read.
    assert parse_condition(" " * 1990 + "n_regs > 1")
