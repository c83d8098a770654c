"""The program in README.md prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_readme_shows_what_its_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.findall(r"```python\n(.*?)```\n\n(?:.*?)```text\n(.*?)```", README, re.DOTALL)
    assert len(shown) == 2
    names: dict[str, object] = {}
    for code, printed in shown:
        exec(code, names)
        assert capsys.readouterr().out == printed
