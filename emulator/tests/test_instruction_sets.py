"""What runs a program knows no instruction set: another one than PTX can lie beside it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpu_emulator

PACKAGE = Path(gpu_emulator.__file__).parent
FOLDERS = ("engines", "machine", "numbers", "state")
SHARED = [path for folder in FOLDERS for path in (PACKAGE / folder).glob("*.py")]


@pytest.mark.parametrize(
    "path", [*SHARED, PACKAGE / "steps.py", PACKAGE / "values.py"], ids=lambda path: path.stem
)
def test_what_instruction_sets_share_imports_none(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text()))
    imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert [name for name in imported if name.startswith("gpu_emulator.ptx")] == []
