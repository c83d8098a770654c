"""Gathers all that a report of one failure says; what is not stored yet is computed."""

from __future__ import annotations

import contextlib
import platform
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import structs

import harness
from harness.bisect.axes import plan_cells
from harness.bisect.bisect_log import BisectLog, BisectOptions, LogHead, log_path
from harness.bisect.bisect_words import BisectReport
from harness.bisect.bisection import bisect_versions
from harness.bisect.contrast import Contrast
from harness.bisect.neighbours import contrast
from harness.blame.blame_words import BlameReport
from harness.blame.blaming import BlameOptions, find_blame
from harness.blame.grid import Culprit
from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress, work
from harness.cells.spelling import SelectionOptions, execution_words, spell_command, words_of
from harness.diff.between_runs import current_results
from harness.frontends.plan import Selection
from harness.frontends.registry import back_end, front_end, kinds
from harness.frontends.texts.python import as_the_user_sees_it
from harness.io.packages.archives import package_license
from harness.io.processes.hub import run_tool
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import install_ptxas
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition, spell
from harness.judging.followed import Followed, follow, is_followable
from harness.minimize.minimizing import can_be_reduced, compilers_level, minimize
from harness.minimize.reduction.minimization import Minimization, NothingToReduce
from harness.minimize.reduction.work import MinimizeOptions, Watch
from harness.report.dossier import (
    Dossier,
    KnownWorkaround,
    Missing,
    SourceOrigin,
    Upstream,
    options_that_work,
    way_of,
)
from harness.report.paragraphs import REQUIRED
from harness.store.bugs import read_signatures
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.cell import LaunchLabel
from harness.values.errors import (
    CaptureError,
    EmptySelectionError,
    OfflineError,
    StorageError,
    TriageError,
    UsageError,
)
from harness.values.kernel import Config, ConfigFilter, Repro
from harness.values.outcome import Assembly, Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import (
    EMULATOR,
    PTX,
    PTXAS,
    SASS,
    TRITON,
    assembler_name,
    compiler_name,
    takes_cubins,
)
from harness.values.verdict import Stage, VerdictKind
from harness.workaround.result import WorkaroundReport
from harness.workaround.workarounds import WorkaroundOptions, find_workarounds

if TYPE_CHECKING:
    from harness.run.executing import Executed
    from harness.run.raw import RawInputs
    from harness.values.execution import RunRow


async def executed_rows(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    on: str | None = EMULATOR,
    runner: str | None = None,
    inputs: RawInputs | None = None,
) -> tuple[Executed, ...]:
    """Every selected config, executed on the same inputs and kept; on a GPU, in one trip.

    A file of PTX gets these `inputs`, else those of its repro.

    Raises:
        UsageError: it is a file of PTX, or on a GPU it is none, or the inputs do not fit.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: the launch cannot be captured, or run with values.
    """
    from harness.run.executing import keep_execution  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.executors import executor_of  # noqa: PLC0415 - as above
    from harness.run.recorded_launch import small_selection  # noqa: PLC0415 - as above

    if takes_cubins(on) and selection.repro.ptx is None:
        raise UsageError(
            f"{selection.repro.name}: --on {on} reports a file of PTX; `triage show --stage ptx` "
            "prints that of a kernel"
        )
    if not takes_cubins(on):
        selection = small_selection(selection)
    async with work(store, how) as (bench, run):
        cells = (await plan_cells(bench, selection, None)).cells
        executor = executor_of(
            bench, selection, tell, on, runner=runner, inputs=inputs, command=how.command
        )
        rows = await in_parallel(executor.execute(bench, cell) for cell in cells)
        for executed in rows:
            keep_execution(store, run, executed)
    return tuple(rows)


def find_case(
    selection: Selection,
    rows: Sequence[Row],
    *,
    signature: str | None = None,
    condition: Condition | None = None,
) -> Row:
    """The first failing row of those that were selected, or the first that meets the condition.

    Raises:
        EmptySelectionError: no config matches.
        UsageError: nothing that was selected fails.
    """
    selected = [row for row in rows if selection.config.matches(Config.of(row.config))]
    if not selected:
        raise EmptySelectionError("--config matches none of the configs")
    if condition:
        followed = Followed(condition=condition)
        for row in selected:
            if followed.of(row) is VerdictAnswer.SAME:
                return row
        raise UsageError(f"--while holds for none of the {len(selected)} selected cells")
    for row in filter(is_followable, selected):
        if signature in (None, row.signature):
            return row
    suffix = f" with signature {signature}" if signature else ""
    raise UsageError(f"none of the {len(selected)} cells that were selected fails{suffix}")


def check_upstream(
    selection: Selection,
    case: Row,
    upstream: Upstream,
    condition: Condition | None,
    *,
    on: str | None = None,
) -> None:
    """Refuse a report to somebody whose program never ran, or did what it should.

    Raises:
        UsageError: it says to whom to report instead.
    """
    stage = follow(case, condition=condition).stage
    of_cubins = takes_cubins(on)
    if of_cubins and upstream is not Upstream.NVIDIA:
        raise UsageError(
            f"--on {on}: cubins of one PTX that disagree are a matter of ptxas; report it with "
            "--for nvidia"
        )
    maintainers = _maintainers(case)
    if upstream is Upstream.NVIDIA and stage != Stage.CUBIN.value and not of_cubins:
        raise UsageError(
            f"--for nvidia: this is not a failure of ptxas: {case.verdict} in stage {case.stage}, "
            f"before ptxas has the kernel; report it with --for {maintainers}"
        )
    if upstream is Upstream.NVIDIA and case.assembler != PTXAS:
        raise UsageError(
            f"--for nvidia: {selection.repro.name} is assembled by {case.tool}; report it with "
            f"--for {maintainers}"
        )
    if upstream is Upstream.TRITON and case.compiler not in (None, TRITON):
        raise UsageError(
            f"--for triton: {selection.repro.name} is compiled by {case.compiler_name}; report it "
            f"with --for {maintainers}"
        )
    if upstream is Upstream.TRITON and selection.repro.ptx:
        raise UsageError(
            f"--for triton: Triton has no part in it: {selection.repro.name} is PTX, and "
            f"ptxas {case.ptxas} fails on it; report it with --for nvidia"
        )


def check_blamed(d: Dossier, upstream: Upstream) -> None:
    """Refuse a report to somebody whom blame does not name: the kernel is, or the compiler.

    Raises:
        UsageError: it says to whom to report instead.
    """
    if d.blame and d.blame.culprit is Culprit.KERNEL and upstream is not Upstream.PROJECT:
        raise UsageError(
            f"--for {_maintainers(d.case) if upstream is Upstream.COMPILER else upstream.value}: "
            f"{' '.join((d.blame.headline, *d.blame.reasons[:1]))} Report it to the kernel's "
            f"maintainers with --for {Upstream.PROJECT.value}"
        )
    if upstream is Upstream.NVIDIA and d.is_compilers and not d.of_cubins and d.blame:
        raise UsageError(
            f"--for nvidia: {' '.join((d.blame.headline, *d.blame.reasons[:1]))} Report it with "
            f"--for {_maintainers(d.case)}"
        )


def _maintainers(case: Row) -> str:
    """Those of the compiler, where their form is known; else those of the kernel."""
    if case.compiler == TRITON:
        return Upstream.TRITON.value
    has_form = case.compiler in kinds() and front_end(case.compiler).issue_fields
    return case.compiler if has_form and case.compiler else Upstream.PROJECT.value


def only(case: Row, rows: Sequence[Row]) -> ConfigFilter:
    """The filter that means this config and no other."""
    names = dict.fromkeys(name for row in rows for name in row.config)
    words = {name: str(case.config.get(name, "none")).lower() for name in names}
    return ConfigFilter(wanted=tuple((name, (word,)) for name, word in words.items()))


def required_fields(upstream: Upstream, compiler: str | None) -> Sequence[str]:
    """The headings of a report for this upstream; `compiler` is the kind of the kernel's."""
    if upstream is Upstream.COMPILER and compiler is not None:
        return front_end(compiler).issue_fields
    return REQUIRED[upstream]


# What a report states of its case without more work: where it comes from, log, versions, times.


def ptxas_facts(selection: Selection, case: Row) -> tuple[str, str | None]:
    """What the failing ptxas says of its version, and the distribution that carries it.

    Of the one that a compiler bundles, its twin of the package index says so, where there is one.
    """
    if not case.ptxas_flags or case.assembler != PTXAS or case.ptxas in (None, EMULATOR):
        return "", None  # it never ran
    tools = (tool for tool in selection.ptxas if tool and tool.version == case.ptxas)
    try:
        tool = next(tools, None) or install_ptxas(case.ptxas)
    except (UsageError, OfflineError):
        return "", None
    return run_tool([tool.path, "--version"], timeout=30).stdout, tool.origin


def origin_of(repro: Repro) -> SourceOrigin | None:
    """The pinned file that holds the kernel; None where it is the user's own."""
    source = repro.source
    if source is None:
        return None
    pin = source.pin
    return SourceOrigin(
        package=pin.package,
        version=pin.version,
        sha256=pin.sha256,
        module=source.module,
        license=package_license(pin.package, pin.version, pin.sha256),
    )


def log_of(store: Store, record: ResultRecord) -> str:
    """What the compiler that failed printed: ptxas where it was run, else Triton."""
    if record.evidence.get("run"):
        return ""  # what Triton warns of says nothing of what its PTX computes
    evidence = store.get_evidence("assemble", record.evidence.get("assemble", ""))
    if evidence:
        assembly = msgspec.json.decode(evidence.body, type=Assembly)
        return f"{assembly.stderr}{assembly.stdout}"
    evidence = store.get_evidence("lower", record.evidence.get("lower", ""))
    if evidence is None:
        return ""
    lowering = msgspec.json.decode(evidence.body, type=Lowering)
    if lowering.error is None:
        return lowering.log
    return as_the_user_sees_it(lowering.error.traceback) or lowering.error.message


_NO_GPU = {
    None: "none; it is compiled only",
    EMULATOR: "none; its PTX is executed on an emulator",
    SASS: "none; the SASS of its cubins is executed on an emulator",
}


def environment_of(case: Row, executed: RunRow | None = None) -> dict[str, str]:
    """In the manner of collect_env, with the ptxas if it ran; `executed` is what came of a run."""
    title = compiler_name(case.compiler or TRITON)
    language = compiler_name(case.compiler) if case.compiler else "PTX"
    tool = assembler_name(case.assembler)
    own = {f"{tool} version": f"{case.ptxas} ({case.ptxas_origin})"}
    own |= {f"{tool} flags": shlex.join(case.ptxas_flags)} if case.ptxas_flags else {}
    return {
        f"{title} version": case.compiler_version or f"none: the input is {language}",
        **(own if case.ptxas_flags or case.program_sha256 else {}),
        "target": case.target,
        "PyTorch version": metadata.version("torch"),
        "Python version": platform.python_version(),
        "OS": f"{platform.system()} {platform.machine()}, {platform.libc_ver()[0]} "
        f"{platform.libc_ver()[1]}",
        "GPU": (executed.device if executed else None)
        or _NO_GPU[executed.on if executed else None],
        "kernel-triage version": harness.__version__,
    }


T = TypeVar("T")
_GLANCE = 1.0
# Of what is executed, the gate executes all again: a report is to be there within ten minutes.
_REDUCE, _REDUCE_EXECUTED, _SEARCH_EXECUTED = 600.0, 240.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherOptions:
    """What to gather.

    `words` are those that select the case on the command line, `upstream` is whom the report is
    for. With a `condition`, what is reported is that in the place of a failure. `quick` leaves out
    what takes more than seconds, `minimized` is the folder of the reduction: one that is there is
    taken as it is then. With `run`, what is
    reported is what the PTX of the selected configs computes when it is executed; where `on` takes
    cubins, what its cubin computes there. `runner` reaches a GPU.
    """

    words: SelectionOptions
    made_by: str
    upstream: Upstream
    signature: str | None = None
    condition: Condition | None = None
    quick: bool = False
    minimized: Callable[[Row], Path]
    run: bool = False
    on: str | None = None
    runner: str | None = None


async def gather(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: GatherOptions,
    tell: Callable[[str], None],
) -> Dossier:
    """Everything of the first config that fails; `tell` hears what is being computed.

    Raises:
        UsageError: nothing that was selected fails.
        TriageError: nothing could be compiled at all.
    """
    tell("every config")
    every = selection if options.run else structs.replace(selection, config=ConfigFilter())
    executed: tuple[Executed, ...] = ()
    if options.run:
        executed = await executed_rows(
            selection, store, how, tell, options.on, runner=options.runner
        )
        rows = tuple(result.evaluated.row for result in executed)
    else:
        rows = (await compile_selections([every], store, how, RunProgress())).rows
    signature, condition = options.signature, options.condition
    case = find_case(selection, rows, signature=signature, condition=condition)
    check_upstream(selection, case, options.upstream, condition, on=options.on)
    own = tuple(row for row in rows if (row.kernel, row.launch) == (case.kernel, case.launch))
    if len(own) < len(rows):
        # A report is of one launch, and its commands name it.
        rows, every = own, every.of_launch(case.kernel, case.launch)
        selection = selection.of_launch(case.kernel, case.launch)
        label = LaunchLabel.parse(case.launch)
        words = structs.replace(
            options.words, kernel=case.kernel, launch=f"{label.name}#{label.number}"
        )
        options = replace(options, words=words)
        tell(f"followed: launch {case.launch} of {case.kernel}")
    shown = next((result.row for result in executed if result.evaluated.row is case), None)
    work = _Gathering(
        store=store,
        how=how,
        options=options,
        tell=tell,
        every=every,
        mine=structs.replace(selection, config=only(case, rows)),
        case=case,
    )
    return await work.dossier(rows, shown)


@dataclass(slots=True, kw_only=True)
class _Gathering:
    """`mine` is the failing config, `case` its row; `every` are all configs of the kernel."""

    store: Store
    how: CompileOptions
    options: GatherOptions
    tell: Callable[[str], None]
    every: Selection
    mine: Selection
    case: Row
    missing: list[Missing] = field(default_factory=list)

    async def piece(
        self, name: str, command: str, work: Callable[[], Awaitable[T]], *, slow: bool = True
    ) -> T | None:
        """Compute one piece of the report, or note that it is missing, why, and how to get it."""
        condition = self.options.condition
        # A workaround is for whatever is wrong with the kernel.
        options = ["--while", spell(condition)] if condition and command != "workaround" else []
        options += execution_words(run=self.options.run, on=self.options.on)
        verb, *more = command.split()
        line = spell_command(verb, self.options.words, *more, *options)
        why = "left out by --quick"
        if not (slow and self.options.quick):
            self.tell(name)
            try:
                return await work()
            except StorageError:
                raise
            except TriageError as error:
                why = str(error)
        self.missing.append(Missing(what=name, why=why, command=line))
        return None

    async def dossier(self, rows: tuple[Row, ...], shown: RunRow | None) -> Dossier:
        """All pieces; `shown` is what the case computed, where that is reported."""
        case, repro = self.case, self.mine.repro
        dossier = self.begin(rows, shown)
        blamed = await self.piece("whose fault it is", "blame", self.blame)
        if blamed:
            dossier = replace(dossier, blame=blamed.blame, tried=blamed.executed)
        check_blamed(dossier, self.options.upstream)
        dossier = await self.histories(dossier)
        if blamed and dossier.along_ptxas and not self.options.run:
            # It counts versions: those that the history assembled, too.
            dossier = replace(dossier, blame=(await self.blame()).blame)
        workarounds = minimized = None
        if not repro.ptx:
            workarounds = await self.piece("workarounds", "workaround", self.workarounds)
        elsewhere = await self.elsewhere(dossier)
        ways = self.ways(workarounds, blamed)
        if can_be_reduced(front_end(repro.front_end), self.mine.targets[0]):
            minimized = await self.piece(
                "the smallest input",
                "minimize",
                lambda: self.minimize(dossier),
                slow=not _is_begun(self.reduction_at(dossier)[1]),
            )
        patch = workarounds.patch if workarounds else None
        baseline = workarounds.baseline if workarounds else None
        return replace(
            dossier,
            elsewhere=elsewhere,
            ways=ways,
            ways_from=case if self.options.run else baseline,
            patch=patch.diff if patch and patch.is_proved else None,
            minimized=minimized,
            missing=tuple(self.missing),
        )

    def begin(self, rows: tuple[Row, ...], shown: RunRow | None) -> Dossier:
        """What is known without more work."""
        case, options, repro = self.case, self.options, self.mine.repro
        records = self.store.find_cells(case.cell)
        record = next(record for record in records if record.cell == case.cell)
        banner, package = ptxas_facts(self.mine, case)
        on = execution_words(run=options.run, on=options.on)[1:]
        return Dossier(
            case=case,
            signature=self.store.database.run(read_signatures).get(case.signature or ""),
            function=case.kernel.rpartition("::")[2] if repro.is_several else repro.kernel or "",
            is_ptx=repro.ptx is not None,
            summary=repro.summary,
            condition=options.condition,
            origin=origin_of(repro),
            issue=repro.issue,
            shown_by=spell_command("run" if options.run else "compile", options.words, *on),
            made_by=options.made_by,
            rows=rows,
            log=log_of(self.store, record),
            banner=banner,
            ptxas_package=package,
            environment=environment_of(case, shown),
            executed=shown,
        )

    async def histories(self, dossier: Dossier) -> Dossier:
        """The dossier with what happens along ptxas, its flags, other targets, and Triton."""
        assembler, kind = self.case.assembler, self.mine.repro.front_end
        if dossier.in_ptxas:
            along_ptxas = await self.piece(
                f"the history along {assembler_name(assembler)}",
                f"bisect --axis {assembler if assembler == PTXAS else 'assembler'}",
                lambda: self.bisect(assembler),
            )
            flags = targets = None
            if assembler == PTXAS and not dossier.of_cubins:
                flags = await self.piece(
                    "ptxas' flags, one at a time",
                    "bisect --axis flag",
                    lambda: self.contrast("flag"),
                )
            if not dossier.of_cubins:
                targets = await self.piece(
                    "other targets", "bisect --axis target", lambda: self.contrast("target")
                )
            dossier = replace(dossier, along_ptxas=along_ptxas, flags=flags, targets=targets)
        # Poor code may come from either compiler.
        if not dossier.is_ptx and (dossier.kind is VerdictKind.SICK or not dossier.in_ptxas):
            along_triton = await self.piece(
                f"the history along {compiler_name(kind)}",
                f"bisect --axis {kind if kind == TRITON else 'compiler'}",
                lambda: self.bisect(kind),
            )
            dossier = replace(dossier, along_triton=along_triton)
        return dossier

    async def bisect(self, axis: str) -> BisectReport:
        """The history along an axis, with a log of its own."""
        case, condition = self.case, self.options.condition
        # The case's own version, where the axis has it: no graver failure of another one is meant.
        if axis != case.assembler:
            own, available = case.compiler_version, front_end(axis).available()
        else:
            back = back_end(case.compiler or PTX, Target.parse(case.target))
            own, available = case.ptxas, back.available()
        options = BisectOptions(
            axis=axis,
            bad=own if own in [str(version) for version in available] else None,
            signature=self.options.signature,
            condition=spell(condition) if condition else None,
            repeat=1 if self.options.run else 3,
            # The gate assembles with each version anyway.
            sweep=axis == case.assembler and not self.options.run,
            run=self.options.run,
            on=self.options.on,
            runner=self.options.runner,
        )
        mine = self.mine
        if options.run:
            from harness.run.executors import executed_selection  # noqa: PLC0415 - numpy: 0.2 s

            mine = executed_selection(mine, options.on)
        words = words_of(case, current_results(self.store, case.kernel))
        head = LogHead(axis=axis, selection=msgspec.to_builtins(words), options=options)
        log = BisectLog.begin(log_path(f"report-{case.short}-{axis}"), head)
        return await bisect_versions(mine, self.store, self.how, options, _silent, log)

    async def elsewhere(self, dossier: Dossier) -> dict[str, tuple[Row, ...]]:
        """Each config that fails, at both sides of where it began and ended, and on the newest."""
        report = dossier.history
        if report is None or len(dossier.rows) == 1 or self.options.run:
            return {}
        finding, every = report.finding, self.every
        versions = [report.version(finding.regression.before)] if finding.regression else []
        versions += [report.version(finding.fix.after)] if finding.fix else []
        rows = {}
        for version in dict.fromkeys((*versions, *filter(None, (dossier.newest,)))):
            compiler = front_end(every.repro.front_end)
            if dossier.history_axis == self.case.assembler:
                ptxas = compiler.back_end(every.targets[0]).install(version)
                there = structs.replace(every, ptxas=(ptxas,))
            else:
                there = structs.replace(every, compilers=(compiler.install(version),))
            failing = [
                structs.replace(there, config=only(row, dossier.rows)) for row in dossier.failing
            ]
            with contextlib.suppress(CaptureError, EmptySelectionError):
                self.tell(f"the configs that fail, with {dossier.tool} {version}")
                compiled = await compile_selections(failing, self.store, self.how, RunProgress())
                rows[version] = compiled.rows
        return rows

    async def contrast(self, axis: str) -> Contrast:
        """What neighbours along an axis do."""
        signature, condition = self.options.signature, self.options.condition
        return await contrast(
            self.mine, self.store, self.how, axis, signature, _silent, condition=condition
        )

    async def blame(self) -> BlameReport:
        """By compiling, or by executing where that is what is reported."""
        condition = self.options.condition
        signature = None if condition else self.case.signature
        options = BlameOptions(signature=signature, condition=condition)
        find = find_blame
        if takes_cubins(on := self.options.on):
            from harness.blame.executed_blame import find_measured_blame  # noqa: PLC0415 - as above

            find = partial(find_measured_blame, on=on, runner=self.options.runner)
        elif self.options.run:
            from harness.blame.executed_blame import find_run_blame as find  # noqa: PLC0415 - as above
        return await find(self.mine, self.store, self.how, options, _silent)

    def reduction_at(self, dossier: Dossier) -> tuple[str, Path]:
        """The level of the reduction, and its folder."""
        folder = self.options.minimized(self.case)
        is_of_ptx = (folder / "original.ptx").exists()
        # What blame lays to the compiler is reduced in its own language; --quick asks no blame.
        is_source = dossier.is_compilers or (self.options.quick and not is_of_ptx)
        level = compilers_level(self.mine, self.case) if is_source else None
        if level and is_of_ptx:
            folder = folder.with_name(f"{folder.name}-{level}")
        return level or "auto", folder

    async def minimize(self, dossier: Dossier) -> Minimization:
        """The reduction in its folder, gone on with where there is one."""
        mine, inputs, options = self.mine, None, self.options
        if takes_cubins(options.on):
            from harness.run.raw import inputs_of  # noqa: PLC0415 - numpy: 0.1 s

            inputs = inputs_of(mine.repro)
            # The ptxas beside the case's that ends the failure holds it in place.
            report = dossier.along_ptxas
            if report and (fix := report.finding.fix):
                assembler = front_end(mine.repro.front_end).back_end(mine.targets[0])
                guard = assembler.install(report.version(fix.after))
                mine = structs.replace(mine, ptxas=(*mine.ptxas, guard))
        level, folder = self.reduction_at(dossier)
        resume, seconds = _is_begun(folder), _REDUCE
        # Each step of one that is executed takes seconds: what was reduced before stays as it is.
        if options.run or options.quick:
            seconds = _GLANCE if resume else _REDUCE_EXECUTED
        reduction = await minimize(
            mine,
            self.store,
            self.how,
            MinimizeOptions(
                folder_of=lambda _: folder,
                resume=resume,
                condition=options.condition,
                level="auto" if options.run else level,
                seconds=seconds,
                run=options.run,
                inputs=inputs,
                on=options.on,
                runner=options.runner,
            ),
            Watch(tell=self.tell),
        )
        if isinstance(reduction, NothingToReduce):
            raise UsageError(reduction.reason)
        return reduction

    async def workarounds(self) -> WorkaroundReport:
        """What helps, with any of the configs."""
        options = WorkaroundOptions(at_most=5)
        if self.options.run:
            options = replace(options, on=EMULATOR, budget=_SEARCH_EXECUTED)
        return await find_workarounds(self.every, self.store, self.how, options, lambda _: None)

    def ways(
        self, report: WorkaroundReport | None, blamed: BlameReport | None
    ) -> tuple[KnownWorkaround, ...] | None:
        """What helps; of what is executed also single options with which blame saw it right."""
        ways = tuple(map(way_of, report.candidates)) if report else ()
        if not ways and blamed:
            ways = tuple(options_that_work(self.case, blamed.executed))
        if report and not ways and report.is_time_up:
            why = "the search was not at its end when its time was up"
            words = spell_command("workaround", self.options.words)
            self.missing.append(Missing(what="workarounds", why=why, command=words))
            return None
        return ways if report or ways else None


def _is_begun(reduction: Path) -> bool:
    """Whether the folder has a reduction, which is gone on with."""
    return (reduction / "log.jsonl").exists()


def _silent(_label: str, _said: str) -> None:
    """A report shows what was found, not each step."""
