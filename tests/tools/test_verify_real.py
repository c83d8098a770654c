"""`triage verify` on issues of our own writing about failures of a real Triton and a real ptxas."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

TRITON = """\
# An assertion in the lowering of a scan

Since Triton 3.3 my kernel fails to compile. `work(16)` works, but `work(32)` crashes with 3.6.0.
It is fixed in 3.7.1. Triton 3.2.0 crashes, too.

```python
@triton.jit
def kernel(out, N: tl.constexpr):
    zeros = tl.zeros([N, 16], dtype=tl.float32)
    column = tl.cumsum(tl.zeros([N, 1], dtype=tl.float32), axis=0)
    at = tl.arange(0, N)
    tl.store(out + at[:, None] * N + at, column * tl.dot(zeros, zeros.T))

def work(n: int = 16):
    kernel[(1,)](torch.zeros(n, n, device="cuda"), N=n)
```

```text
ScanOpToLLVM.cpp:1: void f(): Assertion `this one is made up' failed.
```

## Environment

Triton 3.6.0, NVIDIA A100
"""


def verify(triage: Triage, text: str, *words: str) -> list[tuple[str, str]]:
    """Each claim with what it comes to; one of them does not hold."""
    (triage.folder / "issue.md").write_text(text)
    done = triage("verify", "issue.md", "--json", *words)
    assert done.returncode == 1, done.stderr + done.stdout
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return [(claim["text"], claim["result"]) for claim in document["claims"]]


def test_a_regression_of_triton(triage: Triage) -> None:
    assert verify(triage, TRITON) == [
        ("An assertion in the lowering of a scan", "holds"),
        ("Since Triton 3.3 my kernel fails to compile.", "holds"),
        ("`work(16)` works", "holds"),
        ("`work(32)` crashes with 3.6.0.", "holds"),
        ("It is fixed in 3.7.1.", "holds"),
        ("Triton 3.2.0 crashes, too.", "does not hold"),
        ("it prints: this one is made up", "does not hold"),
    ]


def test_wrong_code_of_ptxas_is_executed(triage: Triage) -> None:
    """A fold that 13.0.88 gets wrong above -O0, and 13.5.37 right."""
    ptx = (HERE.parent / "repros" / "fold_prmt_sign" / "case.ptx").read_text()
    text = (
        "# ptxas 13.0.88 miscompiles prmt\n\nWith 13.0.88 -O0 works, -O3 is wrong.\n"
        f"It is wrong in 13.5.37, too.\n\n```ptx\n{ptx}```\n"
    )
    buffers = [f"--buffer={name}=u32[128]:random" for name in ("out", "x", "y")]
    assert verify(triage, text, *buffers, "--block", "128") == [
        ("ptxas 13.0.88 miscompiles prmt", "holds"),
        ("With 13.0.88 -O0 works, -O3 is wrong.", "holds"),
        ("With 13.0.88 -O0 works, -O3 is wrong.", "holds"),
        ("It is wrong in 13.5.37, too.", "does not hold"),
    ]
