from __future__ import annotations

from harness.frontends.texts.python import written_functions
from harness.package.package import count_functions

KERNELS = """
import triton
import triton.language as tl
from triton import autotune as tuned, jit
from triton.experimental import gluon

try:
    import numba, torch
except ImportError:
    numba = None

@jit
def helper(x):
    return x

@triton.heuristics({"EVEN": lambda args: True})
@tuned(configs=[], key=[])
@triton.jit(do_not_specialize=["n"])
def kernel(x, n):
    tl.store(x, helper(n))

if numba:
    @gluon.jit
    def gluon_kernel(x):
        pass

class Holder:
    @triton.jit
    def method(x):
        pass

@numba.jit
def not_triton(x):
    helper(x)

@torch.jit.script
def nor_this(x):
    pass
"""


def test_functions_are_found_by_the_decorators_of_triton() -> None:
    found = written_functions(KERNELS)
    assert [each.name for each in found] == ["helper", "kernel", "gluon_kernel", "method"]
    assert [each.name for each in found if each.is_tuned] == ["kernel"]


def test_what_launches_came_to_is_told_from_what_they_did_not() -> None:
    texts = {"p/kernels.py": KERNELS, "p/broken.py": "def (", "p/plain.py": "kernel = 1\n"}
    count = count_functions(texts, {("p/kernels.py", "gluon_kernel")})
    assert [name for _, name in count.launched] == ["gluon_kernel"]
    assert [name for _, name in count.mentioned] == ["helper"]
    assert [name for _, name in count.unreached] == ["kernel", "method"]
    assert [name for _, name in count.tuned] == ["kernel"]
    assert count.unread == ("p/broken.py",)
    assert count.total == 4


def test_one_that_mentions_itself_alone_is_not_mentioned() -> None:
    text = "import triton\n@triton.jit\ndef again(x):\n    again(x)\n"
    assert count_functions({"p.py": text}, set()).unreached == (("p.py", "again"),)
