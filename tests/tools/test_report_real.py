"""Reports of real failures: made, held to the gate, run again from the bundle alone."""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage
from msgspec.structs import replace

from harness.store.store import Store
from harness.values.outcome import Assembly

pytestmark = pytest.mark.tools

# ptxas divides the least integer by -1 itself, and dies by SIGFPE: all that were ever released.
CRASH = """\
.version 8.0
.target sm_80
.address_size 64

.visible .entry fold(.param .u64 fold_param_0)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [fold_param_0];
    mov.u32 %r1, %tid.x;
    add.s32 %r2, %r1, ((-9223372036854775807 - 1) / -1);
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
NAMED = ["--sm", "80", "--ptxas", "13.1.115", "--for", "nvidia"]
FILED = Path(__file__).parents[2] / "reports" / "hunt-specialised-early-return"


def report(triage: Triage, *words: str, code: int) -> dict[str, Any]:
    done = triage("report", *words, "--json", timeout=1500)
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


@pytest.fixture(scope="module")
def case(module_triage: Triage) -> Triage:
    (module_triage.folder / "crash.ptx").write_text(CRASH)
    return module_triage


def test_a_quick_report_lists_what_is_missing_with_the_command_that_makes_it(case: Triage) -> None:
    file = case.folder / "crash.ptx"
    found = report(case, "--kernel", str(file), *NAMED, "--quick", "--out", "quick", code=1)
    assert not found["ready"]
    kinds = {defect["kind"] for defect in found["defects"]}
    assert "missing" in kinds
    assert kinds <= {"missing", "field"}  # sections that are empty without it
    commands = [each["command"].split()[:2] for each in found["missing"]]
    assert ["triage", "bisect"] in commands
    assert ["triage", "minimize"] in commands
    # Neither the issue nor the bundle says where the file lay.
    issue = (case.folder / "quick" / "issue.md").read_text()
    assert "13.1.115" in issue.splitlines()[0]
    assert "--kernel crash.ptx" in issue
    assert str(case.folder) not in issue
    with tarfile.open(case.folder / "quick" / "bundle.tar.gz") as bundle:
        assert "quick/original.ptx" in bundle.getnames()


def test_a_statement_that_the_attached_file_does_not_bear_out_is_quoted(triage: Triage) -> None:
    """Evidence is forged, its checksum with it: only the file itself can show that it is false."""
    (triage.folder / "crash.ptx").write_text(CRASH)
    triage("compile", "--kernel", "crash.ptx", "--sm", "80", "--ptxas", "13.1.115")
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        (record,) = store.find_cells("crash.ptx")
        key = record.evidence["assemble"]
        kept = store.get_evidence("assemble", key)
        assert kept
        assembly = msgspec.json.decode(kept.body, type=Assembly)
        assert assembly.end.signal == signal.SIGFPE
        forged = replace(assembly, end=replace(assembly.end, signal=signal.SIGSEGV.value))
        store.put_evidence("assemble", key, msgspec.json.encode(forged), kept.artifacts)
    found = report(triage, "--kernel", "crash.ptx", *NAMED, "--quick", "--out", "false", code=1)
    assert "SIGSEGV" in found["title"]
    claims = [each["words"] for each in found["defects"] if each["kind"] == "claim"]
    where = "original.ptx with ptxas 13.1.115 for sm_80 gives 'signal 8', not 'signal 11'"
    assert claims == [f"'Ended by signal 11.' is not so: {where}"]
    assert 0 < found["statements_checked"] <= found["statements"]


def test_the_input_is_attached_byte_for_byte(triage: Triage) -> None:
    text = CRASH.replace("    ret;", "\tret;  // as it was written\n\n")
    (triage.folder / "mine.ptx").write_text(text)
    found = report(triage, "--kernel", "mine.ptx", *NAMED, "--quick", "--out", "mine", code=1)
    (file,) = (each for each in found["attachments"] if each["name"] == "original.ptx")
    assert file["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert "Triton" not in found["title"] + found["body"].partition("## Workaround")[0]


def test_a_report_to_somebody_who_has_no_part_in_it_is_refused(triage: Triage) -> None:
    (triage.folder / "crash.ptx").write_text(CRASH)
    words = ["report", "--kernel", "crash.ptx", *NAMED[:4], "--quick"]
    done = triage(*words, "--for", "triton")
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("triage: --for triton: Triton has no part in it: ")
    assert last.endswith("report it with --for nvidia")


def test_the_same_report_has_the_same_bytes(case: Triage) -> None:
    for folder in ("one", "two"):
        report(case, "--kernel", "crash.ptx", *NAMED, "--quick", "--out", f"{folder}/same", code=1)
    first, second = (case.folder / name / "same" for name in ("one", "two"))
    for name in ("issue.md", "bundle.tar.gz"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_bug_of_the_store_is_reported_by_its_number(case: Triage) -> None:
    case("compile", "--kernel", "crash.ptx", "--sm", "80", "--ptxas", "13.1.115")
    words = ["--for", "nvidia", "--quick", "--format", "html", "--out", "bug"]
    found = report(case, "--bug", "1", *words, code=1)
    assert found["case"]["verdict"] == "compiler_crash"
    assert found["title"] in (case.folder / "bug" / "issue.html").read_text()
    none = case("report", "--bug", "77", "--for", "nvidia")
    assert none.returncode == 2
    assert "bug 77" in none.stderr
    terms = case("report", "--bug", "1", "--for", "nvidia", "--draft-duplicates")
    assert terms.returncode == 0
    assert any("SIGFPE" in line for line in terms.stdout.splitlines())


def test_a_template_of_ones_own_that_tells_too_much_is_refused(case: Triage) -> None:
    templates = case.folder / "templates" / "report"
    templates.mkdir(parents=True)
    words = ["--kernel", "crash.ptx", *NAMED, "--quick", "--out", "leak"]
    token = "ghp_" + "a1" * 18
    (templates / "nvidia.md.j2").write_text(f"# A title\n\nMade in {case.folder} by {token}.\n")
    try:
        found = report(case, *words, code=1)
    finally:
        (templates / "nvidia.md.j2").unlink()
    said = {(defect["kind"], defect["file"]) for defect in found["defects"]}
    assert ("privacy", "issue.md") in said
    # Where it was made is left out without a word.
    assert str(case.folder) not in (case.folder / "leak" / "issue.md").read_text()
    # Nor has it the fields of the form.
    assert ("field", "issue.md") in said


@pytest.mark.long
def test_a_whole_report_is_ready_and_its_bundle_needs_nothing_of_ours(
    case: Triage, tmp_path: Path
) -> None:
    found = report(case, "--kernel", "crash.ptx", *NAMED, "--out", "whole", code=0)
    assert found["ready"]
    assert found["along_ptxas"]["first_bad"] is None
    bundle = case.folder / "whole" / "bundle.tar.gz"
    with tarfile.open(bundle) as packed:
        packed.extractall(tmp_path)
    for each in found["attachments"]:
        data = (tmp_path / "whole" / each["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == each["sha256"]
    shown = subprocess.run(
        ["sh", "repro.sh"], cwd=tmp_path / "whole", capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    issue = (case.folder / "whole" / "issue.md").read_text()
    again = report(case, "--kernel", "crash.ptx", *NAMED, "--out", "again/whole", code=0)
    assert again["body"] in issue
    assert (case.folder / "again" / "whole" / "bundle.tar.gz").read_bytes() == bundle.read_bytes()
    assert found["statements_checked"] == found["statements"] > 100
    # Each of the two has its own log.
    logs = Path(case.env["TRIAGE_HOME"]) / "bisections"
    assert len(list(logs.glob("report-*-ptxas-*.jsonl"))) == 2


def test_the_command_of_a_filed_report_makes_it_again_from_the_repository(triage: Triage) -> None:
    facts = json.loads((FILED / "report.json").read_bytes())
    words = shlex.split(facts["command"])[2:]
    found = report(triage, *words, "--quick", "--out", "again", code=1)
    assert found["case"]["signature"] == facts["signature"]
    program = (FILED / "issue.md").read_text().partition("```python\n")[2].partition("```")[0]
    assert program
    assert program in found["body"]
    # What it was compared with is no kernel of the user's.
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        assert store.kernels() == ["triton_early_return"]
