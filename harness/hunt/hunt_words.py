"""What a hunt says: its first line, the table of causes, a cause in full, the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from packaging.version import Version

from harness.hunt.causes import Cause, LeastProgram, said_of
from harness.hunt.plan import HuntPlan, HuntReport
from harness.hunt.voting import Vote
from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.values.row import SCHEMA
from harness.values.toolchain import EMULATOR, EVIDENCE, PTXAS

_REASONS = 5
_COLUMNS = ("cause", "levels", "instructions", "first bad", "newest", "targets", "hits")


def first_line(plan: HuntPlan, jobs: int, memory: int, scheduler: str | None) -> str:
    """What is hunted, and what of this machine, or of those of a scheduler, it takes."""
    processes = "process" if jobs == 1 else "processes"
    # Reductions of programs do not wait behind whole modules.
    more = f", and {jobs} for reductions" if plan.tool.kind == PTXAS else ""
    targets = ", ".join(map(str, plan.targets))
    place = f"by workers of {scheduler}" if scheduler else f"at most {memory >> 20:,} MiB each"
    away = f"cubins go to {plan.runner}" if plan.runner else "nothing leaves this machine"
    return (
        f"{plan.tool.name} for {targets}, seed {plan.seed}, {plan.seconds:.0f} s: "
        f"{jobs} {processes} at a time{more}, {place}"
        + (f"; {away}" if plan.runner or not scheduler else "")
    )


def hunt_said(report: HuntReport, folders: Sequence[str]) -> list[Block]:
    """The causes, the smallest program of each (as repros in `folders`), and what was tried."""
    state, blocks = report.state, list[Block]()
    causes = state.new
    for number, (cause, path) in enumerate(zip(causes, folders, strict=True), 1):
        blocks += [say(f"{number}. {cause.name}", Tone.HEAD), *_cause(cause.least, report.plan.on)]
        if cause.least.answer.vote is Vote.WRONG or not cause.least.answer.levels:
            blocks.append(say(f"   Reproduce: {report.plan.command(path, cause.least)}"))
        blocks.append(BLANK)
    if causes:
        rows = [_row(report, cause) for cause in causes]
        # Triton has no levels: a column that is empty is left out.
        used = [any(row[place].text for row in rows) for place in range(len(_COLUMNS))]
        columns = tuple(
            GridColumn(title=title, is_number=title in ("instructions", "hits"), wraps=True)
            for title in compress(_COLUMNS, used)
        )
        blocks += [
            SaidGrid(columns=columns, rows=tuple(tuple(compress(row, used)) for row in rows)),
            BLANK,
        ]
        curve = ", ".join(f"{count} at {cpu:.0f} s" for _, _, count, cpu in state.curve)
        blocks.append(say(f"Causes over CPU time: {curve}"))
    blocks += _tried(report)
    return blocks


def _cause(program: LeastProgram, on: str) -> list[SaidLine]:
    words = {
        (3,): "-O3 computes another value than the PTX and -O0",
        (0,): "-O0 computes another value than the PTX and -O3",
        (0, 3): "both levels agree on another value than the PTX: read the SASS before you accuse",
    }
    answer = program.answer
    meaning = answer.words
    if answer.levels in words and answer.vote is Vote.WRONG:
        meaning = f"{words[answer.levels]} ({EVIDENCE[on]}): {answer.words}"
    lines = [line for line in program.text.splitlines() if line.strip()]
    return [
        say(f"   {meaning}"),
        *(say(f"     {line.expandtabs(2)}", Tone.FAINT) for line in lines),
    ]


def _row(report: HuntReport, cause: Cause) -> tuple[SaidLine, ...]:
    least = cause.least
    first, newest = spread(least, report.plan.tool.version)
    wrong = said_of(least.answer)
    targets = [str(report.plan.target_of(least.seed))]
    targets += [target for target, words in least.targets.items() if words == wrong]
    cells = (
        cause.name,
        " ".join(f"-O{level}" for level in least.answer.levels),
        str(least.instructions),
        first,
        newest,
        " ".join(targets),
        f"{cause.hits:,}",
    )
    return tuple(say(cell) for cell in cells)


def spread(program: LeastProgram, hunted: str) -> tuple[str, str]:
    """Where a failure began, and whether the newest ptxas that was asked has it."""
    wrong = said_of(program.answer)
    versions = sorted(program.versions, key=Version)
    if program.versions.get(hunted) != wrong:
        return "not asked", "not asked"
    at = versions.index(hunted)
    first = hunted
    for version in reversed(versions[:at]):
        if program.versions[version] != wrong:
            break
        first = version
    is_oldest = all(
        program.versions[version] == Vote.REFUSED for version in versions[: versions.index(first)]
    )
    after = versions[at:]
    fixed = next((version for version in after if program.versions[version] != wrong), None)
    newest = f"fixed in {fixed}" if fixed else "still wrong"
    if program.versions[versions[-1]] not in (wrong, "right", "assembled"):
        newest = program.versions[versions[-1]]
    return (f"{first} or before" if is_oldest else first), newest


def _tried(report: HuntReport) -> list[SaidLine]:
    state, spent = report.state, report.spent
    compilers = sum(seconds for name, seconds in spent.items() if name != EMULATOR)
    used = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in spent.items())
    rate = report.tried / report.seconds if report.seconds else 0.0
    votes = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in _most_common(state.votes)
    )
    lines = [
        say(
            f"{report.tried:,} programs in {report.seconds:.0f} s ({rate:.0f} a second); of all "
            f"{state.tried:,} of this hunt: {votes}"
            + (f"; measured on {report.device}" if report.device else "")
        ),
        say(
            f"CPU: {used}, triage itself {report.own:.0f} s"
            + (f" ({report.own / compilers:.0%} of the compilers')" if compilers else ""),
            Tone.FAINT,
        ),
    ]
    reasons = _most_common(state.reasons)[:_REASONS]
    lines += [say(f"  {count:,} {why}", Tone.FAINT) for why, count in reasons]
    if state.waiting:
        lines.append(
            say(f"{len(state.waiting)} hits are not reduced yet: the same command goes on")
        )
    if known := [cause for cause in state.causes if cause.is_known]:
        hits = sum(cause.hits for cause in known)
        lines.append(
            say(f"walked around {len(known)} causes that other hunts found: {hits:,} hits")
        )
    if not state.new and not state.waiting:
        lines.append(say("nothing new was found" if known else "nothing was found", Tone.GOOD))
    return lines


def _most_common(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def hunt_document(report: HuntReport, folders: Sequence[str]) -> dict[str, Any]:
    """What `--json` prints; `folders` are those of the least programs, in the causes' order."""
    state, plan = report.state, report.plan
    causes = state.new
    return {
        "schema": SCHEMA,
        "hunt": {
            **plan.coordinates,
            "seed": plan.seed,
            "seconds": report.seconds,
            "tried": report.tried,
            "tried_in_all": state.tried,
            "votes": dict(state.votes),
            "waiting": len(state.waiting),
            "stopped": report.is_stopped,
            "device": report.device or None,
            "cpu": {**report.spent, "triage": report.own},
            "curve": state.curve,
        },
        "causes": [
            {
                "name": cause.name,
                "vote": cause.least.answer.vote.value,
                "levels": list(cause.least.answer.levels),
                "reason": cause.least.answer.words,
                "signature": cause.least.answer.signature,
                "opcodes": list(cause.least.opcodes),
                "instructions": cause.least.instructions,
                "ptx": cause.least.text,
                "inputs_seed": cause.least.seed,
                "hits": cause.hits,
                "variants": len(cause.programs),
                "seconds": cause.seconds,
                "tried": cause.tried,
                "versions": cause.least.versions,
                "targets": cause.least.targets,
                "path": path,
                "command": plan.command(path, cause.least),
            }
            for cause, path in zip(causes, folders, strict=True)
        ],
    }
