"""Kernels of our own that do what Triton's tutorials do, config by config against plain Triton."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import HERE

sys.path.insert(0, str(HERE.parent / "checks"))

from tutorials import TARGETS, compare

pytestmark = [pytest.mark.tools, pytest.mark.long]


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize(("name", "configs"), [("rows", (14, 14, 14)), ("products", (19, 33, 47))])
def test_each_config_comes_to_what_plain_triton_gives(
    tmp_path: Path, name: str, configs: tuple[int, ...], sm: str
) -> None:
    found = compare(HERE / "kernels" / "scripts" / f"tutorial_{name}.py", sm, tmp_path)
    assert found.ours == found.plain
    assert len(found.ours) == configs[TARGETS.index(sm)]
    # A block that is wider than a head is refused at compile time.
    assert found.same_failures == (name == "products")
