"""Do all configs of a launch compute the same? In Triton's interpreter, whatever compilers do."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cells.compile import launch_of
from harness.frontends.bench import Workbench
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.plan import CapturePlace, PlannedCell
from harness.frontends.registry import interpreter_for
from harness.run.recording import visible
from harness.values.check import Agreement, Checked, Interpretation, LaunchComparison, SameProgram
from harness.values.outcome import LaunchFacts


async def check_place(
    bench: Workbench, place: CapturePlace, cells: Sequence[PlannedCell], kernels: Sequence[str]
) -> dict[str, Checked]:
    """Hold the configs of each launch to one another, on one small input; by the id of the cell.

    A launch with one config has nothing to hold it to, and is left out; so is each launch without a
    tuner. `cells` are all of the place; `kernels` those of its launch file that are interpreted
    together.

    Raises:
        InfrastructureError: the interpreter cannot be started here.
        TriageError: the launch code cannot be fetched.
    """
    launches: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        launch = (cell.cell.kernel, launch_of(cell))
        launches.setdefault(launch, set()).add(cell.cell.config.label)
    compared = [cell for cell in cells if len(launches[cell.cell.kernel, launch_of(cell)]) > 1]
    if not compared:
        return {}
    planned = place.launch
    interpretation = await interpreter_for(place.compiler).compare_configs(
        bench,
        fetch_launch_code(place.selection.repro, planned.spec, planned.overrides),
        kernels=kernels,
        target=place.target,
        compiler=place.compiler,
    )
    return {
        str(cell.cell): check_of(cell.record, interpretation) for cell in compared if cell.record
    }


def check_of(record: LaunchFacts, interpretation: Interpretation) -> Checked:
    """What a launch with one config computes against its other configs, of what was interpreted."""
    found = [
        _judged(record, finding, variant)
        for finding in interpretation.findings
        for variant in finding.variants
        if finding.kernel == record.kernel
        and record.config in variant.configs
        and _is_of(record, variant)
    ]
    why = Checked(status=Agreement.NOT_CHECKED, reason=_why_not(record.kernel, interpretation))
    order = [Agreement.AGREES, Agreement.NOT_CHECKED, Agreement.DIFFERS]
    return max(
        found,
        key=lambda check: (order.index(check.status), check.stable_max_rel or 0.0),
        default=why,
    )


def _is_of(record: LaunchFacts, variant: SameProgram) -> bool:
    """Whether what was interpreted has the config, the types and the constants of this one."""
    if record.config not in variant.configs:
        return False
    names = [argument["name"] for argument in variant.described]
    own = [argument for argument in record.arguments if argument["name"] in names]
    return visible(own) == visible(variant.described)


def _judged(record: LaunchFacts, finding: LaunchComparison, variant: SameProgram) -> Checked:
    if finding.level == "source":
        reason = "the configs differ in nothing that the source reads"
        return Checked(status=Agreement.AGREES, reason=reason, level=finding.level, group=0)
    if record.suspect and not variant.suspect:
        reason = "the small launch does not reach what is suspect; keep that size with --set"
        return Checked(status=Agreement.NOT_CHECKED, reason=reason)
    if variant.group is None:
        return Checked(status=Agreement.NOT_CHECKED, reason=variant.error)
    scope = "all that is returned" if finding.level == "results" else "all that it writes"
    if variant.group == 0:
        peers = sum(peer.group == 0 for peer in finding.variants)
        reason = f"interpreted: {scope} agrees"
        if peers == 1:
            reason = "interpreted: the reference for the others"
        return Checked(status=Agreement.AGREES, reason=reason, level=finding.level, group=0)
    return Checked(
        status=Agreement.DIFFERS,
        reason=f"interpreted: {variant.tensor} differs from that of the other configs, beyond what "
        "rounding explains",
        level=finding.level,
        group=variant.group,
        tensor=variant.tensor,
        rel_err=variant.rel_err,
        stable_max_rel=variant.stable_max_rel,
        bad_frac=variant.bad_frac,
        unequal=variant.unequal,
        within_1e_3=variant.within_1e_3,
        within_1_percent=variant.within_1_percent,
    )


def _why_not(kernel: str, interpretation: Interpretation) -> str:
    if kernel in interpretation.skipped:
        return f"the interpreter cannot run it: {interpretation.skipped[kernel]}"
    if error := interpretation.error:
        message = next(iter(error.message.splitlines()), "")[:300]
        return f"the small launch raised {error.type}: {message}"
    return "the interpreted launch does not reach it; choose other sizes with --set"
