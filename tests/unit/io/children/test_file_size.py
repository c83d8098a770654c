from __future__ import annotations

import resource

import pytest

from harness.io.children import supervisor


@pytest.mark.parametrize(
    ("hard", "wanted", "gets"),
    [(resource.RLIM_INFINITY, 1 << 30, 1 << 30), (1 << 20, 1 << 30, 1 << 20), (1 << 30, 5, 5)],
)
def test_a_limit_that_another_supervisor_has_set_is_not_raised(
    monkeypatch: pytest.MonkeyPatch, hard: int, wanted: int, gets: int
) -> None:
    """`triage minimize --script 'triage run ...'` starts a supervisor under another one."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    assert supervisor._file_size(wanted) == gets
