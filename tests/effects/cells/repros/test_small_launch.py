"""The small parameters of a repro, at which its launches are executed."""

from __future__ import annotations

import pytest

from harness.cells.repros.find import find_kernels
from harness.cells.selection import small_launch
from harness.frontends.plan import PlannedLaunch, Selection
from harness.values.kernel import ConfigFilter, Repro


@pytest.mark.parametrize(
    "repro", [each for each in find_kernels("*") if each.check], ids=lambda each: each.name
)
def test_no_launch_is_executed_with_more_than_its_own_sizes(repro: Repro) -> None:
    selection = Selection(
        repro=repro,
        launches=(),
        targets=(),
        compilers=(),
        ptxas=(),
        config=ConfigFilter(),
        freeze_ptx=False,
        nvdisasm=None,
    )
    for spec in repro.launches:
        defaults = {parameter.name: parameter.default for parameter in spec.parameters}
        small = small_launch(selection, PlannedLaunch(spec=spec, overrides={}))
        for name, value in small.overrides.items():
            default = defaults[name]
            assert isinstance(default, int)
            assert isinstance(value, int)
            assert value <= default
