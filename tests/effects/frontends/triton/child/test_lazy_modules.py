"""A module is left unread: what is known of it is answered, else its code is run in place."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.frontends.triton.child.lazy_modules import import_later

NAME = "a_lazy_package"


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What has run of a package with two modules, one of them broken; put away afterwards."""
    folder = tmp_path / NAME
    folder.mkdir()
    runs: list[str] = []
    monkeypatch.setattr(sys, "runs_of_the_test", runs, raising=False)
    said = "import sys\nsys.runs_of_the_test.append(__name__)\n"
    (folder / "__init__.py").write_text(said + "known = 'real'\nother = 1\n")
    (folder / "plain.py").write_text(said + "def truth(value):\n    return 'real'\n")
    (folder / "broken.py").write_text(said + "before = 1\nraise ValueError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield runs
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


def test_what_is_known_is_answered_without_running_the_module(ran: list[str]) -> None:
    import_later(NAME, {"known": "light"})
    assert importlib.import_module(NAME).known == "light"
    assert ran == []


def test_another_name_runs_the_module_in_place(ran: list[str]) -> None:
    import_later(NAME, {"known": "light"})
    before = importlib.import_module(NAME)
    assert before.other == 1
    assert ran == [NAME]
    assert importlib.import_module(NAME) is before
    assert before.known == "real"


def test_a_name_that_the_module_does_not_have_is_not_there(ran: list[str]) -> None:
    import_later(NAME, {"absent": "light"})
    assert not hasattr(importlib.import_module(NAME), "absent")
    assert ran == [NAME]


def test_what_is_set_stays(ran: list[str]) -> None:
    import_later(NAME, {"known": "light"})
    module: Any = importlib.import_module(NAME)
    module.known = "set"
    assert ran == [NAME]
    assert module.known == "set"


def test_a_submodule_finds_its_package_run(ran: list[str]) -> None:
    import_later(NAME, {"known": "light"})
    importlib.import_module(f"{NAME}.plain")
    assert ran == [NAME, f"{NAME}.plain"]


def test_importing_a_known_name_from_a_module_does_not_run_it(ran: list[str]) -> None:
    importlib.import_module(NAME)
    ran.clear()
    import_later(f"{NAME}.plain", {"truth": bool})
    space: dict[str, Any] = {}
    exec(f"from {NAME}.plain import truth", space)
    assert space["truth"] is bool
    assert ran == []


def test_a_module_that_cannot_run_can_be_imported_again(ran: list[str]) -> None:
    name = f"{NAME}.broken"
    import_later(name, {"before": 2})
    module = importlib.import_module(name)
    with pytest.raises(ValueError, match="broken"):
        _ = module.after
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module(name)
    assert ran == [NAME, name, name]


def test_what_is_imported_already_stays_as_it_is(ran: list[str]) -> None:
    module = importlib.import_module(NAME)
    import_later(NAME, {"known": "light"})
    assert module.known == "real"
    assert ran == [NAME]


@pytest.mark.parametrize("name", ["no_such_package", "no_such_package.module", "math"])
def test_what_has_no_source_is_left_alone(name: str) -> None:
    before = sys.modules.get(name)
    import_later(name, {})
    assert sys.modules.get(name) is before


# What launch code does before a launch, and what then asks for the modules themselves.
_LAUNCH = """
import json, sys
import torch
from harness.frontends.triton.child.lazy_modules import leave_torch_unread
leave_torch_unread()
heavy = ("sympy.core", "torch.fx.experimental.validator", "torch._dynamo.convert_frame")
x = torch.empty(4, 6, device="meta")
index = torch.zeros(2, dtype=torch.long, device="meta")

@torch.compiler.disable
def plain(value):
    return value * 2

def shapes():
    results = [
        torch.randn(3, 5, device="meta"), torch.empty_like(x), x + 1.5, x @ x.t(), x.sum(-1),
        x[index], torch.cat([x, x]), x[:, None].expand(4, 3, 6).reshape(12, 6), x.t().contiguous(),
        torch.softmax(x, -1), torch.where(x > 0, x, index.new_ones(1)), x.repeat(2, 2), plain(x),
        torch.nn.functional.layer_norm(x, (6,)), x.to(torch.bfloat16).view(torch.int16),
    ]
    return [[list(r.shape), list(r.stride()), str(r.dtype)] for r in results]

light = shapes()
unread = [name for name in heavy if name not in sys.modules]
import torch._dynamo
compiled = torch.compile(lambda value: plain(value) + value.shape[0], backend="eager")
values = compiled(torch.ones(3)).tolist()
from torch.fx.experimental.symbolic_shapes import expect_true, ShapeEnv
from sympy import Basic, Symbol
import sympy
print(json.dumps({
    "light": light, "unread": unread, "values": values, "heavy": shapes(),
    "read": [name for name in heavy if name in sys.modules],
    "same": sympy.Basic is Basic and isinstance(Symbol("a"), sympy.Basic),
    "module": expect_true.__module__,
    "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
}))
"""


def test_torch_computes_the_same_shapes_without_its_compiler_and_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCH],
        cwd=Path(harness.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said["unread"]) == 3
    assert said["read"] == said["unread"]
    assert said["light"] == said["heavy"]
    assert said["values"] == [5.0, 5.0, 5.0]
    assert said["graphs"] >= 1
    assert said["same"]
    assert said["module"] == "torch.fx.experimental.symbolic_shapes"
