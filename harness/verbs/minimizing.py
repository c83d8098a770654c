"""`triage minimize`: from a failure to the least input that shows the same one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from harness.effects.process import Hub
from harness.effects.store import Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.logic.minimization import Minimization, Uninteresting
from harness.values.verdict import Stage
from harness.verbs.minimizing_ptx import minimize_ptx
from harness.verbs.minimizing_subject import Search, Subject, find_subject, is_before_ptxas
from harness.verbs.minimizing_upstream import (
    minimize_config,
    minimize_source,
    minimize_ttgir,
)
from harness.verbs.minimizing_work import MinimizeOptions, Reducing, Watch
from harness.verbs.selection import Selection
from harness.verbs.work import CompileOptions

__all__ = ["LEVELS", "minimize"]

_LEVELS: Mapping[str, Callable[[Reducing], Awaitable[Minimization | Uninteresting]]] = {
    "config": minimize_config,
    "source": minimize_source,
    "ttgir": minimize_ttgir,
    "ptx": minimize_ptx,
}
LEVELS = ("auto", *_LEVELS)


async def minimize(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: MinimizeOptions,
    watch: Watch,
) -> Minimization | Uninteresting:
    """Reduce the first config that shows it, and keep the best on disk at any moment.

    Ctrl-C, a budget and a machine that fails end the reduction, not its result.

    Raises:
        UsageError: the level does not apply, or the folder is taken.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    started = time.monotonic()
    run = store.begin_run(how.command)
    async with Hub() as hub:
        bench = Workbench(
            hub=hub,
            store=store,
            sessions=TritonSessions(hub, capture_timeout=how.timeout, capture_memory=how.memory),
            jobs=how.workers,
            limits=how.limits,
            use_cache=how.use_cache,
        )
        subject = await find_subject(
            bench,
            selection,
            run,
            Search(
                condition=options.condition,
                any_will_do=options.script is not None,
                at_ptxas=options.level == "ptx" or options.script is not None,
            ),
            watch.tell,
        )
        if isinstance(subject, Uninteresting):
            result: Minimization | Uninteresting = subject
        else:
            reducing = Reducing(
                bench=bench,
                selection=selection,
                subject=subject,
                how=how,
                options=options,
                watch=watch,
                started=started,
            )
            result = await _LEVELS[_level(options.level, subject)](reducing)
    store.finish_run(run)
    return result


def _level(asked: str, subject: Subject) -> str:
    """What ptxas does not see is in the source; the rest is in the PTX too, which is quicker."""
    if asked != "auto":
        return asked
    row = subject.row
    is_unseen = is_before_ptxas(row) or row.stage == Stage.LAUNCH.value
    return "source" if row.triton and (subject.text is None or is_unseen) else "ptx"
