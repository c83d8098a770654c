"""A compiler with no assembler at all, and one that chooses it by target, through every command.

`tests/front_ends/drip_front_end.py`: for sm_90 its own binary is the end, for sm_80 an IR; for
sm_100 a kettle boils what it writes. Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from conftest import HERE, Triage

FOLDERS = (HERE / "front_ends", HERE / "front_ends" / "registered", HERE.parent)

pytestmark = pytest.mark.tools

KERNEL = ("--kernel", "rain.drip", "--compiler", "drip==1.1")
OVER = (*KERNEL, "--sm", "90a", "--config", "width=4,unroll=2")
SICK = (*KERNEL, "--sm", "90a", "--config", "width=8,unroll=1")
SOURCE = "drip rain\nconfig width = 4 8 16\nconfig unroll = 1 2\n"
MATRIX = """\
version: 1
toolchains:
  compilers: {drip: {spec: '>=1'}}
  assemblers: {kettle: {spec: '>=1.1'}}
targets: [sm_80, sm_90a, sm_100a]
kernels: [rain.drip]
exclude:
- {assembler: kettle>=2, reason: it is too new}
overrides:
- {assembler: none, repeat: 2}
expect:
- {kernel: rain.drip, when: {assembler: kettle==1.1, config: width=4|8}, verdict: compiler_crash}
- kernel: rain.drip
  when: {assembler: none, compiler: drip==1.1, config: unroll=2, target: sm_90a}
  verdict: pass_failure
- {kernel: rain.drip, when: {config: width=16}, verdict: rejected}
"""


@pytest.fixture(scope="module")
def drip(tmp_path_factory: pytest.TempPathFactory) -> Triage:
    """The command line where the package of Drip is installed, an empty cache, and no network."""
    folder = tmp_path_factory.mktemp("drip")
    (folder / "rain.drip").write_text(SOURCE)
    (folder / "m.yaml").write_text(MATRIX)
    env = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")},
        "TRIAGE_HOME": str(folder / "results"),
        "TRIAGE_CACHE_DIR": str(folder / "cache"),
        "TRIAGE_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, FOLDERS)),
    }
    return Triage(folder=folder, env=env, python_path=env["PYTHONPATH"])


def document(drip: Triage, *words: str, code: int) -> dict[str, Any]:
    done = drip(words[0], "--json", *words[1:])
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_each_target_goes_through_its_own_assembler_or_none(drip: Triage) -> None:
    words = (*KERNEL, "--sm", "80", "--sm", "90a", "--sm", "100a", "--assembler", "kettle==1.0")
    rows = drip.compile(*words, "--config", "unroll=1", code=1)["cells"]
    assert {(r["target"], r["assembler"], r["ptxas"], r["ptxas_origin"]) for r in rows} == {
        ("sm_80", "none", None, None),
        ("sm_90a", "none", None, None),
        ("sm_100a", "kettle", "1.0", "kettle"),
    }
    by_target = {row["target"]: row for row in rows if row["config"]["width"] == 4}
    ends = {target: row["cell"].rpartition("/")[2] for target, row in by_target.items()}
    assert ends == {"sm_80": "none", "sm_90a": "none", "sm_100a": "kettle-1.0"}
    # A binary is machine code, whoever wrote it; an IR is not.
    has_code = {target: row["cubin_sha256"] is not None for target, row in by_target.items()}
    assert has_code == {"sm_80": False, "sm_90a": True, "sm_100a": True}
    given = {target: row["program_sha256"] is not None for target, row in by_target.items()}
    assert given == {"sm_80": False, "sm_90a": False, "sm_100a": True}
    verdicts = {row["config"]["width"]: row for row in rows if row["target"] == "sm_90a"}
    assert {width: row["verdict"] for width, row in verdicts.items()} == {
        4: "ok", 8: "sick", 16: "rejected",
    }  # fmt: skip
    # What is sick is so in the last of the compiler's own stages.
    assert (verdicts[8]["stage"], verdicts[8]["spill_stores"]) == ("cup", 4096)
    again = drip.compile(*words, "--config", "unroll=1", code=1)["cells"]
    assert all(row["cached"] for row in again)


def test_the_table_and_the_artifacts(drip: Triage) -> None:
    done = drip("compile", *KERNEL, "--sm", "90a")
    assert done.returncode == 1, done.stderr
    assert "Drip 1.1 · no assembler" in done.stdout
    for word in ("ptx", "sass", "None"):
        assert word not in done.stdout
    cell = "rain.drip/drip/width=4,unroll=1@sm_90a/drip-1.1/none"
    cup = "cup rain\n" + 4 * "pour water\n"
    for stage, shown in (("drops", "drip rain\n"), ("cup", cup), ("cubin", cup)):
        done = drip("show", cell, "--stage", stage)
        assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_bisect(drip: Triage) -> None:
    found = document(drip, "bisect", *OVER, code=0)
    versions = found["last_good"], found["first_bad"], found["first_fixed"]
    assert (found["axis"], *versions, found["blame"]) == ("drip", "1.0", "1.1", "2.0", "drip")
    found = document(drip, "bisect", *SICK, code=0)
    assert (found["first_bad"], found["first_fixed"]) == ("1.1", "2.0")
    # Along targets each has its own: where a kettle boils, no cup runs over.
    found = document(drip, "bisect", *OVER, "--axis", "target", code=0)
    assert found["works"] == ["sm_80", "sm_100a"]
    assert "sm_90a" in found["fails"]


def test_blame_names_the_compiler(drip: Triage) -> None:
    for words in (OVER, SICK):
        done = drip("blame", *words)
        assert done.returncode == 0, done.stderr
        assert "Drip is to blame." in done.stdout
        assert "It happens in Drip (stage cup), with Drip 1.1." in done.stdout
        assert "ptx" not in done.stdout.lower()
    found = document(drip, "blame", *OVER, code=0)
    assert found["blame"] == "drip"


def test_workaround_and_report(drip: Triage) -> None:
    found = document(drip, "workaround", *OVER, code=0)
    assert {step["name"] for each in found["candidates"] for step in each["change"]} <= {
        "width", "unroll", "drip",
    }  # fmt: skip
    assert found["candidates"]
    done = drip("report", *OVER, "--for", "project", "--out", "report")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Ready to be filed" in done.stdout
    assert drip("report", *OVER, "--for", "nvidia", "--out", "other").returncode == 2
    issue = (drip.folder / "report" / "issue.md").read_text()
    assert "Drip is to blame." in issue
    for word in ("ptx", "no assembler", "none"):
        assert word not in issue.lower().replace("gpu: none", "").replace("between: none", "")


def test_matrix_selects_by_assembler(drip: Triage) -> None:
    done = drip("matrix", "run", "--matrix", "m.yaml", "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    counted = json.loads(done.stdout)["cells"]
    assert counted == {"ok": 21, "rejected": 18, "pass_failure": 2, "sick": 1, "compiler_crash": 12}
    done = drip(
        "matrix",
        "run",
        "--matrix",
        "m.yaml",
        "--assembler",
        "kettle",
        "--compiler",
        "drip==2.0",
        "--list",
    )
    cells = [line for line in done.stdout.splitlines() if line.startswith("rain.drip")]
    assert len(cells) == 6
    assert {cell.rpartition("@")[2] for cell in cells} == {"sm_100a/drip-2.0/kettle-1.1"}


def test_history_bugs_and_export(drip: Triage) -> None:
    done = drip("history", "--kernel", "rain.drip", "--sm", "90a")
    assert done.returncode == 0, done.stderr
    assert "None" not in done.stdout
    assert "Drip" in done.stdout
    said = drip("bugs").stdout
    assert "the cup runs over" in said
    assert "Drip since 1.1 until 1.1" in said
    assert "no assembler" not in said
    done = drip("export", "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(row["assembler"], row["ptxas"]) for row in rows} >= {("none", None), ("kettle", "1.1")}
    assert drip("site", "--out", "site").returncode == 0


def test_what_it_cannot_do_is_one_line(drip: Triage) -> None:
    lost = "nothing assembles what Drip generates here"
    for words, line in (
        (("compile", *OVER, "--ptxas", "13.1.115"), f"rain.drip: {lost}; --ptxas does not apply"),
        (("compile", *OVER, "--assembler", "kettle==1.0"), f"--assembler kettle==1.0: {lost}"),
        (("compile", *OVER, "--assembler", "none"), f"--assembler none: {lost}"),
        (("bisect", *OVER, "--axis", "assembler"), f"rain.drip: {lost}; use --axis compiler"),
        (("bisect", *OVER, "--axis", "ptxas"), f"rain.drip: {lost}; use --axis compiler"),
        (("bisect", *OVER, "--axis", "flag"), f"rain.drip: {lost}"),
        (("blame", *OVER, "--sm", "100a"), "--sm: rain.drip goes through no assembler and Kettle"),
        (("minimize", *OVER), "what Drip generates is not PTX"),
        (("run", *OVER), "launches of Drip cannot be run with values"),
    ):
        done = drip(*words)
        assert (done.returncode, done.stdout) == (2, ""), (words, done.stdout, done.stderr)
        assert line in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr
