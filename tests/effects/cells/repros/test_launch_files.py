"""A folder stands for the files in it that launch kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cells.repros.find import find_kernels
from harness.values.errors import UsageError

KERNEL = "import triton\n\n\n@triton.jit\ndef k(): ...\n"
MAIN = "\n\nif __name__ == '__main__':\n    k[(1,)]()\n"
TEST = "\n\ndef test_k():\n    k[(1,)]()\n"


def write(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [Path(repro.name).relative_to(folder).as_posix() for repro in find_kernels(str(folder))]


def test_scripts_and_tests_that_reach_a_compiler_are_found(tmp_path: Path) -> None:
    found = write(
        tmp_path,
        {
            "pkg/ops/plain.py": KERNEL,
            "pkg/ops/script.py": KERNEL + MAIN,
            "pkg/ops/launched.py": KERNEL + "\n\ndef launch():\n    k[(1,)]()\n",
            "pkg/ops/__init__.py": "from .plain import k\n",
            "pkg/api.py": "from pkg import ops\n",
            "pkg/tests/test_near.py": "from ..ops.plain import k\n" + TEST,
            "pkg/tests/test_far.py": "from pkg.api import ops\n" + TEST,
            # These launch nothing that a compiler makes, or are not of the folder's own.
            "pkg/tests/test_text.py": "import json\n" + TEST,
            "setup.py": "from setuptools import setup\n\nsetup()\n",
            "pkg/broken.py": "import triton\ndef (:\n",
            ".venv/lib/site-packages/other.py": KERNEL + MAIN,
            "venv/lib/site-packages/other.py": KERNEL + MAIN,
        },
    )
    assert found == [
        "pkg/ops/launched.py",
        "pkg/ops/script.py",
        "pkg/tests/test_far.py",
        "pkg/tests/test_near.py",
    ]


def test_a_folder_of_which_nothing_launches_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Python file in it launches kernels"):
        write(tmp_path, {"plain.py": KERNEL})
