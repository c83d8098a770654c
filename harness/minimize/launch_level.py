"""The level of the launch: its settings as a command, and what may be smaller.

A document is what a user would write down: overrides of the launch function's parameters, one of
the captured configs, flags left out.
"""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs

from harness.cells.evaluate import Evaluated, evaluate
from harness.cells.spelling import SelectionOptions, on_assembler, on_compiler, only, spell_command
from harness.frontends.bench import Workbench
from harness.frontends.plan import Plan, PlannedCell, PlannedLaunch, Selection
from harness.frontends.registry import plan_launch
from harness.io.processes.hub import ResourceLimits
from harness.judging.conditions import row_fields
from harness.judging.ptxas.ptxas_options import FlagChange
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.interest import Oracle
from harness.minimize.reduction.reducer import FoundPass, Reducer, TextFormat, reduce_patiently
from harness.minimize.reduction.subject import Subject
from harness.minimize.reduction.work import LevelReduction
from harness.values.cell import LaunchLabel
from harness.values.errors import CaptureError, UsageError
from harness.values.kernel import Config, ConfigFilter, LaunchParameter, Scalar
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import BUNDLED, Compiler
from harness.values.verdict import Stage, VerdictKind

_KEPT_FLAGS = ("-v", "--verbose", "--gpu-name", "-arch")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """One way to launch and compile; `values` has every parameter that can be set.

    `config` is None where the launch has no tuner, so that there is nothing to choose. `options`
    are those of ptxas' flags that are given.
    """

    parameters: tuple[LaunchParameter, ...]
    values: Mapping[str, Scalar | None]
    config: Config | None = None
    flags: tuple[str, ...] = ()

    @property
    def defaults(self) -> dict[str, Scalar | None]:
        """What each parameter is where nothing is set."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    @property
    def overrides(self) -> dict[str, Scalar | None]:
        """What has to be set."""
        defaults = self.defaults
        return {n: v for n, v in self.values.items() if n in defaults and v != defaults[n]}

    def with_values(self, values: Mapping[str, Scalar | None]) -> LaunchSettings:
        """The same with these values."""
        return replace(self, values={**self.values, **values})

    @property
    def size(self) -> int:
        """Small numbers first, then little to write."""
        config = _config_size(self.config) if self.config else 0
        bits = sum(map(_bits, self.values.values()))
        return 4 * bits + len(self.overrides) + config + len(self.flags)

    @property
    def key(self) -> str:
        """The same for the same launch."""
        label = self.config.label if self.config else ""
        return f"{sorted(self.overrides.items(), key=str)} {label} {self.flags}"


def _bits(value: Scalar | None) -> int:
    if isinstance(value, bool):
        return int(value)
    return abs(value).bit_length() if isinstance(value, int) else 0


def _now(document: LaunchSettings, name: str) -> Hashable:
    return name, document.values[name]


def _default(document: LaunchSettings, names: Sequence[str]) -> LaunchSettings:
    return document.with_values({name: document.defaults[name] for name in names})


def _numbers(name: str, smaller: Callable[[int], int]) -> FoundPass[LaunchSettings]:

    def find(document: LaunchSettings) -> Iterator[str]:
        settable = {parameter.name for parameter in document.parameters if parameter.settable}
        for parameter, value in document.values.items():
            if parameter in settable and type(value) is int and smaller(value) < value:
                yield parameter

    def make(document: LaunchSettings, names: Sequence[str]) -> LaunchSettings:
        numbers = {name: document.values[name] for name in names}
        return document.with_values(
            {name: smaller(value) for name, value in numbers.items() if type(value) is int}
        )

    return FoundPass(name, find, make, _now)


def _other_configs(configs: Sequence[Config]) -> FoundPass[LaunchSettings]:
    """Another config of the same tuner, of which there can be one only."""

    def find(document: LaunchSettings) -> list[Config]:
        if document.config is None:
            return []
        now = _config_size(document.config)
        smaller = [config for config in configs if _config_size(config) < now]
        # What comes last is tried first.
        return sorted(smaller, key=_config_size, reverse=True)

    def make(document: LaunchSettings, chosen: Sequence[Config]) -> LaunchSettings | None:
        return replace(document, config=chosen[0]) if len(chosen) == 1 else None

    return FoundPass("configs", find, make)


def _config_size(config: Config) -> int:
    return 4 * sum(_bits(value) for _, value in config.items) + len(config.items)


_PASSES: tuple[FoundPass[LaunchSettings], ...] = (
    FoundPass("defaults", lambda document: list(document.overrides), _default, _now),
    FoundPass(
        "switches",
        lambda document: [name for name, value in document.values.items() if value is True],
        lambda document, names: document.with_values(dict.fromkeys(names, False)),
    ),
    _numbers("ones", lambda value: min(value, 1)),
    _numbers("halves", lambda value: value // 2 if value > 1 else value),
    FoundPass(
        "flags",
        lambda document: [f for f in document.flags if f.partition("=")[0] not in _KEPT_FLAGS],
        lambda document, gone: replace(
            document, flags=tuple(flag for flag in document.flags if flag not in gone)
        ),
    ),
)


async def reduce_settings(reducer: Reducer[LaunchSettings], configs: Sequence[Config]) -> None:
    """Find the least that is still interesting; `configs` are all that the tuner has."""
    await reduce_patiently(reducer, [_other_configs(configs), *_PASSES])


def differences(before: LaunchSettings, after: LaunchSettings) -> list[str]:
    """What was made smaller, in words."""
    changes = [
        f"{name}: {before.values[name]} -> {value}"
        for name, value in after.values.items()
        if value != before.values[name]
    ]
    if before.config != after.config and before.config and after.config:
        changes.append(f"config: {before.config.label} -> {after.config.label}")
    dropped = [flag for flag in before.flags if flag not in after.flags]
    return changes + [f"without {flag}" for flag in dropped]


_WITHOUT = "# without the flag "


@dataclass(slots=True, kw_only=True)
class LaunchLevel(Oracle[Compiler]):
    """Launches with other settings, and follows one cell through them, on any Triton.

    A text is the command that compiles it. `number` is which of the launches alike is followed;
    `configs` are all that the tuner has, `names` all that any of them sets.
    """

    bench: Workbench
    selection: Selection
    launch: PlannedLaunch
    cell: PlannedCell
    number: int
    begun: LaunchSettings
    names: tuple[str, ...]
    configs: tuple[Config, ...] = ()
    _users: Counter[str] = field(default_factory=Counter)

    def command(self, settings: LaunchSettings) -> str:
        """The command that compiles the cell; what no option of it says is in comments."""
        selection, cell = self.selection, self.cell
        config, spec = settings.config, self.launch.spec
        words = SelectionOptions(
            kernel=selection.repro.name,
            sm=[str(cell.cell.target)],
            launch=spec.name if spec != selection.repro.launches[0] else None,
            set=[f"{name}={value}" for name, value in settings.overrides.items()],
            config=only(config, self.names) if config and config.items else "",
            surroundings=selection.surroundings,
        )
        words = on_compiler(words, cell.compiler.kind, cell.compiler.version)
        if cell.ptxas.origin != BUNDLED:
            words = on_assembler(words, cell.ptxas.kind, cell.ptxas.version)
        dropped = [flag for flag in self.begun.flags if flag not in settings.flags]
        return "\n".join(
            [spell_command("compile", words), *(f"{_WITHOUT}{flag}" for flag in dropped), ""]
        )

    def settings(self, command: str) -> LaunchSettings:
        """The settings of a command that `command` wrote.

        Raises:
            UsageError: it is not such a command.
        """
        words = shlex.split(command, comments=True)
        options = dict(itertools.pairwise(words))
        parameters = {parameter.name: parameter for parameter in self.begun.parameters}
        values = self.begun.defaults
        for option, word in itertools.pairwise(words):
            name, _, text = word.partition("=")
            if option == "--set" and name in parameters:
                values[name] = parameters[name].read(text)
        dropped = {
            line.removeprefix(_WITHOUT)
            for line in command.splitlines()
            if line.startswith(_WITHOUT)
        }
        config = self.begun.config
        if config is not None:
            config_filter = ConfigFilter.parse(options.get("--config", ""))
            config = next(filter(config_filter.matches, self.configs), None)
            if config is None:
                raise UsageError(f"--resume: the launch has no config as in: {command.strip()}")
        return replace(
            self.begun,
            values=values,
            config=config,
            flags=tuple(flag for flag in self.begun.flags if flag not in dropped),
        )

    async def changes(self, work: LevelReduction[Compiler]) -> list[str]:
        """What was made smaller, in words."""
        return differences(self.begun, self.settings(work.best))

    def format(self) -> TextFormat[LaunchSettings]:
        """Commands as settings, of which each gets smaller; lines are words."""
        return TextFormat(
            read=self.settings,
            text_of=self.command,
            size=lambda settings: settings.size,
            lines=lambda settings: len(self.command(settings).split()),
            run=partial(reduce_settings, configs=self.configs),
            key=lambda settings: settings.key,
        )

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        settings = self.settings(text)
        try:
            plan = await self.plan(settings, tool)
        except CaptureError as error:
            return _refusal(str(error))
        key = plan.session or ""
        self._users[key] += 1
        try:
            if cell := self._pick(plan, settings):
                return _reaction(await evaluate(self.bench, cell))
            return _refusal("it has no such config")
        finally:
            self._users[key] -= 1
            # An open session holds memory; the one that was there before us is not ours to close.
            mine = self.cell.launch is not None and key != self.cell.launch.capture.key
            if mine and not self._users[key]:
                await self.bench.sessions.close(key)

    async def plan(self, settings: LaunchSettings, compiler: Compiler) -> Plan:
        """All cells of the launch with these settings.

        Raises:
            CaptureError: it cannot be launched so.
        """
        launch = structs.replace(self.launch, overrides=settings.overrides)
        target = self.cell.cell.target
        place = self.selection.place(target=target, compiler=compiler, launch=launch)
        return await plan_launch(self.bench, place)

    def _pick(self, plan: Plan, settings: LaunchSettings) -> PlannedCell | None:
        for cell in plan.cells:
            is_followed = LaunchLabel.parse(cell.cell.launch).number == self.number
            if is_followed and settings.config in (None, cell.cell.config):
                dropped = tuple(flag for flag in self.begun.flags if flag not in settings.flags)
                change = FlagChange(label=f"without {' '.join(dropped)}", dropped=dropped)
                return structs.replace(cell, change=change) if dropped else cell
        return None


async def open_launch(bench: Workbench, selection: Selection, subject: Subject) -> LaunchLevel:
    """The launch of a cell, ready to be launched with other settings.

    Raises:
        UsageError: there is no launch (raw PTX, a file of Triton's IR).
        InfrastructureError: this machine failed.
    """
    cell = subject.cell
    label = LaunchLabel.parse(cell.cell.launch)
    function = cell.launch.request.function if cell.launch else None
    launch = next((one for one in selection.launches if one.label == label.call), None)
    if not (launch and function and cell.launch and cell.record):
        raise UsageError(f"{cell.cell.kernel}: there is no launch function to make smaller")
    # The flags of ptxas, where they can matter.
    is_late = subject.row.stage in (None, Stage.CUBIN.value, Stage.LAUNCH.value)
    parameters = launch.spec.parameters
    level = LaunchLevel(
        bench=bench,
        # Any config of the tuner may be the smallest.
        selection=structs.replace(selection, config=ConfigFilter()),
        launch=launch,
        cell=cell,
        number=label.number,
        begun=LaunchSettings(
            parameters=parameters,
            values={one.name: one.default for one in parameters} | dict(launch.overrides),
            config=cell.cell.config if cell.record.autotuned else None,
            flags=subject.row.ptxas_flags if is_late and cell.change is None else (),
        ),
        names=subject.names,
    )
    cells = (await level.plan(level.begun, cell.launch.compiler)).cells
    return replace(
        level, configs=tuple(dict.fromkeys(candidate.cell.config for candidate in cells))
    )


def _refusal(reason: str) -> Reaction:
    return Reaction(
        verdict=VerdictKind.UNSUPPORTED,
        reason=reason,
        is_accepted=False,
        is_refusal=True,
        end=ProcessEnd(exit_code=1),
    )


def _reaction(result: Evaluated) -> Reaction:
    row, kind = result.row, result.row.verdict
    return Reaction(
        verdict=kind,
        reason=row.reason,
        is_accepted=kind.compiles,
        is_refusal=kind is VerdictKind.UNSUPPORTED,
        end=ProcessEnd(exit_code=row.exit_code, signal=row.signal, wall=row.seconds or 0.0),
        stage=Stage(row.stage) if row.stage else None,
        code=row.code,
        signature=result.signature,
        fields=row_fields(row),
    )
