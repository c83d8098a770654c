"""The proof of a patch: its file is imported, its tuner asked, and what is left compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cells.evaluate import evaluate
from harness.frontends.base import LaunchCode, Plan
from harness.frontends.bench.bench import TimeIsUpError, until
from harness.frontends.registry import plan_launch
from harness.frontends.texts.source_copy import copy_with
from harness.tables.survivors import survivors
from harness.values.errors import CaptureError
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.trials import Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchProof:
    """What is known of a patched file; `is_broken` where it cannot be imported or launched."""

    is_proved: bool
    words: str
    rows: tuple[Row, ...] = ()
    is_broken: bool = False


async def prove_patch(
    trials: Trials, file: Path, patched: str, added: Sequence[Config]
) -> PatchProof:
    """Capture the launch from a copy with the patched file, and compile the configs that are left.

    The capture imports the copy in a child of its own, never from the store: its decorators run,
    and its pruning. It is proved if the kernel came from the copy, no config that is left fails,
    and those that were `added` are among them.

    Raises:
        TriageError: results cannot be kept.
    """
    folder = trials.bench.hub.new_folder("patched") / "tree"
    try:
        plan = await until(trials.end, _captured(trials, file, patched, folder))
        if plan is None:
            return _unproved("the kernel's file lies outside of the launch's sources")
        if plan.failures:
            return _broken(plan.failures[0])
        if not _is_from(plan, folder):
            return _unproved("the launch imports the kernel's file from elsewhere")
        # Not for the history: it is another kernel that has the same cells.
        every = asyncio.gather(*(evaluate(trials.bench, cell) for cell in plan.cells))
        done = await until(trials.end, every)
    except TimeIsUpError:
        return _unproved("the time is up (--budget)")
    except CaptureError as error:
        return _broken(str(error))
    if plan.session:
        await trials.bench.sessions.close(plan.session)
    return _judged(tuple(each.row for each in done), added)


async def _captured(trials: Trials, file: Path, patched: str, folder: Path) -> Plan | None:
    """The launch as the copy makes it; None where the file is not among its sources."""
    assert trials.home.launch is not None
    selection = replace(trials.selection, config=ConfigFilter())
    is_outside = False

    def adapt(code: LaunchCode) -> LaunchCode:
        nonlocal is_outside
        copy = copy_with(code, file, patched, folder)
        is_outside = copy is None
        return copy or code

    plan = await plan_launch(
        trials.bench.apart(limits=None, uncached=True),
        selection.place(target=trials.target, compiler=trials.home.launch.compiler, adapt=adapt),
    )
    return None if is_outside else plan


def _is_from(plan: Plan, folder: Path) -> bool:
    files = [Path(cell.record.file).resolve() for cell in plan.cells if cell.record]
    return bool(files) and all(file.is_relative_to(folder.resolve()) for file in files)


def _unproved(why: str) -> PatchProof:
    return PatchProof(is_proved=False, words=f"not compiled: {why}")


def _broken(why: str) -> PatchProof:
    return PatchProof(is_proved=False, is_broken=True, words=why)


def _judged(rows: tuple[Row, ...], added: Sequence[Config]) -> PatchProof:
    left = [row.config for row in rows]
    missing = [config.label for config in added if config.as_dict() not in left]
    words = (
        "applied to a copy, imported there and compiled; the tuner then has: "
        f"{survivors(rows).headline}"
    )
    if missing:
        words += f" The tuner does not take {missing[0]}."
    is_proved = bool(rows) and not missing and not any(map(has_failed, rows))
    return PatchProof(is_proved=is_proved, words=words, rows=rows)


def has_failed(row: Row) -> bool:
    """Whether a config does not work, and not only that nothing is known of it."""
    kind = VerdictKind(row.verdict)
    return not kind.compiles and not kind.tells_nothing
