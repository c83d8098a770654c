"""A blame in sentences: who, on what evidence, and what would tell what cannot be told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from packaging.version import Version

from harness.logic.answers import Outcome
from harness.logic.blame import Culprit, Ground, culprit_of, ground_of
from harness.logic.blame_grid import Grid, Line, Trial, Varied, fold
from harness.values.verdict import VerdictKind

__all__ = ["Blame", "Wanted", "blame", "line_name", "triton_names"]


class Wanted(str, Enum):
    """What would tell more."""

    OTHER_TRITONS = "other_tritons"
    OTHER_PTXAS = "other_ptxas"
    SOURCE = "source"
    MORE_ROOM = "more_room"
    REDUCTION = "reduction"
    AGAIN = "again"
    LOG = "log"
    IR = "ir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The answer: `headline` names the culprit, `reasons` are the evidence, one sentence each."""

    culprit: Culprit | None
    ground: Ground
    headline: str
    reasons: tuple[str, ...]
    wanted: Wanted | None = None


_HEADLINES = {
    Ground.NOTHING_FAILS: "Nothing that was tried shows a failure.",
    Ground.LIMIT: "The kernel is to blame: it asks for more than the target has.",
    Ground.UNSUPPORTED: "A pairing: nobody's fault, these do not go together.",
    None: "Nothing that was tried shows a failure.",
    Culprit.PTXAS: "ptxas is to blame.",
    Culprit.TRITON: "Triton/LLVM is to blame.",
    Culprit.KERNEL: "The kernel is to blame.",
    Culprit.PAIRING: "A pairing: neither side fails alone.",
    Culprit.CANNOT_TELL: "Cannot tell whose fault it is.",
}
_WANTED = {
    Ground.ONE_TRITON: Wanted.OTHER_TRITONS,
    Ground.ONE_PTXAS: Wanted.OTHER_PTXAS,
    Ground.NO_COMMON_PTXAS: Wanted.OTHER_PTXAS,
    Ground.RAW_PTX: Wanted.SOURCE,
    Ground.OUT_OF_BOUNDS: Wanted.MORE_ROOM,
    Ground.NO_TRITON: Wanted.LOG,
    Ground.STUB_BY_ALL: Wanted.IR,
    Ground.FRAGILE: Wanted.REDUCTION,
    Ground.FLAKY: Wanted.AGAIN,
}


def blame(grid: Grid) -> Blame:
    """Whose failure the one in focus is."""
    ground = ground_of(grid)
    culprit = culprit_of(ground)
    sentences = [*_GROUNDS[ground](grid), *_besides(grid, ground)] if culprit else []
    return Blame(
        culprit=culprit,
        ground=ground,
        headline=_HEADLINES.get(ground) or _HEADLINES[culprit],
        reasons=tuple(dict.fromkeys(sentences)),
        wanted=_WANTED.get(ground),
    )


def triton_names(tritons: Sequence[str]) -> str:
    """`Triton 3.5.1, 3.6.0`; the raw PTX where there are none."""
    ordered = sorted(dict.fromkeys(tritons), key=Version)
    return f"Triton {', '.join(ordered)}" if ordered else "the raw PTX"


def line_name(line: Line) -> str:
    """A line in words: `Triton 3.6.0, PTX 8.8`."""
    words = [triton_names(line.tritons)] if line.tritons else []
    if line.version:
        words.append(f"PTX {line.version}" if words else f"raw PTX {line.version}")
    if line.made_for:
        words.append(f"pointed at ptxas {line.made_for}")
    return ", ".join(words)


def _made_by(lines: Sequence[Line]) -> str:
    return triton_names([triton for line in lines for triton in line.tritons])


def _split(grid: Grid) -> Iterator[str]:
    for line in grid.splits:
        bad, good = (fold(line.ptxas(o), grid.ptxas) for o in (Outcome.SAME, Outcome.OK))
        yield (
            f"PTX identical on both sides ({line_name(line)}): yes, so ptxas. "
            f"It fails on {bad}, and works on {good}."
        )


def _crash(grid: Grid) -> Iterator[str]:
    tried = fold(grid.ptxas_with(Outcome.SAME), grid.ptxas)
    yield f"ptxas {tried} {_verb(grid)}: no input may do that to a compiler, whatever made it."


def _verb(grid: Grid) -> str:
    is_internal = grid.focus.kind is VerdictKind.PTXAS_ICE
    return "ends with an internal error" if is_internal else "dies by a signal"


def _triton_crash(grid: Grid) -> Iterator[str]:
    yield (
        f"With {_made_by(grid.failing)} the compiler dies before there is PTX (stage "
        f"{grid.focus.stage}): no kernel may do that to a compiler."
    )
    yield from _other_tritons(grid)


def _stub(grid: Grid) -> Iterator[str]:
    yield (
        f"The kernel is gone from the PTX already (stage {grid.focus.stage}): "
        f"{_made_by(grid.failing)} left it out and reported success."
    )
    assembled = fold(grid.ptxas_with(Outcome.SAME), grid.ptxas)
    yield f"ptxas has no part in it: it assembles what it is given, be it {assembled}."
    if grid.focus.is_over_limit:
        yield "It asks for more than the target has: that is to be refused, not to be left out."
    yield from _other_tritons(grid)


def _stub_by_all(grid: Grid) -> Iterator[str]:
    yield from _stub(grid)
    yield "Triton, or a kernel that breaks its own promises (`tl.assume`): the IR would say."


def _other_tritons(grid: Grid) -> Iterator[str]:
    if grid.working:
        yield f"Not so with {_made_by(grid.working)}: it follows what Triton makes."
    else:
        yield "No Triton that was tried does better."


def _follows_ptx(grid: Grid) -> Iterator[str]:
    for line in dict.fromkeys(id(one) for one, _, _ in grid.follows):
        one = next(each for each in grid.failing if id(each) == line)
        yield (
            "PTX identical on both sides: no, it follows what Triton makes. Every ptxas that could "
            f"be told, {fold(one.ptxas(Outcome.SAME), grid.ptxas)}, fails on that of "
            f"{line_name(one)}."
        )
    yield from _way_around(grid)


def _way_around(grid: Grid) -> Iterator[str]:
    """Lines that work where others fail: on the very same ptxas."""
    seen: dict[int, tuple[Line, list[str]]] = {}
    for _, other, version in grid.follows:
        if not other.has(Outcome.SAME):
            seen.setdefault(id(other), (other, []))[1].append(version)
    for other, versions in seen.values():
        tried = fold(versions, grid.ptxas)
        yield f"What {line_name(other)} makes works on the same ptxas: {tried}."


def _another_triton(grid: Grid) -> Iterator[str]:
    yield (
        f"It happens before ptxas (stage {grid.focus.stage}), with {_made_by(grid.failing)}. "
        f"The same source compiles with {_made_by(grid.working)}."
    )
    if grid.focus.kind is VerdictKind.REJECTED:
        yield "What one of them refuses may be what it does not know yet: read its message."


def _rejected(grid: Grid) -> Iterator[str]:
    tritons = triton_names(grid.tritons_with(VerdictKind.REJECTED))
    yield f"Every Triton that could be told refuses the source, each in its own words: {tritons}."


def _limit(grid: Grid) -> Iterator[str]:
    who = triton_names(grid.tritons_with(VerdictKind.OUT_OF_RESOURCES))
    yield f"It does not fit with any toolchain that could be told: {who}."


def _every_toolchain(grid: Grid) -> Iterator[str]:
    tritons = triton_names(grid.tritons_with(grid.focus.kind))
    tried = fold(grid.ptxas_with(Outcome.SAME), grid.ptxas)
    yield f"Every toolchain that could be told does it: {tritons}, with ptxas {tried}."


def _unsupported(grid: Grid) -> Iterator[str]:
    for line in grid.failing:
        if line.stopped:
            yield f"It happens before ptxas, with {line_name(line)}: {line.stopped.reason}."
            continue
        unable = [*line.ptxas(Outcome.SAME), *line.ptxas(Outcome.UNTESTABLE)]
        able = fold(line.ptxas(Outcome.OK), grid.ptxas)
        yield f"{line_name(line)} is beyond ptxas {fold(unable, grid.ptxas)}; it works on {able}."
    if grid.working:
        yield f"It works with {_made_by(grid.working)}, on a ptxas that goes with it."


def _settings(grid: Grid) -> Iterator[str]:
    for one, other, version in grid.settings:
        yield (
            f"The same program fails on ptxas {version} as {_setting(one)}, "
            f"and works as {_setting(other)}."
        )
    for trial in grid.varying(Varied.FLAGS):
        if trial.changed:
            yield f"It hangs on a flag: {_trial_words(trial)}."


def _setting(line: Line) -> str:
    return f"PTX {line.version} with {' '.join(line.flags) or 'no flags'}"


def _pointed(grid: Grid) -> Iterator[str]:
    names = "; ".join(line_name(line) for line in grid.failing)
    yield f"It happens before ptxas (stage {grid.focus.stage}), with {names}."
    yield "It takes both: what the same Triton makes for the ptxas that it bundles works."


def _both(grid: Grid) -> Iterator[str]:
    for line in grid.splits:
        bad, good = (fold(line.ptxas(o), grid.ptxas) for o in (Outcome.SAME, Outcome.OK))
        yield f"That of {line_name(line)} is refused by ptxas {bad}, and accepted by {good}."
    yield from _way_around(grid)
    yield "It takes both: this PTX, and one of these ptxas."


def _one_triton(grid: Grid) -> Iterator[str]:
    yield f"Only {triton_names(grid.tritons_with(grid.focus.kind))} could be told of."


def _one_ptxas(grid: Grid) -> Iterator[str]:
    only = ", ".join(grid.ptxas_with(Outcome.SAME))
    yield f"Only one ptxas could be told of on the PTX that fails: {only}."
    yield from _way_around(grid)


def _no_common_ptxas(grid: Grid) -> Iterator[str]:
    for kind, lines in (("fails", grid.failing), ("works", grid.working)):
        outcome = Outcome.SAME if kind == "fails" else Outcome.OK
        for line in lines:
            tried = fold(line.ptxas(outcome), grid.ptxas)
            yield f"{line_name(line)} {kind} on ptxas {tried}."
    yield "No ptxas that was tried could be told of on both: it may be the PTX, or the ptxas."


def _raw_ptx(grid: Grid) -> Iterator[str]:
    tried = fold(grid.ptxas_with(Outcome.SAME), grid.ptxas)
    yield f"Not ptxas: all that could be told agree ({tried})."
    yield "The kernel, or who made this PTX: a raw PTX does not say which."


def _out_of_bounds(grid: Grid) -> Iterator[str]:
    what = "time" if grid.focus.kind is VerdictKind.TIMEOUT else "memory"
    yield f"Nothing that was tried works within the {what} that it was given."


def _no_triton(grid: Grid) -> Iterator[str]:
    yield (
        f"It happens before ptxas (stage {grid.focus.stage}), with {_made_by(grid.failing)}. "
        "No Triton that was tried compiles it, and not all refuse the source: Triton, or a kernel "
        "that asks for what cannot be."
    )


def _fragile(grid: Grid) -> Iterator[str]:
    yield from (_fragile_words(t) for t in grid.varying(Varied.NAME_OR_LINES) if t.changed)
    yield "So that it fails on one PTX and not on another proves little."


def _flaky(grid: Grid) -> Iterator[str]:
    for trial in grid.varying(Varied.NOTHING):
        if trial.changed:
            yield f"The same again came out otherwise: {_trial_words(trial)}."


def _besides(grid: Grid, ground: Ground) -> Iterator[str]:
    """What is worth knowing beside the ground itself."""
    if ground in (Ground.SPLIT, Ground.PTXAS_CRASH):
        if ground is Ground.SPLIT and grid.focus.is_crash:
            yield from _crash(grid)
        yield from _way_around(grid)
        if grid.follows or grid.settings:
            yield "What sets it off is in the PTX; that it fails on it is ptxas'."
        yield from _settings(grid)
    if grid.is_flaky and ground is Ground.PTXAS_CRASH:
        yield from _flaky(grid)
    yield from _varied(grid)
    if ground is not Ground.UNSUPPORTED:
        yield from _untold(grid)


def _varied(grid: Grid) -> Iterator[str]:
    trials = grid.varying(Varied.NAME_OR_LINES)
    for trial in trials:
        if trial.changed:
            yield _fragile_words(trial)
    told = [trial.what for trial in trials if trial.after.moves_a_bound]
    if told and not grid.is_fragile:
        yield f"Harmless variations change nothing: {', '.join(dict.fromkeys(told))}."
    levels = grid.varying(Varied.LEVEL)
    works = [trial.what for trial in levels if trial.changed]
    fails = [trial.what for trial in levels if trial.after is Outcome.SAME]
    if works and fails:
        yield f"By optimisation level: {', '.join(fails)} fail, {', '.join(works)} work."
    elif fails:
        yield f"At every optimisation level: {', '.join(fails)}."


def _fragile_words(trial: Trial) -> str:
    return f"It depends on what must not matter: {_trial_words(trial)}."


def _trial_words(trial: Trial) -> str:
    who = f"{triton_names((trial.triton,))} " if trial.triton else ""
    words = {Outcome.SAME: "fails", Outcome.OK: "works"}
    before, after = words.get(trial.before, "?"), words.get(trial.after, "?")
    return f"{who}on ptxas {trial.ptxas} {before}; {trial.what}, it {after}"


def _untold(grid: Grid) -> Iterator[str]:
    """Lines that say nothing of this failure, and why: they count neither way."""
    stopped: dict[tuple[str, str], list[str]] = {}
    for line in grid.lines:
        cell = line.stopped
        if cell and not cell.outcome.moves_a_bound and cell.verdict != grid.focus.kind.value:
            is_other = cell.outcome is Outcome.OTHER
            how = "Fails in another way" if is_other else "Untestable"
            stopped.setdefault((how, cell.reason), []).extend(line.tritons)
    for (how, reason), tritons in stopped.items():
        yield f"{how} with {triton_names(tritons)}: {reason}."
    for line in grid.lines:
        others = line.ptxas(Outcome.OTHER)
        if others:
            verdicts = ", ".join(sorted({line.cells[version].verdict for version in others}))
            versions = fold(others, grid.ptxas)
            yield f"Fails in another way with {line_name(line)}, ptxas {versions}: {verdicts}."
        holes = line.ptxas(Outcome.UNTESTABLE)
        if holes and line.has(Outcome.SAME):
            yield f"Untestable with {line_name(line)}: ptxas {fold(holes, grid.ptxas)}."


_GROUNDS: dict[Ground, Callable[[Grid], Iterator[str]]] = {
    Ground.SPLIT: _split,
    Ground.PTXAS_CRASH: _crash,
    Ground.TRITON_CRASH: _triton_crash,
    Ground.STUB: _stub,
    Ground.STUB_BY_ALL: _stub_by_all,
    Ground.FOLLOWS_PTX: _follows_ptx,
    Ground.ANOTHER_TRITON: _another_triton,
    Ground.REJECTED: _rejected,
    Ground.LIMIT: _limit,
    Ground.EVERY_TOOLCHAIN: _every_toolchain,
    Ground.UNSUPPORTED: _unsupported,
    Ground.SETTINGS: _settings,
    Ground.BOTH: _both,
    Ground.POINTED: _pointed,
    Ground.ONE_TRITON: _one_triton,
    Ground.ONE_PTXAS: _one_ptxas,
    Ground.NO_COMMON_PTXAS: _no_common_ptxas,
    Ground.RAW_PTX: _raw_ptx,
    Ground.OUT_OF_BOUNDS: _out_of_bounds,
    Ground.NO_TRITON: _no_triton,
    Ground.FRAGILE: _fragile,
    Ground.FLAKY: _flaky,
}
