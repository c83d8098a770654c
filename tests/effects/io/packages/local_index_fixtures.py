"""Fixtures for tests of what is downloaded, named by `pytest_plugins` in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from local_index import LocalIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def local_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalIndex]:
    """An empty index on 127.0.0.1 that triage and uv ask instead of the real one."""
    server = LocalIndex()
    for variable in ("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "TRIAGE_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.close()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of our own and one of uv's, both new."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRIAGE_CACHE_DIR", str(cache))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return cache
