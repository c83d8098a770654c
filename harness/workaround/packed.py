"""What went into a pack, kept with it: its results are read without a second search.

What a search finds depends on the time that it gets; the cubins of a pack are those of one search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.base import Selection
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.workaround.keeping import keep
from harness.workaround.measured import judge_timed
from harness.workaround.result import WorkaroundReport

if TYPE_CHECKING:
    from harness.run.gpu.timed_launches import TimedLaunch


_KIND = "packed_workarounds"
_NOT_YET = "the pack is written; the order below is not measured yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWorkarounds:
    """The report of the search, as nothing was measured yet, and what was asked for."""

    asked: tuple[str, ...]
    report: WorkaroundReport


def keep_packed(
    store: Store, pack: str, selection: Selection, report: WorkaroundReport
) -> WorkaroundReport:
    """Keep what was found and proved with the pack of this name, which has its cubins.

    It comes back with a note that nothing is measured yet.

    Raises:
        StorageError: the database cannot be written.
    """
    packed = PackedWorkarounds(asked=_asked(selection), report=report)
    store.put_evidence(_KIND, pack, msgspec.json.encode(packed), {})
    return replace(report, notes=(*report.notes, _NOT_YET))


def import_workarounds(
    paths: Sequence[Path], selection: Selection, store: Store
) -> WorkaroundReport:
    """The report of the search whose pack gave these results, with what was measured.

    Raises:
        UsageError: they are not results, of several packs, or of none that was written for what
            is selected.
        StorageError: the database cannot be written.
    """
    packed, timed = find_packed(paths, store)
    report = packed.report
    now = Config.of(report.baseline.config)
    if packed.asked != _asked(selection) or not selection.config.matches(now):
        theirs = ", ".join((*packed.asked, now.label))
        raise UsageError(f"the results are of workarounds for {theirs}: select what was packed")
    baseline, candidates, notes = judge_timed(report.baseline, report.candidates, timed)
    measured = replace(
        report, baseline=baseline, candidates=tuple(candidates), notes=(*report.notes, *notes)
    )
    keep(store, measured, selection)
    return measured


def find_packed(
    paths: Sequence[Path], store: Store
) -> tuple[PackedWorkarounds, dict[str, TimedLaunch]]:
    """What was kept with the pack of these results, and what a GPU did with its cubins by sha256.

    Raises:
        UsageError: they are not results, of several packs, or of none that was written here.
    """
    from harness.run.gpu.places import head_of_file  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.gpu.timed_launches import imported_times  # noqa: PLC0415 - as above

    timed = imported_times(paths, store)
    names = {head_of_file(path) for path in paths}
    if len(names) > 1:
        raise UsageError(f"the results are of {len(names)} packs: cubins of one are timed in turns")
    return _kept(store, names.pop()), timed


def _kept(store: Store, pack: str) -> PackedWorkarounds:
    found = store.get_evidence(_KIND, pack)
    if found is None:
        raise UsageError(
            f"the results are of the pack {pack[:12]}, which `triage workaround --pack` did not "
            "write, or not to the end: write a pack again"
        )
    try:
        return msgspec.json.decode(found.body, type=PackedWorkarounds)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the pack {pack[:12]} was written by another version of this program: {error}"
        ) from error


def _asked(selection: Selection) -> tuple[str, ...]:
    """The kernel, the launch and the target: one of each."""
    return selection.repro.name, selection.launches[0].label, str(selection.targets[0])
