"""The reports for each upstream, held to golden texts and to the gate."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from made_minimization import changed
from markdown_it import MarkdownIt
from msgspec import structs
from report_cases import (
    CASES,
    CRASH,
    FINE,
    GOLDEN,
    IN_PTXAS,
    IN_TILELANG,
    IN_TRITON,
    MINIMIZED,
    TRAP,
    VERSIONS,
    history,
)

from harness.blame.grid import Culprit
from harness.frontends.texts.python import as_the_user_sees_it
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import parse_condition
from harness.judging.followed import FollowedFailure
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.reducer import Size
from harness.report.claims import ClaimsTrial, prove
from harness.report.dossier import Upstream, search_terms
from harness.report.filing import inspect_dossier
from harness.report.gate import Private, inspect_report
from harness.report.gather import required_fields
from harness.report.issue import render_report, report_document, report_page
from harness.report.paragraphs import REQUIRED, escaped
from harness.values.execution import OutputFacts, RaceFacts, RunRow
from harness.values.kernel import ReportNotes
from harness.values.outcome import ProcessEnd
from harness.values.verdict import VerdictKind


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    dossier, upstream = CASES[name]
    expected = (GOLDEN / f"{name}.md").read_text()
    assert render_report(dossier, upstream).text == expected, (
        "see tests/unit/report/report_cases.py"
    )


@pytest.mark.parametrize("upstream", REQUIRED)
def test_a_whole_dossier_passes_the_gate(upstream: Upstream) -> None:
    files = {file.name: file.data for file in IN_PTXAS.attachments}
    issue = render_report(IN_PTXAS, upstream).text
    required = REQUIRED[upstream]
    assert inspect_report(issue, files, required=required, private=Private(words={})) == []


def test_a_compiler_with_a_form_of_its_own() -> None:
    upstream, files = Upstream.COMPILER, {f.name: f.data for f in IN_TILELANG.attachments}
    issue = render_report(IN_TILELANG, upstream).text
    required = required_fields(upstream, IN_TILELANG.case.compiler)
    assert inspect_report(issue, files, required=required, private=Private(words={})) == []


@pytest.mark.parametrize("upstream", REQUIRED)
def test_what_is_missing_is_told_with_the_command_that_makes_it(upstream: Upstream) -> None:
    issue = render_report(IN_TRITON, upstream).text
    assert "`triage blame`" in issue
    assert "`triage minimize`" in issue
    assert "None" not in issue


def test_hostile_values_stay_text() -> None:
    evil = "a|b <script>alert(1)</script> `x` [y](z) {{ 7*7 }}"
    case = structs.replace(IN_PTXAS.case, reason=f"ptxas ended: {evil}")
    dossier = replace(IN_PTXAS, case=case, rows=(case,), log=f"{evil}\n```\nnot the end")
    for upstream in REQUIRED:
        page = report_page(render_report(dossier, upstream).text)
        assert "<script>" not in page
        assert "49" not in page.replace(evil, "")


def test_the_document_has_what_the_issue_has() -> None:
    issue = render_report(IN_PTXAS, Upstream.NVIDIA)
    proof = prove(issue.claims, ClaimsTrial(), issue.text)
    document = report_document(IN_PTXAS, Upstream.NVIDIA, issue, proof, [])
    assert document["title"] == issue.text.splitlines()[0][2:]
    assert document["statements"] == len(set(issue.claims))
    assert document["ready"] is True
    assert document["along_ptxas"]["first_bad"] == "13.1.80"
    assert [file["name"] for file in document["attachments"]] == [
        "min.ptx",
        "original.ptx",
        "repro.sh",
    ]


def test_search_terms_begin_with_the_most_telling() -> None:
    terms = search_terms(IN_PTXAS)
    assert terms[0] == "C1234"
    assert "_scan_kernel" in terms
    assert '"Internal compiler error"' in terms
    assert "convert-something" in search_terms(IN_TRITON)


def test_every_failure_that_can_be_reported_has_words() -> None:
    told = [kind for kind in VerdictKind if not kind.tells_nothing and kind is not VerdictKind.OK]
    assert all(kind.facts.does for kind in told)


def test_poor_code_is_reported_with_its_numbers_and_the_version_without_them() -> None:
    reason = "spills 4,096 B stores and 4,100 B loads per thread at 32 registers"
    sick = structs.replace(
        FINE, reason=reason, spill_stores=4096, stage="cubin", signature="5" * 12
    )
    good = structs.replace(FINE, verdict=VerdictKind.OK, reason="compiled", spill_stores=0)
    rows = dict(zip(VERSIONS[1:], (good, structs.replace(sick, cell="other"), sick), strict=True))
    along = replace(history("ptxas", VERSIONS, "++++", sick), rows=rows)
    dossier = replace(
        IN_PTXAS, case=sick, rows=(sick,), along_ptxas=along, minimized=None, flags=None
    )
    for upstream in REQUIRED:
        issue = render_report(dossier, upstream).text
        assert reason in issue
        # The form of a project says who is affected, not what is expected.
        is_project = upstream is Upstream.PROJECT
        assert ("Expected: what ptxas 13.0.88 gives: compiled." in issue) is not is_project


def test_code_that_compiles_is_reported_by_a_condition() -> None:
    condition = parse_condition("spill_stores > 100")
    good = structs.replace(
        FINE, verdict=VerdictKind.OK, reason="compiled", n_regs=64, spill_stores=0, cell="good"
    )
    bad = structs.replace(good, n_regs=32, spill_stores=740, cell="bad")
    along = replace(
        history("ptxas", VERSIONS, "++xx", bad, {0: good, 1: good}),
        followed=FollowedFailure(condition=condition),
    )
    dossier = replace(
        IN_PTXAS,
        case=bad,
        rows=(bad,),
        along_ptxas=along,
        along_triton=None,
        minimized=None,
        flags=None,
        condition=condition,
    )
    assert (dossier.kind, dossier.in_ptxas) == (VerdictKind.SICK, True)
    assert dossier.outcome(good) is VerdictAnswer.OK
    issue = render_report(dossier, Upstream.NVIDIA)
    holds = "spill_stores > 100 (32 registers, 740 B of spill stores)"
    words = f"_scan_kernel compiles to poor code: {escaped(holds)}"
    assert issue.text.startswith(f"# Triton 3.6.0 and ptxas 13.1.80: {words} (sm_100a")
    assert "ok (holds): 32 registers, 740 B of spill stores" in issue.text
    assert "ok: 64 registers, 0 B of spill stores" in issue.text
    files = {file.name: file.data for file in dossier.attachments}
    trial = ClaimsTrial(files=files, stored={"bad": bad, "good": good})
    assert prove(issue.claims, trial, issue.text).false == ()


def test_a_title_names_what_people_say_goes_wrong() -> None:
    noted = replace(IN_PTXAS, notes=ReportNotes(construct="a scan behind a `bra`"))
    assert ": a scan behind a `bra` (" in render_report(noted, Upstream.NVIDIA).text.splitlines()[0]


def test_an_invalid_input_is_accepted_and_not_said_to_work() -> None:
    invalid = replace(IN_PTXAS, is_ptx=True, notes=ReportNotes(invalid=True))
    text = render_report(invalid, Upstream.NVIDIA).text
    assert "Last that accepts it: 13.0.88" in text
    assert "Last good" not in text
    assert "compiles |" not in text.partition("## Reproduce")[0]


def test_a_title_says_fixed_only_of_every_config_that_fails() -> None:
    other = structs.replace(CRASH, config={"num_warps": 8}, cell="scan/8", short="8")
    rows = (FINE, CRASH, other)
    fine = tuple(
        structs.replace(row, verdict=VerdictKind.OK, signature=None, reason="compiled")
        for row in rows
    )
    half = (
        *fine[:2],
        structs.replace(other, verdict=VerdictKind.PTXAS_ERROR, signature="e" * 12, reason="no"),
    )
    both = {"13.0.88": fine, "13.3.33": fine}
    whole = replace(IN_PTXAS, rows=rows, elsewhere=both)
    title = render_report(whole, Upstream.NVIDIA).text.splitlines()[0]
    assert title.endswith("ptxas since 13.1.80, fixed in 13.3.33)")
    partly = replace(whole, elsewhere={**both, "13.3.33": half})
    issue = render_report(partly, Upstream.NVIDIA).text
    assert issue.splitlines()[0].endswith(
        "ptxas since 13.1.80, 1 of 2 failing configs still fail in 13.3.33)"
    )
    assert "1 of these 2 compiles and 1 does not: no." in issue


def test_hand_written_ptx_is_not_said_to_come_from_triton() -> None:
    case = structs.replace(CRASH, triton=None, compiler=None, compiler_version=None, config={})
    dossier = replace(
        IN_PTXAS, case=case, rows=(case,), is_ptx=True, function="mine.ptx", origin=None, ways=None
    )
    dossier = replace(dossier, attachments=IN_PTXAS.attachments[:1])
    issue = render_report(dossier, Upstream.NVIDIA).text
    assert "Triton" not in issue.replace("Triton version", "")
    assert "`ptxas -v --gpu-name=sm_100a min.ptx` with ptxas 13.1.80 ends ptxas with" in issue
    # What a user can do is what the report itself shows to work.
    assert "- Works with: -O0." in issue
    assert "First bad: ptxas 13.1.80. Last good: 13.0.88. First fixed: 13.3.33." in issue
    # One config needs no table.
    assert "Every config" not in issue


@pytest.mark.parametrize(
    "place",
    [
        *("frontends/triton/child", "frontends/triton/child/launches", "frontends/pretend"),
        "io/children",
    ],
)
def test_a_traceback_has_no_frames_of_ours_and_names_packages_only(place: str) -> None:
    frames = (
        f'  File "/x/harness/{place}/lowering.py", line 1, in lower\n'
        "    record.compile(run)\n"
        '  File "/x/site/triton/runtime/jit.py", line 2, in run\n    kernel = 1\n'
    )
    shown = as_the_user_sees_it(f"Traceback (most recent call last):\n{frames}ValueError: no\n")
    assert shown == (
        "Traceback (most recent call last):\n"
        '  File "triton/runtime/jit.py", line 2, in run\n    kernel = 1\nValueError: no\n'
    )


def test_a_wrong_result_is_reported_with_expected_and_actual_values() -> None:
    reason = "emulated PTX: 12 of 64 elements of out differ from num_stages=1 on sm_80, emulated"
    wrong = structs.replace(
        TRAP,
        cell="scan/default/num_warps=4@sm_100a/triton-3.6.0/emulator",
        verdict=VerdictKind.WRONG_RESULT,
        stage="run",
        reason=reason,
        ptxas="emulator",
        ptxas_origin="emulator",
        ptxas_flags=(),
        tmem_size=None,
    )
    out = OutputFacts(
        name="out",
        dtype="float32",
        elements=64,
        differing=12,
        max_abs=31.5,
        where="[3, 0]",
        expected=1.5,
        actual=-30.0,
    )
    executed = RunRow(
        cell="scan",
        short="",
        kernel="scan",
        launch="default",
        config=wrong.config,
        target=wrong.target,
        triton="3.6.0",
        on="emulator",
        run=VerdictKind.WRONG_RESULT,
        run_reason=reason,
        reference="num_stages=1 on sm_80, emulated",
        schedule="first/late",
        outputs=(out, structs.replace(out, name="untouched", differing=0)),
    )
    dossier = replace(IN_TRITON, case=wrong, rows=(wrong,), executed=executed, along_triton=None)
    issue = render_report(dossier, Upstream.TRITON)
    title = "# _scan_kernel compiles to PTX that computes a wrong result (sm_100a, Triton 3.6.0)"
    assert issue.text.startswith(title)
    assert "| `out` (float32) | 12 of 64 | 31.5 | `[3, 0]` | 1.5 | -30 |" in issue.text
    assert "| `untouched` (float32) | 0 of 64 |  |  |  |  |" in issue.text
    held = "What `_scan_kernel` computes, held to num_stages=1 on sm_80, emulated; it goes wrong"
    assert f"{held} under the schedule first/late" in issue.text
    assert "Expected: the same result, whatever the number of stages and warps." in issue.text
    files = {file.name: file.data for file in dossier.attachments}
    trial = ClaimsTrial(files=files, stored={wrong.cell: wrong})
    assert prove(issue.claims, trial, issue.text).false == ()
    # What the table says is held to the stored run.
    other = ClaimsTrial(
        files=files, stored={wrong.cell: structs.replace(wrong, verdict=VerdictKind.RIGHT)}
    )
    assert any("'right'" in each for each in prove(issue.claims, other, issue.text).false)
    # A race that was asked for by --formal is named as what it is.
    race = RaceFacts(
        kind="write-read",
        space="shared",
        formal=True,
        ptx_lines=(7, 9),
        source_lines=("k.py:3", None),
        what="no fence.proxy.async orders them",
        words="",
    )
    racing = structs.replace(executed, run=VerdictKind.RACE, races=(race,))
    text = render_report(replace(dossier, executed=racing), Upstream.TRITON).text
    assert "held to num_stages=1 on sm_80, emulated; no value is affected under the" in text
    named = "write-read, shared memory, in the letter of the memory model alone: `k.py:3` and PTX"
    assert f"{named} line 9, 1 pair of instructions: no fence.proxy.async orders them." in text
    noted = render_report(
        replace(dossier, executed=structs.replace(executed, races=(race,))), Upstream.TRITON
    )
    assert "fence.proxy.async" not in noted.text


def test_a_reduction_that_nothing_accepts_is_not_ready() -> None:
    """PTX that every ptxas refuses: what is left of it may be wrong in itself."""
    refusal = Reaction(
        verdict=VerdictKind.PTXAS_ERROR,
        reason="no such feature",
        is_accepted=False,
        end=ProcessEnd(exit_code=255),
    )

    def found(reaction: Reaction, **held: object) -> list[str]:
        asked = replace(MINIMIZED.fingerprint, **held)  # type: ignore[arg-type]
        minimized = replace(MINIMIZED, fingerprint=asked, reaction=reaction)
        dossier = replace(IN_PTXAS, minimized=minimized)
        issue = render_report(dossier, Upstream.NVIDIA).text
        defects = inspect_dossier(dossier, issue, tuple(REQUIRED[Upstream.NVIDIA]))
        return [each.kind for each in defects if each.kind == "reduction"]

    assert found(refusal) == ["reduction"]
    assert found(refusal, accepting=("13.3.33",)) == []
    assert found(refusal, held_for="sm_90a") == []
    # No input may crash a compiler.
    assert found(replace(refusal, verdict=VerdictKind.PTXAS_ICE)) == []


def test_what_a_compiler_writes_wrongly_is_filed_if_no_kind_of_error_was_added() -> None:
    """No version accepts its PTX; what nobody can check of the reduction is named."""
    refusal = Reaction(
        verdict=VerdictKind.PTXAS_ERROR,
        reason="no such feature",
        is_accepted=False,
        end=ProcessEnd(exit_code=255),
    )
    assert IN_PTXAS.blame is not None
    blamed = replace(IN_PTXAS.blame, culprit=Culprit.TRITON)

    def filed(errors: frozenset[str] | None) -> tuple[list[str], list[str]]:
        asked = replace(MINIMIZED.fingerprint, accepting=(), errors=errors)
        minimized = replace(MINIMIZED, fingerprint=asked, reaction=refusal)
        dossier = replace(IN_TRITON, blame=blamed, minimized=minimized)
        assert dossier.is_compilers
        issue = render_report(dossier, Upstream.TRITON)
        defects = inspect_dossier(dossier, issue.text, tuple(REQUIRED[Upstream.TRITON]))
        proof = prove(issue.claims, ClaimsTrial(), issue.text)
        reasons = [why for said, why in proof.unchecked if "accepts what it was reduced" in said]
        return [each.kind for each in defects if each.kind == "reduction"], reasons

    named = "min.ptx: nothing that was tried accepts the original"
    assert filed(frozenset({"no such feature"})) == ([], [named])
    # Nothing kept it from becoming another program that is wrong.
    assert filed(frozenset()) == (["reduction"], [named])
    assert filed(None) == (["reduction"], [named])


def test_what_the_evidence_comes_to_is_said_beside_who_is_to_blame() -> None:
    assert IN_PTXAS.blame is not None
    reasons = ("On sm_90a: right.", "So it comes about between TTIR and TTGIR, in the passes.")
    blame = replace(IN_PTXAS.blame, headline="Triton is to blame.", reasons=reasons)
    text = render_report(replace(IN_TRITON, blame=blame), Upstream.TRITON).text
    first, _, below = text.partition("<details>")
    assert "Triton is to blame. It comes about between TTIR and TTGIR, in the passes." in first
    assert "- On sm_90a: right." in below


def test_each_statement_that_is_not_checked_has_its_reason() -> None:
    for dossier, upstream in CASES.values():
        issue = render_report(dossier, upstream)
        for _, why in prove(issue.claims, ClaimsTrial(), issue.text).unchecked:
            subject, _, reason = why.partition(": ")
            assert subject
            assert reason
            assert "could not be tried here" not in reason


def test_a_reduction_that_another_target_accepts_says_so() -> None:
    asked = replace(MINIMIZED.fingerprint, held_for="sm_90a")
    dossier = replace(IN_PTXAS, minimized=replace(MINIMIZED, fingerprint=asked))
    issue = render_report(dossier, Upstream.NVIDIA)
    said = "ptxas 13.1.80 accepts it for sm_90a."
    assert said in issue.text
    places = [claim.place for claim in issue.claims if said in claim.sentence and claim.place]
    assert {(each.file, each.target) for each in places} == {("min.ptx", "sm_90a")}


@pytest.mark.parametrize("name", CASES)
def test_what_a_maintainer_reads_first_fits_one_screen(name: str) -> None:
    """Beside code and output; all else is folded below."""
    dossier, upstream = CASES[name]
    first, _, below = render_report(dossier, upstream).text.partition("<details>")
    prose = re.sub(r"^(`{3,}).*?^\1$", "", first, flags=re.MULTILINE | re.DOTALL)
    forms = sum(line.startswith("#") for line in prose.splitlines())
    assert len([line for line in prose.splitlines() if line.strip()]) - forms <= 30
    reason = escaped(dossier.case.reason.rpartition(": ")[2]).rstrip(".")
    assert prose.count(reason) <= 2  # the title of a crash has it too
    assert "Files of the bundle" in below


def test_what_is_folded_is_still_there() -> None:
    text = render_report(IN_TRITON, Upstream.TRITON).text
    first, _, below = text.partition("<details>")
    assert "| 3.5.0 - 3.6.0 | fails in the same way |" in first
    assert "3.4.0" not in first.partition("### Versions")[2].replace("3.4.0 ends with", "")
    assert "| 3.4.0 | unsupported: Unsupported .version 8.8 |" in below
    assert "| 3.5.0 - 3.6.0 | trap\\_stub, this failure |" in below or (
        "| 3.5.0 - 3.6.0 | trap_stub, this failure |" in below
    )
    assert "- LLVM: aaaaaaaa in 3.6.0, bbbbbbbb in 3.8.0." in below
    # ptxas has no part in it.
    assert "ptxas" not in render_report(
        replace(IN_TRITON, ways=None, ways_from=None, attachments=()), Upstream.TRITON
    ).text.replace("bundled_ptxas", "")


@pytest.mark.parametrize("upstream", REQUIRED)
@pytest.mark.parametrize("name", ["a`b @everyone", "[x](http://evil.test)", "`` <b>"])
def test_the_name_of_a_file_is_never_markup(name: str, upstream: Upstream) -> None:
    case = structs.replace(IN_PTXAS.case, kernel=name)
    dossier = replace(IN_PTXAS, function=name, case=case, made_by=f"triage report --kernel {name}")
    for each in (dossier, replace(IN_TRITON, function=name)):
        text = render_report(each, upstream).text
        parser = MarkdownIt("commonmark").enable("table")
        for token in parser.parse(text):
            for child in token.children or ():
                assert child.type != "link_open", text
                if child.type == "text":
                    assert "@everyone" not in child.content
                    assert "<b>" not in child.content


def test_numbers_that_were_reduced_are_named() -> None:
    source = changed(
        MINIMIZED,
        level="source",
        suffix=".py",
        original_text="def k(x):\n    y = x + 4096\n",
        text="def k(x):\n    x + 8\n",
        original=Size(bytes=30, lines=2),
        minimized=Size(bytes=20, lines=1),
    )
    dossier = replace(IN_TRITON, minimized=source)
    said = "Shapes and other numbers were reduced, too."
    assert said in render_report(dossier, Upstream.TRITON).text
    same = changed(source, text="def k(x):\n    x + 4096\n")
    assert said not in render_report(replace(dossier, minimized=same), Upstream.TRITON).text
    whole = changed(MINIMIZED, original=MINIMIZED.left.size)
    words = render_report(replace(IN_PTXAS, minimized=whole), Upstream.NVIDIA).text
    assert re.search(r"2 instructions \(\d+ bytes\), not reduced", words)
