"""From a captured launch to the cells that are compiled: alike for all front ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from harness.frontends.base import CapturePlace, Plan, PlannedCell
from harness.frontends.registry import front_end
from harness.frontends.sessions import CapturedLaunch
from harness.values.cell import CellId, file_label
from harness.values.errors import CaptureError
from harness.values.kernel import Config, Repro
from harness.values.limits import limits_of
from harness.values.outcome import Capture, LaunchFacts, RaisedError
from harness.values.toolchain import PTXAS, Assembler, Tool, compiler_name


def cells_of(
    place: CapturePlace,
    captured: CapturedLaunch,
    *,
    nvdisasm: Tool | None = None,
    withheld: Sequence[str] = (),
) -> Plan:
    """The cells of a capture at its place.

    `nvdisasm` is one that the compiler brings along: it reads what the newest has dropped.
    `withheld` names variables that the launch code reads and did not get.

    Raises:
        CaptureError: the kernel is never launched.
    """
    selection, repro, compiler = place.selection, place.selection.repro, captured.compiler
    where = f"{repro.name}, launch {place.launch.label}, {compiler.name}, {place.target}"
    value = captured.capture.value
    unpassed = _unpassed(withheld)
    records = _wanted_records(repro, value, where, unpassed, compiler_name(compiler.kind))
    failures = []
    if value.error:
        raised = raised_words(repro, value.error)
        failures.append(f"{raised}, after the launches that are shown ({where})")
    tools = tuple(tool for tool in (selection.nvdisasm, nvdisasm) if tool)
    wanted = _Wanted(place=place, captured=captured, nvdisasms=tools)
    return Plan(
        cells=tuple(wanted.cells(records)),
        configs=tuple(Config.of(record.config) for record in records),
        notes=(
            *_notes(value, records, where),
            *(_miscounted(place, records) if place.is_own else []),
        ),
        # Alike for each target and compiler, and said once.
        warnings=(f"{repro.name}: {unpassed}",) if unpassed else (),
        failures=tuple(failures),
        session=captured.capture.key,
    )


def _unpassed(names: Sequence[str]) -> str:
    """What to say of variables that the launch code reads and did not get."""
    if not names:
        return ""
    options = " ".join(f"--pass-env {name}" for name in names)
    which = "which was" if len(names) == 1 else "which were"
    return f"the launch code reads {', '.join(names)}, {which} not passed: {options}"


def _wanted_records(
    repro: Repro, value: Capture, where: str, unpassed: str, title: str
) -> list[LaunchFacts]:
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
        raise CaptureError(f"{raised_words(repro, value.error)} ({where}){said}")
    names = sorted({record.kernel for record in value.records})
    if names:
        raise CaptureError(
            f"{repro.file}: kernel {repro.kernel!r} is never launched; "
            f"launched are {', '.join(names)} ({where})"
        )
    raise CaptureError(f"{repro.file}: no {title} kernel is launched ({where})")


def raised_words(repro: Repro, error: RaisedError) -> str:
    """What launch code raised, and at which line."""
    line = f":{error.line}" if error.line else ""
    said = [text.strip() for text in error.message.splitlines() if text.strip()] or [""]
    return f"{repro.file}{line}: the launch raised {error.type}: {said[0][:300]}"


def _notes(value: Capture, records: list[LaunchFacts], where: str) -> list[str]:
    notes = []
    if value.dropped:
        notes.append(f"{where}: {value.dropped} launches beyond the limit are left out")
    kernels = {record.kernel for record in records}
    notes += [
        f"{where}: the kernel's own pruning leaves {kept} of {declared} configs"
        for kernel, (kept, declared) in value.pruned.items()
        if kept < declared and kernel in kernels
    ]
    return notes


def _miscounted(place: CapturePlace, records: list[LaunchFacts]) -> list[str]:
    """Where a repro says how many configs its default has, and is wrong."""
    repro, launch = place.selection.repro, place.launch
    found = len({Config.of(record.config).label for record in records})
    default = (repro.version, *repro.targets[:1]), repro.launches[0]
    if repro.configs in (None, found) or launch.overrides:
        return []
    if ((place.compiler.version, str(place.target)), launch.spec) != default:
        return []
    return [f"{repro.name}: its repro.yaml counts {repro.configs} configs, there are {found}"]


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """Turns the records of one capture into cells."""

    place: CapturePlace
    captured: CapturedLaunch
    nvdisasms: tuple[Tool, ...]
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def cells(self, records: list[LaunchFacts]) -> list[PlannedCell]:
        """The cells of all records that the filter lets through."""
        bundled = self._bundled()
        selection, target = self.place.selection, self.place.target
        limits = limits_of(target.capability)
        repro = selection.repro
        file = (
            None if repro.group else file_label(str(repro.file.resolve()), repro.file.read_bytes())
        )
        cells = []
        for record in records:
            config = Config.of(record.config)
            label = self._launch_label(record, config)
            if not selection.config.matches(config):
                continue
            for chosen in selection.ptxas:
                ptxas = chosen or bundled
                assert ptxas is not None, "the selection names a ptxas where none is bundled"
                frozen = selection.freeze_ptx and chosen is not None and chosen.kind == PTXAS
                cell = CellId(
                    kernel=self._kernel_name(record),
                    launch=label,
                    config=config,
                    target=target,
                    compiler=self.captured.compiler.label,
                    ptxas=f"{ptxas.label}-frozen" if frozen else ptxas.label,
                    assembler=ptxas.kind,
                )
                cells.append(
                    PlannedCell(
                        cell=cell,
                        compiler=self.captured.compiler,
                        ptxas=ptxas,
                        limits=limits,
                        nvdisasms=self.nvdisasms,
                        launch=self.captured,
                        record=record,
                        bundled=bundled,
                        freeze_ptx=frozen,
                        file=file,
                    )
                )
        return cells

    def _bundled(self) -> Assembler | None:
        """The assembler that the compiler brings along."""
        path = self.captured.capture.value.ptxas
        if not path:
            return None
        end = front_end(self.captured.compiler.kind)
        return end.back_end(self.place.target).brought_along(Path(path))

    def _launch_label(self, record: LaunchFacts, config: Config) -> str:
        """The launch, numbered from the second time on that it launches kernel and config."""
        self.seen[record.kernel, config.label] += 1
        nth = self.seen[record.kernel, config.label]
        label = self.place.launch.label
        return f"{label}#{nth}" if nth > 1 else label

    def _kernel_name(self, record: LaunchFacts) -> str:
        """A file, or a pattern, of several kernels names each; a repro is one by definition."""
        repro = self.place.selection.repro
        return (
            f"{repro.name.partition('::')[0]}::{record.kernel}" if repro.is_several else repro.name
        )
