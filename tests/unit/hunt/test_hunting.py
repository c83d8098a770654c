"""The order in which versions are asked, programs that do not end, and causes as repros."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from gpu_emulator import api
from gpu_emulator.values import Budget, Checks, Cubin, Launch, Outcome, Schedule
from harness.cells.repros.find import find_kernel
from harness.hunt import hunting, voting
from harness.hunt.causes import Cause, LeastProgram
from harness.hunt.hunt_words import hunt_said
from harness.hunt.hunted_repros import write_repros
from harness.hunt.oracles import HuntCase
from harness.hunt.plan import VOTES_ON_PTXAS, VOTES_ON_TRITON, Hit, HuntPlan, HuntReport, HuntState
from harness.hunt.ptxas_hunt import apart
from harness.hunt.voting import HuntAnswer, Vote, Voter, vote_on
from harness.run.emulating import emulator_sha256
from harness.run.raw import inputs_of
from harness.values.target import Target
from harness.values.toolchain import GPU, SASS, Assembler, Compiler


def test_versions_that_are_asked_first_lie_apart() -> None:
    assert apart([1, 2, 3, 4, 5, 6, 7]) == [7, 1, 4, 2, 5, 3, 6]
    assert apart([1, 2]) == [2, 1]
    assert apart([1]) == [1]
    assert apart([]) == []


ENDLESS = """.version 7.8
.target sm_90
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m)
{
.reg .b32 %r0;
.reg .pred %p0;
mov.u32 %r0, %tid.x;
L1:
xor.b32 %r0, %r0, 1;
setp.ne.u32 %p0, %r0, 80;
@%p0 bra L1;
ret;
}
"""


def test_a_program_that_does_not_end_is_left_out_soon() -> None:
    answer = vote_on(Voter(text=ENDLESS, seed=1, entry="k"), {}, is_thorough=False)
    assert answer.vote is Vote.LEFT_OUT
    assert answer.words == "no end within 50,000 instructions of threads"


@pytest.mark.parametrize(("needs", "vote"), [(19, Vote.RIGHT), (21, Vote.WRONG)])
def test_a_cubin_that_takes_longer_is_given_more_before_it_is_accused(
    monkeypatch: pytest.MonkeyPatch, needs: int, vote: Vote
) -> None:
    text = ENDLESS.replace("@%p0 bra L1;", "")
    budgets: list[int] = []

    def run(launch: Launch, schedule: Schedule, budget: Budget, checks: Checks) -> Outcome:
        if launch.cubin is None:
            return api.run(launch, schedule, budget, checks)
        budgets.append(budget.max_instructions)
        if budget.max_instructions < needs * budgets[0]:
            return Outcome(not_run="its instructions are used up", is_out_of_budget=True)
        return Outcome(allocations=launch.allocations)

    monkeypatch.setattr(voting, "run", run)
    answer = vote_on(
        Voter(text=text, seed=1, entry="k"), {3: Cubin(elf=b"", listing="")}, is_thorough=False
    )
    assert answer.vote is vote
    assert budgets[:2] == [budgets[0], 20 * budgets[0]]


STORES = """.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m)
{
.reg .b32 %r0;
.reg .b64 %out;
ld.param.u64 %out, [out];
mov.u32 %r0, OPERAND;
popc.b32 %r0, %r0;
st.global.u32 [%out], %r0;
ret;
}
"""


def test_a_cause_is_a_repro_with_a_name_for_what_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptxas = Assembler(version="13.0.88", origin="bundled", path=tmp_path, sha256="0")
    target = Target.parse("90")
    plan = HuntPlan(tool=ptxas, targets=(target,), seed=3, seconds=1.0, on=SASS)
    causes = [
        Cause(
            programs=[
                LeastProgram.of(
                    HuntCase(STORES.replace("OPERAND", operand), 1),
                    HuntAnswer(vote=Vote.WRONG, levels=levels),
                )
            ]
        )
        for operand, levels in (("7", (3,)), ("15", (0, 3)))
    ]
    report = HuntReport(plan=plan, state=HuntState(causes=causes))
    one, both = write_repros(report, tmp_path)
    for way, words in (({}, "--on sass"), ({"on": GPU, "runner": "ssh box"}, "--runner 'ssh box'")):
        command = structs.replace(plan, **way).command(one, causes[0].least)
        assert f"triage run --kernel {Path(one).name} {words} --sm sm_90 --ptxas" in command
    monkeypatch.chdir(Path(one).parents[1])
    inputs = inputs_of(find_kernel(Path(one).name))
    assert [buffer.name for buffer in inputs.buffers] == ["in", "out_of_popc_at_o3"]
    assert not inputs.expected
    # Where no cubin agrees with the PTX, what this leaves is written down.
    [(name, file)] = inputs_of(find_kernel(Path(both).name)).expected
    assert name == "out_of_popc_at_o0_and_o3"
    assert np.load(Path(both) / file)[0] == 4


def test_each_module_of_a_hunt_votes_or_only_says_what_was_found() -> None:
    modules = {path.stem for path in Path(hunting.__file__).parent.glob("*.py")}
    says = {"__init__", "causes", "hunted_repros", "hunting", "hunt_words", "plan", "ptxas_hunt"}
    says |= {"triton_hunt", "variants"}
    assert modules == {*VOTES_ON_PTXAS, *VOTES_ON_TRITON} | says
    assert says.isdisjoint((*VOTES_ON_PTXAS, *VOTES_ON_TRITON))


PTXAS_PLAN = HuntPlan(
    tool=Assembler(version="13.0.88", path=Path("ptxas"), sha256="0", origin="test"),
    targets=(Target.parse("90"),),
    seed=1,
    seconds=1.0,
)
TRITON_PLAN = HuntPlan(
    tool=Compiler(version="3.6.0", origin="test"),
    targets=(Target.parse("90"),),
    seed=1,
    seconds=1.0,
)


@pytest.mark.parametrize(
    ("file", "plan", "is_another"),
    [
        ("gpu_emulator/sass/decoding.py", PTXAS_PLAN, True),
        ("gpu_emulator/state/atomics.py", PTXAS_PLAN, True),
        ("hunt/voting.py", PTXAS_PLAN, True),
        ("hunt/hunt_words.py", PTXAS_PLAN, False),
        ("hunt/causes.py", PTXAS_PLAN, False),
        ("gpu_emulator/sass/decoding.py", TRITON_PLAN, True),
        ("run/comparing.py", TRITON_PLAN, True),
        ("triton/child/recording.py", TRITON_PLAN, True),
        ("hunt/hunt_words.py", TRITON_PLAN, False),
    ],
)
def test_a_hunt_is_another_where_what_decides_a_vote_has_changed(
    file: str, plan: HuntPlan, is_another: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator_sha256.cache_clear()
    before, read, changed = plan.key, Path.read_bytes, list[Path]()

    def other(path: Path) -> bytes:
        if not path.as_posix().endswith(file):
            return read(path)
        changed.append(path)
        return read(path) + b"# mended"

    monkeypatch.setattr(Path, "read_bytes", other)
    emulator_sha256.cache_clear()
    try:
        assert (plan.key != before) is is_another
        assert bool(changed) is is_another
    finally:
        emulator_sha256.cache_clear()


@pytest.mark.parametrize("waits", [False, True])
def test_a_hunt_whose_hits_wait_has_not_found_nothing(waits: bool) -> None:
    answer = HuntAnswer(vote=Vote.WRONG, levels=(3,))
    hit = Hit(asked=HuntCase(STORES, 1), answer=answer)
    state = HuntState(tried=128, votes={"wrong": int(waits)}, waiting=[hit] if waits else [])
    lines = str(hunt_said(HuntReport(plan=PTXAS_PLAN, state=state), []))
    assert ("nothing was found" in lines) is not waits
    assert ("1 hits are not reduced yet" in lines) is waits
