"""`triage package` with the real Triton and the real ptxas."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage
from demo_package import OLDEST, with_demo
from local_index import LocalIndex

pytestmark = pytest.mark.tools
pytest_plugins = ("local_index_fixtures",)


@pytest.fixture
def demo(triage: Triage, local_index: LocalIndex, toolchain_cache: Path) -> Triage:
    """A folder with a repro of a package that a local index has."""
    return with_demo(triage, local_index, toolchain_cache)


def document(demo: Triage, *words: str, code: int) -> dict[str, Any]:
    done = demo("package", *words, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def kept_by(source: str, configs: list[dict[str, int]], capability: tuple[int, int]) -> list[Any]:
    """What a pruning function leaves of configs, executed with a torch and a Triton of a test's."""

    class Config:
        def __init__(self, values: dict[str, int]) -> None:
            self.values = values

        def all_kwargs(self) -> dict[str, int]:
            return self.values

    class Cuda:
        @staticmethod
        def get_device_capability() -> tuple[int, int]:
            return capability

    names: dict[str, Any] = {
        "torch": type("Torch", (), {"cuda": Cuda}),
        "triton": type("Triton", (), {"__version__": "3.6.0"}),
    }
    exec(compile(ast.parse(source), "pruning", "exec"), names)
    kept = names["_drop_broken_configs"](list(map(Config, configs)), {}, COLUMNS=256)
    return [config.values for config in kept]


def test_a_package_says_what_each_target_leaves(demo: Triage) -> None:
    found = document(demo, "demo-ops==0.4", "--sm", "80", "--sm", "120a", code=1)
    assert found["is_pinned"]
    by_target = {each["target"]: each for each in found["lists"]}
    assert {name: each["loss"] for name, each in by_target.items()} == {
        "sm_80": "none",
        "sm_120a": "most",
    }
    lost = by_target["sm_120a"]
    assert (lost["configs"], lost["works"], lost["lost"]) == (3, 1, 2)
    assert (lost["function"], lost["kernel"]) == ("turned", "demo_turning::turned")
    configs = [row["config"] for row in found["cells"] if row["target"] == "sm_120a"]
    left = [config for config in configs if config["ROWS"] == 16]
    assert kept_by(lost["pruning"], configs, (12, 0)) == left
    assert kept_by(lost["pruning"], configs, (8, 0)) == configs
    functions = found["functions"]
    assert functions == {
        "total": 3,
        "launched": 1,
        "mentioned": 1,
        "unreached": ["demo_ops/turning.py::never_launched"],
        "unreached_tuned": 1,
        "unread_files": [],
    }


@pytest.mark.long
def test_another_release_takes_the_place_of_the_one_that_is_pinned(
    demo: Triage, local_index: LocalIndex
) -> None:
    done = demo("package", f"demo-ops=={OLDEST}", "--sm", "120a")
    assert done.returncode == 0, done.stderr
    sha256 = local_index.projects["demo-ops"][f"demo_ops-{OLDEST}.tar.gz"].sha256
    assert f"{sha256}, as the package index has it (the repros pin 0.4)" in done.stdout
    assert "1 lose none" in done.stdout
    assert "Evidence: compiled" in done.stdout
    # As `--kernel` takes it.
    words = ["--kernel", f"demo_turning@{OLDEST}::turned", "--config", "ROWS=16"]
    (row,) = demo.compile(*words, code=0)["cells"]
    assert row["kernel"] == f"demo_turning@{OLDEST}::turned"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["demo-ops==9"], 2, "there is no sdist of demo-ops 9; the nearest is 0.4"),
        (["demo-ops>=0.1"], 2, "4 releases are meant (0.1, 0.2, 0.3, 0.4); name one"),
        (["no-such-thing==1"], 2, "the package index has no project no-such-thing"),
        (["unreached==1.0"], 3, "no repro takes its kernels from unreached; repros there are of"),
        (["demo ops"], 2, "write NAME==VERSION, for example"),
        (["demo-ops==0.4"], 2, "Missing option '--sm'"),
        pytest.param(
            *(["demo-ops==0.2"], 2, "cannot import name 'turned'"), marks=pytest.mark.long
        ),
    ],
)
def test_what_cannot_be_surveyed_is_said_in_a_line(
    demo: Triage, words: list[str], code: int, said: str
) -> None:
    sm = [] if "--sm" in said else ["--sm", "80"]
    done = demo("package", *words, *sm)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr


def test_offline_a_release_that_is_not_known_is_said(demo: Triage) -> None:
    demo.env["TRIAGE_OFFLINE"] = "1"
    done = demo("package", "demo-ops==0.1", "--sm", "80")
    assert done.returncode == 4
    assert "no listing of demo-ops is cached and TRIAGE_OFFLINE forbids" in done.stderr
