"""Gathers all that a report of one failure says; what is not stored yet is computed."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import re
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
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
from harness.blame.grid import Culprit, Varied
from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress, work
from harness.cells.selection import select
from harness.cells.spelling import (
    SelectionOptions,
    execution_words,
    inputs_words,
    spell_command,
    words_of,
)
from harness.diff.between_runs import current_results
from harness.frontends.plan import Selection
from harness.frontends.registry import back_end, front_end, kinds
from harness.frontends.texts.python import as_the_user_sees_it
from harness.io.files.reading import read_regular
from harness.io.files.writing import scratch_disk
from harness.io.packages.archives import package_license
from harness.io.processes.hub import run_tool
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import install_ptxas
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition, spell
from harness.judging.followed import FollowedFailure, follow, is_followable
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
    tried_levels,
    way_of,
)
from harness.report.paragraphs import REQUIRED, WARP_SPECIALIZE
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
from harness.values.kernel import (
    EMULATED,
    LAUNCH_INPUTS,
    Config,
    ConfigFilter,
    Pin,
    PtxInputs,
    Repro,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is reported: the first failure of `selection`, and by what all of it is found out.

    `words` are those that select it on the command line; `upstream` is whom the report is for, None
    where that is whom the evidence accuses. With a `condition`, what is reported is that in the
    place of a failure. `quick` leaves out what takes more than seconds, `minimized` is the folder
    of the reduction: one that is there is taken as it is then. With `run`, what is reported is what
    the PTX of the selected configs computes when it is executed; where `on` takes cubins, what its
    cubin computes there. `runner` reaches a GPU. `tell` hears what is being computed. Of a file of
    PTX everything is said of what it is `reduced` to, which is selected then; `unreduced` says why
    it is not.
    """

    selection: Selection
    store: Store
    how: CompileOptions
    tell: Callable[[str], None]
    words: SelectionOptions
    upstream: Upstream | None = None
    signature: str | None = None
    condition: Condition | None = None
    quick: bool = False
    minimized: Callable[[Row], Path]
    run: bool = False
    on: str | None = None
    runner: str | None = None
    reduced: Minimization | None = None
    unreduced: Missing | None = None

    def command(self, verb: str, *more: str) -> str:
        """A command line about what is reported."""
        # A workaround is for whatever is wrong with the kernel.
        follows = self.condition is not None and verb != "workaround"
        words = ["--while", spell(self.condition)] if self.condition and follows else []
        words += execution_words(run=self.run, on=self.on)
        inputs = self.selection.repro.inputs
        if inputs and self.run and verb in ("report", "minimize", "run"):
            words += inputs_words(inputs)
        return spell_command(verb, self.words, *more, *words)


async def executed_rows(case: Case, inputs: RawInputs | None = None) -> tuple[Executed, ...]:
    """Every selected config, executed on the same inputs and kept; on a GPU, in one batch.

    A file of PTX gets these `inputs`, else those of its repro.

    Raises:
        UsageError: it is a file of PTX, or on a GPU it is none, or the inputs do not fit.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: the launch cannot be captured, or run with values.
    """
    from harness.run.executing import keep_execution  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.executors import executor_of  # noqa: PLC0415 - as above
    from harness.run.launch_sources import small_selection  # noqa: PLC0415 - as above

    selection, on = case.selection, case.on
    if takes_cubins(on) and selection.repro.ptx is None:
        raise UsageError(
            f"{selection.repro.name}: --on {on} reports a file of PTX; `triage show --stage ptx` "
            "prints that of a kernel"
        )
    if not takes_cubins(on):
        selection = small_selection(selection)
    async with work(case.store, case.how) as (bench, run):
        cells = (await plan_cells(bench, selection, None)).cells
        executor = executor_of(
            bench,
            selection,
            case.tell,
            on,
            runner=case.runner,
            inputs=inputs,
            command=case.how.command,
        )
        rows = await in_parallel(executor.execute(bench, cell) for cell in cells)
        for executed in rows:
            keep_execution(case.store, run, executed)
    return tuple(rows)


def find_case(case: Case, rows: Sequence[Row]) -> Row:
    """The first failing row of those that were selected, or the first that meets the condition.

    Raises:
        EmptySelectionError: no config matches.
        UsageError: nothing that was selected fails.
    """
    wanted = case.selection.config
    selected = [row for row in rows if wanted.matches(Config.of(row.config))]
    if not selected:
        raise EmptySelectionError("--config matches none of the configs")
    if case.condition:
        followed = FollowedFailure(condition=case.condition)
        for row in selected:
            if followed.of(row) is VerdictAnswer.SAME:
                return row
        raise UsageError(f"--while holds for none of the {len(selected)} selected cells")
    for row in filter(is_followable, selected):
        if case.signature in (None, row.signature):
            return row
    suffix = f" with signature {case.signature}" if case.signature else ""
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
    maintainers = _maintainers(case).spelled(case.compiler)
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
            f"--for {upstream.spelled(d.case.compiler)}: "
            f"{' '.join((d.blame.headline, *d.blame.reasons[:1]))} Report it to the kernel's "
            f"maintainers with --for {Upstream.PROJECT.value}"
        )
    if upstream is Upstream.NVIDIA and d.is_compilers and not d.of_cubins and d.blame:
        raise UsageError(
            f"--for nvidia: {' '.join((d.blame.headline, *d.blame.reasons[:1]))} Report it with "
            f"--for {_maintainers(d.case).spelled(d.case.compiler)}"
        )


def accused(d: Dossier) -> Upstream:
    """Whom the evidence accuses: blame does, else the crash of a compiler.

    Raises:
        UsageError: the evidence does not accuse one party.
    """
    culprit, maintainers = d.blame.culprit if d.blame else None, _maintainers(d.case)
    is_crash = d.blame is None and d.followed.is_crash
    if culprit is Culprit.KERNEL:
        return Upstream.PROJECT
    if culprit is Culprit.PTXAS or (is_crash and not d.followed.before_ptxas):
        return Upstream.NVIDIA if d.case.assembler == PTXAS else maintainers
    if culprit is Culprit.TRITON or is_crash:
        return maintainers
    why = d.blame.headline if d.blame else f"{d.case.verdict} does not say who is to blame."
    forms = dict.fromkeys((maintainers, Upstream.NVIDIA, Upstream.PYTORCH, Upstream.PROJECT))
    names = ", ".join(form.spelled(d.case.compiler) for form in forms)
    raise UsageError(f"{why} Name with --for whom the report is for: {names}")


def _maintainers(case: Row) -> Upstream:
    """Those of the compiler, where their form is known; else those of the kernel."""
    if case.compiler == TRITON:
        return Upstream.TRITON
    has_form = case.compiler in kinds() and front_end(case.compiler).issue_fields
    return Upstream.COMPILER if has_form else Upstream.PROJECT


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
    if repro.source is None:
        return None
    source = structs.asdict(repro.source)
    pin = {name: source[name] for name in Pin.__struct_fields__}
    return SourceOrigin(**source, license=package_license(**pin))


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
        "date": datetime.now(UTC).date().isoformat(),
    }


T = TypeVar("T")
_GLANCE = 1.0
# Of what is executed, the gate executes all again: a report is to be there within ten minutes.
_REDUCE, _REDUCE_EXECUTED, _SEARCH_EXECUTED = 600.0, 240.0, 90.0


async def gather(case: Case) -> tuple[Dossier, Upstream]:
    """Everything of the first config that fails, and whom it is reported to.

    Raises:
        UsageError: nothing that was selected fails, or the evidence does not say whom to tell.
        TriageError: nothing could be compiled at all.
    """
    case.tell("every config")
    selection = case.selection
    every = selection if case.run else structs.replace(selection, config=ConfigFilter())
    executed: tuple[Executed, ...] = ()
    if case.run:
        executed = await executed_rows(case)
        rows = tuple(result.evaluated.row for result in executed)
    else:
        rows = (await compile_selections([every], case.store, case.how, RunProgress())).rows
    row = find_case(case, rows)
    if case.upstream:
        check_upstream(selection, row, case.upstream, case.condition, on=case.on)
    own = tuple(each for each in rows if (each.kernel, each.launch) == (row.kernel, row.launch))
    if len(own) < len(rows):
        # A report is of one launch, and its commands name it.
        rows, every = own, every.of_launch(row.kernel, row.launch)
        selection = selection.of_launch(row.kernel, row.launch)
        label = LaunchLabel.parse(row.launch)
        launch = f"{label.name}#{label.number}"
        words = structs.replace(case.words, kernel=row.kernel, launch=launch)
        case = replace(case, words=words)
        case.tell(f"followed: launch {row.launch} of {row.kernel}")
    mine = structs.replace(selection, config=only(row, rows))
    shown = next((result.row for result in executed if result.evaluated.row is row), None)
    work = _Gathering(asked=replace(case, selection=mine), every=every, case=row)
    if case.unreduced:
        work.missing.append(case.unreduced)
    return await work.dossier(rows, shown)


def _is_alone(case: Case, executed: Sequence[Executed]) -> bool:
    """Whether cubins were executed, and every one left something else than the emulated PTX."""
    is_told = any(is_followable(each.evaluated.row) for each in executed)
    differs = [any(output.differing for output in each.row.outputs) for each in executed]
    return takes_cubins(case.on) and not is_told and bool(differs) and all(differs)


async def reduce_first(case: Case, opened: Callable[[Path], Store]) -> Case:
    """The case of what a file of PTX is reduced to, with results of its own; else the same case.

    `opened` opens the store in a folder.

    Raises:
        As `gather`.
    """
    if case.selection.repro.ptx is None:
        return case
    if case.run:
        executed = await executed_rows(case)
        if _is_alone(case, executed):
            case.tell("no cubin agrees with the emulated PTX: the emulator is taken to be right")
            repro = case.selection.repro
            given = repro.inputs or PtxInputs()
            given = structs.replace(given, expect=(*given.expect, EMULATED))
            repro = structs.replace(repro, inputs=given)
            case = replace(case, selection=structs.replace(case.selection, repro=repro))
            executed = await executed_rows(case)
        rows = tuple(each.evaluated.row for each in executed)
    else:
        rows = (
            await compile_selections([case.selection], case.store, case.how, RunProgress())
        ).rows
    row = find_case(case, rows)
    if case.upstream:
        check_upstream(case.selection, row, case.upstream, case.condition, on=case.on)
    work = _Gathering(asked=case, every=case.selection, case=row)
    dossier = work.begin((row,), None)
    _, folder = work.reduction_at(dossier)
    reduced = await work.piece(
        "the smallest input", "minimize", lambda: work.minimize(dossier), slow=not _is_begun(folder)
    )
    if reduced is None:
        return replace(case, unreduced=work.missing[0])
    words = structs.replace(case.words, kernel=str(folder / reduced.shown_file), launch="")
    selection = select(words)
    inputs = PtxInputs(launch=LAUNCH_INPUTS, folder=str(folder)) if case.run else None
    notes = case.selection.repro.report
    repro = structs.replace(selection.repro, inputs=inputs, report=notes)
    selection = structs.replace(selection, repro=repro, formal=case.selection.formal)
    return replace(
        case, selection=selection, words=words, store=opened(folder / "results"), reduced=reduced
    )


@dataclass(slots=True, kw_only=True)
class _Gathering:
    """`asked` selects the failing config, `case` is its row; `every` are all of the kernel."""

    asked: Case
    every: Selection
    case: Row
    missing: list[Missing] = field(default_factory=list)

    async def piece(
        self, name: str, command: str, work: Callable[[], Awaitable[T]], *, slow: bool = True
    ) -> T | None:
        """Compute one piece of the report, or note that it is missing, why, and how to get it."""
        why = "left out by --quick"
        if not (slow and self.asked.quick):
            self.asked.tell(name)
            try:
                return await work()
            except StorageError:
                raise
            except TriageError as error:
                why = str(error)
        line = self.asked.command(*command.split())
        self.missing.append(Missing(what=name, why=why, command=line))
        return None

    async def dossier(
        self, rows: tuple[Row, ...], shown: RunRow | None
    ) -> tuple[Dossier, Upstream]:
        """All pieces; `shown` is what the case computed, where that is reported."""
        case, asked, repro = self.case, self.asked, self.asked.selection.repro
        dossier = self.begin(rows, shown)
        for line in filed_alike(case.signature):
            asked.tell(line)
        blamed = await self.piece("whose fault it is", "blame", self.blame)
        if blamed:
            dossier = replace(
                dossier,
                blame=blamed.blame,
                tried=blamed.executed,
                levels={
                    trial.label: trial.after
                    for trial in blamed.grid.varying(Varied.LEVEL)
                    if trial.assembler == case.ptxas
                },
            )
        upstream = asked.upstream or accused(dossier)
        whom = upstream.spelled(case.compiler)
        check_blamed(dossier, upstream)
        if asked.upstream is None:
            asked.tell(f"for {whom}: {dossier.blame.headline if dossier.blame else case.reason}")
        if dossier.same_as:
            asked.tell(f"{dossier.same_as} is known to be the same: a comment for it, no issue")
        # Where the file lies on this machine is private; the bundle has what it is reduced to.
        public = structs.replace(asked.words, kernel=Path(asked.words.kernel).name)
        made_by = replace(asked, words=public).command("report", "--for", whom)
        dossier = await self.histories(dossier)
        if blamed and dossier.along_ptxas and not asked.run:
            # It counts versions: those that the history assembled, too.
            dossier = replace(dossier, blame=(await self.blame()).blame)
        workarounds = minimized = None
        # Who mends a compiler that dies needs no way around it.
        if not repro.ptx and (upstream is Upstream.PROJECT or not dossier.followed.is_crash):
            workarounds = await self.piece("workarounds", "workaround", self.workarounds)
        elsewhere = await self.elsewhere(dossier)
        ways = self.ways(workarounds, blamed)
        if repro.ptx:
            minimized = asked.reduced
        elif can_be_reduced(front_end(repro.front_end), asked.selection.targets[0]):
            is_there = _is_begun(self.reduction_at(dossier)[1]) or self.is_as_given
            minimized = await self.piece(
                "the smallest input", "minimize", lambda: self.minimize(dossier), slow=not is_there
            )
        patch = workarounds.patch if workarounds else None
        baseline = workarounds.baseline if workarounds else None
        dossier = replace(
            dossier,
            made_by=made_by,
            elsewhere=elsewhere,
            ways=ways,
            ways_from=case if asked.run else baseline,
            patch=patch.diff if patch and patch.is_proved else None,
            minimized=minimized,
            missing=tuple(self.missing),
        )
        if repro.ptx and minimized:
            dossier = await asyncio.to_thread(self.seen, dossier, minimized)
        elif minimized and not asked.run:
            dossier = replace(dossier, near=await self.near(minimized))
        return dossier, upstream

    async def near(self, reduced: Minimization) -> str:
        """The smallest program without warp specialization, where that compiles; else empty."""
        asked, case = self.asked, self.case
        text = WARP_SPECIALIZE.sub("", reduced.left.text)
        if reduced.suffix != ".py" or text == reduced.left.text:
            return ""
        with scratch_disk(), tempfile.TemporaryDirectory(prefix="triage-near-") as place:
            file = Path(place) / "near.py"
            file.write_text(text)
            version = f"{case.compiler}=={case.compiler_version}"
            words = SelectionOptions(kernel=str(file), sm=[case.target], compiler=[version])
            # It is no kernel of the user's: nothing of it stays in the user's results.
            with Store.open(Path(place) / "results") as store:
                found = await compile_selections([select(words)], store, asked.how, RunProgress())
        return text if all(row.verdict.compiles for row in found.rows) else ""

    def seen(self, dossier: Dossier, reduced: Minimization) -> Dossier:
        """With what a reader wants to see of a small program."""
        from harness.report.shown import given_words, listed, refused_form  # noqa: PLC0415 - as above

        asked, text, files = self.asked, reduced.left.text, reduced.left.files
        [ptxas, *_], nvdisasm = asked.selection.ptxas, asked.selection.nvdisasm
        if ptxas is None or self.case.assembler != PTXAS:
            return dossier
        flags = [flag for flag in self.case.ptxas_flags if not re.fullmatch(r"-O\d", flag)]
        limits = asked.how.limits
        if not dossier.of_cubins:
            return replace(dossier, invalid=refused_form(text, ptxas.path, flags, limits))
        fails, works = tried_levels(dossier)
        listings = {}
        for level, words in [*((level, "right") for level in works[:1]), (fails[-1], "wrong")]:
            code = listed(text, ptxas.path, [*flags, level], nvdisasm, limits) if nvdisasm else ""
            if code:
                listings[f"ptxas {self.case.ptxas} {level} ({words})"] = code
        outputs = [o for o in dossier.executed.outputs if o.differing] if dossier.executed else []
        shown = dossier.shown_run[1].outputs if dossier.shown_run else ()
        where = next((output.where for output in shown if output.differing), None) or ""
        names = [output.name for output in (*outputs, *shown)]
        return replace(
            dossier,
            listings=listings,
            given=given_words(text, files, names, where) if files else "",
        )

    def begin(self, rows: tuple[Row, ...], shown: RunRow | None) -> Dossier:
        """What is known without more work."""
        case, asked, repro = self.case, self.asked, self.asked.selection.repro
        records = asked.store.find_cells(case.cell)
        record = next(record for record in records if record.cell == case.cell)
        banner, package = ptxas_facts(asked.selection, case)
        on = execution_words(run=asked.run, on=asked.on)[1:]
        return Dossier(
            case=case,
            signature=asked.store.database.run(read_signatures).get(case.signature or ""),
            function=case.kernel.rpartition("::")[2] if repro.is_several else repro.kernel or "",
            is_ptx=repro.ptx is not None,
            summary=repro.summary,
            condition=asked.condition,
            origin=origin_of(repro),
            issue=repro.issue,
            notes=repro.report,
            shown_by=spell_command("run" if asked.run else "compile", asked.words, *on),
            rows=rows,
            log=log_of(asked.store, record),
            banner=banner,
            ptxas_package=package,
            environment=environment_of(case, shown),
            executed=shown,
        )

    async def histories(self, dossier: Dossier) -> Dossier:
        """The dossier with what happens along ptxas, its flags, other targets, and Triton."""
        asked, assembler = self.asked, self.case.assembler
        kind = asked.selection.repro.front_end
        if dossier.in_ptxas:
            along_ptxas = await self.piece(
                f"the history along {assembler_name(assembler)}",
                f"bisect --axis {assembler if assembler == PTXAS else 'assembler'}",
                lambda: self.bisect(assembler),
            )
            flags = None
            if assembler == PTXAS and not dossier.of_cubins:
                flags = await self.piece(
                    "ptxas' flags, one at a time",
                    "bisect --axis flag",
                    lambda: self.contrast("flag"),
                )
            dossier = replace(dossier, along_ptxas=along_ptxas, flags=flags)
        # A GPU is one target.
        if not asked.run or asked.on == SASS:
            targets = await self.piece(
                "other targets", "bisect --axis target", lambda: self.contrast("target")
            )
            dossier = replace(dossier, targets=targets)
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
        case, asked, mine = self.case, self.asked, self.asked.selection
        # The case's own version, where the axis has it: no graver failure of another one is meant.
        if axis != case.assembler:
            own, available = case.compiler_version, front_end(axis).available()
        else:
            back = back_end(case.compiler or PTX, Target.parse(case.target))
            own, available = case.ptxas, back.available()
        options = BisectOptions(
            axis=axis,
            bad=own if own in [str(version) for version in available] else None,
            signature=asked.signature,
            condition=spell(asked.condition) if asked.condition else None,
            repeat=1 if asked.run else 3,
            # The gate assembles with each version anyway.
            sweep=axis == case.assembler and not asked.run,
            run=asked.run,
            on=asked.on,
            runner=asked.runner,
        )
        if asked.run:
            from harness.run.launch_sources import small_selection  # noqa: PLC0415 - numpy: 0.2 s

            mine = small_selection(mine, asked.on)
        words = words_of(case, current_results(asked.store, case.kernel))
        head = LogHead(axis=axis, selection=msgspec.to_builtins(words), options=options)
        log = BisectLog.begin(log_path(f"report-{case.short}-{axis}"), head)
        return await bisect_versions(mine, asked.store, asked.how, options, _silent, log)

    async def elsewhere(self, dossier: Dossier) -> dict[str, tuple[Row, ...]]:
        """Each config that fails, at both sides of where it began and ended, and on the newest."""
        report, asked = dossier.history, self.asked
        if report is None or len(dossier.rows) == 1 or asked.run:
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
                asked.tell(f"the configs that fail, with {dossier.tool} {version}")
                compiled = await compile_selections(failing, asked.store, asked.how, RunProgress())
                rows[version] = compiled.rows
        return rows

    async def contrast(self, axis: str) -> Contrast:
        """What neighbours along an axis do."""
        asked = self.asked
        return await contrast(
            asked.selection,
            asked.store,
            asked.how,
            axis,
            asked.signature,
            _silent,
            condition=asked.condition,
            run=asked.run,
            on=asked.on,
        )

    async def blame(self) -> BlameReport:
        """By compiling, or by executing where that is what is reported."""
        asked = self.asked
        signature = None if asked.condition else self.case.signature
        options = BlameOptions(signature=signature, condition=asked.condition)
        find = find_blame
        if takes_cubins(asked.on):
            from harness.blame.executed_blame import find_measured_blame  # noqa: PLC0415 - as above

            find = partial(find_measured_blame, on=asked.on, runner=asked.runner)
        elif asked.run:
            from harness.blame.executed_blame import find_run_blame as find  # noqa: PLC0415 - as above
        return await find(asked.selection, asked.store, asked.how, options, _silent)

    def reduction_at(self, dossier: Dossier) -> tuple[str, Path]:
        """The level of the reduction, and its folder."""
        folder = self.asked.minimized(self.case)
        if self.is_as_given and self.asked.selection.repro.ptx:
            # What was reduced before is another program.
            folder = folder.with_name(f"{folder.name}-as-given")
        is_of_ptx = (folder / "original.ptx").exists()
        # What blame lays to the compiler is reduced in its own language; --quick asks no blame.
        is_source = dossier.is_compilers or self.is_as_given
        is_source = is_source or (self.asked.quick and not is_of_ptx)
        level = compilers_level(self.asked.selection, self.case) if is_source else None
        if level and is_of_ptx:
            folder = folder.with_name(f"{folder.name}-{level}")
        return level or "auto", folder

    @property
    def is_as_given(self) -> bool:
        """Whether its author says that it is as small as a reader wants it."""
        notes = self.asked.selection.repro.report
        return notes is not None and notes.as_given

    async def minimize(self, dossier: Dossier) -> Minimization:
        """The reduction in its folder, gone on with where there is one."""
        asked, mine, inputs = self.asked, self.asked.selection, None
        if takes_cubins(asked.on):
            from harness.run.raw import inputs_of  # noqa: PLC0415 - numpy: 0.1 s

            inputs = inputs_of(mine.repro)
            # The newest ptxas, where it is right, holds the failure in place.
            assembler = front_end(mine.repro.front_end).back_end(mine.targets[0])
            guard = assembler.install(str(assembler.available()[-1]))
            newest = structs.replace(mine, ptxas=(guard,))
            there = await executed_rows(replace(asked, selection=newest), inputs)
            if all(executed.row.run.is_fine_run for executed in there):
                mine = structs.replace(mine, ptxas=(*mine.ptxas, guard))
        level, folder = self.reduction_at(dossier)
        resume, seconds = _is_begun(folder), _REDUCE
        # Each step of one that is executed takes seconds: what was reduced before stays as it is.
        if asked.run or asked.quick:
            seconds = _GLANCE if resume else _REDUCE_EXECUTED
        reduction = await minimize(
            mine,
            asked.store,
            asked.how,
            MinimizeOptions(
                folder_of=lambda _: folder,
                resume=resume,
                condition=asked.condition,
                level="auto" if asked.run else level,
                seconds=seconds,
                tests=0 if self.is_as_given and (asked.run or mine.repro.ptx) else None,
                keeps_kernel=self.is_as_given,
                run=asked.run,
                inputs=inputs,
                is_defined=True,
                on=asked.on,
                runner=asked.runner,
            ),
            Watch(tell=asked.tell),
        )
        if isinstance(reduction, NothingToReduce):
            raise UsageError(reduction.reason)
        return reduction

    async def workarounds(self) -> WorkaroundReport:
        """What helps, with any of the configs."""
        options, asked = WorkaroundOptions(at_most=5), self.asked
        if asked.run:
            options = replace(options, on=EMULATOR, budget=_SEARCH_EXECUTED)
        return await find_workarounds(self.every, asked.store, asked.how, options, _silent)

    def ways(
        self, report: WorkaroundReport | None, blamed: BlameReport | None
    ) -> tuple[KnownWorkaround, ...] | None:
        """What helps; of what is executed also single options with which blame saw it right."""
        ways = tuple(map(way_of, report.candidates)) if report else ()
        if not ways and blamed:
            ways = tuple(options_that_work(self.case, blamed.executed))
        if report and not ways and report.is_time_up:
            why = "the search was not at its end when its time was up"
            words = spell_command("workaround", self.asked.words)
            self.missing.append(Missing(what="workarounds", why=why, command=words))
            return None
        return ways if report or ways else None


FACTS = "report.json"
_LARGEST_FACTS = 1 << 20


def filed_facts(path: Path) -> dict[str, str | None]:
    """What a `report.json` says; empty where there is none that can be read."""
    with contextlib.suppress(TriageError, msgspec.MsgspecError):
        data = read_regular(path, _LARGEST_FACTS)
        return msgspec.json.decode(data, type=dict[str, str | None])
    return {}


def filed_alike(signature: str | None) -> Iterator[str]:
    """What to say of the reports in `reports/`, where the user is, with this signature."""
    paths = sorted(Path("reports").glob(f"*/{FACTS}")) if signature else ()
    found = {path.parent: filed_facts(path) for path in paths}
    alike = {path: facts for path, facts in found.items() if facts.get("signature") == signature}
    if len(alike) > 1:
        # A signal or "differs" names no cause: different bugs have the same signature.
        yield f"several reports have this signature; compare: {', '.join(map(str, alike))}"
        return
    for path, facts in alike.items():
        yield f"{path} has a failure with this signature ({facts.get('state') or 'not filed'})"


def _is_begun(reduction: Path) -> bool:
    """Whether the folder has a reduction, which is gone on with."""
    return (reduction / "log.jsonl").exists()


def _silent(*_: str) -> None:
    """A report shows what was found, not each step."""
