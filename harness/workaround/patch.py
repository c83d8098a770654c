"""The workaround as a patch of the kernel's file: what it leaves out, and what it adds."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cells.evaluate import evaluate
from harness.frontends.base import LaunchCode, Plan
from harness.frontends.bench.bench import TimeIsUpError, until
from harness.frontends.launch_code import copy_with, read_source
from harness.frontends.registry import front_end, plan_launch
from harness.tables.survivors import survivors
from harness.values.errors import CaptureError, TriageError
from harness.values.kernel import Config, ConfigFilter, Scalar
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.toolchain import BUNDLED
from harness.values.verdict import Stage, VerdictKind
from harness.workaround.choice import Tried, is_gain
from harness.workaround.result import Candidate, Patch
from harness.workaround.search import usable_versions
from harness.workaround.settings import Setting, SettingKind, in_order
from harness.workaround.trials import Attempt, Trials
from harness.workaround.tuning_list import (
    GuardedRelease,
    PatchError,
    find_tuner,
    make_guard,
    patch_tuner,
    unified_diff,
)

# The proof of a patch: its file is imported, its tuner asked, and what is left compiled.


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
        files = [Path(cell.record.file).resolve() for cell in plan.cells if cell.record]
        if not files or not all(file.is_relative_to(folder.resolve()) for file in files):
            return _unproved("the launch imports the kernel's file from elsewhere")
        # Not for the history: it is another kernel that has the same cells.
        every = asyncio.gather(*(evaluate(trials.bench, cell) for cell in plan.cells))
        evaluated = await until(trials.end, every)
    except TimeIsUpError:
        return _unproved("the time is up (--budget)")
    except CaptureError as error:
        return _broken(str(error))
    if plan.session:
        await trials.bench.sessions.close(plan.session)
    rows = tuple(each.row for each in evaluated)
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


def _unproved(why: str) -> PatchProof:
    return PatchProof(is_proved=False, words=f"not compiled: {why}")


def _broken(why: str) -> PatchProof:
    return PatchProof(is_proved=False, is_broken=True, words=why)


def has_failed(row: Row) -> bool:
    """Whether a config does not work, and not only that nothing is known of it."""
    kind = VerdictKind(row.verdict)
    return not kind.compiles and not kind.tells_nothing


_AT_PTXAS = (Stage.CUBIN.value, Stage.LAUNCH.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """By `time.monotonic`: until when other Tritons are asked, and when all has to end."""

    ask: float
    end: float


_NOTHING_LEFT_OUT = (
    "the patch leaves nothing out: it is ptxas {} that fails, which a tuner cannot distinguish "
    "from the one that its Triton bundles"
)


async def make_patch(
    trials: Trials,
    plan: Plan,
    candidates: Sequence[Candidate],
    survivor: Tried | None,
    times: Times,
    *,
    on_tritons: bool,
) -> tuple[Patch | None, list[str]]:
    """A patch that leaves out what fails and adds what is better; and why there is none, or less.

    `survivor` is the best of the list. `on_tritons` says whether other Tritons are asked which
    configs they fail on.

    Raises:
        TriageError: results cannot be kept.
    """
    record = trials.home.record
    patches = front_end(trials.home.compiler.kind).patches
    if record is None or trials.home.launch is None or not patches:
        return None, []
    trials.is_time_up = False
    trials.bench.deadline = times.end
    file = Path(record.file).resolve()
    try:
        text = read_source(file)
        tuner = find_tuner(text, record.kernel)
    except (PatchError, TriageError) as error:
        return None, [f"no patch: {file.name}: {error}"]
    everything = await trials.attempt(Setting(config=config) for config in plan.configs)
    failing = [each.row for each in everything if has_failed(each.row)]
    add = _worth_adding(trials, candidates, survivor)
    notes: list[str] = []
    guard = None
    if failing and _is_own_ptxas(trials, failing):
        notes.append(_NOTHING_LEFT_OUT.format(trials.home.ptxas.version))
    elif failing:
        trials.bench.deadline = times.ask
        guard = make_guard(
            await _on_tritons(trials, everything, others=on_tritons),
            capability=trials.target.capability,
            arguments=tuned_arguments(record, tuner.key),
        )
    if guard is None and not add:
        return None, [*notes, "no patch: nothing in the list is to be left out, or added"]
    because = survivors(failing).fates[0].reason if guard else ""
    try:
        patched = patch_tuner(text, record.kernel, guard=guard, because=because, add=add)
    except PatchError as error:
        return None, [*notes, f"no patch: {file.name}: {error}"]
    trials.bench.deadline = times.end
    trials.tell(f"compiling a copy of {file.name} with the patch")
    proof = await prove_patch(trials, file, patched, add)
    if proof.is_broken:
        return None, [*notes, f"no patch: with it, the launch fails: {proof.words}"]
    name = _name_in_tree(trials, file)
    return Patch(
        file=name,
        diff=unified_diff(name, text, patched),
        guard=guard,
        added=tuple(config.label for config in add),
        is_proved=proof.is_proved,
        proof=proof.words,
        rows=proof.rows,
        left_out=tuple(failing) if guard else (),
    ), notes


def _is_own_ptxas(trials: Trials, failing: Sequence[Row]) -> bool:
    """Whether a ptxas that the user has chosen fails: no property of any Triton."""
    chosen = trials.home.ptxas.origin != BUNDLED
    return chosen and any(row.stage == Stage.CUBIN.value for row in failing)


def _worth_adding(
    trials: Trials, candidates: Sequence[Candidate], survivor: Tried | None
) -> list[Config]:
    found = (
        candidate.setting.config
        for candidate in candidates
        if not candidate.is_listed
        and all(step.kind is SettingKind.CONFIG for step in candidate.steps)
        and (
            survivor is None or is_gain(trials.origin, (candidate.setting, candidate.row), survivor)
        )
    )
    return list(found)[:1]


def tuned_arguments(record: LaunchFacts, key: Sequence[str]) -> dict[str, Scalar]:
    """The compile-time arguments by which the tuner tells launches apart, as they were."""
    found: dict[str, Scalar] = {}
    for argument in record.arguments:
        name, value = argument["name"], argument.get("constexpr")
        if name not in key or name in record.config or not isinstance(value, str):
            continue
        try:
            read = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            continue
        if isinstance(read, bool | int | str):
            found[str(name)] = read
    return found


def _name_in_tree(trials: Trials, file: Path) -> str:
    assert trials.home.launch is not None
    roots = [path.resolve() for path in trials.home.launch.request.paths]
    for root in roots:
        if file.is_relative_to(root):
            return file.relative_to(root).as_posix()
    return file.name


async def _on_tritons(
    trials: Trials, everything: Sequence[Attempt], *, others: bool
) -> list[GuardedRelease]:
    """What each minor release makes of the list; as many as there is time for, nearest first."""
    assert trials.home.launch is not None
    own = trials.home.launch.compiler.version
    tested = [_release(own, {each.setting.config: each.row for each in everything})]
    early = all(each.row.stage not in _AT_PTXAS for each in everything if has_failed(each.row))
    configs = [each.setting.config for each in everything]
    few = _representatives(configs) if early else {config: config for config in configs}
    for version in await usable_versions(trials.home.compiler.kind, own) if others else ():
        if trials.is_time_up:
            break
        asked = dict.fromkeys(few.values())
        found = {
            each.setting.config: each.row
            for each in await trials.attempt(
                Setting(config=config, triton=version) for config in asked
            )
        }
        rows = {config: found[stands] for config, stands in few.items() if stands in found}
        at_ptxas = any(has_failed(row) and row.stage in _AT_PTXAS for row in rows.values())
        if len(rows) == len(configs) and not (early and at_ptxas):
            tested.append(_release(version, rows))
    return tested


def _representatives(configs: Sequence[Config]) -> dict[Config, Config]:
    """For each config one that differs from it in its limit of registers at most.

    That limit is for ptxas: what goes wrong before ptxas does not depend on it.
    """
    first: dict[Config, Config] = {}
    found = {}
    for config in configs:
        values = {name: value for name, value in config.items if name != "maxnreg"}
        found[config] = first.setdefault(in_order(values, config), config)
    return found


def _release(version: str, rows: dict[Config, Row]) -> GuardedRelease:
    fails = tuple(config for config, row in rows.items() if has_failed(row))
    works = tuple(config for config, row in rows.items() if VerdictKind(row.verdict).compiles)
    reason = next((row.reason for row in rows.values() if has_failed(row)), "")
    return GuardedRelease(triton=version, fails=fails, works=works, reason=reason)
