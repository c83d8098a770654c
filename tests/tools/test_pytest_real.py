"""`pytest --triage`: tests that ask for a GPU, under the real pytest, on a machine without."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools


def run_pytest(triage: Triage, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "pytest_triage", "-v", *words]
    how: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    return subprocess.run(command, cwd=triage.folder, env=triage.env, timeout=300, **how)


def test_a_suite_is_captured_compiled_and_reported_test_by_test(triage: Triage) -> None:
    shutil.copy(HERE / "kernels" / "suite_of_tests.py", triage.folder / "test_suite.py")
    (triage.folder / "conftest.py").write_text("import torch\n\ntorch.cuda.current_stream()\n")
    suite = ["--triage", "--sm", "90a", "test_suite.py"]
    done = run_pytest(triage, *suite, "--triage-json", "out.json", "--junit-xml", "out.xml")
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "test_suite.py::test_double[dtype0] CAPTURED",
        "test_suite.py::test_double[dtype1] CAPTURED",
        "test_suite.py::test_fill CAPTURED",
        "test_suite.py::test_skipped SKIPPED (skipped (not here))",
        "3 of 3 launches captured (100 %); 3 of 4 tests finished, in 1 file",
        "    1 test: skipped (not here)",
        "1 skipped, 3 captured",
    ):
        assert line in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["double", "sm_90a", "2"] in lines
    assert ["fill", "sm_90a", "1"] in lines
    document = json.loads((triage.folder / "out.json").read_text())
    by_name = {test["test"]: test for test in document["tests"]}
    assert by_name["test_suite.py::test_fill"]["launches"] == 1
    verdicts = {cell["cell"]: cell["verdict"] for cell in document["cells"]}
    tested = {name: [verdicts[c] for c in test["cells"]] for name, test in by_name.items()}
    assert tested == {
        "test_suite.py::test_double[dtype0]": ["ok"],
        "test_suite.py::test_double[dtype1]": ["ok"],
        "test_suite.py::test_fill": ["rejected"],
        "test_suite.py::test_skipped": [],
    }
    cases = ET.parse(triage.folder / "out.xml").getroot().iter("testcase")
    assert len(list(cases)) == 4
    # From the store; what fails fails its own test alone.
    done = run_pytest(triage, *suite, "--triage-fail")
    assert done.returncode == 1
    assert "test_suite.py::test_fill FAILED" in done.stdout
    assert "rejected: Triton rejects the kernel" in done.stdout
    assert "1 failed, 1 skipped, 2 captured" in done.stdout


@pytest.mark.long
def test_tests_are_chosen_as_pytest_chooses_them_and_executed(triage: Triage) -> None:
    shutil.copy(HERE / "kernels" / "suite_of_tests.py", triage.folder / "test_suite.py")
    words = ["--triage", "--triage-sm", "80", "--triage-run", "-k", "not dtype1"]
    done = run_pytest(triage, *words, "test_suite.py::test_double")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 captured" in done.stdout
    assert ["double", "sm_80", "1", "1"] in [line.split() for line in done.stdout.splitlines()]


def test_without_the_option_nothing_of_triage_is_imported(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    program = (
        "import pytest, sys\n"
        "code = pytest.main(['-q', '-p', 'pytest_triage'])\n"
        "heavy = {'harness', 'gpu_emulator', 'msgspec', 'torch', 'triton'}\n"
        "print(int(code), sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(HERE.parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--triage"], "--triage: name a GPU, for example --sm 90a"),
        (["--triage", "--sm", "17"], "sm_17: no GPU of this compute capability is known"),
        (["--triage", "--sm", "90", "-n", "2"], "--triage works on all cores by itself"),
    ],
)
def test_what_cannot_be_done_is_one_line(triage: Triage, words: list[str], complaint: str) -> None:
    (triage.folder / "test_it.py").write_text("def test_it():\n    pass\n")
    done = run_pytest(triage, *words)
    assert done.returncode == 4
    assert complaint in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
