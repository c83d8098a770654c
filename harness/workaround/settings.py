"""What to try where a config fails or is sick, cheapest first; what is better, and what is shown.

A *setting* is everything about a compilation that a user can change without touching the kernel:
config, parameters of the launch, ptxas' flags, ptxas, Triton. A workaround is a setting that is
better than the one that it starts from.

What is better is decided by figures that need no disassembly; they choose where the search goes on
and what is shown, and order it. Nothing here has been run. The criteria (`merit`), and why:

1. The verdict: healthy, then sick, then what does not work at all.
2. Spill traffic: bytes that ptxas says a thread stores and loads, times the threads of a block,
   times `turns`: a tile of half the size is worked on twice as often, by more blocks or in more
   turns of a loop, and ptxas' figures do not know of that. On an H200 spilled bytes ranked the
   configs of the project's first kernel with a Spearman correlation of 0.89 against measured time
   (its forward kernel 0.89, a third one 0.71); nothing else that is known without running comes
   near. It is compared in steps of a half: the figures are static, and a tenth says nothing. Less
   than makes a kernel sick (`harness.values.verdict`) is noise beside its loads: none at all.
3. Where spills do not tell them apart: warps that an SM can hold (occupancy), in steps of an
   eighth of what it can hold; below that hiding a latency is hardest, so more is better.
4. The instruction mix: the share of instructions that touch local memory, in steps of a tenth.
5. What a block takes away from its neighbours: tensor memory, shared memory.

Every criterion is monotone in its figure. So a compilation that is better in everything ranks
first. Beyond these, the nearer setting comes first (`rank_key`): equal
figures are not a reason to change a toolchain.

Sources: measured on the H200 by this project; `occupancy` is that of NVIDIA's cuda_occupancy.h;
256-thread blocks at 25 % hid latencies that 12.5 % did not in a serving stack's tuning of the same
family of kernels (facts of the project, `chunk_scan`).

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from packaging.version import Version

from gpu_emulator.ptx.text.facts import PtxEdit
from harness.frontends.texts.python import OPTIONS
from harness.io.packages.versions import newest_of_minor
from harness.judging.ptxas.ptxas_options import FlagChange, lowers_optimisation
from harness.values.kernel import Config, Scalar
from harness.values.limits import Limits
from harness.values.row import Row
from harness.values.toolchain import PTXAS, TRITON
from harness.values.verdict import DEFAULT_THRESHOLDS, VerdictKind

NEUTRAL: Mapping[str, int] = {"num_ctas": 1}
"""What an option is where a config does not name it, if that can be said, too."""

_SPILL_STEP = 1.5
_OCCUPANCY_STEP = 0.125
_SHARE_STEP = 0.1
_UNIT = 1024


def spill_bytes_per_block(row: Row) -> int | None:
    """Bytes that one block stores to and loads from local memory where registers do not suffice."""
    if row.spill_stores is None or row.spill_loads is None or not row.threads:
        return None
    return (row.spill_stores + row.spill_loads) * row.threads


def merit(row: Row, turns: float = 1.0) -> tuple[float, ...]:
    """Sorts what works, spills less and is not held back first; what is not known counts as worst.

    `turns` is how many times as often the code is run, for all that is known.
    """
    kind, of_block = row.verdict, spill_bytes_per_block(row)
    standing = 1 if kind is VerdictKind.SICK else 3 if kind.tells_nothing else 2
    spills = local = math.inf
    if of_block is not None:
        of_thread = (row.spill_stores or 0) + (row.spill_loads or 0)
        steps = math.log(max(of_block * turns / _UNIT, 1), _SPILL_STEP)
        is_noise = of_thread < DEFAULT_THRESHOLDS.spill_bytes
        spills = 0 if is_noise else 1 + math.floor(steps)
    if row.instructions and (total := row.instructions.get("total", 0)):
        local = math.floor(row.instructions.get("local", 0) / total / _SHARE_STEP)
    return (
        0 if kind.is_healthy else standing,
        spills,
        -math.floor((row.occupancy or 0.0) / _OCCUPANCY_STEP + 1e-9) * _OCCUPANCY_STEP,
        local,
        *(math.inf if size is None else float(size) for size in (row.tmem_size, row.shared)),
    )


class SettingKind(StrEnum):
    """What a step changes, in the order of what it costs to try and to live with."""

    FLAGS = "flags"
    PTX = "ptx"
    CONFIG = "config"
    LAUNCH = "launch"
    PTXAS = "ptxas"
    TRITON = "triton"

    @property
    def weight(self) -> int:
        """How far one such step takes a user from where they are.

        Options of ptxas are an environment variable, or an argument of the launch. PTX can be
        changed where it is a file, and not what Triton makes each time. A config is
        changed in one place of the source. A parameter of the launch changes what the kernel is
        given, toolchains change every other kernel of the program too.
        """
        return 1 << list(SettingKind).index(self)

    @property
    def is_environment(self) -> bool:
        """Whether a user has it by environment variables, without a change of any source."""
        return self in (SettingKind.FLAGS, SettingKind.PTXAS)

    @property
    def keeps_source(self) -> bool:
        """Whether a user has it without a change of any source: another compiler is installed."""
        return self.is_environment or self is SettingKind.TRITON


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A point of the search; `launch` holds the overrides, None stands for what the user has."""

    config: Config
    launch: tuple[tuple[str, Scalar | None], ...] = ()
    flags: FlagChange | None = None
    edit: PtxEdit | None = None
    ptxas: str | None = None
    triton: str | None = None

    def with_launch(self, values: Mapping[str, Scalar | None]) -> Setting:
        """With these parameters of the launch besides, or in place of, its own."""
        return replace(self, launch=tuple(sorted({**dict(self.launch), **values}.items())))

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for settings that are the same, in whatever order their config is written."""
        config = tuple(sorted(self.config.items, key=lambda item: item[0]))
        return config, self.launch, self.flags, self.edit, self.ptxas, self.triton


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingStep:
    """One thing that is different; None is what is not set. `is_option`: the compiler gets it."""

    kind: SettingKind
    name: str
    before: Scalar | None
    after: Scalar | None
    is_option: bool = False

    @property
    def words(self) -> str:
        """As `chunk_size 64 -> 32`."""
        unset = NEUTRAL.get(self.name, "none") if self.is_option else "none"
        before = unset if self.before is None else self.before
        after = unset if self.after is None else self.after
        return f"{self.name} {before} -> {after}"

    @property
    def is_downgrade(self) -> bool:
        """Whether it goes back to an older toolchain."""
        is_tool = self.kind in (SettingKind.PTXAS, SettingKind.TRITON)
        if not is_tool or self.before is None or self.after is None:
            return False
        return Version(str(self.after)) < Version(str(self.before))

    @property
    def factor(self) -> float:
        """How far a number goes, up or down, as a power of two; 0 where it is not one."""
        values = (self.before, self.after)
        numbers = [value for value in values if isinstance(value, int) and value > 0]
        return abs(math.log2(numbers[1] / numbers[0])) if len(numbers) == len(values) else 0.0

    @property
    def sizes_a_tile(self) -> bool:
        """Whether it is a parameter that says how much is worked on at once."""
        return self.kind is SettingKind.LAUNCH or (
            self.kind is SettingKind.CONFIG and not self.is_option
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSetting:
    """The setting that a user has.

    `defaults` are the values that it leaves unsaid: parameters of the launch by name, and the
    versions of `ptxas` and `triton` (the compiler, whatever its `kind`). `row` is the result of
    it, where that is known. `options` of a config are said to the compiler. `assembler` is the
    kind of what `ptxas` stands for.
    """

    setting: Setting
    defaults: Mapping[str, Scalar | None]
    row: Row | None = None
    kind: str = TRITON
    options: tuple[str, ...] = OPTIONS
    assembler: str = PTXAS

    def steps_to(self, setting: Setting) -> tuple[SettingStep, ...]:
        """What is different there."""
        origin, defaults = self.setting, self.defaults
        sides: dict[SettingKind, tuple[dict[str, Any], dict[str, Any]]] = {
            SettingKind.CONFIG: (origin.config.as_dict(), setting.config.as_dict()),
            SettingKind.LAUNCH: (
                {**defaults, **dict(origin.launch)},
                {**defaults, **dict(setting.launch)},
            ),
        }
        steps = [
            SettingStep(
                kind=kind,
                name=name,
                before=before.get(name),
                after=after.get(name),
                is_option=kind is SettingKind.CONFIG and name in self.options,
            )
            for kind, (before, after) in sides.items()
            for name in dict.fromkeys([*before, *after])
            if before.get(name) != after.get(name)
        ]
        titles = {
            SettingKind.FLAGS: "ptxas flags",
            SettingKind.PTX: "PTX",
            SettingKind.PTXAS: self.assembler,
            SettingKind.TRITON: self.kind,
        }
        for kind, title in titles.items():
            before, after = (getattr(side, _FIELDS[kind]) for side in (origin, setting))
            if before != after:
                is_tool = kind in (SettingKind.PTXAS, SettingKind.TRITON)
                own = defaults.get(kind.value) if is_tool else None
                old, new = _words(before) or own, _words(after) or own
                steps.append(SettingStep(kind=kind, name=title, before=old, after=new))
        return tuple(steps)

    def turns(self, setting: Setting) -> float:
        """How many times as often the kernel's code runs: by how much its tiles have shrunk."""
        factor = 1.0
        for step in self.steps_to(setting):
            before, after = step.before, step.after
            if step.sizes_a_tile and _is_positive(before) and _is_positive(after):
                factor *= float(before) / float(after)  # type: ignore[arg-type]
        return factor


_FIELDS = {
    SettingKind.FLAGS: "flags",
    SettingKind.PTX: "edit",
    SettingKind.PTXAS: "ptxas",
    SettingKind.TRITON: "triton",
}
"""Of a `Setting`, for each kind of change that is one value."""


def _words(value: FlagChange | PtxEdit | str | None) -> str | None:
    if isinstance(value, FlagChange):
        return value.label
    return value.words if isinstance(value, PtxEdit) else value


def _is_positive(value: Scalar | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def without(setting: Setting, step: SettingStep, origin: Setting) -> Setting:
    """The setting with one of its steps undone."""
    if step.kind not in (SettingKind.CONFIG, SettingKind.LAUNCH):
        name = _FIELDS[step.kind]
        return replace(setting, **{name: getattr(origin, name)})
    is_config = step.kind is SettingKind.CONFIG
    values: dict[str, Any] = setting.config.as_dict() if is_config else dict(setting.launch)
    own: dict[str, Any] = origin.config.as_dict() if is_config else dict(origin.launch)
    if step.name in own:
        values[step.name] = own[step.name]
    else:
        values.pop(step.name, None)
    if is_config:
        return replace(setting, config=in_order(values, origin.config))
    return replace(setting, launch=tuple(sorted(values.items())))


# What Triton takes where a launch gives no option (its NVIDIA backend's defaults).
_UNSET = {"num_warps": 4, "num_stages": 3, **NEUTRAL}
_MOST_WARPS = 16
_MOST_STAGES = 8
# Below none of them a kernel gets another occupancy: 64 K registers over whole warps of a block.
_REGISTERS = (64, 96, 128, 168, 192, 255)
_CLUSTERS_SINCE = 90


def neighbours(
    config: Config,
    listed: Iterable[Config],
    *,
    capability: int,
    spills: bool = False,
    again: bool = False,
    options: Sequence[str] = OPTIONS,
    is_tuned: bool = True,
) -> list[Config]:
    """The configs that differ from this one in one value, and are not listed (but for `again`).

    Of a launch without a tuner (not `is_tuned`) the meta-parameters stay, for the launch code
    computes its grid and its arguments with them; and what it names cannot be left out.

    Warps and powers of two among the meta-parameters are halved and doubled, stages go up and down
    by one, registers go to the next step of a ladder, to none and to the most. The first ones are
    those that most often help a kernel that spills: more registers, then more warps. One that
    `spills` gets no fewer warps: each thread would have to hold twice as much.
    """
    listed = list(listed)
    keys = {Setting(config=beside).key for beside in [config, *(() if again else listed)]}
    values = config.as_dict()
    proposals: list[Config] = []
    for name, other in _changed(values, listed, capability, options, spills=spills):
        value = NEUTRAL.get(name) if other is None and not is_tuned else other
        if not is_tuned and (name not in options or value is None):
            continue
        changed = dict(values)
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = value
        proposal = in_order(changed, config)
        if Setting(config=proposal).key not in keys:
            keys.add(Setting(config=proposal).key)
            proposals.append(proposal)
    return proposals


def passed_on(
    parameters: Mapping[str, Scalar | None], config: Config
) -> dict[str, tuple[Scalar, ...]]:
    """Other values of the parameters that a launch hands to its kernel as powers of two.

    Such a parameter has the name of a meta-parameter, but for capitals, and its value: `tile` and
    `TILE`.
    """
    own = {(name.lower(), value) for name, value in config.items}
    return {
        name: halved_and_doubled(value)
        for name, value in parameters.items()
        if (name.lower(), value) in own and halved_and_doubled(value)
    }


def halved_and_doubled(value: Scalar | None) -> tuple[int, ...]:
    """Of a power of two; nothing of anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 1 or value & (value - 1):
        return ()
    return value // 2, value * 2


def in_order(values: Mapping[str, Scalar], like: Config) -> Config:
    """A config whose names come as in another one: the same config has one name everywhere."""
    names = [name for name, _ in like.items if name in values]
    return Config.of({name: values[name] for name in (*names, *values)})


def _changed(
    values: Mapping[str, Scalar],
    listed: Sequence[Config],
    capability: int,
    options: Sequence[str],
    *,
    spills: bool,
) -> list[tuple[str, Scalar | None]]:
    changes: list[tuple[str, Scalar | None]] = []
    changes += [("maxnreg", count) for count in _registers(values.get("maxnreg"), listed)]
    warps = _number(values, "num_warps")
    fewer = () if spills else (warps // 2,)
    changes += [("num_warps", n) for n in (warps * 2, *fewer) if 1 <= n <= _MOST_WARPS]
    for name, value in values.items():
        if name not in options:
            changes += [(name, n) for n in halved_and_doubled(value)]
    stages = _number(values, "num_stages")
    changes += [("num_stages", n) for n in (stages - 1, stages + 1) if 1 <= n <= _MOST_STAGES]
    if capability >= _CLUSTERS_SINCE:
        ctas = _number(values, "num_ctas")
        changes.append(("num_ctas", 2) if ctas == 1 else ("num_ctas", None))
    # Of the options above, those that this compiler has.
    return [(name, value) for name, value in changes if name in values or name in options]


def _number(values: Mapping[str, Scalar], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) else _UNSET[name]


def _registers(now: Scalar | None, listed: Sequence[Config]) -> list[int | None]:
    """The next steps of the ladder; the kernel's own values are among them, in place of near ones.

    Registers are handed out by eight: 255 and 256 are one limit.
    """
    own = {config.as_dict().get("maxnreg") for config in listed}
    mine = {value for value in own if isinstance(value, int)}
    ladder = sorted(mine | {n for n in _REGISTERS if not any(abs(n - m) < 8 for m in mine)})
    if not isinstance(now, int):
        return [ladder[-1], *[n for n in ladder[:-1] if n >= 128][:1]]
    at = min(range(len(ladder)), key=lambda index: abs(ladder[index] - now))
    near = [*ladder[at + 1 : at + 2], *ladder[max(at - 1, 0) : at]]
    return [None, *near, *({ladder[-1]} - {*near, now})]


def spread(rows: Sequence[tuple[Setting, Row]], *, at_most: int = 8) -> list[Setting]:
    """Few settings that stand for many, the best of them first.

    For each fate and number of warps the first one, and the one that is most like the best: what a
    change of the launch does to a kernel shows in each of these differently.
    """
    best = min(rows, key=lambda pair: merit(pair[1]))[0]
    groups: dict[tuple[object, ...], list[Setting]] = {}
    for setting, row in rows:
        warps = setting.config.as_dict().get("num_warps")
        fate = (row.signature, row.verdict.compiles)
        groups.setdefault((warps, *fate), []).append(setting)
    first = [group[0] for group in groups.values()]
    representatives = [
        max(group, key=lambda member: _likeness(member, best)) for group in groups.values()
    ]
    return list(dict.fromkeys([best, *first, *representatives]))[:at_most]


def _likeness(setting: Setting, best: Setting) -> int:
    mine, theirs = setting.config.as_dict(), best.config.as_dict()
    return sum(mine.get(name) == theirs.get(name) for name in {*mine, *theirs})


def newest_of_each_minor(
    versions: Iterable[Version], installed: Iterable[Version], *, besides: str | None
) -> list[str]:
    """One version of each minor release, the newest; those of installed ones first, newest first.

    `besides` is the one that the user has.
    """
    here = set(installed)
    newest = newest_of_minor(versions)
    order = sorted(newest, key=lambda version: (version in here, version), reverse=True)
    return [str(version) for version in order if str(version) != besides]


# Less than this is not a reason for anything.
_NOTABLE = 0.1
_HALF = (0.4, 0.6)

_FIGURES: tuple[tuple[str, str, Callable[[Row], float | None]], ...] = (
    ("tensor memory", " columns", lambda row: row.tmem_size),
    ("shared memory", " B", lambda row: row.shared),
    ("registers", "", lambda row: row.n_regs),
    ("spill stores", " B", lambda row: row.spill_stores),
)
# Loads go with the stores, and the table has both.


def explain(before: Row, after: Row) -> str:
    """The figures that moved by a tenth or more, and the verdict."""
    parts = []
    if before.verdict != after.verdict:
        parts.append(f"{before.verdict} -> {after.verdict}")
    # The figures of a stub are those of an empty kernel, all but what it asked for.
    hollow = VerdictKind.TRAP_STUB.value in (before.verdict, after.verdict)
    for name, unit, read in _FIGURES:
        old, new = read(before), read(after)
        if old is None or new is None or (hollow and name != "tensor memory"):
            continue
        if _differs(old, new):
            parts.append(f"{name} {old:,.0f} -> {new:,.0f}{unit}{_halved(old, new)}")
    shares = (before.occupancy, after.occupancy)
    if None not in shares and not hollow and _differs(*map(float, shares)):  # type: ignore[arg-type]
        parts.append(f"occupancy {shares[0]:.1%} -> {shares[1]:.1%}")
    return "; ".join(parts) or "no figure that is known changes by a tenth"


def _differs(old: float, new: float) -> bool:
    return abs(new - old) > _NOTABLE * max(abs(old), abs(new))


def _halved(old: float, new: float) -> str:
    if not old or not new:
        return ""
    if _HALF[0] <= new / old <= _HALF[1]:
        return " (about half)"
    return f" ({old / new:.0f}x less)" if old / new >= 2 / _HALF[1] else ""


def explain_step(step: SettingStep, undone: Row, complete: Row, limits: Limits | None) -> str:
    """What one step is for: the setting with all steps against the one without this."""
    before, after = step.before, step.after
    is_number = all(type(value) is int for value in (before, after))
    is_smaller = is_number and step.sizes_a_tile and int(after or 0) < int(before or 0)
    words = f"{'a smaller tile, ' * is_smaller}{step.words}: {explain(undone, complete)}"
    columns = limits.tensor_memory_columns if limits else 0
    if columns and (undone.tmem_size or 0) > columns >= (complete.tmem_size or 0):
        words += f"; {complete.target} has {columns} columns"
    if undone.code and complete.verdict.compiles:
        words += f"; without it ptxas {undone.ptxas} says {undone.code}"
    return words


Tried: TypeAlias = tuple[Setting, Row]
_Names: TypeAlias = frozenset[tuple[object, ...]]


def rank_key(origin: UserSetting, setting: Setting, row: Row) -> tuple[object, ...]:
    """First aid, then by what is known without running, then by the distance from today's setting.

    What turns optimisations off comes behind all else of its verdict: its figures do not tell what
    the code that is left costs. Of toolchains that do as well the newest comes first: it is what a
    user is on next. A total order: the cell's name decides at last.
    """
    tools = [Version(text) for text in (setting.triton, setting.ptxas) if text]
    spills = (row.spill_stores, row.spill_loads)
    steps = origin.steps_to(setting)
    standing, *figures = merit(row, origin.turns(setting))
    return (
        not is_first_aid(origin, setting, row),
        standing,
        lowers_optimisation(setting.flags),
        *figures,
        sum(step.kind.weight for step in steps),
        *(float("inf") if count is None else float(count) for count in spills),
        sum(step.factor for step in steps),
        [(-tool.major, -tool.minor) for tool in tools],
        # What need not be set is left unset.
        len(setting.config.items),
        len(setting.flags.added) if setting.flags else 0,
        row.cell,
    )


def is_first_aid(origin: UserSetting, setting: Setting, row: Row) -> bool:
    """Whether it needs no change of any source, and takes away half of the trouble or more.

    That is a better verdict, or the same with half of the spilled bytes.
    """
    steps = origin.steps_to(setting)
    if origin.row is None or not all(step.kind.is_environment for step in steps):
        return False
    now, then = merit(origin.row)[0], merit(row)[0]
    before, after = (spill_bytes_per_block(result) for result in (origin.row, row))
    is_halved = before is not None and after is not None and 2 * after <= before
    return then < now or (then == now and bool(before) and is_halved)


def is_gain(origin: UserSetting, better: Tried, than: Tried) -> bool:
    """Whether the first is better in something that counts: one of the first four criteria."""
    first, second = (merit(row, origin.turns(setting)) for setting, row in (better, than))
    return first[:4] < second[:4]


def best_of(origin: UserSetting, pairs: Iterable[Tried]) -> Tried | None:
    """The best of those that compile, if any does."""
    alive = [pair for pair in pairs if pair[1].verdict.compiles]
    return min(alive, key=lambda pair: rank_key(origin, *pair), default=None)


def choose(
    origin: UserSetting, attempted: Iterable[Tried], listed: Iterable[Tried], *, at_most: int = 8
) -> list[Tried]:
    """The settings worth showing, best first: what is better than the best that is `listed`.

    That one is shown too where it is not what the user has, and so is first aid. Of those that
    change the same things the best one; and nothing for which a nearer setting, that changes only a
    part of the same things, does as well.
    """
    pairs = sorted(attempted, key=lambda pair: rank_key(origin, *pair))
    home = next(pair for pair in pairs if pair[0].key == origin.setting.key)
    survivor = best_of(origin, listed)
    best: dict[_Names, Tried] = {}
    for pair in pairs:
        is_better = survivor is None or is_gain(origin, pair, survivor)
        # Spills are not time, and a user may not have the tuner choose.
        is_better = is_better or is_first_aid(origin, *pair)
        is_survivor = survivor is not None and pair[0].key == survivor[0].key
        if not pair[1].verdict.compiles or not (is_better or is_survivor):
            continue
        if is_gain(origin, pair, home):
            best.setdefault(_names(origin, pair[0]), pair)
    shown = {
        names: pair
        for names, pair in best.items()
        if not any(
            fewer < names and not is_gain(origin, pair, near) for fewer, near in best.items()
        )
    }
    # Small steps are kept even where the list is long, and no older toolchain is in the way of a
    # newer one.
    alone = [pair for names, pair in shown.items() if len(names) == 1]
    alone.sort(key=lambda pair: any(s.is_downgrade for s in origin.steps_to(pair[0])))
    small = alone[: at_most // 2]
    large = [pair for names, pair in shown.items() if len(names) > 1][: at_most - len(small)]
    return sorted([*small, *large], key=lambda pair: rank_key(origin, *pair))


def _names(origin: UserSetting, setting: Setting) -> _Names:
    """What is different: without the values, but for parameters of the launch.

    Of those a user may not be free to choose every one. Options that turn optimisations off are
    another thing than those that do not, and so is an older toolchain than a newer one.
    """
    names = set()
    for step in origin.steps_to(setting):
        value: object = step.is_downgrade
        if step.kind is SettingKind.FLAGS:
            value = lowers_optimisation(setting.flags)
        elif step.kind is SettingKind.LAUNCH:
            value = step.after
        names.add((step.kind, step.name, value))
    return frozenset(names)
