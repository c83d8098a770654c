"""Tritons that are too old are refused before anything is looked up or downloaded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Triage


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "--triton", "2.3.1"),
        ("blame", "--triton", "==2.3.1"),
        ("bisect", "--axis", "triton", "--triton", "2.3.1"),
        ("bisect", "--axis", "triton", "--bad", "2.3.1"),
        ("bisect", "--axis", "triton", "--good", "2.3.1"),
    ],
)
def test_it_is_refused_in_one_line(triage: Triage, words: tuple[str, ...]) -> None:
    (triage.folder / "kernel.py").write_text("def launch():\n    pass\n")
    cache = triage.folder / "cache"
    # Nobody listens there: whatever asked the index would end with exit code 4.
    index = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    alone = replace(triage, env={**triage.env, **index, "TRIAGE_CACHE_DIR": str(cache)})
    done = alone(words[0], "--kernel", "kernel.py", "--sm", "90a", *words[1:])
    assert done.returncode == 2, done.stderr
    said = "Triton 2.3.1: triage supports Triton 3.2 and newer"
    assert done.stderr.strip().splitlines()[-1].endswith(said)
    assert not list(cache.rglob("*.whl"))
    assert not list(cache.rglob("triton*"))
