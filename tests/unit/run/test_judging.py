"""Verdicts from synthetic runs: what is said of which outputs, under which schedule."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from gpu_emulator.values import Budget, Fault, Place, Race, Schedule, Uninitialised
from harness.run.emulator_jobs import Emulation, JobBuffer, Ran, RunTrial
from harness.run.judging import judge
from harness.run.launch import Launch, RunEvidence, Trusted
from harness.values.execution import Argument, ArgumentKind, Assertion
from harness.values.verdict import VerdictKind

EARLY = Schedule(warps="first", completion="early")
LATE = Schedule(warps="first", completion="late")
X = Argument(
    name="x", kind=ArgumentKind.TENSOR, buffer=0, dtype="float32", shape=(2, 2), strides=(2, 1)
)
OUT = structs.replace(X, name="out", buffer=1)
COUNT = Argument(
    name="count", kind=ArgumentKind.TENSOR, buffer=2, dtype="int32", shape=(2,), strides=(1,)
)
BEFORE = [np.ones(4, np.float32), np.zeros(4, np.float32), np.zeros(2, np.int32)]
RIGHT = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
PLACE = Place(ptx_line=7, instruction="ld.shared.u32 %r1, [%r2];", source="/home/me/kernel.py:12")
RACE = Race(
    kind="write-read",
    space="shared",
    formal=False,
    first=Place(ptx_line=3, instruction="st.shared.u32 [%r2], %r1;"),
    second=PLACE,
    what="nothing orders them",
)


class Contents(dict[str, bytes]):
    def put(self, data: Any) -> str:
        raw: bytes = data.tobytes()
        sha256 = hashlib.sha256(raw).hexdigest()
        self[sha256] = raw
        return sha256


def buffers(out: Any = RIGHT, count: Any = (1, 2)) -> list[Any]:
    return [BEFORE[0], np.asarray(out, np.float32), np.asarray(count, np.int32)]


def evidence(*runs: Any, trusted: dict[str, list[Any]] | None = None, **more: Any) -> RunEvidence:
    """Runs are (schedule, buffers, what else to say of them)."""
    contents = Contents()
    ran = [
        Ran(trial=RunTrial(schedule=schedule), buffers=tuple(map(contents.put, after)), **said)
        for schedule, after, said in runs
    ]
    problem = more.pop("problem", None)
    launch = Launch(
        emulation=Emulation(
            ptx="",
            entry="k",
            grid=(1, 1, 1),
            block=(32, 1, 1),
            cluster=(1, 1, 1),
            dynamic_shared=0,
            buffers=tuple(
                JobBuffer(name=name, file=contents.put(data), size=data.nbytes)
                for name, data in zip(("x", "out", "count"), BEFORE, strict=True)
            ),
            arguments=(),
            trials=(),
            budget=Budget(),
        ),
        tensors=(X, OUT, COUNT),
        trusted=tuple(
            Trusted(words=words, buffers=tuple(map(contents.put, after)))
            for words, after in (trusted or {}).items()
        ),
        **more,
    )
    return RunEvidence(launch=launch, ran=tuple(ran), contents=contents, problem=problem)


def test_right_names_what_it_was_compared_with_and_what_it_wrote() -> None:
    found = judge(
        evidence((EARLY, buffers(), {}), (LATE, buffers(), {}), trusted={"a reference": buffers()})
    )
    assert (found.verdict, found.reference) == (VerdictKind.RIGHT, "a reference")
    assert found.schedule == "first/early, first/late"
    assert found.signature is None
    assert [(each.name, each.dtype, each.elements) for each in found.outputs] == [
        ("out", "float32", 4),
        ("count", "int32", 2),
    ]
    assert [each.differing for each in found.outputs] == [0, 0]
    assert found.outputs[0].sha256 == hashlib.sha256(RIGHT.tobytes()).hexdigest()


def test_a_race_is_the_same_however_its_space_is_spelled() -> None:
    """`.shared` is `.shared::cta`; a cluster's memory is another space."""

    def signature(opcode: str) -> object:
        place = Place(ptx_line=3, instruction=f"{opcode}.b32 [%r2], %r1;")
        race = replace(RACE, kind="lanes", first=place, second=place)
        return judge(evidence((EARLY, buffers(), {"races": (race,)}))).signature

    assert signature("st.shared") == signature("st.shared::cta")
    assert signature("st.shared") != signature("st.shared::cluster")
    assert signature("st.shared") != signature("st.global")


def test_what_the_isa_leaves_open_is_named_so() -> None:
    lanes = Uninitialised(space="lanes", place=PLACE, count=1, what="reads lane 20")
    other: Any = (replace(EARLY, garbage=1), buffers([9] * 4), {})
    found = judge(evidence((EARLY, buffers(), {"uninitialised": (lanes,)}), other))
    assert found.verdict is VerdictKind.UNINITIALISED
    assert "out depends on what the PTX ISA leaves open; reads lane 20" in found.reason


def test_without_a_reference_it_only_ran() -> None:
    found = judge(evidence((EARLY, buffers(), {})))
    assert (found.verdict, found.reference) == (VerdictKind.RAN, None)
    assert "no reference to compare with" in found.reason
    assert [each.differing for each in found.outputs] == [None, None]


def test_a_wrong_value_is_placed_and_measured() -> None:
    wrong: list[float] = [1.0, 2.0, 9.0, 4.0]
    found = judge(
        evidence(
            (EARLY, buffers(), {}), (LATE, buffers(wrong), {}), trusted={"a reference": buffers()}
        )
    )
    assert found.verdict is VerdictKind.WRONG_RESULT
    assert found.schedule == "first/late"
    assert "1 of 4 elements of out differ from a reference" in found.reason
    assert "first at [1, 0]: 9 in place of 3" in found.reason
    # Which orders show it is the first thing that is said.
    assert found.reason.startswith(
        "emulated PTX: only under first/late, right under first/early: 1 of"
    )
    [out, count] = found.outputs
    assert (out.differing, out.max_abs, out.where) == (1, 6.0, "[1, 0]")
    assert (out.expected, out.actual) == (3.0, 9.0)
    assert count.differing == 0
    assert found.signature is not None


def test_of_a_wrong_tensor_all_is_counted_that_rounding_does_not_explain() -> None:
    # Beyond the tolerance; beyond a few roundings of f32; within these.
    values: list[float] = [1.5, 2.0 * (1 + 5e-4), 3.0 * (1 + 1e-6), 4.0]
    found = judge(evidence((EARLY, buffers(values), {}), trusted={"a reference": buffers()}))
    assert "2 of 4 elements of out differ" in found.reason
    # No element beyond the tolerance: what it counts then is nothing.
    values = [1.0, 2.0 * (1 + 5e-4), 3.0, 4.0]
    found = judge(evidence((EARLY, buffers(values), {}), trusted={"a reference": buffers()}))
    assert (found.verdict, found.outputs[0].differing) == (VerdictKind.RIGHT, 0)


def test_a_reference_that_is_pipelined_too_does_not_say_which_is_right() -> None:
    made = evidence((EARLY, buffers([1.0, 2.0, 9.0, 4.0]), {}), trusted={"a peer": buffers()})
    peer = replace(made.launch.trusted[0], is_pipelined=True)
    found = judge(made.held_to(peer))
    assert found.verdict is VerdictKind.WRONG_RESULT
    assert found.reason.endswith("first at [1, 0]: 9 and 3; which of them is right is not known")


def refused(out: Any, relative: float | None = None) -> Assertion:
    """An assertion that does not hold for these values of `out`."""
    return Assertion(
        where="launch.py:7",
        holds=False,
        buffers=(None, Contents().put(np.asarray(out, np.float32)), None),
        kernels=("k",),
        message="they differ",
        relative=relative,
    )


def test_what_the_files_own_assertion_refuses_is_wrong_whatever_the_reference_says() -> None:
    found = judge(
        evidence(
            (EARLY, buffers(), {}), trusted={"a reference": buffers()}, asserted=(refused(RIGHT),)
        )
    )
    assert found.verdict is VerdictKind.WRONG_RESULT
    assert found.reason == "emulated PTX: the file's own assertion fails: launch.py:7: they differ"
    assert found.reference == "the file's own assertion (launch.py:7)"
    assert found.signature is not None


def test_an_assertion_says_nothing_of_other_values_than_it_saw() -> None:
    other = BEFORE[1] + 7
    made = evidence(
        (EARLY, buffers(), {}), trusted={"a reference": buffers()}, asserted=(refused(other),)
    )
    contents = {**made.contents, Contents().put(other): other.tobytes()}
    found = judge(replace(made, contents=contents))
    assert found.verdict is VerdictKind.RIGHT


@pytest.mark.parametrize(("relative", "is_wrong"), [(1e-6, False), (1e-3, True)])
def test_an_assertion_that_fails_by_rounding_is_a_remark(relative: float, is_wrong: bool) -> None:
    found = judge(
        evidence(
            (EARLY, buffers(), {}),
            trusted={"a reference": buffers()},
            asserted=(refused(RIGHT, relative),),
        )
    )
    assert found.verdict.is_failure is is_wrong
    assert ("by what rounding explains" in found.reason) is not is_wrong


def test_a_tensor_that_should_have_been_written_is_wrong() -> None:
    found = judge(evidence((EARLY, buffers(count=(0, 0)), {}), trusted={"a reference": buffers()}))
    assert found.verdict is VerdictKind.WRONG_RESULT
    assert "2 of 2 elements of count" in found.reason
    assert "only under" not in found.reason


def test_one_reference_that_agrees_is_enough() -> None:
    """The other one may be what is wrong: it is a kernel from a compiler, too."""
    found = judge(
        evidence(
            (EARLY, buffers(), {}), trusted={"first": buffers([9, 9, 9, 9]), "second": buffers()}
        )
    )
    assert (found.verdict, found.reference) == (VerdictKind.RIGHT, "second")


def test_what_agrees_with_other_configs_alone_is_consistent() -> None:
    found = evidence(
        (EARLY, buffers(), {}), trusted={"num_stages=1": buffers(), "interpreter": buffers([9] * 4)}
    )
    config, interpreter = found.launch.trusted
    config = replace(config, is_emulated=True)
    alone = judge(found.held_to(config))
    assert (alone.verdict, alone.reference) == (VerdictKind.CONSISTENT, "num_stages=1")
    assert alone.reason == "emulated PTX: agrees with num_stages=1"
    against = judge(found.held_to(config, interpreter))
    assert against.verdict is VerdictKind.CONSISTENT
    assert against.reason == "emulated PTX: agrees with num_stages=1, not with interpreter"
    both = judge(found.held_to(config, replace(interpreter, buffers=config.buffers)))
    assert (both.verdict, both.reference) == (VerdictKind.RIGHT, "interpreter")
    assert both.verdict.is_fine_run
    assert alone.verdict.is_fine_run
    assert not alone.verdict.is_failure


def test_a_reference_that_may_differ_convicts_nobody() -> None:
    found = evidence((EARLY, buffers(), {}), trusted={"another config": buffers([9] * 4)})
    [other] = found.launch.trusted
    assert judge(found).verdict is VerdictKind.WRONG_RESULT
    other = replace(other, may_differ=True)
    alone = judge(found.held_to(other))
    assert alone.verdict is VerdictKind.RAN
    config = Trusted(words="num_stages=1", buffers=found.ran[0].buffers, is_emulated=True)
    beside = judge(found.held_to(config, other))
    assert (beside.verdict, beside.reason) == (
        VerdictKind.CONSISTENT,
        "emulated PTX: agrees with num_stages=1",
    )
    same = replace(other, buffers=config.buffers)
    assert judge(found.held_to(config, same)).verdict is VerdictKind.RIGHT


def test_what_the_interpreter_says_of_the_same_config_is_no_more_than_as_interpreted() -> None:
    found = evidence((EARLY, buffers(), {}), trusted={"the interpreter": buffers()})
    [own] = found.launch.trusted
    own = replace(own, is_same_config=True)
    alone = judge(found.held_to(own))
    assert (alone.verdict, alone.verdict.is_fine_run) == (VerdictKind.AS_INTERPRETED, True)
    assert alone.reason == "emulated PTX: agrees with the interpreter, for the same config"
    # Another config, or a person, is heard before it; another compiled config is not.
    other = replace(own, words="another config", is_same_config=False, may_differ=True)
    stronger = judge(found.held_to(own, other))
    assert (stronger.verdict, stronger.reference) == (VerdictKind.RIGHT, "another config")
    compiled = Trusted(words="num_stages=1", buffers=found.ran[0].buffers, is_emulated=True)
    assert judge(found.held_to(compiled, own)).verdict is VerdictKind.AS_INTERPRETED


def test_what_a_person_says_is_final_and_may_leave_buffers_out() -> None:
    found = evidence((EARLY, buffers(count=(7, 7)), {}), trusted={"a config": buffers()})
    said = Trusted(words="a person", buffers=(None, Contents().put(RIGHT), None), is_final=True)
    right = judge(found.held_to(said, *found.launch.trusted))
    assert (right.verdict, right.reference) == (VerdictKind.RIGHT, "a person")
    assert [(each.name, each.differing) for each in right.outputs] == [("out", 0), ("count", None)]
    other = np.array([5.0, 5, 5, 5], np.float32)
    said = Trusted(words="a person", buffers=(None, Contents().put(other), None), is_final=True)
    found = evidence((EARLY, buffers(), {}), trusted={"a config": buffers()})
    contents = {**found.contents, Contents().put(other): other.tobytes()}
    wrong = judge(replace(found, contents=contents).held_to(said, *found.launch.trusted))
    assert (wrong.verdict, wrong.reference) == (VerdictKind.WRONG_RESULT, "a person")


def test_rounding_is_right() -> None:
    close = RIGHT * np.float32(1 + 1e-5)
    found = judge(
        evidence((EARLY, buffers(), {}), (LATE, buffers(close), {}), trusted={"it": buffers(close)})
    )
    assert found.verdict is VerdictKind.RIGHT
    assert "schedules differ by rounding only" in found.reason


def test_integers_are_never_rounded() -> None:
    found = judge(evidence((EARLY, buffers(count=(1, 3)), {}), trusted={"a reference": buffers()}))
    assert found.verdict is VerdictKind.WRONG_RESULT


def test_schedules_that_disagree_without_a_reference() -> None:
    found = judge(evidence((EARLY, buffers(), {}), (LATE, buffers([1, 2, 3, 9]), {})))
    assert (found.verdict, found.schedule) == (VerdictKind.NONDETERMINISTIC, "first/late")
    assert "between the schedules first/early and first/late" in found.reason


def garbage_run(out: Any) -> Any:
    return (replace(EARLY, garbage=1), buffers(out), {})


def test_what_depends_on_garbage_is_uninitialised() -> None:
    read = Uninitialised(space="shared", place=PLACE, count=3, what="nothing wrote 4 bytes")
    found = judge(evidence((EARLY, buffers(), {"uninitialised": (read,)}), garbage_run([5] * 4)))
    assert found.verdict is VerdictKind.UNINITIALISED
    assert "out depends on what nothing wrote" in found.reason
    assert "PTX line 7: ld.shared.u32 %r1, [%r2]; (kernel.py:12)" in found.reason


def test_garbage_that_the_reference_does_not_show_is_the_compilers() -> None:
    wrong: Any = (EARLY, buffers([7] * 4), {})
    trusted = {"a reference": buffers()}
    found = judge(evidence(wrong, garbage_run([5] * 4), trusted=trusted))
    assert found.verdict is VerdictKind.WRONG_RESULT
    found = judge(evidence(wrong, garbage_run([5] * 4), trusted=trusted, is_clean=False))
    assert found.verdict is VerdictKind.UNINITIALISED


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("memory_fault", VerdictKind.MEMORY_FAULT),
        ("hang", VerdictKind.HANG),
        ("trap", VerdictKind.LAUNCH_FAILED),
    ],
)
def test_faults_have_verdicts_of_their_own(kind: Any, verdict: VerdictKind) -> None:
    fault = Fault(kind=kind, what="it falls", place=PLACE)
    found = judge(
        evidence((EARLY, buffers(), {}), (LATE, buffers(), {"faults": (fault,)}), problem=None)
    )
    assert (found.verdict, found.schedule) == (verdict, "first/late")
    expected = "it falls; PTX line 7: ld.shared.u32 %r1, [%r2]; (kernel.py:12)"
    assert found.reason == f"only under first/late, not under first/early: {expected}"
    failing = ((order, buffers(), {"faults": (fault,)}) for order in (EARLY, LATE))
    found = judge(evidence(*failing, problem="killed after 3 s"))
    assert (found.schedule, found.reason) == ("first/early, first/late", expected)


@pytest.mark.parametrize(
    "what",
    ["it falls", "the assertion 'n < 3' fails (kernel.py:12 in f): thread 3 of CTA (0, 0, 0)"],
)
def test_a_fault_is_the_same_in_every_file(what: str) -> None:
    def signature(name: str) -> str:
        source = PLACE.source.replace("kernel.py:12", name) if PLACE.source else ""
        there = what.replace("kernel.py:12", name)
        fault = Fault(kind="trap", what=there, place=replace(PLACE, source=source))
        found = judge(evidence((EARLY, buffers(), {"faults": (fault,)})))
        assert found.signature
        assert name in found.reason
        return found.signature.template

    assert signature("kernel.py:12") == signature("two_stores.py:9") == signature("k.cu:7")
    assert "L" not in signature("kernel.py:12").replace("CTA", "")


def test_a_race_without_effect_is_a_race_and_a_formal_one_is_a_note() -> None:
    trusted = {"a reference": buffers()}
    found = judge(evidence((EARLY, buffers(), {"races": (RACE,)}), trusted=trusted))
    assert found.verdict is VerdictKind.RACE
    [race] = found.races
    assert (race.kind, race.formal, race.ptx_lines) == ("write-read", False, (3, 7))
    assert race.source_lines == (None, "kernel.py:12")
    formal = replace(RACE, formal=True)
    found = judge(evidence((EARLY, buffers(), {"races": (formal,)}), trusted=trusted))
    assert found.verdict is VerdictKind.RIGHT
    assert "formal races: in the letter of the memory model alone" in found.reason
    assert found.signature is None
    found = judge(evidence((EARLY, buffers(), {"races": (formal,)}), trusted=trusted, formal=True))
    assert (found.verdict, found.races[0].formal) == (VerdictKind.RACE, True)
    assert found.signature is not None
    wrong: Any = (EARLY, buffers([9] * 4), {"races": (RACE,)})
    found = judge(evidence(wrong, trusted=trusted))
    assert (found.verdict, len(found.races)) == (VerdictKind.WRONG_RESULT, 1)


def test_a_read_that_shows_in_neither_order_of_the_warps_is_a_formal_race() -> None:
    """As of copies of an element, which one thread updates and another one only reads."""
    in_place = replace(RACE, space="global", within_cta=True)
    last = Schedule(warps="last", completion="early")
    trusted = {"reference": buffers()}
    first: Any = (EARLY, buffers(), {"races": (in_place,)})
    found = judge(evidence(first, (last, buffers(), {}), trusted=trusted))
    assert found.verdict is VerdictKind.RIGHT
    assert [race.formal for race in found.races] == [True]
    # The other order was not executed, or is not what the race is of.
    assert judge(evidence(first, trusted=trusted)).verdict is VerdictKind.RACE
    other: Any = (EARLY, buffers(), {"races": (RACE,)})
    found = judge(evidence(other, (last, buffers(), {}), trusted=trusted))
    assert found.verdict is VerdictKind.RACE
    # What was read shows.
    found = judge(evidence(first, (last, buffers([9] * 4), {}), trusted=trusted))
    assert found.verdict is not VerdictKind.RIGHT
    assert [race.formal for race in found.races] == [False]


def test_lanes_that_store_copies_of_a_sum_are_a_note_where_either_order_is_right() -> None:
    """Which of the copies stays shows in the last bits alone (triton-lang/triton#11614)."""
    words = "lanes 0 and 31 write 0x1 and 0x2 to shared address 0x0"
    lanes = replace(RACE, kind="lanes", what=words)
    last = Schedule(warps="last", completion="early")
    trusted = {"reference": buffers()}
    first: Any = (EARLY, buffers(), {"races": (lanes,)})
    other: Any = (last, buffers(np.nextafter(RIGHT, np.float32(9), dtype=np.float32)), {})
    for given in (trusted, {}):
        found = judge(evidence(first, other, trusted=given))
        assert found.verdict is (VerdictKind.RIGHT if given else VerdictKind.RAN)
        assert found.reason.endswith(
            f"rounding only{'' if given else '; no reference to compare with'}; {words}: "
            "whichever stays, values differ by rounding at most"
        )
        assert [race.formal for race in found.races] == [True]
    # It is a race where it is asked for, and where the other order was not run.
    found = judge(evidence(first, other, trusted=trusted, formal=True))
    assert (found.verdict, found.races[0].formal) == (VerdictKind.RACE, True)
    found = judge(evidence(first, trusted=trusted))
    assert (found.verdict, found.races[0].formal) == (VerdictKind.RACE, False)
    # What is more than rounding is wrong, and the race is listed with effect.
    for given, verdict in ((trusted, "wrong_result"), ({}, "nondeterministic")):
        found = judge(evidence(first, (last, buffers([9] * 4), {}), trusted=given))
        assert (found.verdict.value, found.races[0].formal) == (verdict, False)
    # Nor does it hide another one.
    both: Any = (EARLY, buffers(), {"races": (lanes, RACE)})
    found = judge(evidence(both, other, trusted=trusted))
    assert (found.verdict, [race.formal for race in found.races]) == (
        VerdictKind.RACE,
        [False, True],
    )
    assert found.reason.startswith(RACE.what)


def test_what_was_not_run_is_never_a_pass() -> None:
    said = "unknown instruction: foo.bar.b32"
    found = judge(evidence((EARLY, [], {"not_run": said})))
    assert (found.verdict, found.reason) == (VerdictKind.NOT_RUN, said)
    found = judge(evidence((EARLY, buffers(), {}), problem="killed after 3 s"))
    assert (found.verdict, found.reason) == (VerdictKind.NOT_RUN, "killed after 3 s")
    assert judge(evidence(problem="no worker")).verdict is VerdictKind.NOT_RUN


@pytest.mark.parametrize("needs", [None, 410_000_000])
@pytest.mark.parametrize("schedules", [(EARLY,), (EARLY, LATE)])
def test_a_budget_that_is_used_up_accuses_nobody_and_the_option_that_lifts_it_is_said(
    schedules: tuple[Schedule, ...], needs: int | None
) -> None:
    *ended, last = schedules
    said = "its 300,000,000 instructions of threads are used up"
    spent = {"not_run": said, "is_out_of_budget": True, "needs": needs, "executed": 300_000_000}
    runs: list[Any] = [(schedule, buffers(), {}) for schedule in ended]
    found = judge(evidence(*runs, (last, [], spent), trusted={"a reference": buffers([9] * 4)}))
    assert (found.verdict, found.signature) == (VerdictKind.NOT_RUN, None)
    assert said in found.reason
    option = "--max-instructions 410000000" if needs else "a larger --max-instructions"
    assert option in found.reason


def test_one_bug_has_one_signature_and_two_have_two() -> None:
    trusted = {"a reference": buffers()}

    def signature(out: Any, count: Any = (1, 2)) -> str:
        found = judge(evidence((EARLY, buffers(out, count), {}), trusted=trusted)).signature
        assert found is not None
        return found.key

    assert signature([9, 2, 3, 4]) == signature([1, 2, 3, 7])
    assert signature([9, 2, 3, 4]) != signature([9, 2, 3, 4], (0, 0))


WAITS = Fault(kind="hang", what="7 blocks wait without end", place=PLACE)
SAMPLE = {"ctas": 4, "ctas_of": 100, "is_sample": True}


@pytest.mark.parametrize("is_sampled", [True, False])
def test_a_sample_of_the_programs_is_compared_with_the_same_programs(is_sampled: bool) -> None:
    wrong: list[float] = [1.0, 2.0, 9.0, 4.0]
    runs = evidence((EARLY, buffers(wrong), SAMPLE), trusted={"a reference": buffers()})
    [trusted] = runs.launch.trusted
    found = judge(runs.held_to(replace(trusted, is_sampled=is_sampled)))
    assert found.verdict is (VerdictKind.WRONG_RESULT if is_sampled else VerdictKind.RAN)
    assert "4 of 100 programs were run" in found.reason


def test_a_sample_whose_programs_wait_for_others_is_not_run() -> None:
    hang = Fault(kind="hang", what="warp 0 waits", place=None)
    found = judge(evidence((EARLY, buffers(), {"faults": (hang,), **SAMPLE})))
    assert found.verdict is VerdictKind.NOT_RUN
    assert "4 of 100 programs were run" in found.reason


@pytest.mark.parametrize(
    ("fits", "of_last", "verdict", "words"),
    [
        (None, {}, VerdictKind.RIGHT, "it ends with 7 of 8 blocks at once, too"),
        (
            None,
            {"faults": (WAITS,)},
            VerdictKind.RIGHT,
            "a grid hangs that does not fit as a whole",
        ),
        (7, {"faults": (WAITS,)}, VerdictKind.HANG, "emulated PTX: 7 blocks wait without end; "),
        (7, {}, VerdictKind.RIGHT, "it ends with 7 of 8 blocks at once, too"),
        # Blocks may wait for those that were not run.
        (7, {"faults": (WAITS,), **SAMPLE}, VerdictKind.NOT_RUN, "4 of 100 programs were run"),
        (None, {"faults": (WAITS,), **SAMPLE}, VerdictKind.RIGHT, "agrees with a reference"),
    ],
)
def test_runs_with_fewer_blocks_at_once(
    fits: int | None, of_last: dict[str, Any], verdict: VerdictKind, words: str
) -> None:
    runs = evidence((EARLY, buffers(), {}), trusted={"a reference": buffers()})
    launch = replace(runs.launch, emulation=replace(runs.launch.emulation, grid=(8, 1, 1)))
    launch = launch.with_fewer_blocks(fits)
    trials = [trial for trial in launch.emulation.trials if trial.schedule.resident]
    first, last = (
        replace(runs.ran[0], trial=trial, **said)
        for trial, said in zip(trials, ({}, of_last), strict=True)
    )
    assert first.trial.schedule.warps != last.trial.schedule.warps
    # What fits is tried first, and the first fault ends all.
    ran = (first, last) if verdict is VerdictKind.HANG else (*runs.ran, first, last)
    found = judge(replace(runs, launch=launch, ran=ran))
    assert found.verdict is verdict
    assert words in found.reason
    if verdict is VerdictKind.HANG:
        assert found.schedule == "last/early@7"


@pytest.mark.parametrize(("baseline", "ratio"), [([1.0, 2.0, 3.0, 4.002], 0.5), (RIGHT, None)])
def test_an_error_is_held_to_that_of_the_baseline(baseline: Any, ratio: float | None) -> None:
    runs = evidence(
        (EARLY, buffers([1.0, 2.0, 3.0, 4.001]), {}), trusted={"a reference": buffers()}
    )
    contents = Contents(runs.contents)
    [trusted] = runs.launch.trusted
    launch = replace(
        runs.launch,
        trusted=(replace(trusted, is_final=True),),
        baseline=(None, contents.put(np.asarray(baseline, np.float32)), None),
        types=("float16",),
    )
    found = judge(replace(runs, launch=launch, contents=contents))
    assert found.verdict is VerdictKind.RIGHT
    [out] = [output for output in found.outputs if output.name == "out"]
    assert out.error_ratio == (ratio and pytest.approx(ratio, rel=1e-3))
    assert ("is 0.50 times that of the repro's baseline" in found.reason) == (ratio is not None)
