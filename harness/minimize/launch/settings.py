"""Makes a launch small: its numbers, what is set, the config, ptxas' flags. Pure.

A document is what a user would write down: overrides of the launch function's parameters, one of
the captured configs, flags left out. Whether a smaller one still shows what is looked for, others
find out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.minimize.reduction.driver import Edit, Reducer, Reduction, ReductionProgress
from harness.minimize.reduction.patient import MarkedPass, reduce_patiently
from harness.minimize.reduction.tests import UNLIMITED, Effort
from harness.values.kernel import Config, LaunchParameter, Scalar

_KEPT_FLAGS = ("-v", "--verbose", "--gpu-name", "-arch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One way to launch and compile; `values` has every parameter that can be set.

    `config` is None where the launch has no tuner, so that there is nothing to choose. `options`
    are those of ptxas' flags that are given.
    """

    parameters: tuple[LaunchParameter, ...]
    values: Mapping[str, Scalar | None]
    config: Config | None = None
    flags: tuple[str, ...] = ()

    @property
    def overrides(self) -> dict[str, Scalar | None]:
        """What has to be set."""
        defaults = {parameter.name: parameter.default for parameter in self.parameters}
        return {n: v for n, v in self.values.items() if n in defaults and v != defaults[n]}

    @property
    def size(self) -> int:
        """Small numbers first, then little to write."""
        numbers = [*self.values.values(), *(self.config.as_dict().values() if self.config else ())]
        config = len(self.config.items) if self.config else 0
        return 4 * sum(map(_bits, numbers)) + len(self.overrides) + config + len(self.flags)

    @property
    def key(self) -> str:
        """The same for the same launch."""
        label = self.config.label if self.config else ""
        return f"{sorted(self.overrides.items(), key=str)} {label} {self.flags}"


def _bits(value: Scalar | None) -> int:
    if isinstance(value, bool):
        return int(value)
    return abs(value).bit_length() if isinstance(value, int) else 0


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Parameters back to their default."""

    name: str = "defaults"

    def opportunities(self, document: Settings) -> Sequence[Edit]:
        return list(document.overrides)

    def mark(self, document: Settings, edit: Edit) -> Hashable:
        return edit, document.values[str(edit)]

    def apply(self, document: Settings, chosen: Sequence[Edit]) -> Settings | None:
        defaults = {each.name: each.default for each in document.parameters}
        values = {n: defaults[n] if n in chosen else v for n, v in document.values.items()}
        return replace(document, values=values)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Whole numbers, each made smaller."""

    name: str
    smaller: Callable[[int], int]

    def opportunities(self, document: Settings) -> Sequence[Edit]:
        settable = {each.name for each in document.parameters if each.settable}
        return [
            name
            for name, value in document.values.items()
            if name in settable and type(value) is int and self.smaller(value) < value
        ]

    def mark(self, document: Settings, edit: Edit) -> Hashable:
        return edit, document.values[str(edit)]

    def apply(self, document: Settings, chosen: Sequence[Edit]) -> Settings | None:
        values = {
            name: self.smaller(value) if name in chosen and type(value) is int else value
            for name, value in document.values.items()
        }
        return replace(document, values=values)


@dataclass(frozen=True, slots=True)
class _Switches:
    """What can be true, false in place of it."""

    name: str = "switches"

    def opportunities(self, document: Settings) -> Sequence[Edit]:
        return [name for name, value in document.values.items() if value is True]

    def mark(self, document: Settings, edit: Edit) -> Hashable:  # noqa: ARG002
        return edit

    def apply(self, document: Settings, chosen: Sequence[Edit]) -> Settings | None:
        values = {n: False if n in chosen else v for n, v in document.values.items()}
        return replace(document, values=values)


@dataclass(frozen=True, slots=True)
class _Configs:
    """Another config of the same tuner, of which there can be one only."""

    configs: tuple[Config, ...]
    name: str = "configs"

    def opportunities(self, document: Settings) -> Sequence[Edit]:
        if document.config is None:
            return []
        now = _config_size(document.config)
        smaller = [each for each in self.configs if _config_size(each) < now]
        # What comes last is tried first.
        return sorted(smaller, key=_config_size, reverse=True)

    def mark(self, document: Settings, edit: Edit) -> Hashable:  # noqa: ARG002
        return edit

    def apply(self, document: Settings, chosen: Sequence[Edit]) -> Settings | None:
        [*others, config] = chosen
        assert isinstance(config, Config)
        return None if others else replace(document, config=config)


def _config_size(config: Config) -> int:
    return 4 * sum(_bits(value) for _, value in config.items) + len(config.items)


@dataclass(frozen=True, slots=True)
class _Flags:
    """Flags of ptxas, left out."""

    name: str = "flags"

    def opportunities(self, document: Settings) -> Sequence[Edit]:
        return [flag for flag in document.flags if flag.partition("=")[0] not in _KEPT_FLAGS]

    def mark(self, document: Settings, edit: Edit) -> Hashable:  # noqa: ARG002
        return edit

    def apply(self, document: Settings, chosen: Sequence[Edit]) -> Settings | None:
        return replace(document, flags=tuple(f for f in document.flags if f not in chosen))


def _one(value: int) -> int:
    return min(value, 1)


def _half(value: int) -> int:
    return value // 2 if value > 1 else value


async def reduce_settings(
    document: Settings,
    is_interesting: Callable[[Settings], Awaitable[bool]],
    *,
    configs: Sequence[Config],
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[Settings]], None] = lambda _: None,
) -> Reduction[Settings]:
    """The least that is still interesting; `configs` are all that the tuner has."""
    passes: list[MarkedPass[Settings]] = [
        _Configs(tuple(configs)),
        _Defaults(),
        _Switches(),
        _Numbers("ones", _one),
        _Numbers("halves", _half),
        _Flags(),
    ]
    reducer = Reducer(
        document,
        is_interesting,
        size=lambda settings: settings.size,
        key=lambda settings: settings.key,
        effort=effort,
        watch=watch,
    )
    await reduce_patiently(reducer, passes)
    return reducer.reduction(is_minimal=True)


def differences(before: Settings, after: Settings) -> list[str]:
    """What was made smaller, in words."""
    found = [
        f"{name}: {before.values[name]} -> {value}"
        for name, value in after.values.items()
        if value != before.values[name]
    ]
    if before.config != after.config and before.config and after.config:
        found.append(f"config: {before.config.label} -> {after.config.label}")
    gone = [flag for flag in before.flags if flag not in after.flags]
    return found + [f"without {flag}" for flag in gone]
