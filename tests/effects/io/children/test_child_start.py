"""How the process that imports a Triton starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import harness

# Stands for torch and Triton: tells whether Python would keep its bytecode now.
_TELLS = "import sys\nprint(__name__, sys.dont_write_bytecode)\n"


@pytest.mark.parametrize("keeps", [True, False])
def test_bytecode_is_kept_of_torch_alone_and_only_where_the_user_lets_python(
    tmp_path: Path, keeps: bool
) -> None:
    (tmp_path / "torch.py").write_text(_TELLS)
    (tmp_path / "triton.py").write_text(_TELLS + "sys.exit()\n")
    paths = os.pathsep.join([str(tmp_path), str(Path(harness.__file__).parent.parent)])
    option = ["-X", "keep-bytecode"] if keeps else []
    done = subprocess.run(
        [sys.executable, *option, "-m", "harness.frontends.triton.child", "no-socket", "no-name"],
        env={"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"torch {not keeps}", "triton True"], done.stderr
    assert [path.stem for path in (tmp_path / "__pycache__").glob("*")] == (
        [f"torch.{sys.implementation.cache_tag}"] if keeps else []
    )
