"""From a captured launch to the cells that are compiled: alike for all front ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
from harness.values.toolchain import PTXAS, Tool, compiler_name


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
    notes = []
    if value.dropped:
        notes.append(f"{where}: {value.dropped} launches beyond the limit are left out")
    kernels = {record.kernel for record in records}
    notes += [
        f"{where}: the kernel's own pruning leaves {kept} of {declared} configs"
        for kernel, (kept, declared) in value.pruned.items()
        if kept < declared and kernel in kernels
    ]
    failures = []
    if value.error:
        raised = raised_words(repro, value.error)
        failures.append(f"{raised}, after the launches that are shown ({where})")
    tools = tuple(tool for tool in (selection.nvdisasm, nvdisasm) if tool)
    return Plan(
        cells=tuple(_cells(place, captured, records, tools)),
        configs=tuple(Config.of(record.config) for record in records),
        notes=(*notes, *(_miscounted(place, records) if place.is_own else [])),
        # Alike for each target and compiler, and said once.
        warnings=(f"{repro.name}: {unpassed}",) if unpassed else (),
        failures=tuple(failures),
        session=captured.capture.key,
    )


def _unpassed(names: Sequence[str]) -> str:
    if not names:
        return ""
    options = " ".join(f"--pass-env {name}" for name in names)
    which = "which was" if len(names) == 1 else "which were"
    return f"the launch code reads {', '.join(names)}, {which} not passed: {options}"


def _wanted_records(
    repro: Repro, value: Capture, where: str, unpassed: str, title: str
) -> list[LaunchFacts]:
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


def _cells(
    place: CapturePlace,
    captured: CapturedLaunch,
    records: list[LaunchFacts],
    nvdisasms: tuple[Tool, ...],
) -> Iterator[PlannedCell]:
    selection, target, repro = place.selection, place.target, place.selection.repro
    bundled = None
    if path := captured.capture.value.ptxas:
        back = front_end(captured.compiler.kind).back_end(target)
        bundled = back.brought_along(Path(path))
    limits = limits_of(target.capability)
    file = None
    if not repro.group:
        file = file_label(str(repro.file.resolve()), repro.file.read_bytes())
    seen: Counter[tuple[str, str]] = Counter()
    for record in records:
        config = Config.of(record.config)
        # Numbered from the second time on that the launch launches kernel and config.
        seen[record.kernel, config.label] += 1
        nth = seen[record.kernel, config.label]
        if not selection.config.matches(config):
            continue
        for chosen in selection.ptxas:
            assembler = chosen or bundled
            assert assembler is not None, "the selection names one where none is bundled"
            frozen = selection.freeze_ptx and chosen is not None and chosen.kind == PTXAS
            # A file, or a pattern, of several kernels names each; a repro is one by definition.
            several = f"{repro.name.partition('::')[0]}::{record.kernel}"
            cell = CellId(
                kernel=several if repro.is_several else repro.name,
                launch=f"{place.launch.label}#{nth}" if nth > 1 else place.launch.label,
                config=config,
                target=target,
                compiler=captured.compiler.label,
                ptxas=f"{assembler.label}-frozen" if frozen else assembler.label,
                assembler=assembler.kind,
            )
            yield PlannedCell(
                cell=cell,
                compiler=captured.compiler,
                ptxas=assembler,
                limits=limits,
                nvdisasms=nvdisasms,
                launch=captured,
                record=record,
                bundled=bundled,
                freeze_ptx=frozen,
                file=file,
            )
