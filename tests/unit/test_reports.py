"""The reports for each upstream, held to golden texts and to the gate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_cases import CASES, GOLDEN, IN_PTXAS, IN_TRITON

from harness.logic.dossier import Upstream, search_terms
from harness.logic.report_gate import Private, inspect_report
from harness.presentation.report_documents import report_document, report_page
from harness.presentation.reports import REQUIRED, render_report


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    dossier, upstream = CASES[name]
    expected = (GOLDEN / f"{name}.md").read_text()
    assert render_report(dossier, upstream) == expected, "see tests/unit/report_cases.py"


@pytest.mark.parametrize("upstream", Upstream)
def test_a_whole_dossier_passes_the_gate(upstream: Upstream) -> None:
    files = {file.name: file.data for file in IN_PTXAS.attachments}
    issue = render_report(IN_PTXAS, upstream)
    required = REQUIRED[upstream]
    assert inspect_report(issue, files, required=required, private=Private(words={})) == []


@pytest.mark.parametrize("upstream", Upstream)
def test_what_is_missing_is_told_with_the_command_that_makes_it(upstream: Upstream) -> None:
    issue = render_report(IN_TRITON, upstream)
    assert "`triage blame`" in issue
    assert "`triage minimize`" in issue
    assert "None" not in issue


def test_hostile_values_stay_text() -> None:
    evil = "a|b <script>alert(1)</script> `x` [y](z) {{ 7*7 }}"
    case = replace(IN_PTXAS.case, reason=f"ptxas ended: {evil}")
    dossier = replace(IN_PTXAS, case=case, rows=(case,), log=f"{evil}\n```\nnot the end")
    for upstream in Upstream:
        page = report_page(render_report(dossier, upstream))
        assert "<script>" not in page
        assert "49" not in page.replace(evil, "")


def test_the_document_has_what_the_issue_has() -> None:
    issue = render_report(IN_PTXAS, Upstream.NVIDIA)
    document = report_document(IN_PTXAS, Upstream.NVIDIA, issue, [])
    assert document["title"] == issue.splitlines()[0][2:]
    assert document["ready"] is True
    assert document["along_ptxas"]["first_bad"] == "13.1.80"
    assert [file["name"] for file in document["attachments"]] == ["min.ptx", "repro.sh"]


def test_search_terms_begin_with_the_most_telling() -> None:
    terms = search_terms(IN_PTXAS)
    assert terms[0] == "C1234"
    assert "_scan_kernel" in terms
    assert '"Internal compiler error"' in terms
    assert "convert-something" in search_terms(IN_TRITON)
