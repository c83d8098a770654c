"""What executing the shown file found besides values: schedules, and accesses nothing orders.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.report.claims import Ledger, is_seen
from harness.report.dossier import Dossier
from harness.tables.templates import markdown_code
from harness.values.execution import RaceFacts, RunVerdict


def schedule_sentence(ledger: Ledger, d: Dossier) -> str:
    """Under which schedules it goes wrong, and what it is held to; empty where nothing was run."""
    shown = d.shown_run
    if shown is None:
        return ""
    place, row = shown
    what = markdown_code(place.file if place else d.function)
    held = f", held to {row.reference}" if row.reference else ""
    several = "schedules" if "," in (row.schedule or "") else "schedule"
    wrong = "; no value is affected" if row.run is RunVerdict.RACE else "; it goes wrong"
    said = f"What {what} computes{held}{wrong} under the {several} {row.schedule}"
    said += " (order of warps / completion of asynchronous operations)."
    return ledger.say(said, is_seen(place, row))


def race_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """Accesses that nothing orders, those of one pair of source lines together."""
    shown = d.shown_run
    if shown is None:
        return []
    place, row = shown
    groups: dict[tuple[object, ...], list[RaceFacts]] = {}
    for race in row.counted_races:
        groups.setdefault((race.kind, race.space, race.source_lines), []).append(race)
    texts = {file.name: file.data.decode(errors="replace") for file in d.attachments}
    return [
        ledger.say(_words(found, texts if place else {}), is_seen(place, row))
        for found in groups.values()
    ]


def _words(found: list[RaceFacts], texts: Mapping[str, str]) -> str:
    race = found[0]
    places = " and ".join(
        _source(line, texts) if line else f"PTX line {number}"
        for line, number in zip(race.source_lines, race.ptx_lines, strict=True)
    )
    count = "1 pair" if len(found) == 1 else f"{len(found)} pairs"
    said = "; the first: " if len(found) > 1 else ": "
    formal = ", in the letter of the memory model alone" if race.formal else ""
    space = race.space.removesuffix("_memory").replace("_", " ")
    kind = f"{race.kind}, {space} memory{formal}"
    return f"{kind}: {places}, {count} of instructions{said}{race.what}."


def _source(line: str, texts: Mapping[str, str]) -> str:
    """`kernel.py:19`, with its text where that file is attached."""
    file, _, number = line.rpartition(":")
    lines = texts.get(file, "").splitlines()
    if not number.isdigit() or not 0 < int(number) <= len(lines):
        return f"`{line}`"
    return f"`{line}` ({markdown_code(lines[int(number) - 1])})"
