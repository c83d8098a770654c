"""A run as a result beside those of compiles."""

from __future__ import annotations

import pytest
from msgspec import structs

from harness.bugs.life import BugHistory
from harness.cells.matrix_rules import Expectations
from harness.frontends.bench import Kept
from harness.run.emulator_jobs import Emulated
from harness.run.executing import executed_of
from harness.run.judging import Judgement, beside_gpu, run_row
from harness.values.bug import MachineState, Occasion
from harness.values.cell import CellId
from harness.values.kernel import Config
from harness.values.matrix import Expectation, Selector
from harness.values.row import BugFacts, Row
from harness.values.target import Target
from harness.values.toolchain import GPU, Compiler
from harness.values.verdict import Signature, Stage, VerdictKind

CELL = CellId(
    kernel="k",
    launch="default",
    config=Config.of({"num_warps": 4}),
    target=Target.parse("sm_80"),
    compiler="triton-3.5.0",
    ptxas="12.8.93-bundled",
)
WRONG = Signature(
    stage="run", kind="wrong_result", failing_pass=None, code=None, template="differs: out"
)


def result(
    verdict: VerdictKind, *, triton: str = "3.5.0", is_infra: bool = False, cached: bool = False
) -> Row:
    judgement = Judgement(
        verdict=verdict,
        reason="said",
        signature=WRONG if verdict is VerdictKind.WRONG_RESULT else None,
    )
    cell = structs.replace(CELL, compiler=f"triton-{triton}")
    emulated = Kept(value=Emulated(runs=()), key="3" * 64, artifacts={}, cached=cached)
    return executed_of(
        cell,
        judgement,
        emulated,
        compiler=Compiler(version=triton, origin="pypi"),
        ptx="1" * 64,
        body="2" * 64,
        is_infra=is_infra,
    ).evaluated.row


def facts(row: Row) -> BugFacts:
    names = BugFacts.__struct_fields__
    return BugFacts(**{name: getattr(row, name) for name in names if hasattr(row, name)})


def test_the_emulator_stands_where_ptxas_does() -> None:
    row = result(VerdictKind.WRONG_RESULT)
    assert row.cell == "k/default/num_warps=4@sm_80/triton-3.5.0/emulator"
    assert (row.ptxas, row.stage, row.signature) == ("emulator", Stage.RUN.value, WRONG.key)
    assert row.verdict == "wrong_result"
    assert row.triton == "3.5.0"
    right = result(VerdictKind.RIGHT)
    assert (right.stage, right.signature) == (None, None)


def test_a_machine_that_fails_says_nothing_of_the_kernel() -> None:
    assert result(VerdictKind.NOT_RUN, is_infra=True).verdict == "infra"


def test_a_wrong_result_is_a_bug_of_triton_and_a_compile_does_not_end_it() -> None:
    chronicle = BugHistory()
    chronicle.add(Occasion(number=1, is_night=True), facts(result(VerdictKind.WRONG_RESULT)), 1)
    compiled = structs.replace(
        result(VerdictKind.RIGHT),
        cell=str(CELL),
        ptxas="12.8.93",
        ptxas_origin="bundled",
        verdict=VerdictKind.OK,
    )
    chronicle.add(Occasion(number=2, is_night=True), facts(compiled), None)
    assert chronicle.stories()[1].machine is MachineState.NEW
    chronicle.add(Occasion(number=3, is_night=True), facts(result(VerdictKind.NOT_RUN)), None)
    assert chronicle.stories()[1].machine is MachineState.UNTESTABLE
    chronicle.add(
        Occasion(number=4, is_night=True), facts(result(VerdictKind.RIGHT, triton="3.6.0")), None
    )
    story = chronicle.stories()[1]
    assert story.machine is MachineState.FIXED_CANDIDATE
    [found] = story.ranges
    assert (found.tool, found.last_bad, found.first_fixed) == ("Triton", "3.5.0", "3.6.0")


@pytest.mark.parametrize(
    ("found", "then"),
    [
        # A fault shows by itself, a wrong result by a comparison only.
        (VerdictKind.MEMORY_FAULT, MachineState.FIXED_CANDIDATE),
        (VerdictKind.HANG, MachineState.FIXED_CANDIDATE),
        (VerdictKind.WRONG_RESULT, MachineState.UNTESTABLE),
    ],
)
def test_what_only_came_to_its_end_is_clean_of_all_but_wrong_results(
    found: VerdictKind, then: MachineState
) -> None:
    chronicle = BugHistory()
    chronicle.add(Occasion(number=1, is_night=True), facts(result(found)), 1)
    chronicle.add(Occasion(number=2, is_night=True), facts(result(VerdictKind.RAN)), None)
    story = chronicle.stories()[1]
    assert story.machine is then
    assert story.cells_now == (then is MachineState.UNTESTABLE)


@pytest.mark.parametrize(
    ("verdict", "of_run"), [("wrong_result", True), ("trap_stub", False), ("ok", False)]
)
def test_an_expectation_speaks_of_compiles_or_of_runs(verdict: str, *, of_run: bool) -> None:
    expected = Expectation(selector=Selector(kernel="k"), verdict=VerdictKind(verdict))
    expectations = Expectations([expected])
    row = result(VerdictKind.WRONG_RESULT)
    compiled = structs.replace(row, cell=str(CELL), ptxas="12.8.93", ptxas_origin="bundled")
    assert (expectations.of(facts(row)) is not None) is of_run
    assert (expectations.of(facts(compiled)) is not None) is not of_run
    # A GPU launches the cubin of an assembler that stands in the row as for a compile.
    launched = structs.replace(compiled, cell=str(structs.replace(CELL, on=GPU)))
    assert (expectations.of(facts(launched)) is not None) is of_run


def test_what_a_gpu_did_with_the_same_ptx_is_said_beside_wrong_values() -> None:
    said = "emulated PTX: only under first/late, right under first/early: 1 of 4 elements differ"
    wrong = Judgement(verdict=VerdictKind.WRONG_RESULT, reason=said, signature=WRONG)
    row = structs.replace(
        run_row(CELL, wrong, triton="3.5.0", on="gpu"),
        device="NVIDIA X",
        compiled=result(VerdictKind.NONDETERMINISTIC),
    )
    latent = beside_gpu(wrong, [structs.replace(row, schedule="first/early")], "1" * 64)
    assert latent.reason == (
        "emulated PTX: latent on NVIDIA X, which left what first/early leave each time (--on gpu); "
        "only under first/late, right under first/early: 1 of 4 elements differ"
    )
    assert (latent.verdict, latent.signature) == (wrong.verdict, wrong.signature)
    shown = beside_gpu(wrong, [row], "1" * 64)
    assert shown.reason == f"{said}; on NVIDIA X (--on gpu): wrong_result"
    alike = structs.replace(row, run=VerdictKind.RIGHT, reference="the emulator")
    assert beside_gpu(wrong, [alike], "1" * 64).reason.endswith("its cubin computes the same")
    # Another PTX, or no GPU, says nothing.
    assert beside_gpu(wrong, [row], "2" * 64) == beside_gpu(wrong, [], "1" * 64) == wrong
