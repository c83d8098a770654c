"""The verdict of cubins from what they left, and who is accused: nobody without a witness."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_emulator.values import Budget, Fault, Place, Race, Schedule
from harness.run.emulator_jobs import Emulation, JobBuffer, Ran, RunTrial
from harness.run.gpu.cubin_judging import Freedom, PtxReference, judge_digests
from harness.run.gpu.measured import GpuFacts, GpuRun, GuardWrite, Measured
from harness.run.judging import Judgement, judge
from harness.run.launch import Launch, RunEvidence, Trusted
from harness.values.execution import Argument, ArgumentKind
from harness.values.toolchain import SASS
from harness.values.verdict import VerdictKind

GPU = GpuFacts(
    name="Test GPU",
    capability=90,
    cuda="13.0",
    memory=141 << 30,
    max_threads=1024,
    multiprocessors=132,
    max_shared=232448,
)
BEFORE = np.full(4, 7, np.uint32)
RIGHT = np.array([1, 2, 3, 4], np.uint32)
WRONG = np.array([1, 2, 9, 4], np.uint32)
OTHER = np.array([0, 0, 0, 0], np.uint32)


def name_of(data: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(data.tobytes()).hexdigest()


def emulated(
    after: np.ndarray[Any, Any] | None,
    *,
    garbage: int = 0,
    completion: Any = "early",
    **changes: Any,
) -> Ran:
    buffers = () if after is None else (name_of(after),)
    schedule = Schedule(garbage=garbage, completion=completion)
    return Ran(trial=RunTrial(schedule=schedule), buffers=buffers, executed=1, **changes)


def referee(
    *runs: Ran,
    dtype: str = "u32",
    trusted: tuple[Trusted, ...] = (),
    more: Any = (),
    **changes: Any,
) -> PtxReference:
    arrays = [BEFORE.view(np.uint32), RIGHT, WRONG, OTHER, *more]
    contents = {name_of(each): each.tobytes() for each in arrays}
    tensor = Argument(
        name="out", kind=ArgumentKind.TENSOR, buffer=0, dtype=dtype, shape=(4,), strides=(1,)
    )
    emulation = Emulation(
        ptx="",
        entry="k",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        cluster=(1, 1, 1),
        dynamic_shared=0,
        buffers=(JobBuffer(name="out", file=name_of(BEFORE), size=BEFORE.nbytes),),
        arguments=(),
        trials=(),
        budget=Budget(),
    )
    launch = Launch(emulation=emulation, tensors=(tensor,), trusted=trusted)
    evidence = RunEvidence(launch=launch, ran=runs, contents=contents)
    return PtxReference(
        cases=(),
        gpu=GPU,
        evidence=evidence,
        judgement=judge(evidence),
        **{"freedom": Freedom(), **changes},
    )


def ended(words: str, *arrays: np.ndarray[Any, Any], **changes: Any) -> Measured:
    runs = tuple(
        GpuRun(case=0, run=n, status="ended", buffers=(name_of(each),), **changes)
        for n, each in enumerate(arrays)
    )
    return Measured(words=words, runs=runs)


def stopped(words: str, status: Any, **changes: Any) -> Measured:
    return Measured(words=words, runs=(GpuRun(case=0, run=None, status=status, **changes),))


def verdicts(who: PtxReference, *cases: Measured) -> list[Judgement]:
    bench = replace(who, cases=cases)
    return [bench.judge(case) for case in cases]


TWICE = (RIGHT, RIGHT)
O0, O3 = ended("ptxas 1 -O0", *TWICE), ended("ptxas 1 -O3", WRONG, WRONG)


def test_the_cubin_that_differs_is_wrong_and_the_one_that_agrees_is_right() -> None:
    plain, full = verdicts(referee(emulated(RIGHT)), O0, O3)
    assert plain.verdict is VerdictKind.RIGHT
    assert plain.reference == "the emulator"
    assert full.verdict is VerdictKind.WRONG_RESULT
    assert "1 of 4 elements of out differ" in full.reason
    assert "first at [2]: 9 in place of 3" in full.reason
    assert "ptxas 1 -O0 agrees with the emulator" in full.reason
    [output] = full.outputs
    assert (output.differing, output.expected, output.actual) == (1, 3.0, 9.0)


def test_o0_can_be_the_wrong_one() -> None:
    plain, full = verdicts(referee(emulated(WRONG)), O0, O3)
    assert (plain.verdict, full.verdict) == (VerdictKind.WRONG_RESULT, VerdictKind.RIGHT)


@pytest.mark.parametrize("runs", [(RIGHT, RIGHT, WRONG), (RIGHT, WRONG, RIGHT)])
def test_one_run_of_many_that_differs_is_enough(runs: tuple[Any, ...]) -> None:
    [found] = verdicts(referee(emulated(RIGHT)), ended("ptxas 1", *runs))
    assert found.verdict is VerdictKind.NONDETERMINISTIC
    assert "1 of 4 elements of out differ between two runs" in found.reason


def test_without_a_witness_nobody_is_accused() -> None:
    """All cubins agree with one another and not with the emulator: it may be wrong itself."""
    for cases in ([O3], [O3, ended("ptxas 2", WRONG, WRONG)], [O3, ended("ptxas 2", OTHER, OTHER)]):
        for found in verdicts(referee(emulated(RIGHT)), *cases):
            assert found.verdict is VerdictKind.NOT_RUN
            assert found.signature is None
            assert "cannot tell" in found.reason


def test_the_authors_word_is_witness_enough_and_comes_first() -> None:
    author = Trusted(words="expected.npy", buffers=(name_of(RIGHT),), is_final=True)
    [found] = verdicts(referee(emulated(RIGHT), trusted=(author,)), O3)
    assert found.verdict is VerdictKind.WRONG_RESULT
    # The emulator disagrees with the author: who agrees with him is right.
    plain, full = verdicts(referee(emulated(WRONG), trusted=(author,)), O0, O3)
    assert plain.verdict is VerdictKind.RIGHT
    assert plain.reference == "expected.npy"
    assert full.verdict is VerdictKind.WRONG_RESULT


def test_two_runs_that_disagree_are_told_before_anything_is_compared() -> None:
    [found] = verdicts(referee(emulated(RIGHT)), ended("ptxas 1", RIGHT, WRONG))
    assert found.verdict is VerdictKind.NONDETERMINISTIC
    assert "1 of 4 elements of out differ between two runs" in found.reason


def test_ptx_that_depends_on_garbage_accuses_nobody() -> None:
    who = referee(emulated(RIGHT), emulated(WRONG, garbage=1))
    for found in verdicts(who, ended("ptxas 1 -O0", OTHER, OTHER), O3):
        assert found.verdict is VerdictKind.UNINITIALISED
    # Two fillings of what nothing wrote that differ: so does a register.
    filled = referee(
        emulated(RIGHT), filled=((name_of(OTHER),),), freedom=Freedom(undefined=("%r7",))
    )
    plain, full = verdicts(filled, O0, O3)
    assert plain.verdict is VerdictKind.RIGHT
    assert full.verdict is VerdictKind.UNINITIALISED
    assert "%r7" in full.reason


def test_a_filling_that_faults_accuses_nobody_of_a_fault() -> None:
    who = referee(emulated(RIGHT), filled=(None,), freedom=Freedom(undefined=("%r7",)))
    fault = stopped("ptxas 1 -O3", "fault", code=700, name="CUDA_ERROR_ILLEGAL_ADDRESS")
    _, found = verdicts(who, O0, fault)
    assert found.verdict is VerdictKind.UNINITIALISED


def test_what_hangs_on_an_approximation_accuses_nobody() -> None:
    free = Freedom(moved=("div.full.f32",))
    hangs = referee(emulated(RIGHT), freedom=free, moved=((name_of(WRONG),),))
    _, found = verdicts(hangs, O0, O3)
    assert found.verdict is VerdictKind.NOT_RUN
    assert "div.full.f32" in found.reason
    # An element that no choice of rounding changes is wrong, approximations or not.
    stable = referee(emulated(RIGHT), freedom=free, moved=((name_of(RIGHT),),))
    assert verdicts(stable, O0, O3)[1].verdict is VerdictKind.WRONG_RESULT


def test_integers_beside_sums_in_any_order_accuse_nobody() -> None:
    who = referee(emulated(RIGHT), freedom=Freedom(unmoved=("red.global.add.f32",)), moved=())
    assert verdicts(who, O0, O3)[1].verdict is VerdictKind.NOT_RUN


def test_which_nan_it_is_accuses_nobody() -> None:
    one, other = RIGHT.copy(), RIGHT.copy()
    one[2], other[2] = 0x7FFFFFFF, 0x7FC00000
    who = referee(emulated(one), more=[one, other], freedom=Freedom(has_floats=True), moved=())
    cases = ended("ptxas 1 -O0", one, one), ended("ptxas 1 -O3", other, other)
    assert verdicts(who, *cases)[1].verdict is VerdictKind.NOT_RUN
    integers = referee(emulated(one), more=[one, other])
    assert verdicts(integers, *cases)[1].verdict is VerdictKind.WRONG_RESULT


def test_floats_are_compared_to_the_bit_where_every_bit_is_specified() -> None:
    right = np.array([1, 2, 3, 4], np.float32)
    near = right.copy()
    near[1] = np.nextafter(near[1], np.float32(9))
    cases = ended("ptxas 1 -O0", right, right), ended("ptxas 1 -O3", near, near)
    exact = referee(
        emulated(right), dtype="f32", more=[right, near], freedom=Freedom(has_floats=True), moved=()
    )
    assert verdicts(exact, *cases)[1].verdict is VerdictKind.WRONG_RESULT
    free = replace(exact, freedom=Freedom(moved=("mul.f32",), has_floats=True))
    assert verdicts(free, *cases)[1].verdict is VerdictKind.RIGHT


@pytest.mark.parametrize(
    ("status", "changes", "verdict", "said"),
    [
        ("fault", {"code": 700, "name": "CUDA_ERROR_ILLEGAL_ADDRESS"}, "memory_fault", "(700)"),
        ("fault", {"code": 719, "name": "CUDA_ERROR_LAUNCH_FAILED"}, "launch_failed", "(719)"),
        ("hang", {"seconds": 10.0}, "hang", "no end within 10 s"),
        ("died", {"signal": 11}, "memory_fault", "signal 11"),
        ("refused", {"code": 209, "call": "cuModuleLoadDataEx"}, "launch_failed", "sm_90"),
        ("refused", {"code": 2, "call": "cuMemAlloc_v2"}, "launch_failed", "141 GiB"),
        ("refused", {"code": 1, "needs": {"n_regs": 255}}, "launch_failed", "n_regs 255"),
    ],
)
def test_what_did_not_end(status: str, changes: dict[str, Any], verdict: str, said: str) -> None:
    _, found = verdicts(referee(emulated(RIGHT)), O0, stopped("ptxas 1 -O3", status, **changes))
    assert found.verdict.value == verdict
    assert said in found.reason
    assert found.signature is not None


def test_what_takes_long_on_a_gpu_is_a_hang_only_where_it_is_known_to_end() -> None:
    late = stopped("ptxas 1 -O3", "hang", seconds=10.0)
    unknown = emulated(None, not_run="its instructions are used up", is_out_of_budget=True)
    for who in (referee(unknown), referee(emulated(None, not_run="no such instruction"))):
        [found] = verdicts(who, late)
        assert found.verdict is VerdictKind.NOT_RUN
        assert "no end within 10 s" in found.reason
        assert "--gpu-timeout" in found.reason
    [alone] = verdicts(referee(emulated(RIGHT)), late)
    assert alone.verdict is VerdictKind.HANG
    endless = Fault(kind="hang", what="a loop without end")
    [found] = verdicts(referee(emulated(None, faults=(endless,))), late)
    assert found.verdict is VerdictKind.HANG
    assert judge_digests(late, (), "", GPU).verdict is VerdictKind.NOT_RUN


def test_a_fault_of_the_ptx_is_said_to_be_one() -> None:
    fault = Fault(kind="memory_fault", what="reads behind x")
    who = referee(emulated(None, faults=(fault,)))
    crash = stopped("ptxas 1 -O3", "fault", code=700, name="CUDA_ERROR_ILLEGAL_ADDRESS")
    ran, crashed = verdicts(who, ended("ptxas 1 -O0", OTHER, OTHER), crash)
    assert ran.verdict is crashed.verdict is VerdictKind.MEMORY_FAULT
    assert "the PTX itself" in ran.reason
    assert "the PTX itself" in crashed.reason


def test_what_is_written_beside_a_buffer_is_a_fault() -> None:
    guard = GuardWrite(buffer=0, side="behind", bytes=4, first=0, last=3)
    _, found = verdicts(referee(emulated(RIGHT)), O0, ended("ptxas 1 -O3", *TWICE, guards=(guard,)))
    assert found.verdict is VerdictKind.MEMORY_FAULT
    assert "4 bytes behind out were written" in found.reason


def test_without_a_referee_only_agreement_can_be_said() -> None:
    who = referee(emulated(None, not_run="no such instruction"))
    alike = verdicts(who, O0, ended("ptxas 2", *TWICE))
    assert [each.verdict for each in alike] == [VerdictKind.RAN] * 2
    apart = verdicts(who, O0, O3)
    assert [each.verdict for each in apart] == [VerdictKind.NOT_RUN] * 2
    assert "no such instruction" in apart[0].reason


def test_what_no_result_came_of_is_not_run() -> None:
    [found] = verdicts(referee(emulated(RIGHT)), Measured(words="ptxas 1", runs=()))
    assert found.verdict is VerdictKind.NOT_RUN
    assert "cut off" in found.reason


LATENT = (emulated(RIGHT), emulated(WRONG, completion="late"))


def test_a_race_whose_right_values_a_gpu_leaves_each_time_is_latent_there() -> None:
    twice = ended("ptxas 1 -O3", RIGHT, RIGHT)
    [found] = verdicts(referee(*LATENT), twice)
    assert found.verdict is VerdictKind.NONDETERMINISTIC
    said = "measured: latent on this GPU: every run left what the emulator leaves under "
    assert found.reason.startswith(
        f"{said}lockstep/early; emulated PTX: 1 of 4 elements of out differ"
    )
    assert found.schedule == "lockstep/early"
    author = Trusted(words="expected.npy", buffers=(name_of(RIGHT),), is_final=True)
    [found] = verdicts(referee(*LATENT, trusted=(author,)), twice)
    assert found.verdict is VerdictKind.RIGHT
    assert "agrees with expected.npy; the emulator leaves this under lockstep/early" in found.reason
    assert "only under lockstep/late, right under lockstep/early" in found.reason


def test_a_race_that_shows_on_the_gpu_is_not_latent() -> None:
    for case in (ended("ptxas 1 -O3", RIGHT, WRONG), ended("ptxas 1 -O3", OTHER, OTHER)):
        [found] = verdicts(referee(*LATENT), case)
        assert "latent" not in found.reason
        assert found.schedule is None


# Three votes: the PTX emulated, and the SASS of two cubins. One alone accuses nobody.


def sass(words: str, *arrays: Any) -> Measured:
    return replace(ended(words, *arrays), on=SASS)


def test_a_race_of_the_ptx_is_said_of_a_cubin_that_leaves_what_its_author_wants() -> None:
    place = Place(ptx_line=3, instruction="st.shared.u32 [a], b;")
    race = Race(
        kind="lanes", space="shared", formal=False, first=place, second=place,
        what="two lanes write",
    )  # fmt: skip
    author = Trusted(words="expected.npy", buffers=(name_of(RIGHT),), is_final=True)
    bench = referee(emulated(RIGHT, races=(race,)), trusted=(author,))
    [found] = verdicts(bench, sass("ptxas 1 -O3", RIGHT, RIGHT))
    assert found.verdict is VerdictKind.RACE
    assert found.reason.startswith("emulated SASS: agrees with expected.npy; two lanes write")
    [measured] = verdicts(bench, ended("ptxas 1 -O3", RIGHT, RIGHT))
    assert measured.verdict is VerdictKind.RIGHT


def judged(ptx: Any, *cases: Measured, **changes: Any) -> list[Judgement]:
    return verdicts(referee(emulated(ptx), **changes), *cases)


@pytest.mark.parametrize(
    ("plain", "full", "accused"),
    [
        (RIGHT, RIGHT, ()),
        (RIGHT, WRONG, ("ptxas 1 -O3",)),
        (WRONG, RIGHT, ("ptxas 1 -O0",)),
        (WRONG, WRONG, ()),
        (WRONG, OTHER, ()),
    ],
)
def test_two_that_agree_accuse_the_third_and_no_other(
    plain: Any, full: Any, accused: tuple[str, ...]
) -> None:
    cases = sass("ptxas 1 -O0", plain, plain), sass("ptxas 1 -O3", full, full)
    for case, judgement, left in zip(cases, judged(RIGHT, *cases), (plain, full), strict=True):
        assert judgement.reason.startswith("emulated SASS")
        if case.words in accused:
            assert judgement.verdict is VerdictKind.WRONG_RESULT
            assert "agrees with the emulated PTX" in judgement.reason
        elif left is RIGHT:
            assert judgement.verdict is VerdictKind.RIGHT
            assert judgement.reference == "the emulated PTX"
        else:
            assert judgement.verdict is VerdictKind.NOT_RUN
            assert "cannot tell" in judgement.reason
            assert "either may be wrong" in judgement.reason


def test_what_the_emulator_does_not_know_is_not_run_and_is_no_vote() -> None:
    unknown = Measured(words="ptxas 1 -O0", on=SASS, problem="unknown SASS: FOO.BAR")
    first, second = judged(RIGHT, unknown, sass("ptxas 1 -O3", WRONG, WRONG))
    assert (first.verdict, first.reason) == (VerdictKind.NOT_RUN, "unknown SASS: FOO.BAR")
    assert second.verdict is VerdictKind.NOT_RUN
    assert "cannot tell" in second.reason


def test_orders_that_disagree_accuse_a_cubin_beside_one_that_is_right() -> None:
    torn, right = sass("ptxas 1 -O3", RIGHT, WRONG), sass("ptxas 1 -O0", RIGHT, RIGHT)
    assert judged(RIGHT, torn)[0].verdict is VerdictKind.NOT_RUN
    assert judged(RIGHT, torn, right)[0].verdict is VerdictKind.NONDETERMINISTIC


def test_orders_that_disagree_as_those_of_the_ptx_do_accuse_no_cubin() -> None:
    torn, right = sass("ptxas 1 -O3", RIGHT, WRONG), sass("ptxas 1 -O0", RIGHT, RIGHT)
    early, late = emulated(RIGHT), emulated(WRONG, completion="late")
    first, _ = verdicts(referee(early, late), torn, right)
    assert first.verdict is VerdictKind.NONDETERMINISTIC
    assert "emulated PTX: 1 of 4 elements of out differ between the schedules" in first.reason


def test_a_fault_is_the_cubin_s_only_where_another_one_ends() -> None:
    place = Place(instruction="LDG.E R2, [R4] ;", sass_offset=0x40)
    fault = Fault(kind="memory_fault", what="it reads beyond x", place=place)
    run = GpuRun(case=0, run=None, status="fault", name=fault.kind, call="beyond", words=fault.what)
    bad = Measured(words="ptxas 1 -O3", on=SASS, runs=(run,))
    [alone] = judged(RIGHT, bad)
    assert alone.verdict is VerdictKind.NOT_RUN
    first, _ = judged(RIGHT, bad, sass("ptxas 1 -O0", RIGHT, RIGHT))
    assert first.verdict is VerdictKind.MEMORY_FAULT
    assert first.reason.endswith("ptxas 1 -O0 ends as the emulated PTX does")


def test_what_the_ptx_leaves_open_accuses_no_cubin() -> None:
    cases = sass("ptxas 1 -O0", RIGHT, RIGHT), sass("ptxas 1 -O3", WRONG, WRONG)
    open_to_order = Freedom(unmoved=("atom.global.add.f32",))
    for judgement in judged(RIGHT, *cases, freedom=open_to_order)[1:]:
        assert judgement.verdict is VerdictKind.NOT_RUN
        assert "depends on what the PTX leaves open" in judgement.reason
