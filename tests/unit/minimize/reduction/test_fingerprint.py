"""What makes a candidate interesting: conditions, patterns over versions, the order of checks."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness.judging.conditions import (
    FIELDS,
    Both,
    Comparison,
    Condition,
    Either,
    Field,
    Negation,
    holds,
    parse_condition,
    spell,
)
from harness.minimize.reduction.fingerprint import (
    Answer,
    CheckCost,
    Fingerprint,
    Reaction,
    accepting_neighbours,
    drifted,
    lower_versions,
)
from harness.values.errors import UsageError
from harness.values.outcome import ProcessEnd
from harness.values.verdict import Signature, Stage, VerdictKind

WORDS = ("verdict", "stage", "signature", "code", "occupancy_limiter")
NUMBERS = tuple(name for name in FIELDS if name not in WORDS)
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


def reaction(
    verdict: str = "ok", *, signature: str = "", accepted: bool = False, **fields: object
) -> Reaction:
    made = None
    if signature:
        made = Signature(
            stage="cubin", kind=verdict, failing_pass=None, code=None, template=signature
        )
    kind = VerdictKind(verdict)
    return Reaction(
        verdict=kind,
        reason="said so",
        is_accepted=accepted,
        end=ProcessEnd(exit_code=0 if accepted else 255),
        stage=Stage.CUBIN,
        signature=made,
        fields={"verdict": verdict, **fields},  # type: ignore[dict-item]
    )


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    if draw(st.booleans()):
        name = draw(st.sampled_from(("signature", "code", "occupancy_limiter")))
        sign = draw(st.sampled_from(("==", "!=")))
        word = draw(st.text(string.ascii_letters + string.digits + "_ -'", min_size=1, max_size=8))
        return Comparison(field=name, operator=sign, value=word)
    value: object = draw(
        st.one_of(
            st.integers(-(10**9), 10**9),
            st.integers(-999, 999).map(lambda number: number / 8),
            st.sampled_from(NUMBERS).map(lambda name: Field(name=name)),
        )
    )
    return Comparison(
        field=draw(st.sampled_from(NUMBERS)),
        operator=draw(st.sampled_from(OPERATORS)),
        value=value,  # type: ignore[arg-type]
    )


CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(Negation, part=inner),
        st.builds(Both, left=inner, right=inner),
        st.builds(Either, left=inner, right=inner),
    ),
    max_leaves=8,
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.none() | st.integers(-100, 100) for name in NUMBERS},
        **{name: st.none() | st.sampled_from(["a", "b"]) for name in WORDS},
    },
)


@given(CONDITIONS)
def test_a_condition_that_is_spelt_is_read_as_itself(condition: Condition) -> None:
    assert parse_condition(spell(condition)) == condition


@given(CONDITIONS, ROWS)
def test_a_condition_holds_if_it_does_whatever_the_unknown_values_are(
    condition: Condition, row: dict[str, object]
) -> None:
    """An unknown value decides nothing, so filling it in cannot undo what held."""
    known = {name: value for name, value in row.items() if value is not None}
    filled = {**{name: "zz" if name in WORDS else 7 for name in FIELDS}, **known}
    if holds(condition, row):  # type: ignore[arg-type]
        assert holds(condition, filled)  # type: ignore[arg-type]
        assert not holds(Negation(part=condition), filled)  # type: ignore[arg-type]
    assert holds(condition, filled) is not holds(Negation(part=condition), filled)  # type: ignore[arg-type]


@given(st.text(max_size=60) | st.text("()notand regs_<>=!1.'\"", max_size=40))
def test_any_text_is_a_condition_or_one_line_that_says_why_not(text: str) -> None:
    said = "--while: fine"
    try:
        parse_condition(text)
    except UsageError as error:
        said = str(error)
    assert said.startswith("--while")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("n_regs<=32 and spill_stores>4096", {"n_regs": 32, "spill_stores": 4097}, True),
        ("n_regs<=32 and spill_stores>4096", {"n_regs": 33, "spill_stores": 4097}, False),
        ("n_regs<=32", {}, False),
        ("not n_regs<=32", {}, False),
        ("n_regs<=32 or stack>0", {"stack": 8}, True),
        ("verdict=trap_stub", {"verdict": "trap_stub"}, True),
        ("code = C7907", {"code": "C7907"}, True),
        ("code != C7907", {"code": None}, False),
        ("spill_stores > spill_loads", {"spill_stores": 2, "spill_loads": 1}, True),
        ("not (n_regs<8 or n_regs>16)", {"n_regs": 12}, True),
        # `and` binds tighter than `or`.
        ("n_regs=1 or n_regs=2 and stack=3", {"n_regs": 1, "stack": 0}, True),
        ("occupancy<0.5", {"occupancy": 0.25}, True),
    ],
)
def test_what_a_condition_says_of_a_row(text: str, row: dict[str, object], expected: bool) -> None:
    assert holds(parse_condition(text), row) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_reg<3", "no field 'n_reg'; near: n_regs"),
        ("zzz=1", "no field 'zzz'; there are verdict,"),
        ("verdict=trapstub", "no verdict 'trapstub'; near: trap_stub"),
        ("verdict<ok", "verdict is a word; compare it by = or !="),
        ("n_regs<many", "n_regs is a number; 'many' is none"),
        ("n_regs", "it ends where a comparison should be"),
        ("n_regs<", "it ends where a value should be"),
        ("n_regs<3 stack>1", "what is 'stack' doing there?"),
        ("(n_regs<3", "it ends where a closing parenthesis should be"),
        ("n_regs<3;", "cannot read ';'"),
        ("__import__('os')", "no field '__import__'"),
        ("(" * 100 + "n_regs<3" + ")" * 100, "nested too deeply"),
        ("not " * 400 + "n_regs<3", "nested too deeply"),
        ("n_regs<3 or " * 400 + "n_regs<3", "too long"),
        ("", "it ends where a field should be"),
    ],
)
def test_a_malformed_condition_is_told_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_condition(text)
    assert said in str(caught.value)


def test_the_answers_of_a_failure() -> None:
    failing = reaction("ptxas_ice", signature="x")
    wanted = Fingerprint(bad="13.1", signature=failing.key)
    assert wanted.answer(failing) is Answer.SAME
    assert wanted.answer(reaction("ptxas_ice", signature="y")) is Answer.OTHER
    assert wanted.answer(reaction("sick", signature="spills", accepted=True)) is Answer.ACCEPTS
    assert wanted.answer(reaction("unsupported", signature="x")) is Answer.UNTOLD
    assert wanted.answer(reaction("timeout", signature="t")) is Answer.UNTOLD
    assert wanted.answer(reaction("infra", signature="x")) is Answer.UNTOLD
    hang = Fingerprint(bad="13.1", signature=reaction("timeout", signature="t").key)
    assert hang.answer(reaction("timeout", signature="t")) is Answer.SAME


def test_an_error_of_another_kind_is_another_program_that_is_wrong() -> None:
    first = replace(reaction("ptxas_error", signature="x"), errors=frozenset({"no such feature"}))
    wanted = Fingerprint(bad="13.1", signature=first.key)
    more = replace(first, errors=first.errors | {"Unknown symbol '%V'"})
    assert wanted.answer(more) is Answer.SAME
    wanted = wanted.with_errors_of([first, reaction("ptxas_error", signature="y")])
    assert wanted.answer(first) is Answer.SAME
    assert wanted.answer(replace(first, errors=frozenset())) is Answer.SAME
    assert wanted.answer(more) is Answer.OTHER
    numbers = Fingerprint(bad="13.1", condition=parse_condition("n_regs>3"))
    assert numbers.with_errors_of([first]) == numbers


def test_the_answers_of_a_condition() -> None:
    wanted = Fingerprint(bad="13.1", condition=parse_condition("n_regs>3"))
    assert wanted.answer(reaction("sick", accepted=True, n_regs=4)) is Answer.SAME
    assert wanted.answer(reaction("sick", accepted=True, n_regs=3)) is Answer.ACCEPTS
    assert wanted.answer(reaction("ptxas_ice", signature="x")) is Answer.OTHER


def test_every_version_has_its_part() -> None:
    failing = reaction("ptxas_ice", signature="x")
    accepted = reaction("ok", accepted=True)
    wanted = Fingerprint(bad="13.1", signature=failing.key, failing=("13.2",), accepting=("13.0",))
    assert wanted.checks == ("13.1", "13.2", "13.0")
    assert wanted.passes("13.2", failing)
    assert not wanted.passes("13.2", accepted)
    assert wanted.passes("13.0", accepted)
    assert not wanted.passes("13.0", failing)


def test_the_neighbours_are_sorted_as_versions_are() -> None:
    answers = {
        "12.9.86": Answer.ACCEPTS,
        "13.0.88": Answer.ACCEPTS,
        "13.1.80": Answer.SAME,
        "13.1.115": Answer.SAME,
        "13.2.78": Answer.OTHER,
        "13.10.1": Answer.ACCEPTS,
        "13.3.33": Answer.ACCEPTS,
    }
    assert accepting_neighbours(answers, "13.1.115") == ("13.0.88", "13.3.33")
    assert accepting_neighbours({"13.1.115": Answer.SAME}, "13.1.115") == (None, None)


def test_what_failed_or_accepted_must_go_on_doing_so() -> None:
    original = {
        "1.0": Answer.UNTOLD,
        "2.0": Answer.ACCEPTS,
        "3.0": Answer.SAME,
        "4.0": Answer.OTHER,
        "10.0": Answer.ACCEPTS,
    }
    assert drifted(original, original) == ()
    freer = {**original, "1.0": Answer.ACCEPTS, "4.0": Answer.ACCEPTS}
    assert drifted(original, freer) == ()
    strayed = {**original, "10.0": Answer.OTHER, "3.0": Answer.ACCEPTS}
    assert drifted(original, strayed) == ("3.0", "10.0")
    assert drifted(original, {}) == ("2.0", "3.0", "10.0")


def test_the_cheapest_refusal_is_asked_for_first() -> None:
    costs = {name: CheckCost() for name in ("slow", "quick", "never")}
    for _ in range(20):
        costs["slow"].add(refused=True, seconds=2.0)
        costs["quick"].add(refused=True, seconds=0.1)
        costs["never"].add(refused=False, seconds=0.1)
    assert min(costs, key=lambda check: costs[check].price) == "quick"
    assert max(costs, key=lambda check: costs[check].price) != "quick"


@given(st.integers(1, 12), st.integers(0, 9))
def test_lower_versions_go_down_one_by_one(major: int, minor: int) -> None:
    below = list(map(Version, lower_versions(f"{major}.{minor}")))
    assert below == sorted(below, reverse=True)
    assert all(each < Version(f"{major}.{minor}") for each in below)
    assert len(set(below)) == major * 10 + minor
