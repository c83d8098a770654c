# ruff: noqa: B007, F821, F841, N803, SIM300 - kernels are read here, never run
# mypy: ignore-errors
from __future__ import annotations

import importlib

import pytest


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Every worker of the suite collects this file, and one runs it: torch takes seconds."""
    module = importlib.import_module("harness.frontends.triton.child.recording")
    globals()["suspicion"] = module.suspicion


def partly(x, out, n, dim, P):
    offs = tl.arange(0, P)
    v = tl.load(x + offs, mask=offs < dim, other=0.0)
    tl.store(out + tl.arange(0, P), v, mask=offs < dim)


def in_two_dimensions(x, n, dim, P, Q):
    offs_m = tl.arange(0, Q)
    offs_d = tl.arange(0, P)[None, :]
    acc = tl.zeros((Q, P), dtype=tl.float32)
    tl.load(x, mask=(offs_m[:, None] < n) & (offs_d < dim))


def over_the_grid(x, dim, P):
    offs = tl.program_id(0) * P + tl.arange(0, P)
    tl.load(x + offs, mask=offs < dim)


def over_the_grid_later(x, dim, P):
    offs = tl.arange(0, P)
    tl.load(x + tl.program_id(0) * P + offs, mask=offs < dim)


def looping(x, dim, P):
    offs = tl.arange(0, P)
    for start in range(0, dim, P):
        tl.load(x + start + offs, mask=offs < dim)


def stepping(x, dim, P):
    offs = tl.arange(0, P)
    for k in range(tl.cdiv(dim, P)):
        tl.load(x + offs, mask=offs < dim)


def moving(x, dim, P):
    offs = tl.arange(0, P)
    offs += tl.program_id(0)
    tl.load(x + offs, mask=offs < dim)


def asserting(x, dim, P):
    tl.static_assert(P >= dim)
    offs = tl.arange(0, P)
    tl.load(x + offs, mask=offs < dim)


def helping(x, dim, P):
    offs = tl.arange(0, P)
    helper(x, P)
    tl.load(x + offs, mask=offs < dim)


def unlimited(x, dim, P):
    tl.load(x + tl.arange(0, P))


SAID = "P=32 covers 32 of dim=64, and the kernel does not loop over it"


@pytest.mark.parametrize("kernel", [partly, in_two_dimensions])
def test_a_block_that_leaves_a_part_of_its_dimension(kernel) -> None:
    values = {"dim": 64, "n": 16, "Q": 16}
    assert suspicion(kernel, {**values, "P": 32}) == SAID
    assert suspicion(kernel, {**values, "P": 64}) == ""
    assert suspicion(kernel, {**values, "P": 128}) == ""


def test_both_dimensions_are_told() -> None:
    found = suspicion(in_two_dimensions, {"dim": 64, "n": 20, "P": 32, "Q": 16})
    assert set(found.split("; ")) == {
        SAID,
        "Q=16 covers 16 of n=20, and the kernel does not loop over it",
    }


@pytest.mark.parametrize(
    "kernel",
    [over_the_grid, over_the_grid_later, looping, stepping, moving, asserting, helping, unlimited],
)
def test_whatever_could_cover_the_rest_is_not_suspect(kernel) -> None:
    assert suspicion(kernel, {"dim": 64, "P": 32}) == ""


def test_what_is_not_known_is_not_suspect() -> None:
    assert suspicion(partly, {"P": 32}) == ""
    assert suspicion(partly, {"P": 32, "dim": 64.0}) == ""
    assert suspicion(partly, {"P": True, "dim": 64}) == ""
    assert suspicion(len, {"P": 32, "dim": 64}) == ""
