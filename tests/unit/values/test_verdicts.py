"""What is known of each verdict stands in one table."""

from __future__ import annotations

from harness.judging.answers import COULD_NOT_TELL
from harness.values.verdict import VERDICTS, Says, VerdictKind


def test_each_verdict_has_one_line() -> None:
    assert list(VERDICTS) == list(VerdictKind)


def test_each_verdict_works_fails_or_could_not_tell() -> None:
    for kind, facts in VERDICTS.items():
        assert kind.compiles == (facts.says is Says.WORKS)
        assert kind.fails == (facts.says is Says.FAILS)
        assert (kind in COULD_NOT_TELL) == (not kind.compiles and not kind.fails)
        assert (kind in COULD_NOT_TELL) == (facts.says in (Says.NOTHING, Says.OUR_LIMIT))
        # A limit of `triage` may have ended a compiler that hangs: that is a failure, too.
        assert kind.is_failure == (facts.says in (Says.FAILS, Says.OUR_LIMIT))
