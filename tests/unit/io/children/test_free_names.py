"""Which names of a definition mean something outside of it: an exported file has to have them."""

from __future__ import annotations

import pytest

from harness.io.children.definitions import _free_names


@pytest.mark.parametrize(
    ("code", "free"),
    [
        # A default is read outside of the function, whatever its parameter is called.
        ("def f(x, TILE=TILE):\n    return x + TILE\n", {"TILE"}),
        # A comprehension has a name of its own, and the function reads the other.
        ("def f(x):\n    y = [N for N in range(2)]\n    return N\n", {"range", "N"}),
        ("def f(x):\n    y = x.shape\n    return tl.load(y)\n", {"tl", "tl.load"}),
        ("@jit\ndef f(x: f.kind):\n    return f(x)\n", {"jit"}),
        ("def f(x):\n    def g(y):\n        return x + y + Z\n    return g\n", {"Z"}),
    ],
)
def test_names_that_a_definition_reads_from_outside(code: str, free: set[str]) -> None:
    assert {".".join(parts) for parts in _free_names(code)} == free
