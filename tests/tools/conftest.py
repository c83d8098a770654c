from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def toolchain_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the session; `TRIAGE_TEST_CACHE` names one that outlives it."""
    kept = os.environ.get("TRIAGE_TEST_CACHE")
    cache = Path(kept) if kept else tmp_path_factory.mktemp("toolchains")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIAGE_CACHE_DIR", str(cache))
        yield cache
