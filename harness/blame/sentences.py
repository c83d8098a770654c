"""The evidence of a blame in sentences: for each ground, and what is worth knowing beside it.

Pure. Each sentence says only what the cells of the grid prove.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from packaging.version import Version

from harness.bisect.ir_difference import first_difference
from harness.blame.grid import PASSES, Grid, Ground, Line, PairTrial, Varied, fold
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import measured
from harness.values.toolchain import EXECUTOR_NAMES, PTXAS, SASS
from harness.values.verdict import VerdictKind

# What a blame calls the compilers and the programs of its grid.


def agree(number: int, verb: str) -> str:
    """The verb for so many subjects: `it fails`, `they fail`."""
    return f"{verb}s" if number == 1 else verb


def compiled_by(lines: Sequence[Line]) -> str:
    """The compilers of these lines."""
    title = lines[0].title if lines else ""
    return compiler_names(title, [version for line in lines for version in line.compilers])


def who_do(lines: Sequence[Line], verb: str) -> str:
    """The compilers of these lines, and what they do."""
    number = len({version for line in lines for version in line.compilers})
    return f"{compiled_by(lines)} {agree(number, verb)}"


def compiler_names(title: str, versions: Sequence[str]) -> str:
    """`Triton 3.5.1, 3.6.0`; `the raw PTX`, or what else was given, where there are none."""
    ordered = sorted(dict.fromkeys(versions), key=Version)
    return f"{title} {', '.join(ordered)}" if ordered else f"the {title}"


def line_name(line: Line) -> str:
    """A line in words: `Triton 3.6.0, PTX 8.8`."""
    words = [compiler_names(line.title, line.compilers)] if line.compilers else []
    if line.version:
        words.append(f"{line.code} {line.version}" if words else f"{line.title} {line.version}")
    if line.made_for:
        words.append(f"pointed at {line.tool} {line.made_for}")
    return ", ".join(words) or compiler_names(line.title, ())


# What a compiler says may end with a full stop of its own.
_TWO_STOPS = re.compile(r"(?<!\.)\.\.$")


def sentences(grid: Grid, ground: Ground) -> list[str]:
    """What is followed, why that is the ground, and what else the grid shows."""
    followed = [f"Followed: {grid.focus.words}."] if grid.focus.words else []
    lines = [*followed, *_GROUNDS[ground](grid), *_besides(grid, ground)]
    lines = [_TWO_STOPS.sub(".", line) for line in lines]
    # What begins with "PTX" or "ptxas" begins with a name.
    return lines if grid.tool == PTXAS else [f"{line[:1].upper()}{line[1:]}" for line in lines]


def _verbs(grid: Grid) -> tuple[str, str]:
    is_failure = grid.focus.condition is None
    return ("fails", "works") if is_failure else ("meets the condition", "does not meet it")


def _at(grid: Grid, lines: Sequence[Line], outcome: VerdictAnswer) -> str:
    versions = {version for line in lines for version in line.ptxas(outcome)}
    words = fold([version for version in grid.assemblers if version in versions], grid.assemblers)
    cells = [cell for line in lines for cell in line.all_cells() if cell.outcome is outcome]
    numbers = measured(grid.focus.fields, [cell.row for cell in cells if cell.row])
    return f"{words} ({numbers})" if numbers else words


def _split(grid: Grid) -> Iterator[str]:
    fails, works = _verbs(grid)
    for line in grid.splits:
        yield (
            f"{grid.code} identical on both sides ({line_name(line)}): yes, so {grid.tool}. "
            f"It {fails} on {_at(grid, [line], VerdictAnswer.SAME)}, "
            f"and {works} on {_at(grid, [line], VerdictAnswer.OK)}."
        )


def _crash(grid: Grid) -> Iterator[str]:
    versions = fold(grid.ptxas_with(VerdictAnswer.SAME), grid.assemblers)
    is_internal = grid.focus.kind is VerdictKind.PTXAS_ICE
    does = "ends with an internal error" if is_internal else "dies by a signal"
    yield f"{grid.tool} {versions} {does}: no input may do that to a compiler."


def _triton_crash(grid: Grid) -> Iterator[str]:
    yield (
        f"With {compiled_by(grid.failing)} the compiler fails by itself before there is "
        f"{grid.code} (stage {grid.focus.stage}): no kernel may do that to a compiler."
    )
    yield from _other_tritons(grid)


def _stub(grid: Grid) -> Iterator[str]:
    yield (
        f"The kernel is already missing from the {grid.code} (stage {grid.focus.stage}): "
        f"{compiled_by(grid.failing)} left it out and reported success."
    )
    assembled = fold(grid.ptxas_with(VerdictAnswer.SAME), grid.assemblers)
    yield f"{grid.tool} is not involved: it assembles this {grid.code} as it is ({assembled})."
    if grid.focus.is_over_limit:
        yield (
            f"The kernel asks for more than the target has: {grid.title} should refuse it with an "
            "error."
        )
    yield from _other_tritons(grid)


def _stub_by_all(grid: Grid) -> Iterator[str]:
    yield from _stub(grid)
    yield (
        f"Either {grid.title}, or a kernel that breaks its own promises (`tl.assume`): read the IR."
    )


def _other_tritons(grid: Grid) -> Iterator[str]:
    refusing = [line for line in grid.lines if line.is_refused]
    if grid.working:
        same = f"the same source: it depends on the {grid.title}"
        yield f"{who_do(grid.working, 'compile')} {same}."
    elif refusing:
        who = who_do(refusing, "refuse")
        yield f"No {grid.title} that was tried compiles it; {who} it with a message."
    else:
        yield f"No {grid.title} that was tried does better."


def _follows_ptx(grid: Grid) -> Iterator[str]:
    fails, _ = _verbs(grid)
    for key in dict.fromkeys(id(failing) for failing, _, _ in grid.follows):
        failing = next(line for line in grid.failing if id(line) == key)
        yield (
            f"{grid.code} identical on both sides: no, it depends on the {grid.code}. "
            f"The {grid.code} of {line_name(failing)} {fails} on every {grid.tool} that gave a "
            f"result: {_at(grid, [failing], VerdictAnswer.SAME)}."
        )
    yield from _way_around(grid)


def _way_around(grid: Grid) -> Iterator[str]:
    """Lines that work where others fail: on the very same ptxas."""
    _, works = _verbs(grid)
    by_line: dict[int, tuple[Line, list[str]]] = {}
    for _, working, version in grid.follows:
        if not working.has(VerdictAnswer.SAME):
            by_line.setdefault(id(working), (working, []))[1].append(version)
    for working, versions in by_line.values():
        folded = fold(versions, grid.assemblers)
        rows = [working.cells[version].row for version in versions]
        numbers = measured(grid.focus.fields, [row for row in rows if row])
        measures = f" ({numbers})" if numbers else ""
        subject = f"The {grid.code} of {line_name(working)}"
        yield f"{subject} {works} on the same {grid.tool}: {folded}{measures}."


def _another_triton(grid: Grid) -> Iterator[str]:
    yield (
        f"It happens {grid.early} (stage {grid.focus.stage}), with "
        f"{compiled_by(grid.failing)}. The same source compiles with {compiled_by(grid.working)}."
    )


def _dialect(grid: Grid) -> Iterator[str]:
    yield from _another_triton(grid)
    messages = dict.fromkeys(
        cell.reason
        for line in grid.failing
        for cell in line.all_cells()
        if cell.outcome is VerdictAnswer.SAME
    )
    yield f"The message says which side to change: {'; '.join(messages)}."


def _rejected(grid: Grid) -> Iterator[str]:
    refusing = [line for line in grid.lines if line.is_refused]
    if grid.fails_otherwise:
        reasons = [cell.reason for line in refusing for cell in line.all_cells()]
        who = who_do(refusing, "refuse")
        yield f"{who} the source, and no {grid.title} that was tried compiles it: {reasons[-1]}."
        return
    who = compiled_by(refusing)
    yield f"Every {grid.title} that gave a result refuses the source: {who}."


def _limit(grid: Grid) -> Iterator[str]:
    who = compiler_names(grid.title, grid.compilers_with(VerdictKind.OUT_OF_RESOURCES))
    yield f"It does not fit with any toolchain that gave a result: {who}."


def _every_toolchain(grid: Grid) -> Iterator[str]:
    compilers = compiler_names(grid.title, grid.compilers_with(grid.focus.kind))
    versions = _at(grid, grid.lines, VerdictAnswer.SAME)
    yield f"Every toolchain that gave a result does it: {compilers}, with {grid.tool} {versions}."


def _no_better(grid: Grid) -> Iterator[str]:
    yield from _every_toolchain(grid)
    yield "No version that was tried does better: it may be the kernel, or all of these versions."


def _unsupported(grid: Grid) -> Iterator[str]:
    first, *others = grid.lines
    yield from _refusals(grid, first)
    for line in (first, *others):
        if line.made_for and line.has(VerdictAnswer.OK):
            yield f"{compiled_by([line])} works when it is pointed at {grid.tool} {line.made_for}."
        elif line.has(VerdictAnswer.OK):
            yield f"{line_name(line)} works on {grid.tool} {_at(grid, [line], VerdictAnswer.OK)}."
    if first.has(VerdictAnswer.SAME) and (
        unable := [o for o in others if not o.has(VerdictAnswer.OK)]
    ):
        yield f"Nothing that was tried works with {compiled_by(unable)}."
    if not any(line.has(VerdictAnswer.OK) for line in grid.lines):
        yield "No combination that was tried works."


def _refusals(grid: Grid, line: Line) -> Iterator[str]:
    if line.stopped:
        yield f"It happens {grid.early}, with {line_name(line)}: {line.stopped.reason}."
    refused: dict[str, list[str]] = {}
    for version, cell in line.cells.items():
        if cell.outcome in (VerdictAnswer.SAME, VerdictAnswer.UNTESTABLE):
            refused.setdefault(cell.reason, []).append(version)
    for reason, versions in refused.items():
        yield f"{line_name(line)} with {grid.tool} {fold(versions, grid.assemblers)}: {reason}."


def _settings(grid: Grid) -> Iterator[str]:
    fails, works = _verbs(grid)
    for failing, working, version in grid.settings:
        yield (
            f"The same program {fails} on {grid.tool} {version} as {_setting(failing)}, "
            f"and {works} as {_setting(working)}."
        )
    for trial in grid.varying(Varied.FLAGS):
        if trial.changed:
            yield f"It depends on a flag: {_trial_words(trial, grid)}."


def _setting(line: Line) -> str:
    return f"{line.code} {line.version or line.body} with {' '.join(line.flags) or 'no flags'}"


def _pointed(grid: Grid) -> Iterator[str]:
    names = "; ".join(line_name(line) for line in grid.failing)
    yield f"It happens {grid.early} (stage {grid.focus.stage}), with {names}."
    yield f"It takes both: the same {grid.title} works with the {grid.tool} that it bundles."


def _both(grid: Grid) -> Iterator[str]:
    for line in grid.splits:
        bad, good = (
            fold(line.ptxas(o), grid.assemblers) for o in (VerdictAnswer.SAME, VerdictAnswer.OK)
        )
        yield (
            f"The {grid.code} of {line_name(line)} is refused by {grid.tool} {bad}, and accepted "
            f"by {good}."
        )
    yield from _way_around(grid)
    yield f"It takes both: this {grid.code}, and one of these {grid.tool}."


def _one_triton(grid: Grid) -> Iterator[str]:
    yield f"Only {compiler_names(grid.title, grid.compilers_with(grid.focus.kind))} gave a result."


def _one_ptxas(grid: Grid) -> Iterator[str]:
    only = ", ".join(grid.ptxas_with(VerdictAnswer.SAME))
    yield f"Only one {grid.tool} gave a result on the {grid.code} that fails: {only}."
    yield from _way_around(grid)


def _no_common_ptxas(grid: Grid) -> Iterator[str]:
    fails, works = _verbs(grid)
    sides = ((fails, grid.failing, VerdictAnswer.SAME), (works, grid.working, VerdictAnswer.OK))
    for verb, lines, outcome in sides:
        for line in lines:
            on = _at(grid, [line], outcome)
            yield f"The {grid.code} of {line_name(line)} {verb} on {grid.tool} {on}."
    yield (
        f"No {grid.tool} that was tried gave a result on both: it may be the {grid.code}, or the "
        f"{grid.tool}."
    )


def _raw_ptx(grid: Grid) -> Iterator[str]:
    versions = _at(grid, grid.lines, VerdictAnswer.SAME)
    yield f"Not one {grid.tool} alone: every {grid.tool} that gave a result agrees, {versions}."
    yield f"Where the {grid.code} comes from is not known: it may be the kernel, or its compiler."


def _out_of_bounds(grid: Grid) -> Iterator[str]:
    resource = "time" if grid.focus.kind is VerdictKind.TIMEOUT else "memory"
    yield f"Nothing that was tried works within the {resource} limit."


def _no_triton(grid: Grid) -> Iterator[str]:
    yield (
        f"It happens {grid.early} (stage {grid.focus.stage}), with "
        f"{compiled_by(grid.failing)}. No {grid.title} that was tried compiles it, and not all "
        f"refuse the source: it may be {grid.title}, or a kernel that asks for something "
        "impossible."
    )


def _fragile(grid: Grid) -> Iterator[str]:
    for trial in grid.varying(Varied.NAME_OR_LINES):
        if trial.changed:
            yield _fragile_words(trial, grid)
    yield f"So a difference between two {grid.code} programs proves little."


def _flaky(grid: Grid) -> Iterator[str]:
    for trial in grid.varying(Varied.NOTHING):
        if trial.changed:
            yield f"The same command gave another result: {_trial_words(trial, grid)}."


def _besides(grid: Grid, ground: Ground) -> Iterator[str]:
    if ground in (Ground.SPLIT, Ground.PTXAS_CRASH):
        if ground is Ground.SPLIT and grid.focus.is_crash:
            yield from _crash(grid)
        yield from _way_around(grid)
        if grid.follows or grid.settings:
            yield f"The {grid.code} triggers it; the bug is in {grid.tool}."
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
            yield _fragile_words(trial, grid)
    harmless = [trial.label for trial in trials if trial.after.moves_a_bound]
    if harmless and not grid.is_fragile:
        yield f"Harmless variations change nothing: {', '.join(dict.fromkeys(harmless))}."
    levels = grid.varying(Varied.LEVEL)
    works = [trial.label for trial in levels if trial.changed]
    fails = [trial.label for trial in levels if trial.after is VerdictAnswer.SAME]
    fail, work = agree(len(fails), "fail"), agree(len(works), "work")
    if grid.focus.condition is not None:
        fail, work = f"{agree(len(fails), 'meet')} it", "not"
    if works and fails:
        yield f"By optimisation level: {', '.join(fails)} {fail}, {', '.join(works)} {work}."
    elif fails:
        yield f"At every optimisation level that gave a result: {', '.join(fails)}."
    yield from _by_pass(grid)


def _fragile_words(trial: PairTrial, grid: Grid) -> str:
    return f"It depends on what must not matter: {_trial_words(trial, grid)}."


def _trial_words(trial: PairTrial, grid: Grid) -> str:
    who = f"{compiler_names(grid.title, (trial.version,))} " if trial.version else ""
    words = dict(zip((VerdictAnswer.SAME, VerdictAnswer.OK), _verbs(grid), strict=True))
    before, after = words.get(trial.before, "?"), words.get(trial.after, "?")
    return f"{who}on {grid.tool} {trial.assembler} {before}; {trial.label}, it {after}"


def _untold(grid: Grid) -> Iterator[str]:
    stopped: dict[tuple[str, str], list[str]] = {}
    for line in grid.lines:
        cell = line.stopped
        if cell and not cell.outcome.moves_a_bound and cell.verdict != grid.focus.kind.value:
            is_other = cell.outcome is VerdictAnswer.OTHER
            how = "Fails in another way" if is_other else "Untestable"
            stopped.setdefault((how, cell.reason), []).extend(line.compilers)
    for (how, reason), compilers in stopped.items():
        yield f"{how} with {compiler_names(grid.title, compilers)}: {reason}."
    for line in grid.lines:
        others = line.ptxas(VerdictAnswer.OTHER)
        if others:
            verdicts = ", ".join(sorted({line.cells[version].verdict for version in others}))
            versions = fold(others, grid.assemblers)
            tools = f"{grid.tool} {versions}"
            yield f"Fails in another way with {line_name(line)}, {tools}: {verdicts}."
        holes = line.ptxas(VerdictAnswer.UNTESTABLE)
        if holes and line.has(VerdictAnswer.SAME):
            yield f"Untestable with {line_name(line)}: {grid.tool} {fold(holes, grid.assemblers)}."


_GROUNDS: dict[Ground, Callable[[Grid], Iterator[str]]] = {
    Ground.SPLIT: _split,
    Ground.PTXAS_CRASH: _crash,
    Ground.TRITON_CRASH: _triton_crash,
    Ground.STUB: _stub,
    Ground.STUB_BY_ALL: _stub_by_all,
    Ground.FOLLOWS_PTX: _follows_ptx,
    Ground.ANOTHER_TRITON: _another_triton,
    Ground.DIALECT: _dialect,
    Ground.REJECTED: _rejected,
    Ground.LIMIT: _limit,
    Ground.EVERY_TOOLCHAIN: _every_toolchain,
    Ground.NO_BETTER: _no_better,
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


# The evidence of a blame whose PTX was executed, in sentences. Pure: a grid in, sentences out.
#
# All of it is *emulated*: true of the PTX under the PTX ISA's rules, on the inputs that were given.

_BEGIN = (
    "ptxas is not involved: the PTX itself, executed under the PTX ISA's rules, does it "
    "(emulated PTX)."
)
_WITH = {Varied.OPTION: "With {what} in place of the config's own", Varied.TARGET: "On {what}"}


def executed_sentences(grid: Grid, ground: Ground, begin: str = _BEGIN) -> list[str]:
    """What is wrong, with which compilers, and what it takes to be right.

    `begin` says why ptxas has no part in it.
    """
    parts = (
        _by_version(grid),
        _ends(grid, ground),
        _varied_runs(grid),
        _contrasted(grid),
        _crossed(grid),
        _by_pass(grid),
    )
    return [begin, *(sentence for part in parts for sentence in part)]


def _by_version(grid: Grid) -> Iterator[str]:
    yield f"{grid.focus.kind.value}, on the same inputs: {_programs(grid, grid.failing)}."
    if good := grid.working:
        yield f"The same source and config is {_verdicts(good)}: {_programs(grid, good)}."
    silent: dict[str, list[str]] = {}
    for line in grid.by_compiler():
        cells = line.all_cells()
        if cells and not any(cell.outcome.moves_a_bound for cell in cells):
            why = ": ".join(filter(None, (cells[0].verdict, cells[0].reason)))
            silent.setdefault(why, []).extend(line.compilers)
    for why, compilers in silent.items():
        yield f"Says nothing of it: {compiler_names(grid.title, compilers)} ({why})."


def _programs(grid: Grid, lines: Sequence[Line]) -> str:
    ordered = [line for line in grid.by_compiler() if line in lines]
    who = compiler_names(grid.title, [version for line in ordered for version in line.compilers])
    shared = [line for line in ordered if len(line.compilers) > 1]
    if shared:
        names = "; ".join(compiler_names(grid.title, line.compilers) for line in shared)
        return f"{who} (identical PTX: {names})"
    return f"{who}, each with PTX of its own" if len(ordered) > 1 else who


def _verdicts(lines: Sequence[Line]) -> str:
    cells = [cell for line in lines for cell in line.all_cells()]
    good = [cell.verdict for cell in cells if cell.outcome is VerdictAnswer.OK]
    return " or ".join(dict.fromkeys(good))


def _ends(grid: Grid, ground: Ground) -> Iterator[str]:
    if ground is Ground.ONE_TRITON:
        who = compiler_names(grid.title, grid.compilers_with(grid.focus.kind))
        yield f"Only {who} gave a result."
    if ground is Ground.NOTHING_IS_RIGHT:
        yield "Nothing that was tried is right: it may be the kernel, or what it is compared with."
    if ground is Ground.EVERY_TOOLCHAIN:
        yield f"Every {grid.title} that gave a result does it, whatever the options and the target."


def _varied_runs(grid: Grid) -> Iterator[str]:
    for varied, words in _WITH.items():
        groups: dict[tuple[bool, str], list[PairTrial]] = {}
        for trial in grid.varying(varied):
            is_same = trial.after is VerdictAnswer.SAME
            another = " in another way" if trial.verdict == grid.focus.kind.value else ""
            verdict = "the same" if is_same else f"{trial.verdict}{another}"
            groups.setdefault((is_same, verdict), []).append(trial)
        for (_, verdict), trials in sorted(groups.items()):
            labels = ", ".join(trial.label for trial in trials)
            versions = [trial.version for trial in trials if trial.version]
            who = compiler_names(grid.title, versions)
            yield f"{words.format(what=labels)} ({who}): {verdict}."


def _contrasted(grid: Grid) -> Iterator[str]:
    if grid.contrast is None:
        return
    beside = f"Beside the IR of {grid.contrast.name}, which works, it"
    first = first_difference(grid.contrast.stages)
    if first is None:
        yield f"{beside} has the same operations, and as many of each, at every stage."
    else:
        how = "in kind" if first.differs else "in number"
        yield f"{beside} first differs {how} in {first.stage.upper()}: {first.words}."


def _crossed(grid: Grid) -> Iterator[str]:
    trials = grid.varying(Varied.STAGE)
    for trial in trials:
        if trial.after.moves_a_bound:
            yield f"{trial.label[0].upper()}{trial.label[1:]}: {trial.verdict}."
    goes_with = {stage: _goes_with(stage, trials) for stage in ("TTIR", "TTGIR")}
    who = compiler_names(grid.title, grid.lines[0].compilers[:1])
    if goes_with["TTGIR"] is False:
        yield f"So it comes about in the lowering from TTGIR, in {who}."
    elif goes_with["TTGIR"] and goes_with["TTIR"] is False:
        yield f"So it comes about between TTIR and TTGIR, in the passes of {who}."
    elif goes_with["TTGIR"]:
        yield f"So it is in the TTGIR of {who} already, and not in the lowering from there."


def _by_pass(grid: Grid) -> Iterator[str]:
    for over, words in PASSES.items():
        for trial in grid.varying(over):
            yield f"{words.format(grid.title)}: {trial.label}."


def _goes_with(stage: str, trials: Sequence[PairTrial]) -> bool | None:
    """Whether the IR of this stage decides, and not who lowers it; None where that is not known."""
    answers = [
        trial.after
        for trial in trials
        if trial.label.startswith(f"the {stage} ") and trial.after.moves_a_bound
    ]
    # First the IR that works, lowered by the compiler that fails; then the other way round.
    if answers == [VerdictAnswer.OK, VerdictAnswer.SAME]:
        return True
    return False if answers == [VerdictAnswer.SAME, VerdictAnswer.OK] else None


# The evidence of a blame whose cubins were launched on a GPU, or emulated, in sentences.

_ORDER = (
    "{kind} with one cubin and not with another: the order of threads, and of sums, may decide it, "
    "which no {tool} is held to; the emulator finds no race."
)


def measured_sentences(grid: Grid, ground: Ground) -> list[str]:
    """Where cubins of one PTX disagree; else what is wrong with it, or with what it is held to."""
    begin = f"Measured on {grid.device}: cubins of one PTX were launched on the same inputs."
    if grid.device == EXECUTOR_NAMES[SASS]:
        begin = "Emulated SASS: cubins of one PTX were executed on the same inputs, without a GPU."
    if ground is Ground.LEVELS:
        return [begin, *_levels(grid)]
    if ground is Ground.EVERY_LEVEL:
        return [begin, *_every_level(grid)]
    if ground is Ground.ORDER:
        return [begin, _ORDER.format(kind=grid.focus.kind.value, tool=grid.tool)]
    if ground in (Ground.SPLIT, Ground.RAW_PTX):
        return [begin, *sentences(grid, ground)]
    begin_alike = (
        f"{grid.tool} is not involved: of one PTX, each that gave a result makes the same."
    )
    return [begin, *executed_sentences(grid, ground, begin_alike)]


def _every_level(grid: Grid) -> Iterator[str]:
    levels = [t.label for t in grid.varying(Varied.LEVEL) if t.after is VerdictAnswer.SAME]
    versions = fold(grid.ptxas_with(VerdictAnswer.SAME), grid.assemblers)
    yield (
        f"Two votes: the {grid.code}, emulated by the PTX ISA's rules; against it the cubins, "
        f"which agree at {', '.join(levels)} and with {grid.tool} {versions}."
    )
    if grid.device == EXECUTOR_NAMES[SASS]:
        yield (
            f"One emulator executes both: {grid.tool} is to blame, unless it reads an instruction "
            "of the PTX or of the SASS in the wrong way. A GPU decides that (--on gpu), or who "
            "reads the SASS."
        )
    else:
        yield f"{grid.tool} is to blame, unless the emulator reads an instruction of the PTX wrong."


def _levels(grid: Grid) -> Iterator[str]:
    trials = grid.varying(Varied.LEVEL)
    fails = [trial.label for trial in trials if trial.after is VerdictAnswer.SAME]
    works = [trial for trial in trials if trial.changed]
    tool = f"{grid.tool} {trials[0].assembler}"
    yield (
        f"{grid.code} identical at each level: yes, so {grid.tool}. With {tool} it fails at "
        f"{', '.join(fails) or 'its default level'}, and works at "
        f"{', '.join(trial.label for trial in works)}."
    )
    failing = grid.ptxas_with(VerdictAnswer.SAME)
    if len(failing) > 1:
        yield f"Every {grid.tool} that gave a result does it: {fold(failing, grid.assemblers)}."
