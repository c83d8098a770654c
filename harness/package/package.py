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
from harness.cells.places import CompileOptions, RunPolicy, RunProgress
from harness.cells.repros.find import find_kernel, list_repros
from harness.cells.repros.launch_files import imported_modules
from harness.cells.repros.releases import in_release, is_of, pin_of, releases, whole_folder
from harness.cells.spelling import SelectionOptions, spell_command, words_of
from harness.frontends.launch_code import import_root, read_source
from harness.frontends.plan import CapturePlace, Plan, PlannedCell, Selection
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
            written |= {(file, each.name): each for each in written_functions(text)}
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            unread.append(file)
    names: dict[str, set[tuple[str, str]]] = {}
    for place, function in written.items():
        for name in function.names:
            names.setdefault(name, set()).add(place)
    idle = [place for place in written if place not in launched]
    mentioned = [place for place in idle if names.get(place[1], set()) - {place}]
    unreached = [place for place in idle if place not in set(mentioned)]
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
        determined = (row for row in self.rows if row.verdict not in COULD_NOT_TELL)
        return tuple(row for row in determined if row not in self.works)

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Those of which nothing could be determined."""
        return tuple(row for row in self.rows if row.verdict in COULD_NOT_TELL)

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


def tuning_lists(
    rows: Sequence[Row], captured: Mapping[str, LaunchFacts], files: Mapping[str, str]
) -> list[TuningList]:
    """The lists that the rows make up, each once, in the order of the rows.

    Args:
        rows: the results.
        captured: the launch of each cell, by its name.
        files: the place of each captured file below the package's folder.
    """
    lists: dict[object, TuningList] = {}
    for group in group_rows(rows):
        records = [captured[row.cell] for row in group]
        first, keys = records[0], frozenset(record.key for record in records)
        tuning = TuningList(
            kernel=first.kernel,
            name=group[0].kernel,
            file=files[first.file],
            record=first,
            keys=keys,
            rows=tuple(group),
        )
        row = group[0]
        same = (keys, row.target, row.compiler_version, row.ptxas, row.ptxas_origin, row.frozen)
        earlier = lists.get(same)
        lists[same] = replace(earlier, also=(*earlier.also, tuning.launch)) if earlier else tuning
    return list(lists.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A release of a package, and the launches that come to its kernels.

    Each of `launches` has one launch and means every kernel of it. `is_pinned` says that a repro
    pins this very file; else its sha256 is what the package index says. `pinned` are the releases
    that repros pin. `left_out` are other launches of these repros, as (repro, launch), which vary
    what is launched. `complaints` are about repros that cannot be read.
    """

    pin: Pin
    is_pinned: bool
    pinned: tuple[str, ...]
    launches: tuple[Repro, ...]
    left_out: tuple[tuple[str, str], ...] = ()
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
        return tuple(pair for loss in _GRAVE for pair in self.lists if pair[0].loss is loss)

    @property
    def is_incomplete(self) -> bool:
        """Whether something could not be determined: a launch, or a config."""
        return bool(self.compiled.failures) or any(tuning.unknown for tuning, _ in self.lists)


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
    if any(tuning.lost or tuning.unknown for tuning, _ in report.lists):
        blocks += [_grid(report), BLANK]
    for tuning, pruning in report.losing:
        blocks += [*_list_said(tuning, pruning, report), BLANK]
    some = [
        say(
            f"  {tuning.kernel} ({tuning.launch}, {tuning.rows[0].compiler_name}) "
            f"on {tuning.target}: {reason}"
        )
        for tuning, _ in report.lists
        if tuning.loss is Loss.SOME
        for reason in _reasons(tuning)
    ]
    if some:
        blocks += [say("Why lists lose some of their configs", Tone.HEAD), *some, BLANK]
    return [*blocks, *(say(line) for line in _counts(report))]


def _grid(report: PackageReport) -> SaidGrid:
    targets = list(dict.fromkeys(tuning.target for tuning, _ in report.lists))
    lines: dict[tuple[str, str, str], dict[str, TuningList]] = {}
    for tuning, _ in report.lists:
        launch = f"{tuning.launch} (and {len(tuning.also)} more)" if tuning.also else tuning.launch
        lines.setdefault((tuning.kernel, launch, tuning.rows[0].compiler_name), {})[
            tuning.target
        ] = tuning
    rows = [
        (*map(say, place), *(_cell(by_target.get(target)) for target in targets))
        for place, by_target in lines.items()
        if any(tuning.lost or tuning.unknown for tuning in by_target.values())
    ]
    columns = (
        GridColumn(title="kernel", folds=True),
        GridColumn(title="launch", wraps=True),
        GridColumn(title="compiler", wraps=True),
        *(GridColumn(title=target, wraps=True) for target in targets),
    )
    return SaidGrid(columns=columns, rows=tuple(rows))


def _cell(tuning: TuningList | None) -> SaidLine:
    if tuning is None:
        return say("not reached", Tone.FAINT)
    total, lost, unknown = len(tuning.rows), len(tuning.lost), len(tuning.unknown)
    cell = say(f"{total} kept", Tone.GOOD)
    if lost:
        words = f"{lost} of {total} lost"
        if lost == total:
            words = f"all {total} lost" if total > 1 else "lost"
        cell = say(words, Tone.BAD if tuning.loss in _GRAVE else Tone.POOR)
    if not unknown:
        return cell
    more = say(f"{unknown} of {total} not known", Tone.FAINT)
    return more if unknown == total else cell + say(", ") + more


def _list_said(tuning: TuningList, pruning: Pruning | None, report: PackageReport) -> list[Block]:
    total = len(tuning.rows)
    how_much = f"all {total}" if tuning.loss is Loss.ALL else f"{len(tuning.lost)} of {total}"
    loss = f"{how_much} configs are lost" if total > 1 else "its only config is lost"
    head = f"{tuning.kernel} ({tuning.file}), {tuning.launch}, on {tuning.target}: {loss}"
    blocks: list[Block] = [say(head, Tone.HEAD)]
    blocks += [say(f"  {words}") for words in _reasons(tuning)]
    if pruning is None:
        return blocks
    if pruning.source is None:
        is_named = ".py@" not in tuning.name  # of a file, `--kernel` would take what is installed
        command = ""
        if not tuning.works and is_named:
            words = structs.replace(
                words_of(tuning.rows[0], report.compiled.rows),
                kernel=tuning.name,
                config="",
                surroundings=report.surroundings,
            )
            command = f"; to look for one: {spell_command('workaround', words)}"
        return [*blocks, say(f"  No pruning function: {pruning.why_none}{command}")]
    blocks.append(
        say(f'  prune_configs_by={{"early_config_prune": ...}} with this keeps {pruning.keeps}:')
    )
    return [*blocks, *(say(f"    {line}".rstrip()) for line in pruning.source.splitlines())]


def _reasons(tuning: TuningList) -> list[str]:
    return [
        f"{len(fate.rows)} {fate.verdict.value}"
        f"{f' ({fate.where})' if fate.where else ''}: {fate.reason}"
        for fate in survivors(tuning.rows).fates
        if not fate.verdict.compiles
    ]


def _counts(report: PackageReport) -> list[str]:
    lists = [tuning for tuning, _ in report.lists]
    losses = Counter(tuning.loss for tuning in lists)
    targets = len({tuning.target for tuning in lists})
    configs = sum(len(tuning.rows) for tuning in lists)
    kernels = len({(tuning.file, tuning.kernel) for tuning in lists})
    words = {
        Loss.ALL: "lose all configs",
        Loss.MOST: "lose most",
        Loss.SOME: "lose some",
        Loss.NONE: "lose none",
        Loss.UNKNOWN: "could not be determined",
    }
    by_loss = ", ".join(f"{losses[loss]} {text}" for loss, text in words.items() if losses[loss])
    count = report.functions
    launches = len(report.reached.launches)
    missing = ""
    if report.reached.left_out:
        more = plural(len(report.reached.left_out), "launch function")
        pinned = "" if report.reached.is_pinned else " (in the release that the repros pin)"
        missing += f" Not compiled: {more} of the same repros; commands for them{pinned} are below."
    if report.compiled.failures:
        missing += f" Not captured: {len(report.compiled.failures):,}, for reasons that are above."
    lines = [
        (
            f"{plural(kernels, 'kernel')}, {plural(len(lists), 'tuning list')} on "
            f"{plural(targets, 'target')}, {plural(configs, 'config')}: {by_loss}. "
            f"Launched by {plural(launches, 'launch function')}.{missing}"
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
    asked = SelectionOptions(
        kernel="",
        sm=tuple(dict.fromkeys(tuning.target for tuning in lists)),
        surroundings=report.surroundings,
    )
    lines += [
        f"  {spell_command('compile', structs.replace(asked, kernel=kernel, launch=launch))}"
        for kernel, launch in report.reached.left_out
    ]
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
        "lists": [_list_document(tuning, pruning) for tuning, pruning in report.lists],
        "functions": {
            "total": count.total,
            "launched": len(count.launched),
            "mentioned": len(count.mentioned),
            "unreached": [f"{file}::{name}" for file, name in count.unreached],
            "unreached_tuned": len(count.tuned),
            "unread_files": count.unread,
        },
        "elsewhere": report.elsewhere,
        "left_out": [
            {"kernel": kernel, "launch": launch} for kernel, launch in report.reached.left_out
        ],
        "cells": report.compiled.rows,
        "notes": report.compiled.notes,
        "failures": report.compiled.failures,
    }


def _list_document(tuning: TuningList, pruning: Pruning | None) -> dict[str, Any]:
    row = tuning.rows[0]
    return {
        "function": tuning.kernel,
        "file": tuning.file,
        "kernel": tuning.name,
        "launch": row.launch,
        "also": tuning.also,
        "target": tuning.target,
        "compiler": row.compiler,
        "compiler_version": row.compiler_version,
        "assembler": row.assembler,
        "ptxas": row.ptxas,
        "loss": tuning.loss.value,
        "configs": len(tuning.rows),
        "works": len(tuning.works),
        "sick": sum(config.verdict == "sick" for config in tuning.works),
        "lost": len(tuning.lost),
        "unknown": len(tuning.unknown),
        "reasons": _reasons(tuning),
        "pruning": pruning.source if pruning else None,
        "why_no_pruning": pruning.why_none if pruning and pruning.source is None else None,
    }


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
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url or requirement.extras or requirement.marker:
        raise UsageError(f"{text[:80]!r}: write NAME==VERSION, for example fla-core==0.6.0")
    name, spec = canonicalize_name(requirement.name), str(requirement.specifier) or LATEST
    repros, errors = list_repros()
    mine = [repro for repro in repros if is_of(repro, name)]
    if not mine and not own_files:
        files(name)  # a package that the index does not have is said to be none
        unread = "".join(f"; {error}" for error in errors[:1])
        names = sorted({repro.source.package for repro in repros if repro.source})
        others = f"repros there are of {', '.join(names)}" if names else "no repro is of a package"
        raise EmptySelectionError(
            f"no repro takes its kernels from {name} (--launch FILE names a file that does); "
            f"{others}{unread}"
        )
    pins = {repro.source.version: repro.source for repro in mine if repro.source}
    version = _version(name, spec, pins)
    own = pins.get(str(version))
    pin = own or pin_of(name, version)
    first: dict[tuple[str, str], Repro] = {}
    further: dict[tuple[str, str], tuple[str, str]] = {}
    for repro in mine:
        # The others of a repro are there to vary it.
        for launch in repro.launches[:1]:
            first.setdefault((repro.group, launch.name), structs.replace(repro, launches=(launch,)))
        for launch in repro.launches[1:]:
            further.setdefault((repro.group, launch.name), (repro.name, launch.name))
    launches = []
    for repro in first.values():
        group = [member for member in mine if member.group == repro.group]
        release = in_release(whole_folder(group, None), version, pin)
        launches.append(structs.replace(release, launches=repro.launches, version=repro.version))
    beside = {pin.package: pin for repro in mine for pin in repro.requires}
    launches += [_of_file(file, pin, tuple(beside.values())) for file in own_files]
    return Reached(
        pin=pin,
        is_pinned=own is not None,
        pinned=tuple(pins),
        launches=tuple(launches),
        left_out=tuple(named for key, named in further.items() if key not in first),
        complaints=tuple(map(str, errors)),
    )


def _version(name: str, spec: str, pins: Mapping[str, Pin]) -> Version:
    exact = exact_version(spec)
    if exact is not None and str(exact) in pins:
        return exact
    versions = releases(name, spec)
    if len(versions) > 1:
        raise UsageError(
            f"{name}{spec}: {len(versions)} releases are meant ({', '.join(map(str, versions))}); "
            f"name one, as {name}=={versions[-1]}"
        )
    return versions[0]


def _of_file(file: str, pin: Pin, beside: tuple[Pin, ...]) -> Repro:
    if not file.endswith(".py"):
        raise UsageError(f"--launch {file}: write the name of a Python file")
    repro = find_kernel(file)
    name = f"{repro.name}@{pin.package}=={pin.version}"
    for module in sorted(imported_modules(repro.file)):
        source = KernelSource(
            package=pin.package, version=pin.version, sha256=pin.sha256, module=module
        )
        packaged = structs.replace(repro, name=name, source=source, requires=beside)
        try:
            import_root(packaged)
        except ConfigurationError:
            continue
        return packaged
    raise UsageError(f"--launch {file}: it imports no module of {pin.package} {pin.version}")


_CELLS_A_WORKER = 4


@dataclass(slots=True, kw_only=True)
class _InPackage(RunPolicy):
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
    launched = {(tuning.file, tuning.kernel) for tuning in lists}
    # The Python files of the package; one that is not text counts as empty.
    texts = {}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder.parent).as_posix()
        try:
            texts[name] = read_source(path)
        except TriageError:
            texts[name] = "\0"
    return PackageReport(
        surroundings=selections[0].surroundings,
        reached=reached,
        compiled=compiled,
        lists=tuple((tuning, pruning_of(tuning)) for tuning in lists),
        functions=count_functions(texts, launched),
        elsewhere=tuple(mine.elsewhere),
    )


def pruning_of(tuning: TuningList) -> Pruning | None:
    """What leaves out the configs that fail; None where nothing fails.

    It follows from the results of the compiled configs; the pruned kernel itself is not compiled.
    """
    from harness.workaround import patch  # noqa: PLC0415 - libcst: 0.3 s

    if tuning.loss in (Loss.NONE, Loss.UNKNOWN):
        return None
    row = tuning.lost[0]
    why = ""
    if not tuning.record.autotuned:
        why = "the kernel has no tuner: its launch gives it one config"
    elif not tuning.works:
        why = "no config is left that a tuner could choose: it needs another one"
    elif row.compiler is None or not front_end(row.compiler).patches:
        why = "no way is known to leave out configs of this language"
    elif row.ptxas_origin != BUNDLED and any(r.stage == Stage.CUBIN.value for r in tuning.lost):
        why = f"{row.tool} fails, which a tuner cannot tell from the bundled one"
    if why:
        return Pruning(source=None, why_none=why)
    try:
        key = patch.find_tuner(read_source(Path(tuning.record.file)), tuning.kernel).key
    except (patch.PatchError, TriageError) as error:
        return Pruning(source=None, why_none=f"{tuning.file}: {error}")
    fails = tuple(Config.of(row.config) for row in tuning.lost)
    works = tuple(Config.of(row.config) for row in (*tuning.works, *tuning.unknown))
    assert row.compiler_version is not None
    guard = patch.make_guard(
        [patch.GuardedRelease(triton=row.compiler_version, fails=fails, works=works)],
        capability=Target.parse(tuning.target).capability,
        arguments=patch.tuned_arguments(tuning.record, key),
    )
    clauses = guard.clauses if guard else ()
    drops = {config for config in (*fails, *works) if any(c.fails(config) for c in clauses)}
    if guard is None or drops != set(fails):
        return Pruning(
            source=None, why_none="nothing tells the configs that fail from those that work"
        )
    source = patch.pruning_source(
        patch.PRUNING, guard, common_reason(tuning.lost), imported=("torch", "triton"), wraps=False
    )
    return Pruning(source=source, keeps=len(works))
