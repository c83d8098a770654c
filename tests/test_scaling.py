from __future__ import annotations

import pytest
from scaling import assert_linear


def test_linear_work_passes_and_quadratic_work_does_not() -> None:
    assert_linear(lambda size: sum(range(size * 100)), 200)
    with pytest.raises(AssertionError, match="8 times as much"):
        assert_linear(lambda size: sum(range(size * size)), 300)
