"""`triage diff`: what changed from one run to another."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.cells.matrix_file import FILE, read_matrix
from harness.cells.matrix_rules import EVERY, exclusion_of, is_meant
from harness.cells.spelling import purpose_of
from harness.diff.compare import PLAIN, UNTOLD, compare, unchanged
from harness.store.schema import ResultRecord, RunRecord
from harness.store.store import Store
from harness.values.cell import LaunchLabel, place_of
from harness.values.change import Changes
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.matrix import Matrix, Selector
from harness.values.row import Facts
from harness.values.verdict import VerdictKind
from harness.workaround.expiry import broken, expired

_LAST = re.compile(r"last(?:~([0-9]{1,18}))?")
MATRIX = "matrix"
"""The kind of record that holds which file a run is of, by its uid."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_decode = msgspec.json.Decoder(Facts).decode


def compare_runs(
    store: Store,
    older: int | None,
    newer: int,
    matrix: Matrix | None = None,
    *,
    only: Sequence[Selector] = EVERY,
    seen: Callable[[Facts], None] = lambda facts: None,  # noqa: ARG005
) -> Changes:
    """Compare the results of two runs, cell by cell; `older` is None where there is none before.

    Cells that none of `only` means count nowhere.

    `seen` hears each failure of the newer one, in the order of cells, and what else is read. The
    known failures and the exclusions are those of `matrix`. A run that did not finish, or has
    another command, may lack configs that its source has.

    `harness.diff.diff_words` prints the answer and makes its JSON. The database compares rows;
    read are launches where something changed or failed, or is expected to, as streams: memory grows
    with what changed, not with what there is.

    Raises:
        StorageError: the results cannot be read.
    """
    runs = {run.id: run for run in store.all_runs()}
    started = runs[older].started if older in runs else 0.0
    purposes = {purpose_of(runs[run].command) for run in (older, newer) if run in runs}

    def earlier(cells: Sequence[str]) -> Mapping[str, Facts]:
        if older is None:
            return {}
        records = store.last_results(cells, before=started, besides=newer, not_in=sorted(UNTOLD))
        return {record.cell: _decode(record.row) for record in records}

    expectations = matrix.expect if matrix else ()
    places = [""]
    if older is not None and only == EVERY:
        selectors = [expectation.selector for expectation in expectations]
        kernels = [name for name in store.kernels() if any(own.names(name) for own in selectors)]
        cells = store.changed_cells(older, newer, but=sorted(PLAIN), kernels=kernels)
        # A launch with all its configs, however the targets and versions lie between them.
        places = _starts(place_of(cell).rpartition("/")[0] + "/" for cell in cells)
    unread = store.verdicts(newer)

    def read(run: int) -> Iterator[Facts]:
        return (facts for facts in _stream(store, run, places) if is_meant(facts, only))

    def after() -> Iterator[Facts]:
        for facts in read(newer):
            unread[facts.verdict] -= 1
            seen(facts)
            yield facts

    changes = compare(
        read(older) if older is not None else (),
        after(),
        runs=(older, newer),
        expectations=expectations,
        excluded=partial(exclusion_of, matrix),
        earlier=earlier,
        is_whole=len(purposes) == 1 and runs[newer].finished is not None,
    )
    counts = Counter(changes.counts)
    for verdict, count in unread.items() if only == EVERY else ():
        counts[unchanged(VerdictKind(verdict))] += count
    changes = replace(changes, counts=counts)
    workarounds = store.workarounds()
    if not workarounds or only != EVERY:
        return changes
    return replace(
        changes,
        expired=tuple(expired(workarounds, _stream(store, newer))),
        broken=tuple(broken(workarounds, _stream(store, newer))),
    )


def previous_run(store: Store, run: int) -> RunRecord | None:
    """The last finished run before this one that chose its cells with the same words.

    Raises:
        StorageError: the runs cannot be read.
    """
    return _before(store.all_runs(), run, steps=1)


def last_night(
    store: Store, *, only: Sequence[Selector] = EVERY
) -> tuple[RunRecord | None, RunRecord | None, Changes | None]:
    """The last run that finished, of a matrix if there is one; the one before it; what changed.

    Changes are those of the cells that one of `only` means.

    Raises:
        StorageError: the results cannot be read.
    """
    finished = [run for run in store.all_runs() if run.finished is not None]
    nights = [run for run in finished if run.command.startswith("triage matrix")] or finished
    if not nights:
        return None, None, None
    run = nights[-1]
    older = previous_run(store, run.id)
    if older is None:
        return run, None, None
    return run, older, compare_runs(store, older.id, run.id, matrix_of(store, run), only=only)


def current_results(store: Store, kernel: str) -> list[ResultRecord]:
    """The last result of each cell of a kernel that its source still has, as far as is known.

    A finished night that has a launch, on a target and with a toolchain, has all configs of it:
    those that only older runs have are gone, and so are numbered launches of the same call. Results
    of `triage pr` are of two commits: they count where there are no others.

    Raises:
        StorageError: the results cannot be read.
    """
    return [record for record, is_gone in _results_of(store, kernel) if not is_gone]


def gone_cells(store: Store, kernel: str) -> frozenset[str]:
    """The cells of a kernel that its source no longer has: see `current_results`.

    Raises:
        StorageError: the results cannot be read.
    """
    return frozenset(record.cell for record, is_gone in _results_of(store, kernel) if is_gone)


def _results_of(store: Store, kernel: str) -> Iterator[tuple[ResultRecord, bool]]:
    """The last result of each cell, and whether the cell is gone."""
    runs = store.all_runs()
    commits = [run.id for run in runs if run.command.startswith("triage pr ")]
    records = list(store.latest_results(kernel, but=commits)) or [*store.latest_results(kernel)]
    nights = {run.id: run.started for run in runs if run.finished and _has_all_configs(run)}
    last: dict[tuple[str, ...], float] = {}
    # A night that did not finish, and what is compiled by hand, hide what whole nights have.
    whole = [record for record in records if record.run in nights]
    if len(whole) < len(records):
        parts = [run.id for run in runs if run.id not in nights]
        whole = list(store.latest_results(kernel, but=parts))
    for record in whole:
        started = nights[record.run or 0]
        last[_captured(record)] = max(last.get(_captured(record), 0.0), started)
    for record in records:
        yield record, (record.created or 0.0) < last.get(_captured(record), 0.0)


def _has_all_configs(run: RunRecord) -> bool:
    words = shlex.split(run.command)
    is_part = any(word.partition("=")[0] == "--config" for word in words)
    return words[1:3] == ["matrix", "run"] and not is_part


def _captured(record: ResultRecord) -> tuple[str, ...]:
    """What one capture gives all configs of, and what compiles or executes them."""
    call = LaunchLabel.parse(record.launch).call
    return record.kernel, call, record.target, *record.cell.rsplit("/", 2)[1:]


def choose_runs(store: Store, words: Sequence[str]) -> tuple[RunRecord, RunRecord]:
    """The older and the newer run that the user means: two words, or one, or none.

    One word names the newer run, compared with the one before of the same command; without any it
    is the last finished run.

    Raises:
        UsageError: a word does not name a run.
        EmptySelectionError: there is nothing to compare.
        StorageError: the runs cannot be read.
    """
    runs = store.all_runs()
    if len(words) == 2:
        return find_run(runs, words[0]), find_run(runs, words[1])
    newer = find_run(runs, words[0] if words else "last")
    older = _before(runs, newer.id, steps=1)
    if older is None:
        raise EmptySelectionError(
            f"run {newer.id} is the first of its kind, and there is nothing to compare it with: "
            f"name two runs, or run it again (`{newer.command}`)"
        )
    return older, newer


def find_run(runs: Sequence[RunRecord], word: str) -> RunRecord:
    """The run that a word means: its number, `last`, or `last~1`, the one before of its command.

    Raises:
        UsageError: there is no such run, or the word is none of these.
        EmptySelectionError: no run has finished yet.
    """
    if _NUMBER.fullmatch(word):
        for run in runs:
            if run.id == int(word):
                return run
        numbers = ", ".join(str(run.id) for run in runs[-5:]) or "none"
        raise UsageError(f"there is no run {word}; the latest are {numbers}")
    match = _LAST.fullmatch(word)
    if match is None:
        raise UsageError(f"{word!r} is not a run; write its number, `last`, or `last~1`")
    finished = [run for run in runs if run.finished is not None]
    if not finished:
        raise EmptySelectionError("no run has finished yet; start one with `triage matrix run`")
    steps = int(match[1] or 0)
    run_before = _before(runs, finished[-1].id, steps=steps) if steps else finished[-1]
    if run_before is None:
        raise UsageError(
            f"{word}: there are not that many runs of {finished[-1].command!r}; name one by number"
        )
    return run_before


def matrix_of(store: Store, run: RunRecord, file: Path | None = None) -> Matrix | None:
    """This matrix file, by default the one that the run is of.

    None for a run that is of no matrix, or of one that is not here any more. Where it is not known
    which file it was, it is the one that the run's command names, or `./matrix.yaml`.

    Raises:
        ConfigurationError: the file makes no sense.
        StorageError: the results cannot be read.
    """
    if file is not None:
        return read_matrix(file)
    words = shlex.split(run.command)
    if words[1:2] != ["matrix"]:
        return None
    kept = store.records(MATRIX, str, [run.uid]).values()
    options = ((*word.partition("="), following) for word, following in pairwise([*words, ""]))
    named = (value or following for name, _, value, following in options if name == "--matrix")
    found = next(filter(Path.is_file, map(Path, (*kept, next(named, FILE)))), None)
    return read_matrix(found) if found else None


def _before(runs: Sequence[RunRecord], run: int, *, steps: int) -> RunRecord | None:
    index = next((index for index, candidate in enumerate(runs) if candidate.id == run), None)
    if index is None:
        return None
    purpose = purpose_of(runs[index].command)
    same_purpose = [
        candidate
        for candidate in runs[:index]
        if candidate.finished is not None and purpose_of(candidate.command) == purpose
    ]
    return same_purpose[-steps] if steps <= len(same_purpose) else None


def _stream(store: Store, run: int, starts: Sequence[str] = ("",)) -> Iterator[Facts]:
    for stored in store.run_bodies(run, starts):
        yield _decode(stored.row)


def _starts(texts: Iterable[str]) -> list[str]:
    """In order, without those that begin with another."""
    starts: list[str] = []
    for text in sorted(set(texts)):
        if not starts or not text.startswith(starts[-1]):
            starts.append(text)
    return starts
