"""The picture of a history: well-formed, in words too, and as true as the rest of the issue."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs
from report_cases import CRASH, EXECUTED, FINE, IN_PTXAS, IN_TRITON, attachment, history

from harness.judging.conditions import parse_condition
from harness.judging.followed import follow
from harness.report.claims import ClaimKind, ClaimsTrial, prove
from harness.report.dossier import Dossier, Upstream
from harness.report.gate import Private, inspect_report
from harness.report.issue import render_report
from harness.report.paragraphs import REQUIRED
from harness.report.picture import PICTURE, draw_history
from harness.values.row import Row

VERSIONS = ("12.8.93", "12.9.41", "13.0.88", "13.1.80", "13.3.33", "13.4.59")
NUMBERS = {"12.9.41": (128, 1536), "13.0.88": (128, 1536), "13.3.33": (255, 0), "13.4.59": (255, 8)}
CRASHES = history("ptxas", ("1.0", "2.0"), "?x", CRASH)
SVG = "{http://www.w3.org/2000/svg}"


def told(version: str, row: Row) -> Row:
    """With a cell of its own, and the numbers of this version."""
    registers, stores = NUMBERS.get(version, (None, None))
    row = structs.replace(row, cell=f"cell/{version}")
    return structs.replace(row, n_regs=registers, spill_stores=stores, spill_loads=stores)


def with_history(dossier: Dossier = IN_PTXAS) -> Dossier:
    """A crash with ptxas 13.1.80, and numbers on both of its sides."""
    report = history("ptxas", VERSIONS, "?++x++", CRASH)
    rows = {version: told(version, row) for version, row in report.rows.items()}
    return replace(dossier, along_ptxas=replace(report, rows=rows))


def with_picture(dossier: Dossier, upstream: Upstream = Upstream.NVIDIA) -> Dossier:
    drawn = draw_history(dossier, upstream)
    assert drawn
    file = attachment(PICTURE, drawn.decode(), "the numbers of the history as a picture")
    return replace(dossier, attachments=(*dossier.attachments, file))


def alt(text: str) -> str:
    [found] = re.findall(rf"^!\[(.*)\]\({re.escape(PICTURE)}\)$", text, re.MULTILINE)
    return str(found)


def test_the_picture_says_in_words_what_it_draws() -> None:
    dossier = with_picture(with_history())
    root = ET.fromstring(dossier.attachments[-1].data)
    said = root.findtext(f"{SVG}desc") or ""
    assert said == (
        "Registers (per thread; limit 255): 128 with 12.9.41 - 13.0.88, "
        "255 with 13.3.33 - 13.4.59. "
        "Spills (bytes per thread, stores and loads): "
        "3,072 with 12.9.41 - 13.0.88, 0 with 13.3.33, "
        "16 with 13.4.59. This failure: 13.1.80. First bad 13.1.80, first fixed 13.3.33."
    )
    assert alt(render_report(dossier, Upstream.NVIDIA).text).endswith(said)
    drawn = [each.text for each in root.iter(f"{SVG}text")]
    # Too old for this target: the table has it.
    assert "12.8.93" not in drawn
    assert {*VERSIONS[1:], "128", "255", "3,072"} <= set(drawn)
    assert [each.get("class") for each in root.findall(f"{SVG}g/{SVG}rect")] == ["bad", "bad"]


def test_nothing_is_loaded_and_names_are_words() -> None:
    evil = "<script>a</script>]](x) & \x01\"'"
    dossier = with_picture(replace(with_history(), function=evil))
    root = ET.fromstring(dossier.attachments[-1].data)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "text", "tspan", "g", "line"),
        *("polygon", "polyline", "circle"),
    }
    assert not [name for each in root.iter() for name in each.attrib if "href" in name]
    assert "url(" not in dossier.attachments[-1].data.decode()
    assert "<script>a</script>]](x) & ?\"'" in (root.findtext(f"{SVG}title") or "")
    files = {file.name: file.data for file in dossier.attachments}
    issue = render_report(dossier, Upstream.NVIDIA).text
    assert alt(issue).startswith(r"\<script>a\</script>\]\](x)")
    assert inspect_report(issue, files, required=(), private=Private(words={})) == []


@pytest.mark.parametrize("upstream", REQUIRED)
def test_every_form_shows_it_and_passes_the_gate(upstream: Upstream) -> None:
    dossier = with_picture(with_history(), upstream)
    files = {file.name: file.data for file in dossier.attachments}
    issue = render_report(dossier, upstream).text
    assert alt(issue)
    found = inspect_report(issue, files, required=REQUIRED[upstream], private=Private(words={}))
    assert found == []


def test_a_number_that_its_evidence_does_not_give_is_a_false_statement() -> None:
    dossier = with_picture(with_history())
    issue = render_report(dossier, Upstream.NVIDIA)
    assert dossier.along_ptxas
    rows = {row.cell: row for row in dossier.along_ptxas.rows.values()}
    claims = [each for each in issue.claims if each.sentence == alt(issue.text)]
    assert {each.cell for each in claims if each.kind is ClaimKind.FIGURES} == set(rows)
    assert prove(claims, ClaimsTrial(stored=rows), issue.text).false == ()
    row = rows["cell/13.0.88"]
    for changed in (structs.replace(row, n_regs=64), structs.replace(row, occupancy=0.5)):
        other = {**rows, row.cell: changed}
        [false] = prove(claims, ClaimsTrial(stored=other), issue.text).false
        assert row.cell in false


@pytest.mark.parametrize(
    ("dossier", "upstream"),
    [
        # One version has numbers, none has, what was executed has none, no history.
        (IN_TRITON, Upstream.TRITON),
        (replace(IN_PTXAS, along_ptxas=CRASHES), Upstream.NVIDIA),
        (EXECUTED, Upstream.TRITON),
        (replace(IN_PTXAS, along_ptxas=None), Upstream.NVIDIA),
    ],
)
def test_without_two_versions_that_have_numbers_there_is_none(
    dossier: Dossier, upstream: Upstream
) -> None:
    assert draw_history(dossier, upstream) is None
    assert PICTURE not in render_report(dossier, upstream).text


def test_what_meets_a_condition_is_drawn_and_shaded() -> None:
    poor = structs.replace(FINE, config=CRASH.config)
    condition = parse_condition("spill_stores > 0")
    report = history("ptxas", ("1.0", "2.0", "3.0"), "+xx", poor)
    followed = follow(poor, condition=condition)
    dossier = replace(
        IN_PTXAS, case=poor, condition=condition, along_ptxas=replace(report, followed=followed)
    )
    drawn = draw_history(dossier, Upstream.NVIDIA)
    assert drawn
    said = ET.fromstring(drawn).findtext(f"{SVG}desc") or ""
    assert "1,112 with 2.0 - 3.0" in said
    assert "Meets the condition: 2.0 - 3.0. First bad 2.0." in said
