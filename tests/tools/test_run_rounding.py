"""`triage run` against a float64 reference: rounding is right, a few percent are wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

KERNELS = '''
"""Each kernel takes OFF, a factor on the first FEW columns of its result: 1 is honest."""
import torch, triton, triton.language as tl


@triton.jit
def off(values, columns, OFF: tl.constexpr, FEW: tl.constexpr):
    return tl.where((columns < FEW)[None, :], values * OFF, values)


@triton.jit
def product(a, b, c, K, N: tl.constexpr, BLOCK: tl.constexpr, OFF: tl.constexpr, FEW: tl.constexpr):
    rows, inner = tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((N, N), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        total += tl.dot(left, tl.load(b + (k + inner)[:, None] * N + rows[None, :]))
    at = rows[:, None] * N + rows[None, :]
    tl.store(c + at, off(total, rows, OFF, FEW).to(tl.bfloat16))


@triton.jit
def split(a, b, c, K, N: tl.constexpr, BLOCK: tl.constexpr, OFF: tl.constexpr, FEW: tl.constexpr):
    rows, inner = tl.arange(0, N), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(a + rows[:, None] * K + inner[None, :])
    part = tl.dot(left, tl.load(b + inner[:, None] * N + rows[None, :]))
    tl.atomic_add(c + rows[:, None] * N + rows[None, :], off(part, rows, OFF, FEW))


@triton.jit
def softmax(a, c, N: tl.constexpr, OFF: tl.constexpr, FEW: tl.constexpr):
    rows = tl.arange(0, N)
    at = rows[:, None] * N + rows[None, :]
    values = tl.load(a + at).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 1)[:, None])
    weights = powers / tl.sum(powers, 1)[:, None]
    tl.store(c + at, off(weights, rows, OFF, FEW).to(tl.bfloat16))


@triton.jit
def attend(
    q, k, v, o, T, N: tl.constexpr, BLOCK: tl.constexpr, OFF: tl.constexpr, FEW: tl.constexpr
):
    rows, inner = tl.arange(0, N), tl.arange(0, BLOCK)
    query = tl.load(q + rows[:, None] * N + rows[None, :])
    largest = tl.full((N,), float("-inf"), tl.float32)
    norm = tl.zeros((N,), tl.float32)
    total = tl.zeros((N, N), tl.float32)
    for t in range(0, T, BLOCK):
        keys = tl.load(k + (t + inner)[None, :] * N + rows[:, None])
        scores = tl.dot(query, keys) * 0.25
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        kept = tl.exp(largest - new)
        norm = norm * kept + tl.sum(weights, 1)
        values = tl.load(v + (t + inner)[:, None] * N + rows[None, :])
        total = total * kept[:, None] + tl.dot(weights.to(tl.bfloat16), values)
        largest = new
    at = rows[:, None] * N + rows[None, :]
    tl.store(o + at, off(total / norm[:, None], rows, OFF, FEW).to(tl.bfloat16))


CASES = [(1.0, 0)] + [(factor, few) for factor in (1.03, 1.06, 1.1) for few in (32, 2)]


def _draw(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def launch_product(n=32, k=2048):
    a, b, c = _draw(n, k), _draw(k, n), _draw(n, n)
    for factor, few in CASES:
        product[(1,)](a, b, c, k, N=n, BLOCK=64, OFF=factor, FEW=few)


def launch_split(n=32, k=1024):
    a, b = _draw(n, k), _draw(k, n)
    for factor, few in CASES:
        c = torch.zeros(n, n, device="cuda")
        split[(k // 64,)](a, b, c, k, N=n, BLOCK=64, OFF=factor, FEW=few)


def launch_softmax(n=32):
    a, c = _draw(n, n), _draw(n, n)
    for factor, few in CASES:
        softmax[(1,)](a, c, N=n, OFF=factor, FEW=few)


def launch_attend(n=32, t=256):
    q, k, v, o = _draw(n, n), _draw(t, n), _draw(t, n), _draw(n, n)
    for factor, few in CASES:
        attend[(1,)](q, k, v, o, t, N=n, BLOCK=32, OFF=factor, FEW=few)
'''
REFERENCE = """
def product(a, b, **rest):
    return {"c": a @ b}

split = product

def softmax(a, **rest):
    return {"c": a.softmax(1)}

def attend(q, k, v, **rest):
    return {"o": (q @ k.T * 0.25).softmax(1) @ v}
"""
REPRO = "kernel: {0}\nlaunch: launch.py\ntriton: 3.6.0\ntargets: [sm_80]\nreference: {0}\n"


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["attend", "product", "split", "softmax"])
def test_rounding_is_right_and_a_few_percent_are_not(module_triage: Triage, kernel: str) -> None:
    folder = module_triage.folder / "repros" / f"rounded_{kernel}"
    folder.mkdir(parents=True)
    for name, text in (("launch.py", KERNELS), ("reference.py", REFERENCE)):
        (folder / name).write_text(text)
    (folder / "repro.yaml").write_text(REPRO.format(kernel))
    done = module_triage("run", "--kernel", folder.name, "--launch", f"launch_{kernel}", "--json")
    assert done.returncode == 1, done.stderr + done.stdout[-2000:]
    rows: list[dict[str, Any]] = msgspec.json.decode(done.stdout)["runs"]
    assert len(rows) == 7
    for row in rows:
        is_honest = row["config"]["OFF"] == 1.0
        assert row["run"] == ("right" if is_honest else "wrong_result"), row
