"""What to try where a config fails or is sick: proposals, cheapest first, and which to show. Pure.

A *setting* is everything about a compilation that a user can change without touching the kernel:
config, parameters of the launch, ptxas' flags, ptxas, Triton. A workaround is a setting that is
better than the one that it starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from packaging.version import Version

from gpu_emulator.ptx.text.facts import PtxEdit
from harness.frontends.texts.python import OPTIONS
from harness.io.packages.versions import newest_of_minor
from harness.judging.ptxas.options import FlagChange
from harness.values.kernel import Config, Scalar
from harness.values.row import Row
from harness.values.toolchain import PTXAS, TRITON
from harness.values.verdict import VerdictKind
from harness.workaround.merit import merit


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
        order = list(SettingKind)
        return 1 << order.index(self)

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
        before = "none" if self.before is None else self.before
        after = "none" if self.after is None else self.after
        return f"{self.name} {before} -> {after}"

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
        found = [
            SettingStep(
                kind=SettingKind.CONFIG,
                name=name,
                before=before,
                after=after,
                is_option=name in self.options,
            )
            for name, before, after in _differences(
                origin.config.as_dict(), setting.config.as_dict()
            )
        ]
        known = dict(defaults)
        pairs = _differences({**known, **dict(origin.launch)}, {**known, **dict(setting.launch)})
        found += [
            SettingStep(kind=SettingKind.LAUNCH, name=n, before=b, after=a) for n, b, a in pairs
        ]
        if setting.flags != origin.flags:
            old, new = (each.label if each else None for each in (origin.flags, setting.flags))
            found.append(
                SettingStep(kind=SettingKind.FLAGS, name="ptxas flags", before=old, after=new)
            )
        if setting.edit != origin.edit:
            old, new = (each.words if each else None for each in (origin.edit, setting.edit))
            found.append(SettingStep(kind=SettingKind.PTX, name="PTX", before=old, after=new))
        for kind, before, after in (
            (SettingKind.PTXAS, origin.ptxas, setting.ptxas),
            (SettingKind.TRITON, origin.triton, setting.triton),
        ):
            if before != after:
                own = known.get(kind.value)
                name = self.kind if kind is SettingKind.TRITON else self.assembler
                found.append(
                    SettingStep(kind=kind, name=name, before=before or own, after=after or own)
                )
        return tuple(found)

    def turns(self, setting: Setting) -> float:
        """How many times as often the kernel's code runs: by how much its tiles have shrunk."""
        factor = 1.0
        for step in self.steps_to(setting):
            before, after = step.before, step.after
            if step.sizes_a_tile and _is_positive(before) and _is_positive(after):
                factor *= float(before) / float(after)  # type: ignore[arg-type]
        return factor


def _is_positive(value: Scalar | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _differences(
    before: Mapping[str, Scalar | None], after: Mapping[str, Scalar | None]
) -> list[tuple[str, Scalar | None, Scalar | None]]:
    return [
        (name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def without(setting: Setting, step: SettingStep, origin: Setting) -> Setting:
    """The setting with one of its steps undone."""
    if step.kind is SettingKind.CONFIG:
        values = setting.config.as_dict()
        own = origin.config.as_dict()
        if step.name in own:
            values[step.name] = own[step.name]
        else:
            values.pop(step.name, None)
        return replace(setting, config=in_order(values, origin.config))
    if step.kind is SettingKind.LAUNCH:
        own_launch = dict(origin.launch)
        rest = {name: value for name, value in setting.launch if name != step.name}
        if step.name in own_launch:
            rest[step.name] = own_launch[step.name]
        return replace(setting, launch=tuple(sorted(rest.items())))
    if step.kind is SettingKind.FLAGS:
        return replace(setting, flags=origin.flags)
    if step.kind is SettingKind.PTX:
        return replace(setting, edit=origin.edit)
    if step.kind is SettingKind.PTXAS:
        return replace(setting, ptxas=origin.ptxas)
    return replace(setting, triton=origin.triton)


# What Triton takes where a launch gives no option (its NVIDIA backend's defaults).
_UNSET = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
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
) -> list[Config]:
    """The configs that differ from this one in one value, and are not listed (but for `again`).

    Warps and powers of two among the meta-parameters are halved and doubled, stages go up and down
    by one, registers go to the next step of a ladder, to none and to the most. The first ones are
    those that most often help a kernel that spills: more registers, then more warps. One that
    `spills` gets no fewer warps: each thread would have to hold twice as much.
    """
    listed = list(listed)
    known = {Setting(config=each).key for each in [config, *(() if again else listed)]}
    values = config.as_dict()
    found: list[Config] = []
    for name, value in _changed(values, listed, capability, options, spills=spills):
        changed = dict(values)
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = value
        proposal = in_order(changed, config)
        if Setting(config=proposal).key not in known:
            known.add(Setting(config=proposal).key)
            found.append(proposal)
    return found


def in_order(values: Mapping[str, Scalar], like: Config) -> Config:
    """A config whose names come as in another one: the same config has one name everywhere."""
    names = [name for name, _ in like.items if name in values]
    return Config.of(
        {name: values[name] for name in [*names, *(n for n in values if n not in names)]}
    )


def _changed(
    values: Mapping[str, Scalar],
    listed: Sequence[Config],
    capability: int,
    options: Sequence[str],
    *,
    spills: bool,
) -> list[tuple[str, Scalar | None]]:
    found: list[tuple[str, Scalar | None]] = []
    found += [("maxnreg", count) for count in _registers(values.get("maxnreg"), listed)]
    warps = _number(values, "num_warps")
    fewer = () if spills else (warps // 2,)
    found += [("num_warps", n) for n in (warps * 2, *fewer) if 1 <= n <= _MOST_WARPS]
    for name, value in values.items():
        if name not in options and (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value > 1
            and not value & (value - 1)
        ):
            found += [(name, n) for n in (int(value) // 2, int(value) * 2) if n >= 1]
    stages = _number(values, "num_stages")
    found += [("num_stages", n) for n in (stages - 1, stages + 1) if 1 <= n <= _MOST_STAGES]
    if capability >= _CLUSTERS_SINCE:
        ctas = _number(values, "num_ctas")
        found.append(("num_ctas", 2) if ctas == 1 else ("num_ctas", None))
    # Of the options above, those that this compiler has.
    return [(name, value) for name, value in found if name in values or name in options]


def _number(values: Mapping[str, Scalar], name: str) -> int:
    value = values.get(name, _UNSET[name])
    return value if isinstance(value, int) else _UNSET[name]


def _registers(now: Scalar | None, listed: Sequence[Config]) -> list[int | None]:
    """The next steps of the ladder; the kernel's own values are among them, in place of near ones.

    Registers are handed out by eight: 255 and 256 are one limit.
    """
    own = {each.as_dict().get("maxnreg") for each in listed}
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
        fate = (row.signature, VerdictKind(row.verdict).compiles)
        groups.setdefault((warps, *fate), []).append(setting)
    first = [group[0] for group in groups.values()]
    representatives = [
        max(group, key=lambda each: _likeness(each, best)) for group in groups.values()
    ]
    return list(dict.fromkeys([best, *first, *representatives]))[:at_most]


def _likeness(setting: Setting, other: Setting) -> int:
    mine, theirs = setting.config.as_dict(), other.config.as_dict()
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
