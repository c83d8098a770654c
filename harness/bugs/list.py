"""`triage bugs`: failures as bugs, with what results and people say of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from harness.bugs.life import CLEAN_NIGHTS, BugHistory, compare_histories, held_at, related
from harness.cells.matrix_rules import EVERY, is_meant
from harness.cells.repros.find import list_repros
from harness.diff.between_runs import gone_cells
from harness.frontends.registry import kinds, known_versions
from harness.judging.conditions import Condition
from harness.store.bug_identity import bug_key, signature_of
from harness.store.bugs import join_two, kept_bugs, put_bug, read_numbers, read_signatures
from harness.store.schema import RunRecord
from harness.store.store import Store
from harness.values.bug import (
    REPRODUCER,
    AffectedRange,
    Bug,
    BugRecord,
    HumanState,
    KeptReproducer,
    KeptWorkaround,
    Likeness,
    MachineState,
    Occasion,
    Seen,
    reproducer_key,
)
from harness.values.errors import UsageError
from harness.values.matrix import Selector
from harness.values.row import BugFacts, Row
from harness.values.toolchain import assembler_name, compiler_name
from harness.values.verdict import Signature

_MAX_WORDS = 2000

_decode = msgspec.json.Decoder(BugFacts).decode
_decode_row = msgspec.json.Decoder(Row).decode


def list_bugs(
    store: Store, *, only: Sequence[Selector] = EVERY, clean_nights: int = CLEAN_NIGHTS
) -> list[Bug]:
    """Bugs by number, as all results tell them; those of which no result is left are left out.

    Those that a cell ever had which one of `only` means.

    Raises:
        StorageError: the results cannot be read or written.
    """
    records = {record.number: record for record in kept_bugs(store.database)}
    history, meant = _chronicle(store, only)
    stories = history.stories(clean_nights=clean_nights)
    signatures = store.database.run(read_signatures)
    issues = {repro.name: repro.issue for repro in list_repros()[0] if repro.issue}
    # What only variants of a cell show is an answer about that cell, and no bug by itself.
    stories = {
        number: story
        for number, story in stories.items()
        if story.example.probe_of is None or records[number].changed is not None
    }
    found = [_bug(records[number], story, signatures, issues) for number, story in stories.items()]
    likeness = related(
        {
            bug.record.number: ((bug.stage, bug.kind, bug.code, bug.failing_pass), bug.title)
            for bug in found
        }
    )
    joined = _joined(records)
    found = [
        replace(
            bug,
            related=likeness[bug.record.number],
            likeness=_likeness(bug, history, found),
            joined=tuple(joined.get(bug.record.number, ())),
        )
        for bug in found
    ]
    found = [_verified(store, bug) for bug in found if bug.record.number in meant]
    return sorted(found, key=lambda bug: bug.record.number)


def list_held(
    store: Store, condition: Condition, *, only: Sequence[Selector] = EVERY
) -> list[tuple[Bug, str]]:
    """Each kernel and target of which a result meets the condition, as `held_at` tells them.

    Results are those of cells that one of `only` means.

    Raises:
        StorageError: the results cannot be read.
    """
    decoded: dict[bytes, tuple[BugFacts, Row]] = {}

    def results() -> Iterator[tuple[Occasion, BugFacts, Row]]:
        for run in store.all_runs():
            occasion = _occasion(run)
            for stored in store.run_bodies(run.id):
                if stored.row not in decoded:
                    decoded[stored.row] = _decode(stored.row), _decode_row(stored.row)
                if is_meant(decoded[stored.row][1], only):
                    yield occasion, *decoded[stored.row]

    return held_at(results(), condition, cache(known_versions))


def _occasion(run: RunRecord) -> Occasion:
    is_night = run.command.startswith("triage matrix run")
    return Occasion(number=run.id, started=run.started, is_night=is_night)


def _joined(records: Mapping[int, BugRecord]) -> dict[int, list[BugRecord]]:
    by_keeper: dict[int, list[BugRecord]] = {}
    for record in records.values():
        if record.duplicate_of and record.key in records[record.duplicate_of].other_keys:
            by_keeper.setdefault(record.duplicate_of, []).append(record)
    return by_keeper


def _likeness(bug: Bug, history: BugHistory, bugs: Sequence[Bug]) -> tuple[Likeness, ...]:
    """How the histories of other bugs that say the same, and nothing, compare with this one's."""
    number, mine = bug.record.number, signature_of(bug.record.key)
    if mine == bug.record.key:
        return ()
    others = [other.record.number for other in bugs if signature_of(other.record.key) == mine]
    return tuple(
        compare_histories((number, history.history(number)), (other, history.history(other)))
        for other in others
        if other != number
    )


def find_bug(bugs: Sequence[Bug], number: int) -> Bug:
    """The bug with this number.

    Raises:
        UsageError: there is none.
    """
    for bug in bugs:
        if bug.record.number == number:
            return bug
    for bug in bugs:
        if any(record.number == number for record in bug.joined):
            raise UsageError(f"bug {number} was joined with bug {bug.record.number}")
    raise UsageError(_no_such_bug(number, [bug.record.number for bug in bugs]))


def join_bugs(store: Store, keeper: int, other: int, because: str | None) -> BugRecord:
    """Let the results of bug `other` count as those of bug `keeper`; returns the former's record.

    Raises:
        UsageError: there is no such bug, it is joined already, or nothing says why.
        StorageError: the results cannot be read or written.
    """
    bugs = list_bugs(store)
    mine, theirs = find_bug(bugs, keeper), find_bug(bugs, other)
    if keeper == other:
        raise UsageError(f"bug {keeper} cannot be joined with itself")
    compared = next((likeness for likeness in mine.likeness if likeness.number == other), None)
    evidence = compared.words if compared and compared.agrees else None
    why = "; ".join(filter(None, (because, evidence)))[:_MAX_WORDS]
    if not why:
        comparison = f"; they {compared.words}" if compared else ""
        raise UsageError(f"--because TEXT must say why they are one{comparison}")
    join_two(store.database, keeper, theirs.record.number, why)
    return next(record for record in kept_bugs(store.database) if record.number == other)


def workarounds_of(store: Store, bug: Bug) -> list[KeptWorkaround]:
    """What was found to work around this bug, oldest first.

    Raises:
        StorageError: the results cannot be read.
    """
    keys = {signature_of(key) for key in (bug.record.key, *bug.record.other_keys)}
    is_wordless = keys != {bug.record.key, *bug.record.other_keys}
    return [
        workaround
        for workaround in store.workarounds()
        if keys & set(workaround.signatures)
        and not (is_wordless and workaround.baseline.kernel not in bug.kernels)
    ]


def reproducer_of(store: Store, bug: Bug) -> KeptReproducer | None:
    """The smallest input that a reduction left of this bug; None where none is kept.

    Raises:
        StorageError: the results cannot be read.
    """
    return min(
        reproducers_of(store, bug).values(),
        key=lambda reproducer: len(reproducer.text),
        default=None,
    )


def reproducers_of(store: Store, bug: Bug) -> dict[str, KeptReproducer]:
    """The smallest input of this bug for each kernel, by the key of its record.

    Raises:
        StorageError: the results cannot be read.
    """
    signatures = {signature_of(key) for key in (bug.record.key, *bug.record.other_keys)}
    keys = [reproducer_key(signature, kernel) for signature in signatures for kernel in bug.kernels]
    return store.records(REPRODUCER, KeptReproducer, keys)


def _verified(store: Store, bug: Bug) -> Bug:
    """The bug, `fixed-verified` only if the version without it takes its smallest input, too."""
    if bug.machine not in (MachineState.FIXED_CANDIDATE, MachineState.FIXED_VERIFIED):
        return bug
    reproducer = reproducer_of(store, bug)
    version = untried_version(reproducer, bug.ranges) if reproducer else None
    machine = MachineState.FIXED_CANDIDATE if version else bug.machine
    return replace(bug, machine=machine, untried=version)


def untried_version(reproducer: KeptReproducer, ranges: Sequence[AffectedRange]) -> str | None:
    """The version without a bug that was not seen to accept the bug's smallest input.

    None where it was, or where no version of the tool that the input is for is without the bug.
    """
    tool = (
        compiler_name(reproducer.kind)
        if reproducer.kind in kinds()
        else assembler_name(reproducer.kind)
    )
    marks = [mark for along in ranges if along.tool == tool for mark in along.marks]
    is_free = bool(reproducer.kind and marks) and marks[-1].seen is Seen.CLEAN
    return (
        marks[-1].version if is_free and marks[-1].version not in reproducer.accepted_by else None
    )


def set_state(
    store: Store, number: int, state: HumanState, argument: str | None, *, note: str | None = None
) -> BugRecord:
    """Keep what people say of a bug; `argument` is the URL, or the number of the other bug.

    Raises:
        UsageError: there is no such bug, it was joined, or the argument makes no sense.
        StorageError: the results cannot be read or written.
    """
    records = {record.number: record for record in kept_bugs(store.database)}
    if number not in records:
        raise UsageError(_no_such_bug(number, list(records)))
    home = records[number].duplicate_of
    if home and number in {joined.number for joined in _joined(records).get(home, ())}:
        raise UsageError(f"bug {number} was joined with bug {home}: use that one")
    record = replace(records[number], state=state, duplicate_of=None)
    if state is HumanState.REPORTED:
        if argument is None:
            raise UsageError("reported needs the URL of the report")
        parts = urlsplit(argument)
        if parts.scheme not in ("http", "https") or not parts.netloc or not argument.isprintable():
            raise UsageError(f"{argument[:100]!r} is not a URL; write https://...")
        record = replace(record, url=argument[:_MAX_WORDS])
    elif state is HumanState.DUPLICATE:
        record = replace(record, duplicate_of=_other(number, argument, records))
    elif argument is not None:
        raise UsageError(f"{state.value} takes no argument; --note keeps text")
    if note is not None:
        record = replace(record, note=note[:_MAX_WORDS])
    put_bug(store.database, record)
    return record


def _other(number: int, text: str | None, records: dict[int, BugRecord]) -> int:
    if text is None or not text.isdecimal() or len(text) > 18:
        raise UsageError("duplicate needs the number of the other bug")
    other = int(text)
    if other not in records:
        raise UsageError(_no_such_bug(other, list(records)))
    # Whatever it is a duplicate of in turn must not lead back.
    visited: set[int | None] = {number}
    at: int | None = other
    while at in records:
        if at in visited:
            raise UsageError(f"bug {number} cannot be a duplicate of {other}, which leads back")
        visited.add(at)
        at = records[at].duplicate_of
    return other


def _no_such_bug(number: int, numbers: Sequence[int]) -> str:
    words = f"they go from {min(numbers)} to {max(numbers)}" if numbers else "there are none yet"
    return f"there is no bug {number}; {words}"


def _chronicle(store: Store, only: Sequence[Selector]) -> tuple[BugHistory, set[int]]:
    """All results, and the bugs of those that one of `only` means."""
    numbers, signatures = store.database.run(read_numbers), store.database.run(read_signatures)
    history, meant = (
        BugHistory(known=cache(known_versions), gone=cache(partial(gone_cells, store))),
        set[int](),
    )
    # A night in which nothing has changed has the rows of the night before.
    decoded: dict[bytes, tuple[BugFacts, int | None]] = {}
    for run in store.all_runs():
        occasion = _occasion(run)
        for stored in store.run_bodies(run.id):
            if stored.row not in decoded:
                facts = _decode(stored.row)
                failed = facts.signature is not None and facts.verdict.is_failure
                key = bug_key(facts, signatures.get(facts.signature or "")) if failed else None
                bug = numbers.get(key) if key else None
                decoded[stored.row] = facts, bug
                if bug is not None and bug not in meant and is_meant(facts, only):
                    meant.add(bug)
            history.add(occasion, *decoded[stored.row])
    return history, meant


def _bug(
    record: BugRecord, bug: Bug, signatures: dict[str, Signature], issues: dict[str, str]
) -> Bug:
    """The bug with its record, what its repros name as issues, and the parts of its signature."""
    mine = {issues[kernel] for kernel in bug.kernels if kernel in issues}
    bug = replace(bug, record=record, issues=tuple(sorted(mine)))
    # A bug may have results under older keys only.
    example = bug.example.signature or ""
    parts = signatures.get(signature_of(record.key)) or signatures.get(example)
    if parts is None:
        return bug
    return replace(
        bug,
        stage=parts.stage,
        kind=parts.kind,
        code=parts.code,
        failing_pass=parts.failing_pass,
        title=parts.template,
    )
