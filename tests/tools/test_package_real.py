"""`triage package` with the real Triton and the real ptxas."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage
from demo_package import CHANGED, OLDEST, with_demo
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
    (reason,) = lost["reasons"]
    assert reason.startswith("2 out_of_resources (ROWS=")
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
        (["unreached==1.0"], 3, "no repro takes its kernels from unreached (--launch FILE names"),
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


@pytest.mark.long
def test_bisect_finds_the_release_in_which_a_failure_began(demo: Triage) -> None:
    words = ["--kernel", "demo_turned", "--sm", "120a", "--config", "ROWS=128,num_warps=8"]
    done = demo("bisect", *words, "--package-version", ">=0.1,<9", "--repeat", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout)
    assert found["axis"] == "release"
    # The launch of 0.2 raises: that release is neither good nor bad.
    assert found["untestable"] == ["0.2"]
    assert (found["last_good"], found["first_bad"]) == (OLDEST, None)
    assert found["first_bad_candidates"] == ["0.2", CHANGED]
    assert found["blame"] == "release"
    again = demo("bisect", "--replay", found["log"])
    assert "First bad: release any of 0.2, 0.3. Last good: 0.1." in again.stdout
    assert "Still present in the newest release there is, 0.4." in again.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--package-version", ">9"], "no sdist of demo-ops is >9; there are 0.1, 0.2, 0.3, 0.4"),
        (["--package-version", "x"], "'x' is not a version of sdist of demo-ops"),
        (["--package-version", ">0", "--bad", "7"], "--bad 7: there is no such release"),
        (["--package-version", ">0", "--axis", "triton"], "which one is meant?"),
        (["--axis", "release", "--run"], "--run does not apply to releases"),
    ],
)
def test_releases_that_are_not_there_are_said_in_a_line(
    demo: Triage, words: list[str], said: str
) -> None:
    done = demo("bisect", "--kernel", "demo_turned", "--config", "ROWS=16", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


OWN = """
import torch
from demo_ops.turning import never_launched

if __name__ == "__main__":
    never_launched[(1,)](torch.empty(1, device="cuda"))
"""


@pytest.mark.long
def test_a_file_of_the_users_reaches_kernels_too(demo: Triage) -> None:
    (demo.folder / "own.py").write_text(OWN)
    (demo.folder / "else.py").write_text("import torch\ntorch.empty(1)\n")
    words = ["demo-ops==0.1", "--sm", "120a", "--triton", "3.6.0"]
    found = document(demo, *words, "--launch", "own.py", code=0)
    names = {each["kernel"]: each["function"] for each in found["lists"]}
    assert names == {
        "demo_turning@0.1::turned": "turned",
        "own.py@demo-ops==0.1::never_launched": "never_launched",
    }
    assert found["functions"]["unreached"] == []
    done = demo("package", *words, "--launch", "else.py")
    assert done.returncode == 2
    assert "--launch else.py: it imports no module of demo-ops 0.1" in done.stderr


@pytest.mark.long
def test_releases_are_captured_apart(demo: Triage) -> None:
    words = ["--kernel", "demo_turned@!=0.2", "--config", "ROWS=16"]
    rows = {row["kernel"]: row for row in demo.compile(*words, code=0)["cells"]}
    assert list(rows) == ["demo_turned@0.1", "demo_turned@0.3", "demo_turned"]
    oldest, changed, pinned = (row["ptx_body_sha256"] for row in rows.values())
    assert oldest != changed == pinned


MATRIX = """
version: 1
targets: [sm_120a]
kernels: ["demo_*", two_dots]
include:
  - {kernel: two_dots, triton: "==3.6.0"}
"""


def test_a_matrix_over_releases_has_the_kernels_of_that_package_alone(demo: Triage) -> None:
    (demo.folder / "matrix.yaml").write_text(MATRIX)
    words = ["--list", "--json", "--package-version"]
    done = demo("matrix", "run", *words, "demo-ops<0.4")
    assert done.returncode == 0, done.stderr
    places = [
        each["cells"].partition("/")[0] for each in msgspec.json.decode(done.stdout)["uncaptured"]
    ]
    assert places == ["demo_turned@0.1", "demo_turned@0.2", "demo_turned@0.3"]
    done = demo("matrix", "run", *words, "other>1")
    assert done.returncode == 3
    assert "no kernel of the matrix comes from other; there are kernels of demo-ops" in done.stderr
