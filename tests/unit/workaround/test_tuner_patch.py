"""Tuning lists changed in their source, and run as upstream would run them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.values.kernel import Config
from harness.values.outcome import LaunchFacts
from harness.workaround.patch import (
    GuardedRelease,
    PatchError,
    find_tuner,
    make_guard,
    patch_tuner,
    tuned_arguments,
    unified_diff,
)
from harness.workaround.result import Clause, Guard

LIST = [
    Config.of({"num_warps": warps, "num_stages": stages})
    for warps in (2, 4, 8)
    for stages in (1, 2)
]
PLAIN = '''\
"""Kernels."""
import torch
import triton

FEW = [triton.Config({}, num_warps=w, num_stages=s) for w in (2, 4, 8) for s in (1, 2)]


# The kernel of the day.
@triton.autotune(
    configs=FEW,
    key=["BLOCK"],  # and nothing else
)
@triton.jit
def kernel(x, BLOCK):
    pass


@triton.autotune([triton.Config({}, num_warps=4)], ["n"])
@triton.jit
def other(x, n):
    pass
'''
PRUNING = PLAIN.replace(
    "# and nothing else\n", '\n    prune_configs_by={"early_config_prune": keep_two, "top_k": 3},\n'
).replace(
    "# The kernel",
    "def keep_two(configs, named_args, **kwargs):\n"
    "    return [config for config in configs if config.num_stages == 2]\n\n\n# The kernel",
)


def release(triton: str, *, fails: Callable[[dict[str, Any]], bool]) -> GuardedRelease:
    return GuardedRelease(
        triton=triton,
        fails=tuple(c for c in LIST if fails(c.as_dict())),
        works=tuple(c for c in LIST if not fails(c.as_dict())),
        reason="asks for too much",
    )


def many_warps(values: dict[str, Any]) -> bool:
    return bool(values["num_warps"] > 2)


def guard(**arguments: Any) -> Guard:
    found = make_guard(
        [release("3.5.1", fails=many_warps), release("3.6.0", fails=many_warps)],
        capability=100,
        arguments=arguments,
    )
    assert found is not None
    return found


# --- guards -----------------------------------------------------------------------------------


def test_releases_that_fail_alike_share_a_clause_and_no_other_release_is_covered() -> None:
    found = make_guard(
        [
            release("3.10.0", fails=many_warps),
            release("3.6.0", fails=many_warps),
            release("3.5.1", fails=many_warps),
            release("3.7.1", fails=lambda values: False),
            release("3.8.0", fails=lambda v: v["num_warps"] > 2 and v["num_stages"] == 2),
            release("3.4.0", fails=lambda values: True),
        ],
        capability=103,
        arguments={},
    )
    assert found is not None
    assert found.capability == (10, 3)
    assert [each.releases for each in found.clauses] == [("3.5.1", "3.6.0", "3.10.0"), ("3.8.0",)]
    assert found.tested == ("3.4.0", "3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.10.0")
    first, second = found.clauses
    for config in LIST:
        values = config.as_dict()
        assert first.fails(config) == many_warps(values)
        assert second.fails(config) == (many_warps(values) and values["num_stages"] == 2)


def test_configs_that_nothing_tells_apart_are_named_one_by_one() -> None:
    odd = [LIST[0], LIST[3]]
    found = make_guard(
        [
            GuardedRelease(
                triton="3.6.0", fails=tuple(odd), works=tuple(c for c in LIST if c not in odd)
            )
        ],
        capability=90,
        arguments={},
    )
    assert found is not None
    assert [config for config in LIST if found.clauses[0].fails(config)] == odd


def test_where_everything_works_or_nothing_does_there_is_no_guard() -> None:
    for fails in (lambda values: False, lambda values: True):
        assert make_guard([release("3.6.0", fails=fails)], capability=90, arguments={}) is None


# --- patches ----------------------------------------------------------------------------------


class _Config:
    def __init__(self, kwargs: dict[str, Any], *, num_warps: int = 4, num_stages: int = 3) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A Triton and a torch that say what they are told to; `tuners` by the kernel's name."""
    state = types.SimpleNamespace(capability=(10, 0), tuners={})
    triton, torch = types.ModuleType("triton"), types.ModuleType("torch")

    def autotune(configs: Any, key: Any, prune_configs_by: Any = None) -> Any:
        def decorate(function: Any) -> Any:
            state.tuners[function.__name__] = (list(configs), prune_configs_by or {})
            return function

        return decorate

    triton.__dict__.update(
        __version__="3.6.0+git1234",
        Config=_Config,
        autotune=autotune,
        jit=lambda function: function,
    )
    torch.__dict__["cuda"] = types.SimpleNamespace(get_device_capability=lambda: state.capability)
    state.triton = triton
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return state


def left(world: types.SimpleNamespace, source: str, kernel: str = "kernel", **kwargs: Any) -> Any:
    """What the kernel's own pruning leaves of its list, as (warps, stages)."""
    exec(compile(source, "patched.py", "exec"), {"__name__": "patched"})
    configs, pruning = world.tuners[kernel]
    prune = pruning.get("early_config_prune", lambda configs, *_, **__: configs)
    kept = prune(configs, {"x": None}, **kwargs)
    return [(config.num_warps, config.num_stages) for config in kept]


ALL = [(warps, stages) for warps in (2, 4, 8) for stages in (1, 2)]


def test_configs_are_left_out_where_the_guard_says_and_nowhere_else(
    world: types.SimpleNamespace,
) -> None:
    patched = patch_tuner(PLAIN, "kernel", guard=guard(BLOCK=64), because="they trap")
    assert left(world, patched, BLOCK=64) == [(2, 1), (2, 2)]
    assert left(world, patched, BLOCK=32) == ALL
    world.capability = (9, 0)
    assert left(world, patched, BLOCK=64) == ALL
    world.capability = (10, 0)
    for version in ("3.5.1", "3.6.0", "3.6.0+git1234"):
        world.triton.__version__ = version
        assert left(world, patched, BLOCK=64) == [(2, 1), (2, 2)]
    # Neither a release between the two nor one of the same minor release was compiled.
    for version in ("3.4.0", "3.5.0", "3.5.2", "3.6.1", "3.6.0rc1", "3.7.0"):
        world.triton.__version__ = version
        assert left(world, patched, BLOCK=64) == ALL
    assert "they trap" in patched
    assert "Compiled with Triton 3.5.1, 3.6.0" in patched


def test_only_the_kernel_that_was_meant_is_changed(world: types.SimpleNamespace) -> None:
    patched = patch_tuner(PLAIN, "kernel", guard=guard())
    left(world, patched)
    assert world.tuners["other"][1] == {}
    patched = patch_tuner(PLAIN, "other", guard=guard(), add=[LIST[0]])
    assert left(world, patched, "other") == [(2, 1)]
    assert left(world, patched, "kernel") == ALL


def test_what_a_kernel_prunes_by_itself_stays_pruned(world: types.SimpleNamespace) -> None:
    patched = patch_tuner(PRUNING, "kernel", guard=guard())
    assert left(world, patched) == [(2, 2)]
    assert world.tuners["kernel"][1]["top_k"] == 3
    world.capability = (9, 0)
    assert left(world, patched) == [(2, 2), (4, 2), (8, 2)]


def test_a_tuner_is_never_left_without_a_config(world: types.SimpleNamespace) -> None:
    clause = Clause(
        releases=("3.6.0",), either=((("num_warps", (2, 4, 8)),),), reason="nothing works"
    )
    every = Guard(capability=(10, 0), arguments=(), clauses=(clause,), tested=("3.6.0",))
    assert left(world, patch_tuner(PLAIN, "kernel", guard=every)) == ALL


def test_a_config_is_added_to_whatever_makes_the_list(world: types.SimpleNamespace) -> None:
    more = Config.of({"num_warps": 16, "num_stages": 1})
    for configs in ("FEW", "[*FEW]", "[c for c in FEW]", "tuple(FEW)", "FEW if FEW else None"):
        source = PLAIN.replace("configs=FEW", f"configs={configs}")
        assert left(world, patch_tuner(source, "kernel", add=[more])) == [*ALL, (16, 1)]


@pytest.mark.parametrize(
    "call",
    [
        "triton.autotune(key=['BLOCK'], configs=FEW)",
        "triton.autotune(key=['BLOCK'], configs=FEW, )",
        "triton.autotune(\n    key=['BLOCK'],\n    configs=FEW  # few\n)",
        "triton.autotune(\n    key=['BLOCK'],\n    configs=FEW,  # few\n)",
        "triton.autotune(\n    key=['BLOCK'],\n    configs=[\n        *FEW,\n    ],\n)",
        "triton.autotune(FEW,\n                 ['BLOCK'])",
        "triton.autotune(FEW, ['BLOCK'], None)",
        "triton.autotune((FEW), ['BLOCK'], prune_configs_by=None)",
        "triton.autotune(FEW, ['BLOCK'], prune_configs_by=({}))",
        "autotune(configs=FEW, key=['BLOCK'])",
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_config_and_a_guard_are_put_in_together(
    world: types.SimpleNamespace, call: str, newline: str
) -> None:
    start, end = PLAIN.index("triton.autotune("), PLAIN.index("@triton.jit\ndef kernel")
    source = PLAIN[:start] + call + "\n" + PLAIN[end:]
    source = source.replace("import triton\n", "import triton\nfrom triton import autotune\n")
    source = source.replace("\n", newline)
    more = Config.of({"num_warps": 2, "num_stages": 3})
    patched = patch_tuner(source, "kernel", guard=guard(), add=[more])
    assert left(world, patched) == [(2, 1), (2, 2), (2, 3)]
    assert patched.count("\n") == patched.count(newline)
    # Nothing but what was put in differs: taken away again, the comment too is where it was.
    assert ("# few" in patched) == ("# few" in source)


def test_a_diff_counts_lines_as_git_does(tmp_path: Path) -> None:
    source = PLAIN.replace('"""Kernels."""', '"""Kernels.\x0c A form feed, \u2028 and more."""')
    patched = patch_tuner(source, "kernel", guard=guard())
    (tmp_path / "kernels.py").write_text(source)
    diff = unified_diff("kernels.py", source, patched)
    assert "No newline" not in diff
    hunk = next(line for line in diff.splitlines() if line.startswith("@@"))
    assert hunk.startswith("@@ -5,")


def test_a_value_of_a_config_is_spelled_as_python_spells_it(world: types.SimpleNamespace) -> None:
    more = Config.of({"NAME": '\U0001f600 "quoted" \\', "SCALE": float("inf"), "num_warps": 1})
    patched = patch_tuner(PLAIN, "kernel", add=[more])
    exec(compile(patched, "patched.py", "exec"), {"__name__": "patched"})
    config = world.tuners["kernel"][0][-1]
    assert config.kwargs == {"NAME": '\U0001f600 "quoted" \\', "SCALE": float("inf")}


def test_a_diff_of_it_touches_nothing_else() -> None:
    patched = patch_tuner(PLAIN, "kernel", guard=guard(BLOCK=64))
    diff = unified_diff("kernels.py", PLAIN, patched)
    assert diff.startswith("--- a/kernels.py\n+++ b/kernels.py\n@@")
    removed = [line for line in diff.splitlines() if line.startswith("-") and line[1:2] != "-"]
    assert removed == []
    assert '+    prune_configs_by={"early_config_prune": _drop_broken_configs},\n' in diff
    # The comment still belongs to the kernel.
    assert "# The kernel of the day.\n@triton.autotune(" in patched


def test_lines_that_are_not_ascii_do_not_move_what_is_put_in(world: types.SimpleNamespace) -> None:
    source = PLAIN.replace('"""Kernels."""', '"""Kernels: ∂L/∂x — naïve."""  # ✓')
    source = source.replace("configs=FEW", "configs=(FEW if 'é' else FEW)")
    assert left(world, patch_tuner(source, "kernel", guard=guard())) == [(2, 1), (2, 2)]


def test_an_own_name_of_the_file_is_not_taken() -> None:
    source = PLAIN + "\n\ndef _drop_broken_configs():\n    pass\n"
    assert "def _drop_broken_configs_2(" in patch_tuner(source, "kernel", guard=guard())


def test_a_guard_names_the_constants_that_other_launches_have_otherwise() -> None:
    """What fails in one launch may work in the others: the tuner keeps it there."""

    def launched(launch: int, kernel: str = "k", **constants: int) -> LaunchFacts:
        arguments: list[dict[str, object]] = [
            {"name": name, "constexpr": str(value)} for name, value in constants.items()
        ]
        config: dict[str, bool | int | float | str] = {"T": 1}
        return LaunchFacts(
            key=f"{launch}",
            kernel=kernel,
            config=config,
            autotuned=True,
            arguments=arguments,
            grid=None,
            file="/p/k.py",
            launch=launch,
        )

    own = launched(3, T=1, BLOCK=128, ROUNDS=2, SIZE=7)
    others = [launched(0, T=2, BLOCK=64, ROUNDS=2), launched(3, T=1, ROUNDS=3), own]
    assert tuned_arguments(own, ["SIZE"], others) == {"BLOCK": 128, "SIZE": 7}
    assert tuned_arguments(own, [], [own, launched(0, kernel="other", BLOCK=64)]) == {}


def test_the_key_of_a_tuner_is_read() -> None:
    assert find_tuner(PLAIN, "kernel").key == ("BLOCK",)
    assert find_tuner(PLAIN, "other").key == ("n",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def kernel(:\n", "cannot be read as Python"),
        ("import triton\n", "no function kernel"),
        ("@triton.jit\ndef kernel(x):\n    pass\n", "no @autotune"),
        ("@triton.autotune(**ALL)\n@triton.jit\ndef kernel(x):\n    pass\n", "unpacks"),
        ("@triton.autotune(LIST, **ALL)\n@triton.jit\ndef kernel(x):\n    pass\n", "unpacks"),
        ("@triton.autotune(*ALL, key=[])\n@triton.jit\ndef kernel(x):\n    pass\n", "unpacks"),
    ],
)
def test_what_cannot_be_changed_is_said(source: str, said: str) -> None:
    with pytest.raises(PatchError, match=said):
        patch_tuner(source, "kernel", guard=guard())


@pytest.mark.parametrize("named", ["LIST, ['n'], **MORE", "configs=LIST, key=['n'], **MORE"])
def test_what_is_unpacked_beside_configs_and_key_stays(named: str) -> None:
    source = f"import triton\n@triton.autotune({named})\n@triton.jit\ndef kernel(x):\n    pass\n"
    assert find_tuner(source, "kernel").key == ("n",)
    patched = patch_tuner(source, "kernel", guard=guard())
    line = f'{named}, prune_configs_by={{"early_config_prune": _drop_broken_configs}})'
    assert line in patched
    compile(patched, "patched", "exec")
