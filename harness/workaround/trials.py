"""Settings compiled: each is made into a cell, evaluated and kept; and what a user types for it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs
from packaging.version import Version

from gpu_emulator.ptx.text.facts import PtxEdit, edited, read_ptx
from harness.cells.evaluate import Evaluate, Evaluated, evaluate, flagged, with_flags
from harness.cells.places import record_of
from harness.frontends.back_end import BackEnd
from harness.frontends.bench import TimeIsUpError, Workbench, until
from harness.frontends.plan import PlannedCell, PlannedLaunch, Selection
from harness.frontends.registry import back_end, front_end, plan_launch
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT
from harness.io.processes.hub import ResourceLimits
from harness.io.processes.tasks import in_parallel
from harness.judging.ptxas.ptxas_options import FlagChange, option_of
from harness.values.cell import LaunchLabel
from harness.values.errors import TriageError, UsageError
from harness.values.kernel import Config, ConfigFilter, Scalar
from harness.values.limits import limits_of
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, PTX, PTXAS
from harness.values.verdict import VerdictKind
from harness.workaround.settings import (
    Setting,
    SettingKind,
    SettingStep,
    Tried,
    UserSetting,
    explain,
    explain_step,
    without,
)

_Launch = tuple[tuple[str, Scalar | None], ...]
Variables = tuple[tuple[str, str], ...]


OPTIONS_VARIABLE = "PTXAS_OPTIONS"
"""From where Triton reads options for ptxas, if it does: what it passes on is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A setting with its cell and result.

    `ways` are `OPTIONS_VARIABLE` and `OPTIONS_ARGUMENT`, by which ptxas' options got there.
    """

    setting: Setting
    cell: PlannedCell
    evaluated: Evaluated
    ways: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """Its result."""
        return self.evaluated.row

    @property
    def pair(self) -> Tried:
        """Both, as settings are compared."""
        return self.setting, self.row


@dataclass(slots=True, kw_only=True)
class Trials:
    """What was tried so far; `home` is the cell at the origin.

    `refused` says why a setting could not be made into a cell, or was given up. `tell` hears what
    is tried. `patience` is how many seconds one compiler run of a trial may take;
    at `stop_at` (by `time.monotonic`) what is under way is ended.
    `how_it_is` compiles a cell, or executes it. `selected` are kernel, launch and config of the
    cells that the user selected.
    """

    bench: Workbench
    selection: Selection
    run: int
    home: PlannedCell
    origin: UserSetting
    selected: frozenset[str]
    tell: Callable[[str], None]
    how_it_is: Evaluate = evaluate
    results: dict[object, Attempt] = field(default_factory=dict)
    refused: dict[object, str] = field(default_factory=dict)
    patience: float = math.inf
    stop_at: float = math.inf
    is_time_up: bool = False
    _turns: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        # Few at once, so that the first are through all stages while others wait: what the time
        # does not suffice for is not started. One more than there are workers keeps these busy.
        self._turns = asyncio.Semaphore(self.bench.jobs + 1)

    @property
    def back_end(self) -> BackEnd:
        """What assembles."""
        return back_end(self.home.compiler.kind, self.target)

    @property
    def takes_ptx(self) -> bool:
        """Whether that is PTX, so that the options of ptxas apply."""
        return self.back_end.takes == PTX

    @property
    def is_tuned(self) -> bool:
        """Whether the configs are those of a tuner."""
        return self.home.record is not None and self.home.record.autotuned

    @property
    def target(self) -> Target:
        """The one GPU that it is about."""
        return self.selection.targets[0]

    @property
    def start(self) -> Attempt:
        """What the user has, as it came out."""
        return self.results[self.origin.setting.key]

    def pairs(self) -> list[Tried]:
        """Everything that was tried, with its row."""
        return [attempt.pair for attempt in self.results.values()]

    def steps(self, setting: Setting) -> tuple[SettingStep, ...]:
        """What is different from the origin."""
        return self.origin.steps_to(setting)

    async def attempt(self, settings: Iterable[Setting]) -> list[Attempt]:
        """Compile those that were not tried yet, first ones first; all that came to an end.

        What the store knows comes first. Nothing is started any more when the time is up, and what
        was started goes on until `stop_at`.
        """
        unique = list({point.key: point for point in settings}.values())
        new = [
            point
            for point in unique
            if point.key not in self.results and point.key not in self.refused
        ]
        groups: dict[tuple[str | None, _Launch], list[Setting]] = {}
        for setting in new:
            groups.setdefault((setting.triton, setting.launch), []).append(setting)
        await in_parallel(self._group(*where, group) for where, group in groups.items())
        return [self.results[point.key] for point in unique if point.key in self.results]

    async def _group(
        self, version: str | None, launch: _Launch, settings: Sequence[Setting]
    ) -> None:
        try:
            cells, session = await until(self.stop_at, self.cells(version, launch, settings))
        except TimeIsUpError:
            self.is_time_up = True
            return
        except TriageError as error:
            # A Triton that cannot be asked, or installed, says nothing of the others.
            for setting in settings:
                self._refuse(setting, str(error))
            return
        try:
            pairs = sorted(zip(settings, cells, strict=True), key=self._is_unknown)
            await in_parallel(self._one(*setting) for setting in pairs)
        finally:
            if session:
                await self.bench.sessions.close(session)

    async def _one(self, setting: Setting, cell: PlannedCell | None) -> None:
        if cell is None:
            self._refuse(setting, "the launch does not make this config")
            return
        limits = self.bench.limits
        seconds = min(limits.timeout, self.patience)
        try:
            evaluated = await self._evaluated(
                cell, structs.replace(limits, timeout=seconds), uncached=False
            )
        except TimeIsUpError:
            self.is_time_up = True
            return
        if evaluated.row.verdict is VerdictKind.TIMEOUT and seconds < limits.timeout:
            # No verdict on the cell: a user might have waited.
            self._refuse(setting, f"a compiler took more than {seconds:.0f} s")
            return
        self.results[setting.key] = Attempt(setting=setting, cell=cell, evaluated=evaluated)
        self._put(evaluated)
        words = ", ".join(step.words for step in self.steps(setting)) or "as it is"
        self.tell(f"{words}: {evaluated.row.verdict}: {evaluated.row.reason[:90]}")

    async def _evaluated(
        self, cell: PlannedCell, limits: ResourceLimits | None, *, uncached: bool
    ) -> Evaluated:
        """The cell, if there is time to begin with it.

        Raises:
            TimeIsUpError: there is none left.
        """
        async with self._turns:
            deadline = self.bench.deadline
            if deadline is not None and time.monotonic() > deadline:
                raise TimeIsUpError
            bench = self.bench.apart(limits=limits, uncached=uncached)
            bench.deadline = None
            try:
                return await until(self.stop_at, self.how_it_is(bench, cell))
            finally:
                self.bench.cpu_seconds += bench.cpu_seconds

    def _refuse(self, setting: Setting, why: str) -> None:
        self.refused[setting.key] = why
        self.tell(f"{', '.join(step.words for step in self.steps(setting))}: undetermined: {why}")

    def _is_unknown(self, pair: tuple[Setting, PlannedCell | None]) -> bool:
        cell = pair[1]
        if cell is None or cell.launch is None or cell.record is None:
            return False
        sees = cell.seen_ptxas
        front = front_end(cell.compiler.kind)
        key = front.lowering_key(cell.launch, cell.record, sees)
        return self.bench.find("lower", key, Lowering) is None

    # --- cells --------------------------------------------------------------------------------

    async def cells(
        self,
        version: str | None,
        launch: _Launch,
        settings: Sequence[Setting],
        *,
        frozen: bool = True,
        variables: Variables = (),
    ) -> tuple[list[PlannedCell | None], str | None]:
        """The cell of each setting on one Triton and launch, and the session that serves them.

        With `frozen`, a ptxas that is not older than the bundled one gets the PTX that was made for
        that; an older one might refuse its version. Triton's processes get `variables` in their
        environment.

        Raises:
            TriageError: the launch cannot be captured so, or a toolchain is not available.
        """
        planned, session = await self._planned(version, launch, settings, variables)
        return [
            await self._tooled(cell, setting, frozen=frozen) if cell else None
            for cell, setting in zip(planned, settings, strict=True)
        ], session

    async def _planned(
        self,
        version: str | None,
        launch: _Launch,
        settings: Sequence[Setting],
        variables: Variables,
    ) -> tuple[list[PlannedCell | None], str | None]:
        home = self.home
        if home.launch is None or home.record is None:
            return [home for _ in settings], None
        own = home.launch.compiler
        chosen = await asyncio.to_thread(front_end(own.kind).install, version) if version else own
        chosen = structs.replace(chosen, variables=variables)
        kernel = home.record.kernel
        configs = [setting.config.as_dict() for setting in settings]
        # The launch with these overrides in the order in which cells spell them.
        spec = self.selection.launches[0].spec
        overrides = {**self.selection.launches[0].overrides, **dict(launch)}
        plan = await plan_launch(
            self.bench,
            structs.replace(self.selection, config=ConfigFilter(), compilers=(chosen,)).place(
                target=self.target,
                launch=PlannedLaunch(
                    spec=spec,
                    overrides={
                        parameter.name: overrides[parameter.name]
                        for parameter in spec.parameters
                        if parameter.name in overrides
                        and overrides[parameter.name] != parameter.default
                    },
                ),
                adapt=lambda code: code.with_configs(kernel, configs),
            ),
        )
        is_own = launch == self.origin.setting.launch
        # Without a tuner, other parameters of the launch may choose other meta-parameters.
        names = None if is_own or self.is_tuned else self.origin.options
        by_key: dict[object, PlannedCell] = {}
        for cell in sorted(plan.cells, key=lambda cell: _nth(cell) != _nth(home)):
            is_same = _nth(cell) == _nth(home)
            if is_own:
                is_same = _given(cell.record) == _given(home.record)
            if cell.record and cell.record.kernel == kernel and is_same:
                by_key.setdefault(_key(cell.cell.config, names), cell)
        return [by_key.get(_key(setting.config, names)) for setting in settings], plan.session

    async def _tooled(self, cell: PlannedCell, setting: Setting, *, frozen: bool) -> PlannedCell:
        if setting.ptxas:
            ptxas = await asyncio.to_thread(self.back_end.install, setting.ptxas)
            own = cell.bundled
            is_older = own is not None and Version(ptxas.version) < Version(own.version)
            freeze = frozen and cell.launch is not None and self.takes_ptx and not is_older
            label = f"{ptxas.label}-frozen" if freeze else ptxas.label
            name = structs.replace(cell.cell, ptxas=label)
            cell = structs.replace(cell, ptxas=ptxas, freeze_ptx=freeze, cell=name)
        if setting.flags:
            cell = with_flags(cell, setting.flags)
        return self._edited(cell, setting.edit) if setting.edit else cell

    def _edited(self, cell: PlannedCell, edit: PtxEdit) -> PlannedCell:
        """The cell of a PTX file with an edit, which its name tells.

        Raises:
            UsageError: the PTX has no place for it.
        """
        assert cell.raw_ptx is not None, "only a file of PTX is edited"
        text = self.bench.store.artifacts.get(cell.raw_ptx).decode(errors="replace")
        edited_ptx = edited(text, read_ptx(text, cell.entry).entry, edit)
        if edited_ptx is None:
            raise UsageError(f"the PTX has no place for {edit.words}")
        ptxas = f"{cell.cell.ptxas},{edit.words.replace(' ', '_')}"
        return structs.replace(
            cell,
            cell=structs.replace(cell.cell, ptxas=ptxas),
            raw_ptx=self.bench.store.artifacts.put(edited_ptx[0].encode()),
            entry=edited_ptx[1],
        )

    async def prove(self, setting: Setting) -> Attempt | None:
        """Compile a setting again, from nothing, as a user would: None where the launch is gone.

        Options of ptxas go through Triton, and have to be in the command that it makes.

        Raises:
            TriageError: it cannot be captured, a toolchain is not available, or this Triton does
                not pass options to ptxas.
        """
        if setting.flags is None or self.home.launch is None:
            proof = await self._compiled_afresh(setting, setting.config)
        else:
            proof = await self._passed_on(setting, setting.flags)
        if proof:
            self._put(proof.evaluated)
        return proof

    def _put(self, evaluated: Evaluated) -> None:
        """Keep a result; one of a cell that was not selected belongs to the cell at the origin.

        So does another failure of a selected one with other tools: it is no bug that a user has.
        """
        row = evaluated.row
        place, _, tools = row.cell.rpartition("@")
        fails_otherwise = not row.verdict.compiles and row.signature != self.start.row.signature
        if place not in self.selected or "," in tools or fails_otherwise:
            evaluated = structs.replace(
                evaluated, row=structs.replace(evaluated.row, probe_of=str(self.home.cell))
            )
        self.bench.store.put_result(self.run, record_of(evaluated))

    async def _passed_on(self, setting: Setting, flags: FlagChange) -> Attempt | None:
        """A setting whose options Triton passes to ptxas, by the ways that it was seen to have."""
        assert self.home.launch is not None
        triton = self.home.launch.compiler
        own = front_end(triton.kind).user_settings(triton).get(OPTIONS_VARIABLE, "")
        value = f"{own} {flags.label}".strip()
        variables = ((OPTIONS_VARIABLE, value),)
        proof = await self._compiled_afresh(setting, setting.config, variables=variables)
        if proof is None:
            return None
        metadata = self.metadata(proof)
        if _holds(proof.row.ptxas_flags, flags.added):
            # The variable is the default of the argument where the argument then has its value.
            has_both = metadata.get(OPTIONS_ARGUMENT) == value
            return replace(proof, ways=(OPTIONS_VARIABLE, OPTIONS_ARGUMENT)[: 1 + has_both])
        if OPTIONS_ARGUMENT in metadata:
            config = Config.of({**setting.config.as_dict(), OPTIONS_ARGUMENT: flags.label})
            proof = await self._compiled_afresh(setting, config)
            if proof is None or _holds(proof.row.ptxas_flags, flags.added):
                return proof and replace(proof, ways=(OPTIONS_ARGUMENT,))
        version = setting.triton or triton.version
        raise UsageError(f"Triton {version} does not pass {flags.label} to ptxas")

    def metadata(self, proof: Attempt) -> Mapping[str, object]:
        """What Triton wrote of a compilation, its options among it; empty where it failed."""
        key = proof.evaluated.evidence.get("lower", "")
        lowering = self.bench.read("lower", key, Lowering)
        return lowering.value.metadata if lowering else {}

    async def _compiled_afresh(
        self, setting: Setting, config: Config, *, variables: Variables = ()
    ) -> Attempt | None:
        through_triton = setting.flags is not None and self.home.launch is not None
        launched = replace(setting, config=config, flags=None if through_triton else setting.flags)
        [cell], session = await self.cells(
            setting.triton, setting.launch, [launched], frozen=False, variables=variables
        )
        if cell is None:
            return None
        if through_triton and setting.flags:
            ptxas = flagged(cell.cell.ptxas, setting.flags)
            cell = structs.replace(
                cell, cell=structs.replace(cell.cell, config=setting.config, ptxas=ptxas)
            )
        try:
            evaluated = await self._evaluated(cell, None, uncached=True)
        finally:
            if session:
                await self.bench.sessions.close(session)
        return Attempt(setting=setting, cell=cell, evaluated=evaluated)


def _holds(flags: Sequence[str], words: Sequence[str]) -> bool:
    ends = range(len(words), len(flags) + 1)
    return any(tuple(flags[stop - len(words) : stop]) == tuple(words) for stop in ends)


def _key(config: Config, names: Sequence[str] | None) -> object:
    """By what a config is found again among the cells of a launch: all of it, or these names."""
    items = [(n, v) for n, v in config.items if names is None or n in names]
    return Setting(config=Config.of(dict(items))).key


def _given(record: LaunchFacts | None) -> list[tuple[object, ...]]:
    """What a launch gives a kernel, but for what its config, or a hook of it, may decide."""
    arguments = record.arguments if record else []
    return [tuple(map(argument.get, _OF_THE_LAUNCH)) for argument in arguments]


_OF_THE_LAUNCH = (
    "name",
    "tensor",
    "shape",
    "scalar",
    "integer",
    "value",
    "none",
    "descriptor",
    "rank",
)
"""Of an argument, as a capture describes it."""


def _nth(cell: PlannedCell) -> int:
    return LaunchLabel.parse(cell.cell.launch).number


# Where a wheel puts its ptxas has changed with its major version; its list of files says it.
_LOCATE = (
    'python -c "from importlib.metadata import files; '
    "print(next(f.locate() for f in files('{package}') if f.name == 'ptxas'))\""
)
_VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def paste_lines(
    steps: Sequence[SettingStep], proof: Attempt, *, is_listed: bool
) -> tuple[str, ...]:
    """Lines for a shell, and for the code that launches, in the order in which they are needed.

    `is_listed` says that the tuner has the config already.
    """
    cell = proof.cell
    kinds = {step.kind for step in steps}
    lines: list[str] = []
    if SettingKind.TRITON in kinds and cell.launch:
        lines.append(front_end(cell.compiler.kind).install_line(cell.compiler.version))
    if SettingKind.PTXAS in kinds and cell.ptxas.origin != BUNDLED:
        is_ptxas = cell.ptxas.kind == PTXAS
        own = ptxas_environment(cell.ptxas.origin, cell.ptxas.version)
        lines += own if is_ptxas else [f"use {cell.ptxas.name}"]
    if SettingKind.FLAGS in kinds and proof.setting.flags:
        words = proof.setting.flags.label
        if OPTIONS_VARIABLE in proof.ways:
            lines.append(f'export {OPTIONS_VARIABLE}="{words}"  # for every kernel of the program')
        if OPTIONS_ARGUMENT in proof.ways:
            line = f'kernel[grid](..., {OPTIONS_ARGUMENT}="{words}")  # for this kernel'
            lines.append(line + ", in place of the variable" * (len(proof.ways) > 1))
        if not proof.ways:
            lines.append(f"ptxas {words}")
    if proof.setting.edit:
        edit = proof.setting.edit
        where = "in the PTX, behind the block size: " if edit.directive else "in the PTX: "
        lines.append(f"{where}{edit.words}")
    launch = [step for step in steps if step.kind is SettingKind.LAUNCH]
    if launch:
        arguments = ", ".join(f"{step.name}={step.after!r}" for step in launch)
        lines.append(f"launch it with {arguments}")
    if SettingKind.CONFIG in kinds:
        front, record = front_end(cell.compiler.kind), cell.record
        assert record is not None, "only a launch has a config"
        line = front.config_line(record.kernel, cell.cell.config, autotuned=record.autotuned)
        is_there = is_listed and record.autotuned
        lines.append(f"{line}  # the tuner's list has it" if is_there else line)
    return tuple(lines)


def ptxas_environment(package: str, version: str) -> list[str]:
    """Lines for a shell: install that ptxas, and let Triton use it."""
    locate = _LOCATE.format(package=package)
    return [
        f"pip install {package}=={version}",
        f"export {_VARIABLES[0]}=$({locate})",
        # Tritons that bundle two of them ask this variable for newer GPUs.
        f"export {_VARIABLES[1]}=${_VARIABLES[0]}",
    ]


def explained(trials: Trials, proof: Attempt) -> tuple[str, ...]:
    """What the whole brings, and what each step of it is for, where that was seen."""
    steps = trials.steps(proof.setting)
    home = trials.start
    limits = limits_of(trials.target.capability)
    option = option_of(proof.setting.flags) or proof.setting.edit
    about = [f"{option.words}: {option.meaning}"] if option else []
    if len(steps) == 1:
        return (explain_step(steps[0], home.row, proof.row, limits), *about)
    lines = [*about, f"together: {explain(home.row, proof.row)}"]
    for step in steps:
        undone = trials.results.get(without(proof.setting, step, trials.origin.setting).key)
        if undone:
            lines.append(explain_step(step, undone.row, proof.row, limits))
    return tuple(lines)
