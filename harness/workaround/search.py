"""Where workarounds are looked for, cheapest first, and learning what helps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace

from packaging.version import Version

from gpu_emulator.ptx.text.facts import EDITS
from harness.frontends.registry import front_end
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT
from harness.judging.ptxas.help import options_of
from harness.judging.ptxas.ptxas_options import PtxasOption
from harness.store.store import Store
from harness.values.cell import executed_by
from harness.values.errors import TriageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.toolchain import SASS, compiler_name
from harness.values.verdict import Stage, VerdictKind
from harness.workaround.settings import (
    NEUTRAL,
    Setting,
    SettingKind,
    is_gain,
    neighbours,
    newest_of_each_minor,
    passed_on,
    rank_key,
    spread,
)
from harness.workaround.trials import Attempt, Trials

_BEAM = 2
_ROUNDS = 3
# Of the time that is left: what a kernel is given changes more than anything about its compiler.
_SHARES = {
    SettingKind.FLAGS: 3,
    SettingKind.PTX: 1,
    SettingKind.CONFIG: 2,
    SettingKind.LAUNCH: 4,
    SettingKind.PTXAS: 2,
    SettingKind.TRITON: 2,
}
_LEARNED = ("learned", "workaround-kinds")
# So many vain attempts, and none that helped, before a kind goes to the end of the queue.
_VAIN = 30


async def explore(
    trials: Trials,
    listed: Sequence[Setting],
    beside: Sequence[Config],
    *,
    kinds: Collection[SettingKind],
    until: float,
) -> list[SettingKind]:
    """Try these kinds of change, and combinations of what helped; those with more left to try.

    `listed` are the settings that were selected, and tried already; `beside` are all configs that
    the tuner lists. `until` is by `time.monotonic`; each kind gets its share, so that none keeps
    the others from being tried. What is left of the time then goes to those that need more.
    """
    starts = [trials.origin.setting]
    if SettingKind.CONFIG in kinds:
        keys = {setting.key for setting in listed}
        starts = spread([pair for pair in trials.pairs() if pair[0].key in keys])
    ways: dict[SettingKind, Callable[[], Awaitable[None]]] = {
        SettingKind.CONFIG: lambda: _configs(trials, listed, beside),
        SettingKind.LAUNCH: lambda: _launches(trials, starts),
        SettingKind.FLAGS: lambda: _flags(trials),
        SettingKind.PTX: lambda: _edits(trials),
        SettingKind.PTXAS: lambda: _ptxas(trials),
        SettingKind.TRITON: lambda: _tritons(trials, starts),
    }
    if not trials.takes_ptx:
        kinds = [kind for kind in kinds if kind is not SettingKind.FLAGS]
    if trials.home.launch is None:
        # PTX has been through a compiler, and its launch is not known.
        of_ptx = (SettingKind.FLAGS, SettingKind.PTX, SettingKind.PTXAS)
        kinds = [kind for kind in kinds if kind in of_ptx]
    else:
        kinds = [kind for kind in kinds if kind is not SettingKind.PTX]
    store = trials.bench.store
    learned = _learned(store)

    def late(kind: SettingKind) -> tuple[bool, bool, int]:
        attempts, helped = learned.get(kind.value, [0, 0])
        return attempts >= _VAIN and not helped, _is_too_late(trials, kind), kind.weight

    left = sorted(kinds, key=late)
    while left and time.monotonic() < until:
        order, left = left, []
        for index, kind in enumerate(order):
            now = time.monotonic()
            shares = sum(_SHARES[later] for later in order[index:])
            trials.bench.deadline = now + (until - now) * _SHARES[kind] / shares
            trials.is_time_up = False
            await ways[kind]()
            # A parameter of the launch, or another toolchain, may want another config.
            if kind in (SettingKind.LAUNCH, SettingKind.TRITON) and SettingKind.CONFIG in kinds:
                await _climb(trials, listed)
            if trials.is_time_up:
                left.append(kind)
    _learn(store, trials)
    return left


async def _configs(trials: Trials, listed: Sequence[Setting], beside: Sequence[Config]) -> None:
    origin = trials.origin.setting
    configs = [setting.config for setting in listed]
    await trials.attempt(replace(origin, config=config) for config in beside)
    for start in (trials.start, *_best(trials)[:1]):
        proposals = _neighbours(trials, start, configs)
        await trials.attempt(replace(origin, config=config) for config in proposals)


def _neighbours(
    trials: Trials, start: Attempt, listed: Iterable[Config], *, again: bool = False
) -> list[Config]:
    spills = bool(start.row.spill_stores)
    capability = trials.target.capability
    return neighbours(
        start.setting.config,
        listed,
        capability=capability,
        spills=spills,
        again=again,
        options=trials.origin.options,
        is_tuned=trials.is_tuned,
    )


async def _launches(trials: Trials, starts: Sequence[Setting]) -> None:
    parameters = {parameter.name for parameter in trials.selection.launches[0].spec.parameters}
    now = {**trials.origin.defaults, **dict(trials.origin.setting.launch)}
    tunable = dict(trials.selection.repro.tunable)
    if not trials.is_tuned:
        tunable = {**passed_on(now, trials.origin.setting.config), **tunable}
    for name, values in tunable.items():
        if name in parameters:
            await trials.attempt(
                start.with_launch({name: value})
                for value in values
                if value != now.get(name)
                for start in starts
            )


async def _climb(trials: Trials, listed: Sequence[Setting]) -> None:
    """From the best of each launch and Triton to its neighbours, while that leads upwards.

    The configs that the tuner lists are neighbours too: with another parameter of the launch they
    are as new as any.
    """
    configs = [setting.config for setting in listed]
    for _ in range(_ROUNDS):
        tops = _best_by_place(trials)
        new: list[Setting] = []
        for top in tops:
            beside = _neighbours(trials, top, configs, again=True)
            # A cluster of blocks was tried where the search began.
            proposals = [c for c in beside if NEUTRAL.items() <= {**NEUTRAL, **c.as_dict()}.items()]
            proposals.sort(key=lambda config: config not in configs)
            new += [replace(top.setting, config=config) for config in proposals]
        await trials.attempt(new)
        now = [setting.setting for setting in _best_by_place(trials)]
        if trials.is_time_up or now == [setting.setting for setting in tops]:
            return


def _best_by_place(trials: Trials) -> list[Attempt]:
    origin = trials.origin.setting
    by_place: dict[object, Attempt] = {}
    for attempt in _best(trials):
        place = (attempt.setting.launch, attempt.setting.triton)
        if place != (origin.launch, origin.triton) and not attempt.setting.flags:
            by_place.setdefault(place, attempt)
    return list(by_place.values())[:_BEAM]


async def _flags(trials: Trials) -> None:
    """Ptxas' options that its version knows: for what the user has, and then for the best so far.

    What gained nothing for one is not tried for the next.
    """
    options: Sequence[PtxasOption] | None = None
    starts = {start.setting.key: start for start in (trials.start, *_worth_a_tool(trials))}
    for start in starts.values():
        if not start.row.ptxas_flags:
            # It failed before ptxas.
            continue
        if trials.home.launch and OPTIONS_ARGUMENT not in trials.metadata(start):
            trials.tell(f"ptxas options are not tried: {trials.home.compiler.name} takes none")
            return
        if options is None:
            options = await asyncio.to_thread(options_of, start.cell.ptxas)
        attempts = await trials.attempt(replace(start.setting, flags=o.change) for o in options)
        gained = [a for a in attempts if is_gain(trials.origin, a.pair, start.pair)]
        if gained:
            options = [o for o in options if o.change in {a.setting.flags for a in gained}]


async def _edits(trials: Trials) -> None:
    origin = trials.origin.setting
    for edit in EDITS:
        # One for which the PTX has no place says nothing of the others.
        await trials.attempt([replace(origin, edit=edit)])


async def _ptxas(trials: Trials) -> None:
    back = trials.back_end
    try:
        available = await asyncio.to_thread(back.available)
    except TriageError as error:
        trials.tell(f"other {back.title} are not tried: {error}")
        return
    own = str(trials.origin.defaults.get("ptxas"))
    versions = newest_of_each_minor(available, back.installed(), besides=own)
    newer = [version for version in versions if Version(version) > Version(own)]
    older = sorted(set(versions) - set(newer), key=Version, reverse=True)
    for attempt in _worth_a_tool(trials):
        await trials.attempt(replace(attempt.setting, ptxas=v, flags=None) for v in newer)
        for index, version in enumerate(older):
            attempts = await trials.attempt([replace(attempt.setting, ptxas=version, flags=None)])
            if not attempts or attempts[0].row.verdict is VerdictKind.UNSUPPORTED:
                # What is older still knows the GPU, or this PTX, no better.
                older = older[:index]
                break


async def _tritons(trials: Trials, starts: Sequence[Setting]) -> None:
    if trials.home.launch is None:
        return
    try:
        own = str(trials.origin.defaults.get("triton"))
        versions = await usable_versions(trials.home.compiler.kind, own)
    except TriageError as error:
        title = compiler_name(trials.home.compiler.kind)
        trials.tell(f"other {title}s are not tried: {error}")
        return
    # What fails today is what another Triton may fix; and it is quick to compile.
    every = trials.results.values()
    failing = {attempt.setting.key for attempt in every if not attempt.row.verdict.compiles}
    starts = sorted(starts, key=lambda start: start.key not in failing)
    starts = [*(attempt.setting for attempt in _best(trials)[:1]), *starts]
    for version in versions:
        if trials.is_time_up:
            return
        # One after another: each is a process of its own, and the newest are tried first.
        await trials.attempt(
            replace(start, triton=version, ptxas=None, flags=None) for start in starts
        )


async def usable_versions(kind: str, besides: str) -> list[str]:
    """The newest of each minor release that we can work with, those that are here first.

    Raises:
        TriageError: what there is cannot be found out.
    """
    front = front_end(kind)
    usable = await asyncio.to_thread(front.available)
    here = [Version(compiler.version) for compiler in front.installed()]
    return newest_of_each_minor(usable, here, besides=besides)


def _best(trials: Trials) -> list[Attempt]:
    compiling = [attempt for attempt in trials.results.values() if attempt.row.verdict.compiles]
    return sorted(compiling, key=lambda attempt: rank_key(trials.origin, *attempt.pair))


def _worth_a_tool(trials: Trials) -> list[Attempt]:
    """What another ptxas could change: the best of each launch, and a failure of ptxas' own."""
    own = [
        attempt
        for attempt in trials.results.values()
        if not (attempt.setting.ptxas or attempt.setting.flags or attempt.setting.triton)
    ]
    by_launch: dict[object, Attempt] = {}
    for attempt in _best(trials):
        if any(attempt is untooled for untooled in own):
            by_launch.setdefault(attempt.setting.launch, attempt)
    beam = list(by_launch.values())[:_BEAM]
    # Where nothing but the cubin was wrong, another ptxas is all that it takes.
    failing = [a for a in own if not a.row.verdict.compiles and _is_of_cubin(a.row)][:1]
    return list({attempt.setting.key: attempt for attempt in [*beam, *failing]}.values())


def _is_of_cubin(row: Row) -> bool:
    """Whether it came as far as the cubin: ptxas saw it, or what it wrote was executed."""
    return row.stage == Stage.CUBIN.value or executed_by(row.cell) == SASS


def _learned(store: Store) -> dict[str, list[int]]:
    kind, key = _LEARNED
    return store.records(kind, dict[str, list[int]], [key]).get(key, {})


def _is_too_late(trials: Trials, kind: SettingKind) -> bool:
    """Where Triton itself fails, ptxas comes last: it never sees the kernel.

    Its options depend on the config that the user has alone: they take no time to try.
    """
    failing = {SettingKind.FLAGS: [trials.start]}
    failing[SettingKind.PTXAS] = list(trials.results.values())
    return any(
        not attempt.row.verdict.compiles
        and attempt.row.stage != Stage.LAUNCH.value
        and not _is_of_cubin(attempt.row)
        for attempt in failing.get(kind, ())
    )


def _learn(store: Store, trials: Trials) -> None:
    """Add to what was learned how often each kind of setting was tried, and helped."""

    def added(kept: dict[str, list[int]] | None) -> dict[str, list[int]]:
        learned = dict(kept or {})
        for attempt in trials.results.values():
            kinds = {step.kind for step in trials.steps(attempt.setting)}
            gained = is_gain(trials.origin, attempt.pair, trials.start.pair)
            for kind in kinds:
                attempts, helped = learned.get(kind.value, [0, 0])
                learned[kind.value] = [attempts + 1, helped + gained]
        return learned

    store.change_record(*_LEARNED, dict[str, list[int]], added)
