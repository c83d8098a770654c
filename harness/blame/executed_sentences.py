"""The evidence of a blame whose PTX was executed, in sentences. Pure: a grid in, sentences out.

All of it is *emulated*: true of the PTX under the PTX ISA's rules, on the inputs that were given.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.blame.grid import Grid, Line, PairTrial, Varied
from harness.blame.ground import Ground
from harness.blame.names import compiler_names
from harness.judging.answers import VerdictAnswer

_BEGIN = (
    "ptxas is not involved: the PTX itself, executed under the PTX ISA's rules, does it (emulated)."
)
_WITH = {Varied.OPTION: "With {what} in place of the config's own", Varied.TARGET: "On {what}"}


def executed_sentences(grid: Grid, ground: Ground, begin: str = _BEGIN) -> list[str]:
    """What is wrong, with which compilers, and what it takes to be right.

    `begin` says why ptxas has no part in it.
    """
    parts = (
        _by_version(grid),
        _ends(grid, ground),
        _varied(grid),
        _contrasted(grid),
        _crossed(grid),
    )
    return [begin, *(sentence for part in parts for sentence in part)]


def _by_version(grid: Grid) -> Iterator[str]:
    yield f"{grid.focus.kind.value}, on the same inputs: {_programs(grid, grid.failing)}."
    if good := grid.working:
        yield f"The same source and config is {_verdicts(good)}: {_programs(grid, good)}."
    silent: dict[str, list[str]] = {}
    for line in grid.by_triton():
        cells = line.all_cells()
        if cells and not any(cell.outcome.moves_a_bound for cell in cells):
            why = ": ".join(filter(None, (cells[0].verdict, cells[0].reason)))
            silent.setdefault(why, []).extend(line.tritons)
    for why, tritons in silent.items():
        yield f"Says nothing of it: {compiler_names(grid.title, tritons)} ({why})."


def _programs(grid: Grid, lines: Sequence[Line]) -> str:
    """Compilers, and which of them write the same PTX."""
    ordered = [line for line in grid.by_triton() if line in lines]
    said = compiler_names(grid.title, [version for line in ordered for version in line.tritons])
    alike = [line for line in ordered if len(line.tritons) > 1]
    if alike:
        names = "; ".join(compiler_names(grid.title, line.tritons) for line in alike)
        return f"{said} (identical PTX: {names})"
    return f"{said}, each with PTX of its own" if len(ordered) > 1 else said


def _verdicts(lines: Sequence[Line]) -> str:
    cells = [cell for line in lines for cell in line.all_cells()]
    good = [cell.verdict for cell in cells if cell.outcome is VerdictAnswer.OK]
    return " or ".join(dict.fromkeys(good))


def _ends(grid: Grid, ground: Ground) -> Iterator[str]:
    if ground is Ground.ONE_TRITON:
        who = compiler_names(grid.title, grid.tritons_with(grid.focus.kind))
        yield f"Only {who} gave a result."
    if ground is Ground.NOTHING_IS_RIGHT:
        yield "Nothing that was tried is right: it may be the kernel, or what it is compared with."
    if ground is Ground.EVERY_TOOLCHAIN:
        yield f"Every {grid.title} that gave a result does it, whatever the options and the target."


def _varied(grid: Grid) -> Iterator[str]:
    """What else the same compiler makes of the same source."""
    for varied, words in _WITH.items():
        groups: dict[tuple[bool, str], list[PairTrial]] = {}
        for trial in grid.varying(varied):
            is_same = trial.after is VerdictAnswer.SAME
            verdict = "the same" if is_same else f"{trial.verdict}{_another(trial, grid)}"
            groups.setdefault((is_same, verdict), []).append(trial)
        for (_, verdict), trials in sorted(groups.items()):
            what = ", ".join(trial.what for trial in trials)
            who = compiler_names(grid.title, [each.triton for each in trials if each.triton])
            yield f"{words.format(what=what)} ({who}): {verdict}."


def _another(trial: PairTrial, grid: Grid) -> str:
    """Of the same kind, but not this failure."""
    return " in another way" if trial.verdict == grid.focus.kind.value else ""


def _contrasted(grid: Grid) -> Iterator[str]:
    if grid.contrast is None:
        return
    beside = f"Beside the IR of {grid.contrast.name}, which works, it"
    first = next((stage for stage in grid.contrast.stages if stage.differs), None)
    if first is None:
        yield f"{beside} has the same kinds of operation at every stage."
    else:
        yield f"{beside} first differs in kind in {first.stage.upper()}: {first.words}."


def _crossed(grid: Grid) -> Iterator[str]:
    trials = grid.varying(Varied.STAGE)
    for trial in trials:
        if trial.after.moves_a_bound:
            yield f"{trial.what[0].upper()}{trial.what[1:]}: {trial.verdict}."
    goes_with = {stage: _goes_with(stage, trials) for stage in ("TTIR", "TTGIR")}
    who = compiler_names(grid.title, grid.lines[0].tritons[:1])
    if goes_with["TTGIR"] is False:
        yield f"So it comes about in the lowering from TTGIR, in {who}."
    elif goes_with["TTGIR"] and goes_with["TTIR"] is False:
        yield f"So it comes about between TTIR and TTGIR, in the passes of {who}."
    elif goes_with["TTGIR"]:
        yield f"So it is in the TTGIR of {who} already, and not in the lowering from there."


def _goes_with(stage: str, trials: Sequence[PairTrial]) -> bool | None:
    """Whether the IR of this stage decides, and not who lowers it; None where that is not known."""
    answers = [
        trial.after
        for trial in trials
        if trial.what.startswith(f"the {stage} ") and trial.after.moves_a_bound
    ]
    # First the IR that works, lowered by the compiler that fails; then the other way round.
    if answers == [VerdictAnswer.OK, VerdictAnswer.SAME]:
        return True
    return False if answers == [VerdictAnswer.SAME, VerdictAnswer.OK] else None
