"""What has to be tried for the claims of an issue, and what the claims come to by it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.target import Target, exact_target
from harness.values.toolchain import EVIDENCE, PTX, PTXAS, assembler_name, compiler_name
from harness.verify.claims import Claim, IssueReading, Outcome, Place, Versions, are_alike, marks_of

ASSUMED_TARGET = exact_target(90)
"""Where an issue names no GPU."""
_NAME = re.compile(r"\b(?:[A-Z]+[a-z0-9]+){2,}[A-Z]*\b(?<!Error)(?<!Exception)")
"""Of a pass, or of a file of a compiler: `NVWSInsertAref`."""
_PTXAS_LEVEL = 3
"""The level at which ptxas optimises where none is named (`ptxas --help`)."""


class Holds(StrEnum):
    """What a claim comes to."""

    HOLDS = "holds"
    NOT = "does not hold"
    UNCHECKED = "cannot be checked here"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One program at one place: it is compiled, and executed if a claim is about that.

    `compiler` and `ptxas` are versions, None where there is none to choose. `is_retargeted`: PTX
    whose own target rules this one out gets it in its header.
    """

    program: int
    target: Target
    compiler: str | None = None
    ptxas: str | None = None
    level: int | None = None
    call: str = ""
    is_run: bool = False
    is_retargeted: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a trial: rows of what was compiled, and of what was executed.

    `log` is what the compilers printed. `trouble` says why there is nothing.
    """

    rows: tuple[Row, ...] = ()
    runs: tuple[RunRow, ...] = ()
    log: str = ""
    trouble: str = ""

    @property
    def refusal(self) -> str:
        """Why nothing is known of whether it compiles; empty where something is."""
        known = [row for row in self.rows if row.verdict.fails or row.verdict.compiles]
        why = self.rows[0].reason if self.rows else self.trouble
        return "" if known else why or "nothing was compiled"

    @property
    def failing(self) -> Row | None:
        """A compile that failed."""
        return next((row for row in self.rows if row.verdict.fails), None)

    @property
    def wrong(self) -> RunRow | None:
        """A run that went wrong."""
        return next((row for row in self.runs if row.run.fails), None)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim needs: the trials that must show it, and those that must not (`otherwise`).

    `why_not` says what keeps it from being checked. `assumed` is what of its places is not the
    issue's: what is not seen there may well be so elsewhere.
    """

    claim: Claim
    trials: tuple[Trial, ...] = ()
    otherwise: tuple[Trial, ...] = ()
    why_not: str = ""
    assumed: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, what it comes to, and what was seen, in words."""

    claim: Claim
    holds: Holds
    why: str


def plan(
    reading: IssueReading, releases: Mapping[str, Sequence[str]]
) -> tuple[list[Planned], list[str]]:
    """What each claim needs, and what the issue lacks, with what is assumed in its place."""
    lacks = []
    if not reading.programs:
        lacks.append("it has no program: none of its code blocks can be compiled")
    for program in reading.programs:
        where = f"the program at line {program.line}"
        if program.undefined:
            names = ", ".join(program.undefined)
            lacks.append(f"{where} is a fragment: nothing defines {names}")
        lacks += [f"{where}: {words}" for words in program.assumed]
    if reading.programs and reading.place.versions is None:
        lacks.append("it names no version: the newest is taken")
    if reading.programs and reading.place.target is None:
        lacks.append(f"it names no GPU: {ASSUMED_TARGET} is taken")
    planned = [_planned(claim, reading, releases) for claim in reading.claims]
    # 13.2 Update 1 and V13.2.78 are one.
    distinct = {
        (p.claim.line, p.claim.outcome, p.trials or p.claim.place, p.otherwise, p.claim.text): p
        for p in reversed(planned)
    }
    return [p for p in planned if p in distinct.values()], lacks


def _planned(claim: Claim, reading: IssueReading, releases: Mapping[str, Sequence[str]]) -> Planned:
    if claim.outcome is Outcome.TIME:
        return Planned(claim=claim, why_not="it is about time, which only a GPU tells")
    if claim.program is None:
        return Planned(claim=claim, why_not="the issue has no program")
    program = reading.programs[claim.program]
    if program.undefined:
        names = ", ".join(program.undefined)
        return Planned(claim=claim, why_not=f"the program is a fragment: {names} is missing")
    is_changed = claim.variation and claim.line > 1
    if is_changed:
        return Planned(claim=claim, why_not="it is about a change of the program as it is printed")
    if claim.outcome is Outcome.WORKS and claim.place == Place():
        return Planned(claim=claim, why_not="it names no version, GPU, level or call")
    if claim.place.level is not None and program.compiler != PTX:
        return Planned(claim=claim, why_not="levels of ptxas are tried of PTX alone")
    is_run = claim.outcome in (Outcome.WRONG, Outcome.DIFFERS, Outcome.FAILS) or (
        claim.outcome is Outcome.WORKS
        and not any(c.outcome is Outcome.COMPILE for c in reading.claims)
    )
    default = reading.place
    level = claim.place.level
    if level is None and program.compiler == PTX:
        level = _PTXAS_LEVEL if is_run and default.level is None else default.level
    named = claim.place.target or default.target or program.target
    own = program.target if program.compiler == PTX else None
    base = Trial(
        program=claim.program,
        target=named or ASSUMED_TARGET,
        level=level,
        call=claim.place.call or default.call or "",
        is_run=is_run,
        is_retargeted=bool(
            own and named and own != named and (own.suffix or own.capability > named.capability)
        ),
    )
    own_tool = PTXAS if program.compiler == PTX else program.compiler
    asked = claim.place.versions or default.versions or Versions(tool=own_tool)
    if asked.tool != own_tool:
        # The ptxas behind a compiler, whose own version is the issue's.
        first, _, why = _releases_of(default.versions or Versions(tool=own_tool), releases)
        base = replace(base, compiler=first[0] if first else None)
    versions, otherwise, why = _releases_of(asked, releases)
    axis = "ptxas" if asked.tool == PTXAS else "compiler"
    return Planned(
        claim=claim,
        trials=tuple(replace(base, **{axis: version}) for version in versions),
        otherwise=tuple(replace(base, **{axis: version}) for version in otherwise),
        why_not="" if versions else why,
        assumed=(
            "version"
            if asked.first is None and not asked.dated
            else "GPU"
            if not named
            else "PTX"
            if base.is_retargeted
            else ""
        ),
    )


def _releases_of(
    asked: Versions, releases: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[str], str]:
    """The releases that must show it, those that must not, and why there are none."""
    known = releases.get(asked.tool, ())
    name = assembler_name(PTXAS) if asked.tool == PTXAS else compiler_name(asked.tool)
    if not known:
        return [], [], f"no version of {name} is available here"
    if asked.first is None:
        return [known[-1]], [], ""
    first, last = _of(asked.first, known), _of(asked.last or asked.first, known)
    if not first or not last:
        missing = asked.last if first else asked.first
        can = f"{known[0]} to {known[-1]}"
        return [], [], f"{name} {missing} is not available here, which has {can}"
    if asked.before or asked.since:
        older = known[: known.index(first[0])][-1:]
        if asked.before and not older:
            return [], [], f"there is no {name} before {first[0]} here"
        return ([*older], [], "") if asked.before else ([first[0]], [*older], "")
    ends = [first[0], last[-1]] if asked.last else [last[-1]]
    return list(dict.fromkeys(ends)), [], ""


def _of(version: str, known: Sequence[str]) -> list[str]:
    """The releases that a version, or the beginning of one, means; of CUDA, 12.9.1 is its build."""
    if exact := [r for r in known if r == version or r.startswith(f"{version}.")]:
        return exact
    minor, _, update = version.rpartition(".")
    builds = [r for r in known if r.startswith(f"{minor}.") and minor.count(".") == 1]
    return [builds[min(int(update), len(builds) - 1)]] if builds and len(update) == 1 else []


def judge(planned: Sequence[Planned], seen: Mapping[Trial, Seen]) -> list[Judged]:
    """What each claim comes to by what was seen.

    A failure that one claim describes is known where another meets it.
    """
    known = {
        row.signature
        for each in planned
        for trial in each.trials
        if trial in seen and (row := seen[trial].failing) and _is_shown(each.claim, seen[trial])
    }
    return [_judge(each, seen, known) for each in planned]


def _judge(planned: Planned, seen: Mapping[Trial, Seen], known: Collection[str | None]) -> Judged:
    claim = planned.claim
    if planned.why_not:
        return Judged(claim=claim, holds=Holds.UNCHECKED, why=planned.why_not)
    results = [_judged(claim, trial, seen) for trial in planned.trials]
    signature = _signature(planned.trials, seen)
    for trial in planned.otherwise if all(holds is Holds.HOLDS for holds, _ in results) else ():
        opposite = Outcome.WORKS if claim.outcome is not Outcome.WORKS else Outcome.FAILS
        holds, why = _judged(
            replace(claim, outcome=opposite, marks={}, variation=False), trial, seen
        )
        if holds is Holds.UNCHECKED or _signature([trial], seen) not in (None, signature):
            holds, why = Holds.UNCHECKED, f"{why}, so whether it worked there is not known"
        results.append((holds, why))
    order = [Holds.NOT, Holds.UNCHECKED, Holds.HOLDS]
    worst = min((holds for holds, _ in results), key=order.index)
    open_ = ""
    if claim.place.versions and claim.place.versions.dated:
        open_ = "which version was the newest then is not known"
    elif planned.assumed:
        open_ = f"the issue names no {planned.assumed} for it"
    if worst is Holds.NOT and open_:
        worst = Holds.UNCHECKED
        results.append((worst, open_))
    if worst is Holds.HOLDS and planned.assumed and signature and signature not in known:
        # Somewhere, anything may fail in some way.
        worst = Holds.UNCHECKED
        results.append((worst, f"that this is the failure which is meant is not known: {open_}"))
    why = "; ".join(dict.fromkeys(why for _, why in results))
    return Judged(claim=claim, holds=worst, why=why)


def _signature(trials: Sequence[Trial], seen: Mapping[Trial, Seen]) -> str | None:
    rows = [seen[trial].failing for trial in trials if trial in seen]
    return next((row.signature for row in rows if row), None)


def _judged(claim: Claim, trial: Trial, seen: Mapping[Trial, Seen]) -> tuple[Holds, str]:
    what = seen.get(trial, Seen(trouble="it was not tried"))
    where = place_words(trial)
    if what.refusal:
        return Holds.UNCHECKED, f"{where}: {what.refusal}"
    if row := what.failing:
        said = f"{where}: {row.verdict.value}: {row.reason}"
        if claim.outcome is Outcome.WORKS:
            return Holds.NOT, said
        if claim.outcome in (Outcome.WRONG, Outcome.DIFFERS):
            return Holds.UNCHECKED, f"{said}, so it is not run"
        if _is_shown(claim, what) is False:
            return Holds.NOT, f"{said}: another failure"
        return Holds.HOLDS, said
    if claim.outcome is Outcome.COMPILE:
        if claim.variation:
            return (Holds.UNCHECKED, f"{where}: it compiles as printed; the claim is of a change")
        return Holds.NOT, f"{where}: it compiles"
    if not trial.is_run:
        return Holds.HOLDS, f"{where}: it compiles"
    if run := what.wrong:
        said = f"{where}: {_run_words(run)}"
        return (Holds.NOT if claim.outcome is Outcome.WORKS else Holds.HOLDS), said
    fine = [run for run in what.runs if run.run.is_fine_run]
    if not fine:
        why = what.runs[0].run_reason if what.runs else what.trouble
        return Holds.UNCHECKED, f"{where}: it compiles, and is not run: {why}"
    said = f"{where}: {_run_words(fine[0])}"
    elsewhere = [each for other, each in seen.items() if other.program == trial.program]
    works = claim.outcome is Outcome.WORKS
    if any(each.wrong or (works and each.failing) for each in elsewhere):
        # The program, and its inputs, are such that a failure shows.
        return (Holds.HOLDS if works else Holds.NOT), said
    return Holds.UNCHECKED, f"{said}; these inputs show no failure anywhere"


def _run_words(row: RunRow) -> str:
    reason = row.run_reason.removeprefix(f"{EVIDENCE[row.on]}: ")
    return f"{EVIDENCE[row.on]}: {row.run.value}" + (f": {reason}" if reason else "")


def _is_shown(claim: Claim, what: Seen) -> bool | None:
    """Whether a failure is the one that the claim describes; None: it does not tell.

    ptxas always prints its code; other marks depend on how a compiler was built. A pass or a file
    may stand in a sentence by its name.
    """
    assert what.failing
    printed = f"{what.log}\n{what.failing.reason}"
    ours = marks_of(printed)
    for kind, wanted in claim.marks.items():
        found = ours.get(kind, ())
        if found or kind == "code":
            return any(are_alike(one, other) for one in wanted for other in found)
    return any(name in printed for name in _NAME.findall(claim.text)) or None


def place_words(trial: Trial) -> str:
    """Where a trial was, in words."""
    parts = [trial.compiler or "", f"ptxas {trial.ptxas}" if trial.ptxas else ""]
    parts += [f"-O{trial.level}" if trial.level is not None else "", str(trial.target)]
    parts += ["(as its .target)"] if trial.is_retargeted else []
    return " ".join(filter(None, [*parts, f"`{trial.call}`" if trial.call else ""]))
