"""A report as JSON and as HTML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from markdown_it import MarkdownIt

from harness.bisect.contrast import contrast_document
from harness.bisect.words import bisect_document
from harness.report.claims import ClaimsProof, Issue
from harness.report.dossier import Dossier, Upstream
from harness.report.gate import Defect
from harness.tables.templates import render_template


def report_document(
    d: Dossier, upstream: Upstream, issue: Issue, proof: ClaimsProof, defects: Sequence[Defect]
) -> dict[str, Any]:
    """For `--json` and `--format json`."""
    title, _, body = issue.text.partition("\n")
    return {
        "schema": 1,
        "for": upstream.value,
        "title": title.removeprefix("# "),
        "body": body.strip(),
        "ready": not defects,
        "statements": proof.claims,
        "statements_checked": proof.checked,
        "defects": [{"kind": x.kind, "file": x.file, "words": x.words} for x in defects],
        "case": asdict(d.case),
        "configs": [asdict(row) for row in d.rows],
        "along_ptxas": bisect_document(d.along_ptxas) if d.along_ptxas else None,
        "along_triton": bisect_document(d.along_triton) if d.along_triton else None,
        "flags": contrast_document(d.flags) if d.flags else None,
        "targets": contrast_document(d.targets) if d.targets else None,
        "blame": {"headline": d.blame.headline, "reasons": d.blame.reasons} if d.blame else None,
        "workarounds": None if d.ways is None else [asdict(way) for way in d.ways],
        "attachments": [
            {"name": file.name, "sha256": file.sha256, "what": file.what} for file in d.attachments
        ],
        "missing": [
            {"what": each.what, "why": each.why, "command": each.command} for each in d.missing
        ],
    }


def report_page(issue: str) -> str:
    """A page of HTML that stands alone; the values in the text were escaped when it was made."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(issue)
    return render_template("report/page.html.j2", title=issue.partition("\n")[0][2:], body=body)
