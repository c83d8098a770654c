"""From a selection to cells: each launch captured as each target and Triton would see it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from harness.bench.bench import Workbench
from harness.cells.evaluate import PlannedCell
from harness.cells.selection import PlannedLaunch, Selection
from harness.files.regular_files import read_regular
from harness.frontends.triton.environment import child_environment
from harness.frontends.triton.lower import (
    CapturedLaunch,
    LaunchCode,
    capture,
    fetch_launch_code,
    has_launch_code,
    stored_capture,
)
from harness.frontends.triton.ptx_reading import read_stored_ptx
from harness.frontends.triton.reads import withheld
from harness.ptx.facts import MAX_BYTES, retarget
from harness.toolchains.bundled import bundled_nvdisasm
from harness.toolchains.describe import describe_ptxas
from harness.values.cell import CellId
from harness.values.errors import CaptureError, UsageError
from harness.values.kernel import Config, Repro, Scalar
from harness.values.limits import Limits, limits_of
from harness.values.outcome import Capture, LaunchFacts, RaisedError
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Tool, Triton

__all__ = ["Adapt", "Plan", "plan_launch", "plan_ptx", "stored_launch"]

Adapt = Callable[[LaunchCode], LaunchCode]
"""Gives a launch other configs, or other sources, than the repro has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cells of one launch on one target and Triton.

    `configs` are all that were captured, those too that the filter leaves out. `failures` say what
    is missing because the launch code failed half-way. `session` names the capture's session, None
    for raw PTX.
    """

    cells: tuple[PlannedCell, ...]
    configs: tuple[Config, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    session: str | None = None


def plan_ptx(bench: Workbench, selection: Selection, target: Target, launch: PlannedLaunch) -> Plan:
    """The cells of a raw PTX file: one for each entry and ptxas.

    Raises:
        StorageError: the file cannot be kept.
    """
    repro = selection.repro
    assert repro.ptx is not None
    raw = _put_ptx(bench, repro.ptx, launch.overrides)
    nvdisasms = _nvdisasms(selection, None)
    reading = read_stored_ptx(bench, raw, None, repro.kernel).value
    if reading.facts is None:
        raise UsageError(f"{repro.ptx}: {reading.problem}")
    facts = reading.facts
    entries = [repro.kernel] if repro.kernel else facts.entries
    cells = []
    for entry, ptxas in itertools.product(entries, selection.ptxas):
        assert ptxas is not None
        named = repro.kernel or len(entries) == 1
        cell = CellId(
            kernel=repro.name if named else f"{repro.name}::{entry}",
            launch=launch.label,
            config=Config(),
            target=target,
            triton=None,
            ptxas=ptxas.label,
        )
        cells.append(
            PlannedCell(
                cell=cell,
                ptxas=ptxas,
                limits=limits_of(target.capability),
                nvdisasms=nvdisasms,
                raw_ptx=raw,
                entry=entry,
            )
        )
    return Plan(cells=tuple(cells))


def _put_ptx(bench: Workbench, file: Path, header: Mapping[str, Scalar | None]) -> str:
    """Keep PTX, with another `.version` or `.target` where one was set; its sha256."""
    if not header:
        return bench.store.artifacts.put_file(file)
    words = {name: str(value) for name, value in header.items()}
    return bench.store.artifacts.put(
        retarget(read_regular(file, MAX_BYTES).decode(), **words).encode()
    )


async def plan_launch(
    bench: Workbench,
    selection: Selection,
    target: Target,
    triton: Triton,
    launch: PlannedLaunch,
    *,
    adapt: Adapt | None = None,
) -> Plan:
    """The cells of one launch: one for each config that the filter lets through, and each ptxas.

    `adapt` may give the launch other configs, or other sources, than the repro has.

    Raises:
        CaptureError: the launch cannot be captured, or never launches the kernel.
        InfrastructureError: this Triton, or a source, cannot be had.
    """
    code = fetch_launch_code(selection.repro, launch.spec, launch.overrides)
    code = adapt(code) if adapt else code
    limits = _limits(target)
    captured = await capture(bench, code, target=target, triton=triton, limits=limits)
    return _planned(selection, target, triton, launch, captured, is_own=adapt is None)


def stored_launch(
    bench: Workbench,
    selection: Selection,
    target: Target,
    triton: Triton,
    launch: PlannedLaunch,
    *,
    adapt: Adapt | None = None,
) -> Plan | None:
    """As `plan_launch`, from a stored capture; None where there is none. Nothing is fetched.

    Raises:
        CaptureError: the launch never launches the kernel.
    """
    if not has_launch_code(selection.repro):
        return None
    code = fetch_launch_code(selection.repro, launch.spec, launch.overrides)
    code = adapt(code) if adapt else code
    limits = _limits(target)
    captured = stored_capture(bench, code, target=target, triton=triton, limits=limits)
    if captured is None:
        return None
    return _planned(selection, target, triton, launch, captured, is_own=adapt is None)


def _limits(target: Target) -> Limits:
    limits = limits_of(target.capability)
    assert limits is not None, "the selection refuses targets without limits"
    return limits


def _planned(
    selection: Selection,
    target: Target,
    triton: Triton,
    launch: PlannedLaunch,
    captured: CapturedLaunch,
    *,
    is_own: bool = True,
) -> Plan:
    """The cells of a capture; `is_own` says that its configs are those of the repro."""
    repro = selection.repro
    where = f"{repro.name}, launch {launch.label}, Triton {triton.version}, {target}"
    value = captured.capture.value
    unpassed = _unpassed(withheld(value.reads, child_environment(triton)))
    records = _wanted_records(repro, value, where, unpassed)
    failures = []
    if value.error:
        raised = _raised(repro, value.error)
        failures.append(f"{raised}, after the launches that are shown ({where})")
    wanted = _Wanted(selection=selection, captured=captured, target=target, launch=launch)
    return Plan(
        cells=tuple(wanted.cells(records)),
        configs=tuple(Config.of(record.config) for record in records),
        notes=(
            *_notes(value, records, where),
            *([f"{where}: {unpassed}"] if unpassed else []),
            *(_miscounted(selection, target, triton, launch, records) if is_own else []),
        ),
        failures=tuple(failures),
        session=captured.capture.key,
    )


def _unpassed(names: list[str]) -> str:
    """What to say of variables that the launch code reads and did not get."""
    if not names:
        return ""
    options = " ".join(f"--pass-env {name}" for name in names)
    which = "which was" if len(names) == 1 else "which were"
    return f"the launch code reads {', '.join(names)}, {which} not passed: {options}"


def _wanted_records(repro: Repro, value: Capture, where: str, unpassed: str) -> list[LaunchFacts]:
    """The records of the kernel that was asked for; an error when there are none."""
    mine = [
        record
        for record in value.records
        if repro.kernel is None or fnmatchcase(record.kernel, repro.kernel)
    ]
    if mine:
        return mine
    if value.error:
        said = f"; {unpassed}" if unpassed else ""
        raise CaptureError(f"{_raised(repro, value.error)} ({where}){said}")
    names = sorted({record.kernel for record in value.records})
    if names:
        raise CaptureError(
            f"{repro.file}: kernel {repro.kernel!r} is never launched; "
            f"launched are {', '.join(names)} ({where})"
        )
    raise CaptureError(f"{repro.file}: no Triton kernel is launched ({where})")


def _raised(repro: Repro, error: RaisedError) -> str:
    line = f":{error.line}" if error.line else ""
    said = [text.strip() for text in error.message.splitlines() if text.strip()] or [""]
    return f"{repro.file}{line}: the launch raised {error.type}: {said[0][:300]}"


def _notes(value: Capture, records: list[LaunchFacts], where: str) -> list[str]:
    notes = []
    if value.dropped:
        notes.append(f"{where}: {value.dropped} launches more than can be kept are left out")
    kernels = {record.kernel for record in records}
    notes += [
        f"{where}: the kernel's own pruning leaves {kept} of {declared} configs"
        for kernel, (kept, declared) in value.pruned.items()
        if kept < declared and kernel in kernels
    ]
    return notes


def _miscounted(
    selection: Selection,
    target: Target,
    triton: Triton,
    launch: PlannedLaunch,
    records: list[LaunchFacts],
) -> list[str]:
    """Where a repro says how many configs its default has, and is wrong."""
    repro = selection.repro
    found = len({Config.of(record.config).label for record in records})
    default = (repro.triton, *repro.targets[:1]), repro.launches[0]
    if repro.configs in (None, found) or launch.overrides:
        return []
    if ((triton.version, str(target)), launch.spec) != default:
        return []
    return [f"{repro.name}: its repro.yaml counts {repro.configs} configs, there are {found}"]


def _nvdisasms(selection: Selection, triton: Triton | None) -> tuple[Tool, ...]:
    """The newest first; the one that a Triton bundles still reads what the newest has dropped."""
    tools = (selection.nvdisasm, bundled_nvdisasm(triton))
    return tuple(tool for tool in tools if tool)


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """Turns the records of one capture into cells."""

    selection: Selection
    captured: CapturedLaunch
    target: Target
    launch: PlannedLaunch
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def cells(self, records: list[LaunchFacts]) -> list[PlannedCell]:
        """The cells of all records that the filter lets through."""
        bundled = describe_ptxas(Path(self.captured.capture.value.ptxas), BUNDLED)
        nvdisasms = _nvdisasms(self.selection, self.captured.triton)
        limits = limits_of(self.target.capability)
        cells = []
        for record in records:
            config = Config.of(record.config)
            label = self._launch_label(record, config)
            if not self.selection.config.matches(config):
                continue
            for chosen in self.selection.ptxas:
                ptxas = chosen or bundled
                frozen = self.selection.freeze_ptx and chosen is not None
                cell = CellId(
                    kernel=self._kernel_name(record),
                    launch=label,
                    config=config,
                    target=self.target,
                    triton=self.captured.triton.version,
                    ptxas=f"{ptxas.label}-frozen" if frozen else ptxas.label,
                )
                cells.append(
                    PlannedCell(
                        cell=cell,
                        ptxas=ptxas,
                        limits=limits,
                        nvdisasms=nvdisasms,
                        launch=self.captured,
                        record=record,
                        bundled=bundled,
                        freeze_ptx=frozen,
                    )
                )
        return cells

    def _launch_label(self, record: LaunchFacts, config: Config) -> str:
        """The launch, numbered from the second time on that it launches kernel and config."""
        self.seen[record.kernel, config.label] += 1
        nth = self.seen[record.kernel, config.label]
        return f"{self.launch.label}#{nth}" if nth > 1 else self.launch.label

    def _kernel_name(self, record: LaunchFacts) -> str:
        """A file that launches several kernels names each; a repro is one kernel by definition."""
        repro = self.selection.repro
        return f"{repro.name}::{record.kernel}" if repro.kernel is None else repro.name
