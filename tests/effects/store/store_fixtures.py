"""Fixtures for tests of the store, named by `pytest_plugins` in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened
