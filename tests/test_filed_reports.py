"""The reports that are committed are what the gate lets through, and their bundles are whole."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import tarfile
from pathlib import Path

import pytest

from harness.cells.repros.find import find_kernels
from harness.report.dossier import Upstream
from harness.report.gate import Private, inspect_report
from harness.report.gather import required_fields

REPORTS = Path(__file__).parent.parent / "reports"
GENERATED = re.compile(r"\bhunt_|_at_o\d|\.ptx")
FILED = {
    "c7907-newest": Upstream.NVIDIA,
    "hunt-bfe-at-o0-and-o3": Upstream.NVIDIA,
    "hunt-cnot-into-shift": Upstream.NVIDIA,
    "hunt-cvt-at-o3": Upstream.NVIDIA,
    "hunt-cvt-setp-sub-at-o3": Upstream.NVIDIA,
    "hunt-call-into-constant": Upstream.NVIDIA,
    "hunt-guarded-set-at-o0-and-o3": Upstream.NVIDIA,
    "hunt-guarded-testp-at-o0-and-o3": Upstream.NVIDIA,
    "hunt-lop3-flag": Upstream.NVIDIA,
    "hunt-neg-into-slct": Upstream.NVIDIA,
    "hunt-set-into-cnot": Upstream.NVIDIA,
    "hunt-set-into-compare": Upstream.NVIDIA,
    "hunt-stmatrix-at-constant": Upstream.NVIDIA,
    "hunt-lop3-two-branches": Upstream.NVIDIA,
    "hunt-st-param-by-register": Upstream.NVIDIA,
    "hunt-sub-at-o3": Upstream.NVIDIA,
    "hunt-vector-store-predicate": Upstream.NVIDIA,
    "hunt-wgmma-commit-at-o0": Upstream.NVIDIA,
    "hunt-dot-own-transpose": Upstream.TRITON,
    "hunt-specialised-carried-load": Upstream.TRITON,
    "hunt-specialised-chained-dots": Upstream.TRITON,
    "hunt-specialised-cumsum": Upstream.TRITON,
    "hunt-specialised-dot-and-cumsum": Upstream.TRITON,
    "hunt-specialised-dot-in-branch": Upstream.TRITON,
    "hunt-specialised-early-return": Upstream.TRITON,
    "hunt-specialised-negated-load": Upstream.TRITON,
    "hunt-specialised-split-memory": Upstream.TRITON,
    "hunt-specialised-two-stores": Upstream.TRITON,
    "tilelang-reduced-view": Upstream.COMPILER,
    "cutile-tileiras-segfault": Upstream.COMPILER,
    "register-collapse": Upstream.TRITON,
    "running-state": Upstream.TRITON,
}

# Not made again yet: in the form of an older template, and some without an input of their own.
OLDER = {
    "cutile-tileiras-segfault",
    "hunt-specialised-chained-dots",
    "hunt-specialised-split-memory",
    "hunt-specialised-two-stores",
    "register-collapse",
    "running-state",
    "tilelang-reduced-view",
}
MADE = [name for name in FILED if name not in OLDER]


def test_every_report_is_one_that_is_looked_at() -> None:
    assert {folder.name for folder in REPORTS.iterdir() if folder.is_dir()} == set(FILED)


@pytest.mark.parametrize("name", FILED)
def test_a_report_passes_the_gate_and_has_the_files_that_it_names(name: str) -> None:
    issue = (REPORTS / name / "issue.md").read_text()
    with tarfile.open(REPORTS / name / "bundle.tar.gz") as bundle:
        members = {Path(each.name).name: bundle.extractfile(each) for each in bundle}
        files = {file: stream.read() for file, stream in members.items() if stream}
    here = {"path of this machine": [str(REPORTS.parent), str(Path.home())]}
    private = Private(
        words={what: [w for w in words if len(w) > 3] for what, words in here.items()}
    )
    # The folder of a report for another compiler than Triton begins with its kind.
    required = tuple(required_fields(FILED[name], name.partition("-")[0]))
    required = () if issue.startswith("# Comment on ") else required
    assert inspect_report(issue, files, required=required, private=private) == []
    sums = dict(re.findall(r"^\| `([\w.-]+)` \| `([0-9a-f]{64})` \|", issue, re.MULTILINE))
    assert {file: hashlib.sha256(data).hexdigest() for file, data in files.items()} == sums
    assert "repro.sh" in files
    # What was executed or launched has a launch in the place of a script for reducers.
    assert {"test.sh", "kernel.py", "repro.py"} & set(files)


def test_the_table_of_the_reports_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location(
        "report_index", REPORTS.parent / "checks" / "report_index.py"
    )
    assert spec
    assert spec.loader
    index = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(index)
    assert (REPORTS / "README.md").read_text() == index.page()


def test_no_two_titles_are_alike_and_none_has_a_generated_name() -> None:
    titles = [(REPORTS / name / "issue.md").read_text().splitlines()[0] for name in MADE]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if GENERATED.search(title)]


@pytest.mark.parametrize("name", MADE)
def test_a_report_is_short_and_its_input_is_here(name: str) -> None:
    issue = (REPORTS / name / "issue.md").read_text()
    issue = re.sub(r"(?s)<details>.*?</details>", "", issue)
    assert len(issue.split()) <= 900
    # Markdown needs lines that hold nothing: a reader does not see them.
    assert len(list(filter(None, issue.partition("## Versions")[0].splitlines()))) <= 60
    command = json.loads((REPORTS / name / "report.json").read_text())["command"].split()
    assert find_kernels(command[command.index("--kernel") + 1])
