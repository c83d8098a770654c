"""`triage package`: every kernel of a package that launches reach, and what a target leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import structs
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from harness.cells.compile import CompileReport, compile_selections
from harness.cells.places import CompileOptions, RunProgress, Steering
from harness.cells.repros.find import find_kernel, list_repros
from harness.cells.repros.launch_files import imported_modules
from harness.cells.repros.releases import in_release, is_of, pin_of, releases, whole_folder
from harness.cells.spelling import spell_command, words_of
from harness.frontends.base import CapturePlace, Plan, PlannedCell, Selection
from harness.frontends.launch_code import import_root, read_source
from harness.frontends.registry import front_end
from harness.frontends.texts.python import WrittenFunction, written_functions
from harness.io.packages.index import files
from harness.io.packages.versions import LATEST, exact_version
from harness.judging.answers import COULD_NOT_TELL
from harness.store.store import Store
from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.tables.summary import plural
from harness.tables.survivors import common_reason, group_rows, survivors
from harness.values.errors import ConfigurationError, EmptySelectionError, TriageError, UsageError
from harness.values.kernel import Config, KernelSource, Pin, Repro
from harness.values.outcome import LaunchFacts
from harness.values.row import SCHEMA, Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED
from harness.values.verdict import Stage

# The Triton functions of a package, and which of them launches reached.


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCount:
    """Functions of the package that Triton compiles, as (file, name).

    `launched` were; `mentioned` were not, and other such functions mention their names: functions
    that kernels call look like this. No launch reached the others, `unreached`; of these, `tuned`
    have an `autotune`. `unread` are files that are not Python that this Python reads.
    """

    launched: tuple[tuple[str, str], ...]
    mentioned: tuple[tuple[str, str], ...]
    unreached: tuple[tuple[str, str], ...]
    tuned: tuple[tuple[str, str], ...]
    unread: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.launched) + len(self.mentioned) + len(self.unreached)


def count_functions(
    texts: Mapping[str, str], launched: Collection[tuple[str, str]]
) -> FunctionCount:
    """Sort the functions of a package's files.

    Args:
        texts: what each file says, by its place below the package's folder.
        launched: the functions that were launched, as (file, name).
    """
    written: dict[tuple[str, str], WrittenFunction] = {}
    unread: list[str] = []
    for file, text in texts.items():
        try:
            written.update(((file, each.name), each) for each in written_functions(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            unread.append(file)
    names: dict[str, set[tuple[str, str]]] = {}
    for place, each in written.items():
        for name in each.names:
            names.setdefault(name, set()).add(place)
    left = [place for place in written if place not in launched]
    mentioned = [place for place in left if names.get(place[1], set()) - {place}]
    unreached = [place for place in left if place not in set(mentioned)]
    return FunctionCount(
        launched=tuple(place for place in written if place in launched),
        mentioned=tuple(mentioned),
        unreached=tuple(unreached),
        tuned=tuple(place for place in unreached if written[place].is_tuned),
        unread=tuple(unread),
    )


class Loss(StrEnum):
    """How many configs of a list a target takes; `unknown`: of none it could be determined."""

    ALL = "all"
    MOST = "most"
    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningList:
    """The configs of one launch of a kernel on one target with one toolchain.

    `kernel` is the function, `name` what `--kernel` takes; `record` is one of its configs as it was
    captured, `file` where it is written, below the package's folder. `keys` name what is compiled.
    `also` are other launches that come to the very same list.
    """

    kernel: str
    name: str
    file: str
    record: LaunchFacts
    keys: frozenset[str]
    rows: tuple[Row, ...]
    also: tuple[str, ...] = field(default=())

    @property
    def target(self) -> str:
        """As ptxas spells it."""
        return self.rows[0].target

    @property
    def launch(self) -> str:
        """The first launch that comes to it, with its folder."""
        return f"{self.name.partition('::')[0]} {self.rows[0].launch}"

    @property
    def works(self) -> tuple[Row, ...]:
        """Those that compile, sick ones among them."""
        return tuple(row for row in self.rows if row.verdict.compiles)

    @property
    def lost(self) -> tuple[Row, ...]:
        """Those that do not work, by an answer of the compilers and not by a limit of `triage`."""
        return tuple(row for row in self.rows if not _is_unknown(row) and row not in self.works)

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Those of which nothing could be determined."""
        return tuple(row for row in self.rows if _is_unknown(row))

    @property
    def loss(self) -> Loss:
        """How much is lost; `all` only where every config is known to be."""
        lost = len(self.lost)
        if lost == len(self.rows):
            return Loss.ALL
        if 2 * lost > len(self.rows):
            return Loss.MOST
        if lost:
            return Loss.SOME
        return Loss.NONE if self.works else Loss.UNKNOWN


def _is_unknown(row: Row) -> bool:
    return row.verdict in COULD_NOT_TELL


def tuning_lists(
    rows: Sequence[Row], captured: Mapping[str, LaunchFacts], files: Mapping[str, str]
) -> list[TuningList]:
    """The lists that the rows make up, each once, in the order of the rows.

    Args:
        rows: the results.
        captured: the launch of each cell, by its name.
        files: the place of each captured file below the package's folder.
    """
    found: dict[object, TuningList] = {}
    for group in group_rows(rows):
        records = [captured[row.cell] for row in group]
        first, keys = records[0], frozenset(record.key for record in records)
        one = TuningList(
            kernel=first.kernel,
            name=group[0].kernel,
            file=files[first.file],
            record=first,
            keys=keys,
            rows=tuple(group),
        )
        row = group[0]
        same = (keys, row.target, row.compiler_version, row.ptxas, row.ptxas_origin, row.frozen)
        known = found.get(same)
        found[same] = replace(known, also=(*known.also, one.launch)) if known else one
    return list(found.values())


# What `triage package` finds, as values.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A release of a package, and the launches that come to its kernels.

    Each of `launches` has one launch and means every kernel of it. `is_pinned` says that a repro
    pins this very file; else its sha256 is what the package index says. `pinned` are the releases
    that repros pin. `complaints` are about repros that cannot be read.
    """

    pin: Pin
    is_pinned: bool
    pinned: tuple[str, ...]
    launches: tuple[Repro, ...]
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """A function, or the reason why there is none; `keeps` configs stay."""

    source: str | None
    keeps: int = 0
    why_none: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageReport:
    """The tuning lists of a package, and what would save each; `None` where nothing is to be saved.

    `elsewhere` are kernels that launches reach outside of the package; `surroundings` are options
    that decide what launch code sees.
    """

    reached: Reached
    compiled: CompileReport
    lists: tuple[tuple[TuningList, Pruning | None], ...]
    functions: FunctionCount
    elsewhere: tuple[str, ...]
    surroundings: tuple[str, ...] = ()

    @property
    def losing(self) -> tuple[tuple[TuningList, Pruning | None], ...]:
        """The lists of which all, or most, is lost: the most first."""
        order = (Loss.ALL, Loss.MOST)
        return tuple(each for loss in order for each in self.lists if each[0].loss is loss)

    @property
    def is_incomplete(self) -> bool:
        """Whether something could not be determined: a launch, or a config."""
        return bool(self.compiled.failures) or any(one.unknown for one, _ in self.lists)


# What is left of a package's tuning lists, for people and as a document.

_GRAVE = (Loss.ALL, Loss.MOST)


def package_said(report: PackageReport) -> list[Block]:
    """Where the source is from, the lists that lose configs, what would save them, and counts."""
    pin = report.reached.pin
    pinned = " and ".join(report.reached.pinned)
    others = f" (the repros pin {pinned})" if pinned else ""
    origin = (
        "as the repros pin it"
        if report.reached.is_pinned
        else f"as the package index has it{others}"
    )
    blocks: list[Block] = [
        say(f"{pin.package} {pin.version}, sha256 {pin.sha256}, {origin}", Tone.HEAD),
        BLANK,
    ]
    if any(one.lost or one.unknown for one, _ in report.lists):
        blocks += [_grid(report), BLANK]
    for one, pruning in report.losing:
        blocks += [*_list_said(one, pruning, report.surroundings), BLANK]
    some = [
        say(f"  {one.kernel} ({one.launch}, {one.rows[0].compiler_name}) on {one.target}: {reason}")
        for one, _ in report.lists
        if one.loss is Loss.SOME
        for reason in _reasons(one)
    ]
    if some:
        blocks += [say("Why lists lose some of their configs", Tone.HEAD), *some, BLANK]
    return [*blocks, *(say(line) for line in _counts(report))]


def _grid(report: PackageReport) -> SaidGrid:
    targets = list(dict.fromkeys(one.target for one, _ in report.lists))
    lines: dict[tuple[str, str, str], dict[str, TuningList]] = {}
    for one, _ in report.lists:
        launch = f"{one.launch} (and {len(one.also)} more)" if one.also else one.launch
        lines.setdefault((one.kernel, launch, one.rows[0].compiler_name), {})[one.target] = one
    rows = [
        (*map(say, place), *(_cell(found.get(target)) for target in targets))
        for place, found in lines.items()
        if any(one.lost or one.unknown for one in found.values())
    ]
    columns = (
        GridColumn(title="kernel", folds=True),
        GridColumn(title="launch", wraps=True),
        GridColumn(title="compiler", wraps=True),
        *(GridColumn(title=target, wraps=True) for target in targets),
    )
    return SaidGrid(columns=columns, rows=tuple(rows))


def _cell(one: TuningList | None) -> SaidLine:
    if one is None:
        return say("not reached", Tone.FAINT)
    total, lost, unknown = len(one.rows), len(one.lost), len(one.unknown)
    said = say(f"{total} kept", Tone.GOOD)
    if lost:
        words = f"{lost} of {total} lost"
        if lost == total:
            words = f"all {total} lost" if total > 1 else "lost"
        said = say(words, Tone.BAD if one.loss in _GRAVE else Tone.POOR)
    if not unknown:
        return said
    more = say(f"{unknown} of {total} not known", Tone.FAINT)
    return more if unknown == total else said + say(", ") + more


def _list_said(
    one: TuningList, pruning: Pruning | None, surroundings: tuple[str, ...]
) -> list[Block]:
    total = len(one.rows)
    how_much = f"all {total}" if one.loss is Loss.ALL else f"{len(one.lost)} of {total}"
    said = f"{how_much} configs are lost" if total > 1 else "its only config is lost"
    head = f"{one.kernel} ({one.file}), {one.launch}, on {one.target}: {said}"
    blocks: list[Block] = [say(head, Tone.HEAD)]
    blocks += [say(f"  {words}") for words in _reasons(one)]
    if pruning is None:
        return blocks
    if pruning.source is None:
        is_named = ".py@" not in one.name  # of a file, `--kernel` would take what is installed
        command = _workaround(one, surroundings) if not one.works and is_named else ""
        command = f"; to look for one: {command}" if command else ""
        return [*blocks, say(f"  No pruning function: {pruning.why_none}{command}")]
    blocks.append(
        say(f'  prune_configs_by={{"early_config_prune": ...}} with this keeps {pruning.keeps}:')
    )
    return [*blocks, *(say(f"    {line}".rstrip()) for line in pruning.source.splitlines())]


def _reasons(one: TuningList) -> list[str]:
    return [
        f"{len(fate.rows)} {fate.verdict.value}"
        f"{f' ({fate.where})' if fate.where else ''}: {fate.reason}"
        for fate in survivors(one.rows).fates
        if not fate.verdict.compiles
    ]


def _workaround(one: TuningList, surroundings: tuple[str, ...]) -> str:
    words = replace(words_of(one.rows[0]), kernel=one.name, config="", surroundings=surroundings)
    return spell_command("workaround", words)


def _counts(report: PackageReport) -> list[str]:
    lists = [one for one, _ in report.lists]
    losses = Counter(one.loss for one in lists)
    targets = len({one.target for one in lists})
    configs = sum(len(one.rows) for one in lists)
    kernels = len({(one.file, one.kernel) for one in lists})
    words = {
        Loss.ALL: "lose all configs",
        Loss.MOST: "lose most",
        Loss.SOME: "lose some",
        Loss.NONE: "lose none",
        Loss.UNKNOWN: "could not be determined",
    }
    found = ", ".join(f"{losses[loss]} {said}" for loss, said in words.items() if losses[loss])
    count = report.functions
    launches = len(report.reached.launches)
    lines = [
        (
            f"{plural(kernels, 'kernel')}, {plural(len(lists), 'tuning list')} on "
            f"{plural(targets, 'target')}, {plural(configs, 'config')}: {found}. "
            f"Launched by {plural(launches, 'launch function')}."
        ),
        (
            f"Of {count.total} functions that {report.reached.pin.package} has for Triton, these "
            f"launches reached {len(count.launched)}, and did not reach {len(count.unreached)} "
            f"({len(count.tuned)} of these have an autotune). {len(count.mentioned)} more were not "
            "launched, but other functions mention their names: they may be called by kernels."
        ),
    ]
    if count.unread:
        lines.append(f"Not read, so not counted: {', '.join(count.unread)}.")
    if report.elsewhere:
        lines.append(f"Left out, of other packages: {', '.join(report.elsewhere)}.")
    lines.append("Evidence: compiled. Nothing was run, and pruning functions were not compiled.")
    return lines


def package_document(report: PackageReport) -> dict[str, Any]:
    """As `--json` prints it."""
    reached, count = report.reached, report.functions
    return {
        "schema": SCHEMA,
        "package": reached.pin.package,
        "version": reached.pin.version,
        "sha256": reached.pin.sha256,
        "is_pinned": reached.is_pinned,
        "evidence": "compiled",
        "lists": [_list_document(one, pruning) for one, pruning in report.lists],
        "functions": {
            "total": count.total,
            "launched": len(count.launched),
            "mentioned": len(count.mentioned),
            "unreached": [f"{file}::{name}" for file, name in count.unreached],
            "unreached_tuned": len(count.tuned),
            "unread_files": count.unread,
        },
        "elsewhere": report.elsewhere,
        "cells": report.compiled.rows,
        "notes": report.compiled.notes,
        "failures": report.compiled.failures,
    }


def _list_document(one: TuningList, pruning: Pruning | None) -> dict[str, Any]:
    row = one.rows[0]
    return {
        "function": one.kernel,
        "file": one.file,
        "kernel": one.name,
        "launch": row.launch,
        "also": one.also,
        "target": one.target,
        "compiler": row.compiler,
        "compiler_version": row.compiler_version,
        "assembler": row.assembler,
        "ptxas": row.ptxas,
        "loss": one.loss.value,
        "configs": len(one.rows),
        "works": len(one.works),
        "sick": sum(each.verdict == "sick" for each in one.works),
        "lost": len(one.lost),
        "unknown": len(one.unknown),
        "reasons": _reasons(one),
        "pruning": pruning.source if pruning else None,
        "why_no_pruning": pruning.why_none if pruning and pruning.source is None else None,
    }


# Which launches reach a package: those of repros that take kernels from it, and of files.


def reach(text: str, own_files: Sequence[str] = ()) -> Reached:
    """The launches that reach the package that `NAME==VERSION` means, and those of files.

    A launch is that of a repro, in the release that is asked for. Each folder of repros gives its
    launches once, with the version of the compiler that the first repro with that launch names. A
    file of the user's is launched as every `--kernel FILE.py` is, with the release, and with what
    the repros require beside it, on its module path.

    Raises:
        UsageError: the text is malformed, there is no such package or release, or a file launches
            nothing or imports nothing of it.
        EmptySelectionError: the source of no repro is that package.
        InfrastructureError: the package index does not answer, and its listing is not cached.
    """
    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    if found is None or found.url or found.extras or found.marker:
        raise UsageError(f"{text[:80]!r}: write NAME==VERSION, for example fla-core==0.6.0")
    name, spec = canonicalize_name(found.name), str(found.specifier) or LATEST
    repros, errors = list_repros()
    mine = [repro for repro in repros if is_of(repro, name)]
    if not mine and not own_files:
        files(name)  # a package that the index does not have is said to be none
        unread = "".join(f"; {error}" for error in errors[:1])
        raise EmptySelectionError(
            f"no repro takes its kernels from {name} (--launch FILE names a file that does); "
            f"{_others(repros)}{unread}"
        )
    pins = {repro.source.pin.version: repro.source.pin for repro in mine if repro.source}
    version = _version(name, spec, pins)
    own = pins.get(str(version))
    pin = own or pin_of(name, version)
    launches = [_launch(repro, mine, version, pin) for repro in _first_of_each(mine)]
    beside = {each.package: each for repro in mine for each in repro.requires}
    launches += [_of_file(file, pin, tuple(beside.values())) for file in own_files]
    return Reached(
        pin=pin,
        is_pinned=own is not None,
        pinned=tuple(pins),
        launches=tuple(launches),
        complaints=tuple(map(str, errors)),
    )


def _version(name: str, spec: str, pins: dict[str, Pin]) -> Version:
    exact = exact_version(spec)
    if exact is not None and str(exact) in pins:
        return exact
    found = releases(name, spec)
    if len(found) > 1:
        raise UsageError(
            f"{name}{spec}: {len(found)} releases are meant ({', '.join(map(str, found))}); name "
            f"one, as {name}=={found[-1]}"
        )
    return found[0]


def _first_of_each(repros: list[Repro]) -> list[Repro]:
    found: dict[tuple[str, str], Repro] = {}
    for repro in repros:
        # The others of a repro are there to vary it.
        for launch in repro.launches[:1]:
            found.setdefault((repro.group, launch.name), structs.replace(repro, launches=(launch,)))
    return list(found.values())


def _launch(repro: Repro, mine: list[Repro], version: Version, pin: Pin) -> Repro:
    group = [each for each in mine if each.group == repro.group]
    whole = whole_folder(group, None)
    release = in_release(whole, version, pin)
    return structs.replace(release, launches=repro.launches, version=repro.version)


def _of_file(file: str, pin: Pin, beside: tuple[Pin, ...]) -> Repro:
    if not file.endswith(".py"):
        raise UsageError(f"--launch {file}: write the name of a Python file")
    repro = find_kernel(file)
    name = f"{repro.name}@{pin.package}=={pin.version}"
    for module in sorted(imported_modules(repro.file)):
        source = KernelSource(pin=pin, module=module)
        found = structs.replace(repro, name=name, source=source, requires=beside)
        try:
            import_root(found)
        except ConfigurationError:
            continue
        return found
    raise UsageError(f"--launch {file}: it imports no module of {pin.package} {pin.version}")


def _others(repros: list[Repro]) -> str:
    names = sorted({repro.source.pin.package for repro in repros if repro.source})
    return f"repros there are of {', '.join(names)}" if names else "no repro is of a package"


_CELLS_A_WORKER = 4


@dataclass(slots=True, kw_only=True)
class _InPackage(Steering):
    """Takes the kernels that are written below `folder`, and keeps how each cell was captured."""

    folder: Path
    at_once: int
    records: dict[str, LaunchFacts] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, None] = field(default_factory=dict)

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:  # noqa: ARG002
        chosen = []
        for cell in plan.cells:
            assert cell.record is not None, "what is captured has a record"
            file = Path(cell.record.file).resolve()
            if not file.is_relative_to(self.folder):
                self.elsewhere[cell.record.kernel] = None
                continue
            self.files[cell.record.file] = file.relative_to(self.folder.parent).as_posix()
            self.records[str(cell.cell)] = cell.record
            chosen.append(cell)
        return chosen


async def survey_package(
    reached: Reached,
    selections: Sequence[Selection],
    store: Store,
    how: CompileOptions,
    progress: RunProgress,
) -> PackageReport:
    """Compile what the selections (of `reached`) launch, and look at what is left.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no kernel of the package is launched.
        TriageError: the source cannot be fetched, or results cannot be kept.
    """
    repro = reached.launches[0]
    assert repro.source is not None
    folder = (import_root(repro) / repro.source.module.partition(".")[0]).resolve()
    mine = _InPackage(folder=folder, at_once=_CELLS_A_WORKER * how.workers)
    compiled = await compile_selections(selections, store, how, progress, mine)
    lists = tuning_lists(compiled.rows, mine.records, mine.files)
    launched = {(one.file, one.kernel) for one in lists}
    # The Python files of the package; one that is not text counts as empty.
    found = {}
    for path in sorted(folder.rglob("*.py")):
        try:
            found[path.relative_to(folder.parent).as_posix()] = read_source(path)
        except TriageError:
            found[path.relative_to(folder.parent).as_posix()] = "\0"
    return PackageReport(
        surroundings=selections[0].surroundings,
        reached=reached,
        compiled=compiled,
        lists=tuple((one, pruning_of(one)) for one in lists),
        functions=count_functions(found, launched),
        elsewhere=tuple(mine.elsewhere),
    )


def pruning_of(one: TuningList) -> Pruning | None:
    """What leaves out the configs that fail; None where nothing fails.

    It follows from the results of the compiled configs; the pruned kernel itself is not compiled.
    """
    from harness.workaround import patch  # noqa: PLC0415 - libcst: 0.3 s

    if one.loss in (Loss.NONE, Loss.UNKNOWN):
        return None
    row = one.lost[0]
    why = ""
    if not one.record.autotuned:
        why = "the kernel has no tuner: its launch gives it one config"
    elif not one.works:
        why = "no config is left that a tuner could choose: it needs another one"
    elif row.compiler is None or not front_end(row.compiler).patches:
        why = "no way is known to leave out configs of this language"
    elif row.ptxas_origin != BUNDLED and any(each.stage == Stage.CUBIN.value for each in one.lost):
        why = f"{row.tool} fails, which a tuner cannot tell from the bundled one"
    if why:
        return Pruning(source=None, why_none=why)
    try:
        key = patch.find_tuner(read_source(Path(one.record.file)), one.kernel).key
    except (patch.PatchError, TriageError) as error:
        return Pruning(source=None, why_none=f"{one.file}: {error}")
    fails = tuple(Config.of(row.config) for row in one.lost)
    works = tuple(Config.of(row.config) for row in (*one.works, *one.unknown))
    assert row.compiler_version is not None
    guard = patch.make_guard(
        [patch.GuardedRelease(triton=row.compiler_version, fails=fails, works=works)],
        capability=Target.parse(one.target).capability,
        arguments=patch.tuned_arguments(one.record, key),
    )
    clauses = guard.clauses if guard else ()
    drops = {config for config in (*fails, *works) if any(c.fails(config) for c in clauses)}
    if guard is None or drops != set(fails):
        why = "nothing tells the configs that fail from those that work"
        return Pruning(source=None, why_none=why)
    source = patch.pruning_source(
        patch.PRUNING, guard, common_reason(one.lost), imported=("torch", "triton"), wraps=False
    )
    return Pruning(source=source, keeps=len(works))
