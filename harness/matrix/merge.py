"""`triage matrix merge`: the history of other results folders, taken over into this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from harness.diff.between_runs import all_runs
from harness.store.merge import ForeignStore, Merged, open_foreign, take_over
from harness.store.store import Store
from harness.values.errors import UsageError


def merge_stores(store: Store, folders: Iterable[Path]) -> Merged:
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
    return replace(
        merged,
        merged=tuple(str(source.path) for source in sources),
        refused=tuple(refused),
        unfinished=tuple(unfinished),
    )
