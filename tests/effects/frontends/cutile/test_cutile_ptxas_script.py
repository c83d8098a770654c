"""The script that tileiras calls in place of ptxas."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.frontends.cutile.tileiras import ptxas_script

PTXAS = """\
#!/bin/sh
echo "called with $*"
echo "ptxas kernel.ptx, line 1; error : no" >&2
exit {code}
"""


@pytest.mark.parametrize("code", [0, 255])
def test_it_keeps_the_ptx_and_what_ptxas_said(tmp_path: Path, code: int) -> None:
    real = tmp_path / "of its own" / "ptxas"
    real.parent.mkdir()
    script = tmp_path / "ptxas"
    (tmp_path / "mlir-1a2b.ptx").write_text("// a program\n")
    for path, text in ((real, PTXAS.format(code=code)), (script, ptxas_script(real))):
        path.write_text(text)
        path.chmod(0o755)
    words = ["-arch", "sm_90a", "./mlir-1a2b.ptx", "-o", "a b.bin", "--opt-level", "3"]
    done = subprocess.run([script, *words], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
    assert (tmp_path / "kernel.ptx").read_text() == "// a program\n"
    said = (tmp_path / "ptxas.log").read_text().splitlines()
    assert said == [
        "called with -v -arch sm_90a kernel.ptx -o a b.bin --opt-level 3",
        "ptxas kernel.ptx, line 1; error : no",
        *(["ptxas ended with 255"] if code else []),
    ]
