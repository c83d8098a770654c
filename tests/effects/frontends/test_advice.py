"""Which package a user is told to install for a module that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.frontends.plan import raised_words
from harness.values.kernel import Repro
from harness.values.outcome import RaisedError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("flash_attn", "flash-attn"),
        ("zmq", "pyzmq"),
        ("PIL", "pillow"),
        ("conftest", None),
        ("_fused", None),
        ("lightest_decoding_kernel", None),
        ("lightest.ops", None),
    ],
)
def test_only_what_is_likely_a_package_is_advised(
    tmp_path: Path, module: str, package: str | None
) -> None:
    folder = tmp_path / "lightest" / "models"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent):
        (place / "__init__.py").touch()
    repro = Repro(name="x", kernel=None, folder=folder, file=folder / "x.py")
    message = f"No module named {module!r}"
    error = RaisedError(type="ModuleNotFoundError", kinds=(), message=message, line=7)
    advice = f"; a package of that name: pip install {package}, beside triage" if package else ""
    expected = f"{repro.file}:7: the launch raised ModuleNotFoundError: {message}{advice}"
    assert raised_words(repro, error) == expected
