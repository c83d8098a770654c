"""Launch code that fails, in every language that launches from Python: one clear line each."""

from __future__ import annotations

import pytest
from conftest import Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

HEADS = {
    "tilelang==0.1.8": "import tilelang",
    "cutedsl==4.5.2": "import cutlass",
    "triton==3.9.0": "from triton.experimental import gluon",
}
BODIES = {
    "raise ValueError('no')": "raised ValueError: no",
    "pass": "kernel is launched",
    "import no_such_package": "No module named 'no_such_package'",
    "import os; os.abort()": "ended its process",
    "import os; os._exit(3)": "ended its process",
    "import os; os.kill(os.getpid(), 9)": "ended its process",
    "import sys; sys.stderr.close(); sys.exit('gone')": "raised SystemExit: gone",
    "while True: pass": "30 s",
    "print('x' * (1 << 24), flush=True); raise ValueError('no')": "ValueError: no",
}


@pytest.mark.parametrize("compiler", HEADS)
@pytest.mark.parametrize("body", BODIES)
def test_launch_code_that_fails(module_triage: Triage, compiler: str, body: str) -> None:
    (module_triage.folder / "bad.py").write_text(
        f"{HEADS[compiler]}\n\n\ndef launch():\n    {body}\n"
    )
    words = ("--kernel", "bad.py", "--sm", "90a", "--compiler", compiler, "--timeout", "30")
    done = module_triage("compile", *words)
    assert done.returncode in (2, 4), done.stderr
    (line,) = [each for each in done.stderr.splitlines() if BODIES[body] in each]
    assert "bad.py" in line
    assert "Traceback" not in done.stderr
