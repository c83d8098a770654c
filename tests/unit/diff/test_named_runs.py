"""The runs that words name."""

from __future__ import annotations

import pytest

from harness.diff.between_runs import find_run
from harness.values.errors import UsageError

LONG = "9" * 5000


@pytest.mark.parametrize("word", ["²", LONG, f"last~{LONG}", "last~²", "first"])
def test_a_word_that_is_no_number_of_a_run_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is not a run"):
        find_run([], word)
