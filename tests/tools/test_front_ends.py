"""A compiler that this program does not know goes through every command, behind the one door.

`tests/front_ends/toy_front_end.py` is all there is of it; it registers itself as any package can.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, Triage

from harness.frontends.registry import front_end, front_ends, kinds, takes
from harness.io.toolchains.install import available_wheels, install_nvdisasm, install_ptxas
from harness.values.toolchain import PTX, TRITON

pytestmark = pytest.mark.tools

TARGET = ("--sm", "90a", "--ptxas", "12.9.86")
FAILING = ("--kernel", "scale.toy", *TARGET, "--compiler", "toy==1.1", "--config")
ONE = (*FAILING, "width=4,unroll=1")


PTXAS = ("11.8.89", "12.9.86", "13.1.115", "13.5.37")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, toolchain_cache: Path) -> Path:
    """A cache with a few ptxas: a history over all that there are would take half a minute."""
    available_wheels("ptxas")  # without the network, its answer tells which there are
    few = tmp_path_factory.mktemp("few")
    (few / "index").symlink_to(toolchain_cache / "index")
    (few / "toolchains").mkdir()
    tools = [install_nvdisasm().path, *(install_ptxas(version).path for version in PTXAS)]
    for folder in (path.parents[1] for path in tools):
        (few / "toolchains" / folder.name).symlink_to(folder)
    return few


@pytest.fixture(scope="module")
def toy(module_triage: Triage, few: Path) -> Triage:
    """The command line where the package of the toy is installed, and a kernel in its language."""
    source = "kernel scale\nconfig width = 1 2 4 8 16\nconfig unroll = 1 2\n"
    (module_triage.folder / "scale.toy").write_text(source)
    folders = (HERE / "front_ends", HERE / "front_ends" / "registered")
    path = os.pathsep.join([*map(str, folders), module_triage.env["PYTHONPATH"]])
    env = {
        **module_triage.env,
        "PYTHONPATH": path,
        "TRIAGE_CACHE_DIR": str(few),
        "TRIAGE_OFFLINE": "1",
    }
    return Triage(folder=module_triage.folder, env=env, python_path=path)


def document(toy: Triage, *words: str, code: int) -> dict[str, Any]:
    done = toy(words[0], "--json", *words[1:])
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_compile(toy: Triage) -> None:
    rows = toy.compile("--kernel", "scale.toy", *TARGET, "--compiler", "toy==1.1", code=1)["cells"]
    verdicts = {row["config"]["width"]: row["verdict"] for row in rows}
    assert verdicts == {
        1: "ok", 2: "ok", 4: "ptxas_error", 8: "ptxas_error", 16: "rejected",
    }  # fmt: skip
    row = rows[0]
    assert (row["compiler"], row["compiler_version"], row["triton"]) == ("toy", "1.1", None)
    assert row["cell"] == "scale.toy/toy/width=1,unroll=1@sm_90a/toy-1.1/ptxas-12.9.86"
    refused = next(row for row in rows if row["verdict"] == "rejected")
    assert (refused["stage"], refused["reason"]) == ("words", "Toy refuses it: width 16")
    assert all(row["cached"] for row in toy.compile(*ONE, code=1)["cells"])


def test_its_compiler_is_named_by_its_kind(toy: Triage) -> None:
    done = toy("compile", "--kernel", "scale.toy", *TARGET, "--triton", "3.6.0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is compiled by Toy; --triton does not apply" in done.stderr
    done = toy("compile", "--kernel", "scale.toy", *TARGET, "--compiler", "triton==3.6.0")
    assert done.returncode == 2
    assert "scale.toy is compiled by Toy (toy)" in done.stderr
    done = toy("compile", "--kernel", "scale.toy", *TARGET, "--compiler", "toy==7")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_bisect(toy: Triage) -> None:
    found = document(toy, "bisect", *ONE, "--axis", "compiler", code=0)
    versions = found["last_good"], found["first_bad"], found["first_fixed"]
    assert (found["axis"], *versions, found["blame"]) == ("toy", "1.0", "1.1", "2.0", "toy")
    done = toy("bisect", *ONE, "--axis", "compiler")
    assert "First bad: Toy 1.1. Last good: 1.0. First fixed: 2.0." in done.stdout
    assert "--compiler toy==1.0 --ptxas 12.9.86" in done.stdout
    assert "Triton" not in done.stdout


def test_blame(toy: Triage) -> None:
    done = toy("blame", *ONE, "--ptxas", "13.1.115")
    assert done.returncode == 0, done.stderr
    assert "Toy is to blame." in done.stdout
    assert "The PTX of Toy 1.0, 2.0, PTX 8.3 works on the same ptxas" in done.stdout
    assert "Triton" not in done.stdout


def test_minimize(toy: Triage) -> None:
    found = document(toy, "minimize", *ONE, "--out", "min", code=0)
    assert found["instructions"] == 1
    done = toy("minimize", *ONE, "--level", "source", "--out", "other")
    assert done.returncode == 2
    assert "a kernel of Toy is reduced at ptx" in done.stderr


def test_workaround(toy: Triage) -> None:
    found = document(toy, "workaround", *ONE, code=0)
    names = {step["name"] for each in found["candidates"] for step in each["change"]}
    # Options of another compiler are none of its.
    assert {"width", "toy"} <= names <= {"width", "unroll", "toy", "ptxas", "ptxas flags"}
    done = toy("workaround", *ONE)
    assert "use Toy 2.0" in done.stdout
    assert "Toy has no interpreter" in done.stdout
    assert "triton" not in done.stdout.lower()


@pytest.mark.long
def test_report(toy: Triage) -> None:
    done = toy("report", *ONE, "--for", "project", "--out", "report")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Ready to be filed" in done.stdout
    issue = (toy.folder / "report" / "issue.md").read_text()
    assert "with Toy 1.1" in issue
    assert "Triton" not in issue
    done = toy("report", *ONE, "--for", "triton", "--out", "other")
    assert done.returncode == 2
    assert "is compiled by Toy 1.1" in done.stderr


def test_matrix_history_bugs(toy: Triage) -> None:
    (toy.folder / "m.yaml").write_text(
        "version: 1\n"
        "toolchains:\n"
        "  ptxas: {spec: ['==12.9.86', '==13.1.115']}\n"
        "  compilers: {toy: {spec: '>=1'}}\n"
        "targets: [sm_90a]\n"
        "kernels: [scale.toy]\n"
    )
    done = toy("matrix", "run", "--matrix", "m.yaml", "--json")
    assert done.returncode == 1, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert cells == {"ok": 40, "rejected": 12, "ptxas_error": 8}
    done = toy("history", "--kernel", "scale.toy", "--json")
    assert done.returncode == 0, done.stderr
    versions = {row["compiler_version"] for row in json.loads(done.stdout)["cells"]}
    assert versions == {"1.0", "1.1", "2.0"}
    assert "Toy refuses it" in toy("bugs", "--json").stdout


def test_what_it_cannot_do_is_one_line(toy: Triage) -> None:
    done = toy("run", *FAILING, "width=1,unroll=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "scale.toy: launches of Toy cannot be run with values; a cell's ptx can" in done.stderr
    assert "Traceback" not in done.stderr


def test_ours_are_registered_with_what_the_protocol_asks_for() -> None:
    assert kinds()[:2] == [TRITON, PTX]
    for end in front_ends():
        assert front_end(end.kind) is end
        assert end.stages[-1] in {back_end.takes for back_end in end.back_ends}
        # A file is known by its name, or a Python file by what it imports.
        assert end.suffixes or end.modules
        assert takes(end.kind) == (end.suffixes, end.modules)
        assert all(Path(f"kernel{each}").suffix for each in end.suffixes)
