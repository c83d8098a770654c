from __future__ import annotations

import asyncio

from harness.frontends.cutedsl.front_end import CUTEDSL_FRONT_END, CuteDslForm
from harness.minimize.python.python_passes import python_format
from harness.minimize.python.tree import PythonFile
from harness.values.standalone import FileLaunch, Standalone

CUTEDSL_FORM = CuteDslForm(CUTEDSL_FRONT_END)

CODE = """
class Many:
    def __init__(self, count):
        self.count = count

    def __call__(self, x):
        a = self.one(x)
        b = self.two(x)
        return keep(a + b)

    def one(self, x):
        y = x * 2
        z = y + 1
        return z

    def two(self, x):
        return x


@cute.jit
def launched(launcher, x):
    launcher(x)
"""


def test_methods_and_what_is_in_them_can_go() -> None:
    launch = FileLaunch(
        kernel="launched",
        signature={"launcher": '"argument"', "x": "runtime.make_fake_stream()"},
        constants={("launcher",): "Many"},
        attributes={},
        options={},
        target=("sm_90a",),
    )
    document = PythonFile.of(Standalone(code=f"keep = 1\n{CODE}", launch=launch), CUTEDSL_FORM)
    assert {"Many.one", "Many.two", "launched"} <= set(document.functions)

    async def is_interesting(candidate: PythonFile) -> bool:
        return "keep(" in candidate.code and "self.one(x)" in candidate.code

    found = asyncio.run(python_format(CUTEDSL_FORM).reduce(document, is_interesting)).document
    assert set(found.functions) == {"launched", "Many.__call__"}
    assert "self.two" not in found.code
