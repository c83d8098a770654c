"""What a failure takes, and what does not matter to it, in words and as a document. Pure."""

from __future__ import annotations

from typing import Any

from harness.bisect.contrast import Carrier, Contrast, Point
from harness.judging.answers import VerdictAnswer
from harness.tables.said import BLANK, Block, SaidLine, Tone, say, verdict_said


def contrast_said(found: Contrast) -> list[Block]:
    """Each neighbour with its verdict, and what that says."""
    width = max((len(point.label) for point in found.points), default=0)
    lines = [_point_said(point, width) for point in found.points]
    return [*lines, BLANK, *(say(words, Tone.HEAD) for words in contrast_words(found))]


def _point_said(point: Point, width: int) -> SaidLine:
    said = say(f"  {point.label:<{width}}  ")
    if point.row:
        said += verdict_said(point.row.verdict)
    mark = "  <- this failure" if point.outcome is VerdictAnswer.SAME else ""
    return said + say(f"{mark}  {point.reason}", Tone.FAINT)


def contrast_words(found: Contrast) -> list[str]:
    """The conclusion, a sentence a line."""
    if found.axis == "config":
        return [_carrier_words(carrier) for carrier in found.carriers]
    lines = []
    for words, outcomes in (
        ("Fails alike", (VerdictAnswer.SAME,)),
        ("Works", (VerdictAnswer.OK,)),
        ("Fails in another way", (VerdictAnswer.OTHER,)),
        ("Cannot be determined", (VerdictAnswer.UNTESTABLE, VerdictAnswer.INFRA)),
    ):
        labels = found.labels(*outcomes)
        if labels:
            lines.append(f"{words}: {', '.join(labels)}.")
    return lines


def _carrier_words(carrier: Carrier) -> str:
    parts = [
        f"{'|'.join(values)} {words}"
        for values, words in (
            (carrier.fails, "fail" if len(carrier.fails) > 1 else "fails"),
            (carrier.works, "work" if len(carrier.works) > 1 else "works"),
            (carrier.other, "could not be determined"),
        )
        if values
    ]
    said = {True: "carries it", False: "does not carry it", None: "is not known to carry it"}
    return f"{carrier.name} {said[carrier.carries]}: {', '.join(parts)} (all else equal)."


def contrast_document(found: Contrast) -> dict[str, Any]:
    """For `--json`: the keys of a bisection too, those that do not apply being null."""
    origin = found.origin
    return {
        "schema": 1,
        "axis": found.axis,
        "config": origin.config,
        "signature": origin.signature,
        "last_good": None,
        "first_bad": None,
        "first_fixed": None,
        "fails": found.labels(VerdictAnswer.SAME),
        "works": found.labels(VerdictAnswer.OK),
        "other": found.labels(VerdictAnswer.OTHER),
        "untestable": found.labels(VerdictAnswer.UNTESTABLE, VerdictAnswer.INFRA),
        "segments": [_segment(point) for point in found.points],
        "carriers": [
            {
                "name": carrier.name,
                "fails": carrier.fails,
                "works": carrier.works,
                "other": carrier.other,
                "carries": carrier.carries,
            }
            for carrier in (found.carriers if found.axis == "config" else [])
        ],
        "confidence": None,
        "ptx_identical": _one_program(found),
        "blame": None,
        "trouble": found.trouble,
    }


def _segment(point: Point) -> dict[str, Any]:
    return {
        "first": point.label,
        "last": point.label,
        "outcome": point.outcome.value,
        "verdict": point.row.verdict if point.row else None,
        "signature": point.row.signature if point.row else None,
    }


def _one_program(found: Contrast) -> bool | None:
    bodies = {point.row.ptx_body_sha256 for point in found.points if point.row}
    return None if None in bodies or not bodies else bodies == {found.origin.ptx_body_sha256}
