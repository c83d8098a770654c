"""`triage matrix run`: every cell of a matrix, distinct work only, and what changed since."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.requirements import InvalidRequirement, Requirement

from harness.bugs.reproducers import try_reproducers
from harness.cells.matrix_rules import Expectations, Rules, happened
from harness.cells.places import (
    RunProgress,
    at_bench,
    captures_of,
    open_bench,
    stored_place,
    work_off,
)
from harness.cells.repros.find import list_repros
from harness.cells.repros.releases import is_of
from harness.diff.between_runs import MATRIX, compare_runs, previous_run
from harness.io.packages.versions import LATEST, check_spec
from harness.io.processes.cluster import Machines, MachinesGoneError
from harness.matrix.plan import MatrixPlan, plan_matrix
from harness.matrix.run_policy import MatrixOptions, MatrixRun, launch_timeout
from harness.store.store import Store
from harness.values.change import Changes
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError
from harness.values.matrix import Matrix
from harness.values.row import Facts
from harness.values.toolchain import EMULATOR, takes_cubins
from harness.values.verdict import VerdictKind
from harness.workaround.expiry import is_known

# A matrix over releases of a package: its kernels of that package, in each of them.


def over_releases(matrix: Matrix, text: str) -> Matrix:
    """The product of a matrix, with the releases of a package that `[NAME]SPEC` names.

    Kernels of other sources take no part, nor does what is included beside the product.

    Raises:
        UsageError: the text is malformed, or does not say which of several packages is meant.
        EmptySelectionError: no kernel of the matrix comes from the package.
    """
    name, spec = None, text.strip()
    if spec[:1].isalpha():
        try:
            requirement = Requirement(spec)
        except InvalidRequirement:
            raise UsageError(
                f"--package-version {text[:80]}: write for example '>=0.4,<0.6' or "
                "'fla-core>=0.4,<0.6'"
            ) from None
        name, spec = requirement.name, str(requirement.specifier) or LATEST
    check_spec(spec, what=name or "the package")
    repros = list_repros()[0]
    named = (r for pattern in matrix.kernels for r in repros if fnmatchcase(r.name, pattern))
    mine = [repro for repro in {repro.name: repro for repro in named}.values() if repro.source]
    packages = sorted({repro.source.package for repro in mine if repro.source})
    if name is None and len(packages) > 1:
        raise UsageError(
            f"--package-version {text}: the matrix has kernels of {', '.join(packages)}; say "
            f"which, for example '{packages[0]}{spec}'"
        )
    kernels = tuple(f"{repro.name}@{spec}" for repro in mine if name is None or is_of(repro, name))
    if not kernels:
        hint = f"; there are kernels of {', '.join(packages)}" if packages else ""
        raise EmptySelectionError(f"no kernel of the matrix comes from {name or 'a package'}{hint}")
    return structs.replace(matrix, kernels=kernels, include=())


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixReport:
    """The result of a run.

    `verdicts` counts its cells; `unexpected` those that fail and no expectation says so; `carried`
    those that needed no work. `skipped` cells and `skipped_captures` were not started, for lack of
    time. `changes` is None where the run did not come to its end.
    """

    run: int
    verdicts: Counter[str]
    unexpected: int
    carried: int
    excluded: int
    skipped: int
    skipped_captures: int
    changes: Changes | None
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    wall_seconds: float
    cpu_seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether every cell has a result."""
        infra = self.verdicts[VerdictKind.INFRA.value]
        return not (self.skipped or self.skipped_captures or self.failures or infra)

    def exit_code(self, *, strict_fixed: bool) -> int:
        """As the command line: 1 not as expected, 4 incomplete, 5 fixes where that is strict."""
        code = self.changes.exit_code(strict_fixed=strict_fixed) if self.changes else 0
        if self.unexpected or code == 1:
            return 1
        return code if self.is_complete else 4


async def run_matrix(
    matrix: Matrix,
    store: Store,
    options: MatrixOptions,
    progress: RunProgress,
    plan: MatrixPlan,
    machines: Machines | None = None,
) -> MatrixReport:
    """Run the cells of a planned matrix; each result is stored as soon as it is known.

    With `machines` these compile, and execute what is executed by the emulator.

    Raises:
        EmptySelectionError: no cell is left.
        InfrastructureError: the machines cannot be reached any more.
        StorageError: results cannot be kept.
    """
    started = time.monotonic()
    shard = options.shard
    run_id = store.begin_run(options.work.command, None if shard.night is None else shard)
    store.keep_record(MATRIX, store.uid_of(run_id), str(Path(matrix.file).absolute()))
    async with at_bench(store, options.work, launch_timeout=launch_timeout(matrix)) as bench:
        if options.max_time is not None:
            bench.deadline = started + options.max_time
        night = MatrixRun(bench=bench, run=run_id, progress=progress, plan=plan, options=options)
        captures = _in_order(night)
        if machines:
            from harness.matrix.elsewhere import CaptureDispatcher  # noqa: PLC0415 - only where it is wanted

            await CaptureDispatcher(night=night, machines=machines).work_off(captures)
        else:
            await work_off(night, plan.places, captures)
        if machines and options.run:
            await _execute_there(night, machines)
        else:
            await _execute(night)
        is_whole = not (night.skipped or night.skipped_captures)
        verdicts = store.verdicts(run_id)
        if not verdicts and is_whole and shard.of == 1 and not night.problems:
            raise EmptySelectionError(
                "no cell of the matrix matches; --list shows them"
                if options.only
                else "the matrix has no cells; --list says why each is left out"
            )
        # First: whatever happens to the reproducers, the next night is compared with this one.
        if is_whole:
            store.finish_run(run_id)
        await try_reproducers(bench, options.work)
    unexpected = 0
    changes = None
    workarounds, expectations = store.workarounds(), Expectations(matrix.expect)

    def count(facts: Facts) -> None:
        nonlocal unexpected
        if facts.verdict.is_failure:
            expected = expectations.of(facts)
            unexpected += not (
                happened(facts, expected) if expected else is_known(workarounds, facts)
            )

    # A part of a night lacks the cells of the others.
    if is_whole and (shard.night is None or shard.of == 1):
        older = previous_run(store, run_id)
        changes = compare_runs(store, older.id if older else None, run_id, matrix, seen=count)
    else:
        for stored in store.run_bodies(run_id):
            count(msgspec.json.decode(stored.row, type=Facts))
    return MatrixReport(
        run=run_id,
        verdicts=verdicts,
        unexpected=unexpected,
        carried=night.carried,
        excluded=len(night.excluded),
        skipped=night.skipped,
        skipped_captures=night.skipped_captures,
        changes=changes,
        failures=night.problems,
        warnings=night.warnings,
        wall_seconds=time.monotonic() - started,
        cpu_seconds=bench.cpu_seconds,
    )


async def _execute(night: MatrixRun) -> None:
    options = night.options
    if options.run or takes_cubins(options.on):
        from harness.matrix.executed_night import execute_places  # noqa: PLC0415 - the emulator: 0.2 s

        on = options.on if takes_cubins(options.on) else EMULATOR
        await execute_places(night, on, options.runner)


async def _execute_there(night: MatrixRun, machines: Machines) -> None:
    from harness.matrix.elsewhere import ToolsElsewhere, at_once  # noqa: PLC0415 - as below

    here, work = night.bench, at_once(machines, night.options.work)
    timeout = launch_timeout(night.rules.matrix)
    try:
        async with ToolsElsewhere(machines, work, night.notes.append) as hub:
            night.bench = open_bench(hub, here.store, work, launch_timeout=timeout)
            night.bench.deadline = here.deadline
            await _execute(night)
            here.cpu_seconds += night.bench.cpu_seconds
    except MachinesGoneError as error:
        raise InfrastructureError(str(error)) from error
    finally:
        night.bench = here


def _in_order(night: MatrixRun) -> list[list[int]]:
    """The captures that have work left, in the order of the most telling cell of each.

    What needs no work is taken over on the way.
    """
    places = night.plan.places
    ranked: list[tuple[tuple[object, ...], int, list[int]]] = []
    for number, indices in enumerate(captures_of(places)):
        ranks: list[tuple[object, ...]] = []
        for index in indices:
            plan = stored_place(night, places[index]) if night.bench.use_cache else None
            rank = night.look(places[index], plan)[1] if plan else (0, False, ())
            ranks += [rank] if rank else []
        if ranks:
            ranked.append((min(ranks), number, indices))
    night.put_again()
    return [indices for _, _, indices in sorted(ranked)]


def make_plan(
    matrix: Matrix, options: MatrixOptions, store: Store, *, installs: bool = True
) -> MatrixPlan:
    """Expand the matrix as far as places; `installs` what is needed, or only says what would be.

    What the store has workarounds for takes part as well, except over releases of a package.

    Raises:
        EmptySelectionError: nothing is left of it.
        TriageError: as `plan_matrix`.
    """
    workarounds = store.workarounds()
    if options.package_version is not None:
        matrix, workarounds = over_releases(matrix, options.package_version), []
    rules = Rules(matrix=matrix, only=options.only)
    plan = plan_matrix(rules, options.shard, workarounds, installs=installs)
    if not plan.places and not plan.dropped and options.shard.of == 1 and not plan.failures:
        warnings = "; ".join(plan.warnings[:3])
        raise EmptySelectionError(
            "nothing in the matrix matches; `triage matrix run --list` shows what is there"
            if options.only
            else f"the matrix selects nothing: {warnings}"
        )
    return plan
