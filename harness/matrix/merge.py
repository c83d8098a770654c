"""`triage matrix merge`: the history of other results folders, taken over into this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.diff.between_runs import all_runs
from harness.store.merge import ForeignStore, open_foreign, take_over
from harness.store.store import Store
from harness.values.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """How many runs, results, decisions on bugs, workarounds and pieces of evidence are new here.

    `records` are hunts, least inputs of bugs, packs and what searches learned. `artifacts` are the
    files of evidence and records; `lacking` is how many of these had lost theirs: what they are of
    can be listed, and not shown.
    `merged` are the folders that were read, `refused` one line for each that was not. `unfinished`
    are the merged runs that still lack a shard, or were stopped: nothing is compared with them.
    """

    runs: int
    results: int
    bugs: int
    workarounds: int = 0
    evidence: int = 0
    records: int = 0
    artifacts: int = 0
    lacking: int = 0
    merged: tuple[str, ...]
    refused: tuple[str, ...]
    unfinished: tuple[int, ...]

    @property
    def exit_code(self) -> int:
        """As the command line: 4 where something was refused."""
        return 4 if self.refused else 0


def merge_stores(store: Store, folders: Iterable[Path]) -> MergeReport:
    """Take over all runs, results and bugs of other stores: their folders, or their databases.

    A folder that is refused keeps none of the others out, and nothing of it is taken.

    Raises:
        StorageError: this store cannot be written.
    """
    refused: list[str] = []
    sources: list[ForeignStore] = []
    with contextlib.ExitStack() as opened:
        for folder in folders:
            try:
                sources.append(opened.enter_context(open_foreign(folder)))
            except UsageError as error:
                refused.append(str(error))
        merged = take_over(store, sources)
        uids = {run.uid for source in sources for run in source.runs}
    unfinished = (run.id for run in all_runs(store) if run.finished is None and run.uid in uids)
    return MergeReport(
        runs=merged.runs,
        results=merged.results,
        bugs=merged.bugs,
        workarounds=merged.workarounds,
        evidence=merged.taken.evidence,
        records=merged.taken.records,
        artifacts=merged.taken.artifacts,
        lacking=merged.taken.lacking,
        merged=tuple(str(source.path) for source in sources),
        refused=tuple(refused),
        unfinished=tuple(unfinished),
    )
