"""A register collapse as a part of a report: each line with the cells that it rests on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.bisect.collapse.facts import TIMES_FILE, Lift, read_times
from harness.report.claims import Ledger, has_figures, has_times
from harness.report.dossier import Dossier
from harness.report.forms import named
from harness.tables.templates import config_label, markdown_cell
from harness.values.row import Row

_SAME = {True: "the same", False: "others", None: "not known"}


def collapse_title(ledger: Ledger, d: Dossier) -> str | None:
    """What Triton leaves out and what follows; None without a directive that fixes it."""
    found = d.collapse
    if found is None or found.directive is None or not found.directive.lifts:
        return None
    said = (
        f"No .minnctapersm beside .reqntid: {named(d.function)} gets {d.case.n_regs} of "
        f"{found.directive.after.n_regs} registers on {d.case.target} and spills"
    )
    return ledger.say(said, has_figures(d.case), has_figures(found.directive.after))


def expected_of_collapse(ledger: Ledger, d: Dossier) -> str | None:
    """What the PTX gives with the directive that it lacks; None where that does not fix it."""
    found = d.collapse
    if found is None or found.directive is None or not found.directive.lifts:
        return None
    after = found.directive.after
    said = (
        f"Expected: what the same PTX gives with `{found.directive.words}` behind `.reqntid`, for "
        f"a launch that asks for no occupancy: {after.n_regs} registers and "
        f"{after.spill_stores:,} B of spill stores per thread."
    )
    return ledger.say(said, has_figures(after))


def collapse_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """What happened, what lifts it, with which ptxas, and what it does to the other configs."""
    found = d.collapse
    if found is None:
        return []
    collapse = found.collapse
    said = (
        f"A block has {collapse.threads} threads; each could have {collapse.most} registers and "
        f"gets {collapse.registers}, the most with which all {collapse.blocks} blocks of an SM are "
        "resident. The launch does not ask for that. The PTX that Triton writes has `.reqntid`, "
        "and neither `.minnctapersm` nor `.maxnreg`."
    )
    lines = [ledger.say(said, has_figures(d.case)), ""]
    same = [*found.options, *([found.directive] if found.directive else [])]
    lines += _table(ledger, ("added to that PTX", "registers"), d.case, same)
    if found.best and found.versions:
        words = found.best.words
        lines += ["", f"The same PTX on other ptxas, without and with `{words}`:", ""]
        versions = [(lift.before.ptxas or "", lift) for lift in found.versions]
        lines += _pairs(ledger, "ptxas", versions)
    if found.best and found.configs:
        words = found.best.words
        lines += ["", f"The other configs that compile, without and with `{words}`:", ""]
        configs = [(config_label(lift.before), lift) for lift in found.configs]
        lines += _pairs(ledger, "config", configs)
        if healthy := found.healthy():
            fates = Counter(map(_fate, healthy))
            said = "; ".join(f"{fate}: {count}" for fate, count in fates.most_common())
            said = f"Configs without a collapse: {len(healthy)}. With the option: {said}."
            rows = [has_figures(row) for lift in healthy for row in (lift.before, lift.after)]
            lines += ["", ledger.say(said, *rows)]
    return [*lines, *_times(ledger, d.times)] if d.times else lines


def _times(ledger: Ledger, data: bytes) -> list[str]:
    """What a GPU measured of the same kernel, line by line from the attached samples."""
    found = read_times(data)
    facts = ", ".join(filter(None, (found.driver and f"driver {found.driver}", found.day)))
    said = (
        f"Measured: this kernel for {found.target} ({found.compiler}, {found.tool}, launch "
        f"`{found.launch}`, {found.config}) on {found.device}{f' ({facts})' if facts else ''}, in "
        f"turns, the L2 cache flushed before each run. `{TIMES_FILE}` has every sample."
    )
    header = (
        *("added to that PTX", "registers", "spill stores (B per thread)", "ms, median"),
        *("fastest - third quartile", "runs", "times as fast", "bytes that it leaves"),
    )
    claims = [has_times(data, change.change) for change in found.changes]
    lines = ["", ledger.say(said, *claims), "", _line(header), _line(["---"] * len(header))]
    for each, claim in zip(found.changes, claims, strict=True):
        figures: Any = claim.expected
        registers, spills, median, least, most, runs, faster, same = figures[1:9]
        numbers = (f"{registers}", f"{spills:,}", f"{median:.3f}", f"{least:.3f} - {most:.3f}")
        times = f"{faster:.2f}" if faster else "ambiguous"
        against = (times, _SAME[same]) if each.change else ("", "")
        words = f"`{each.change}`" if each.change else "nothing"
        lines.append(ledger.say(_line((words, *numbers, f"{runs}", *against)), claim))
    return lines


def _table(ledger: Ledger, names: tuple[str, str], before: Row, lifts: Sequence[Lift]) -> list[str]:
    header = (*names, "spill stores (B per thread)", "spill loads", "occupancy")
    lines = [_line(header), _line(["---"] * len(header))]
    for words, row in (("nothing", before), *((f"`{lift.words}`", lift.after) for lift in lifts)):
        lines.append(ledger.say(_line((words, *_figures(row))), has_figures(row)))
    return lines


def _figures(row: Row) -> tuple[str, ...]:
    numbers = (row.n_regs, row.spill_stores, row.spill_loads)
    occupancy = "" if row.occupancy is None else f"{row.occupancy:.1%}"
    return (*("" if number is None else f"{number:,}" for number in numbers), occupancy)


def _pairs(ledger: Ledger, name: str, lifts: Sequence[tuple[str, Lift]]) -> list[str]:
    header = (name, "registers", "with it", "spill stores (B per thread)", "with it")
    lines = [_line(header), _line(["---"] * len(header))]
    for words, each in lifts:
        before, after = _figures(each.before), _figures(each.after)
        said = _line((markdown_cell(words), before[0], after[0], before[1], after[1]))
        lines.append(ledger.say(said, has_figures(each.before), has_figures(each.after)))
    return lines


def _fate(lift: Lift) -> str:
    before, after = lift.before, lift.after
    if before.cubin_sha256 == after.cubin_sha256:
        return "the same cubin, byte for byte"
    if before.spill_stores != after.spill_stores:
        less = (after.spill_stores or 0) < (before.spill_stores or 0)
        return "fewer spills" if less else "more spills"
    if before.occupancy != after.occupancy:
        lower = (after.occupancy or 0) < (before.occupancy or 0)
        return f"the same spills at a {'lower' if lower else 'higher'} occupancy"
    return "the same spills and occupancy"


def _line(cells: Sequence[str]) -> str:
    if set(cells) == {"---"}:
        return "|" + "|".join(cells) + "|"
    return "| " + " | ".join(cells) + " |"
