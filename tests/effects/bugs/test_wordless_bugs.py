"""Bugs of failures that say nothing: numbered by program, and joined by evidence or by people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from harness.bugs.list import join_bugs, list_bugs, set_state
from harness.cells.evaluate import Evaluated
from harness.cells.places import record_of
from harness.judging.signature import make_signature
from harness.store.merge import open_foreign, take_over
from harness.store.store import Store
from harness.values.bug import Bug, HumanState
from harness.values.cell import CellId
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import Stage, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("store_fixtures",)

ICE = make_signature(
    stage=Stage.CUBIN, kind=VerdictKind.PTXAS_ICE, message="Internal compiler error.", code="C7907"
)


def keep(
    store: Store,
    kernel: str,
    ptx: str,
    *,
    triton: str | None = "3.6.0",
    ptxas: str = "13.1.80",
    warps: int = 4,
    works: bool = False,
) -> None:
    """Keep one result of a kernel: C7907, unless it works."""
    cell = CellId(
        kernel=kernel,
        launch="default",
        config=Config.of({"num_warps": warps}),
        target=Target.parse("sm_100a"),
        compiler=f"triton-{triton}" if triton else "ptx",
        ptxas=ptxas,
    )
    row = Row(
        cell=str(cell),
        short=cell.short,
        kernel=kernel,
        launch="default",
        config=cell.config.as_dict(),
        target="sm_100a",
        triton=triton,
        compiler="triton" if triton else None,
        compiler_version=triton,
        ptxas=ptxas,
        ptxas_origin="nvidia-cuda-nvcc",
        verdict=VerdictKind.OK if works else VerdictKind.PTXAS_ICE,
        reason="compiled" if works else "ptxas ended with exit code 255",
        stage=None if works else "cubin",
        signature=None if works else ICE.key,
        ptx_body_sha256=ptx * 64,
    )
    run = store.begin_run("triage compile")
    done = Evaluated(row=row, evidence={}, signature=None if works else ICE)
    store.put_result(run, record_of(done))
    store.finish_run(run)


def bugs(store: Store) -> dict[int, list[str]]:
    return {bug.record.number: list(bug.kernels) for bug in list_bugs(store)}


def bug(store: Store, number: int) -> Bug:
    return next(each for each in list_bugs(store) if each.record.number == number)


def test_one_bug_for_each_program_and_one_for_all_configs_of_a_kernel(store: Store) -> None:
    keep(store, "fwd", "1")
    keep(store, "fwd", "2", warps=8)
    keep(store, "bwd", "3")
    keep(store, "k.ptx", "4", triton=None)
    keep(store, "k.ptx", "5", triton=None, warps=8)
    assert bugs(store) == {1: ["fwd"], 2: ["bwd"], 3: ["k.ptx"], 4: ["k.ptx"]}
    assert bug(store, 1).cells == 2
    keep(store, "fwd", "6", warps=16)
    assert bug(store, 1).cells == 3


def test_the_same_ptx_of_two_kernels_is_one_bug_and_says_why(store: Store) -> None:
    keep(store, "fwd", "1")
    keep(store, "copy", "2")
    assert bugs(store) == {1: ["fwd"], 2: ["copy"]}
    keep(store, "copy", "1", warps=8)
    assert bugs(store) == {1: ["copy", "fwd"]}
    (joined,) = bug(store, 1).joined
    assert (joined.number, joined.state, joined.duplicate_of) == (2, HumanState.DUPLICATE, 1)
    assert joined.note == (
        "joined with bug 1: the same PTX (1111111111111111) fails in the same way in both"
    )


def test_histories_are_compared_and_a_join_keeps_its_reason(store: Store) -> None:
    for kernel, ptx in (("fwd", "1"), ("bwd", "2"), ("new", "3")):
        keep(store, kernel, ptx)
        keep(store, kernel, ptx, ptxas="13.0.88", works=True)
        keep(store, kernel, ptx, ptxas="13.3.33", works=kernel != "new")
    told = {each.number: each.agrees for each in bug(store, 1).likeness}
    assert told == {2: True, 3: False}
    with pytest.raises(UsageError, match=r"--because TEXT .* are different: histories differ in"):
        join_bugs(store, 1, 3, None)
    record = join_bugs(store, 1, 2, None)
    assert record.note.startswith("joined with bug 1: may be the same: histories agree (")
    assert join_bugs(store, 1, 3, "one fix for both").note == "joined with bug 1: one fix for both"
    assert bugs(store) == {1: ["bwd", "fwd", "new"]}
    with pytest.raises(UsageError, match="bug 2 was joined with bug 1"):
        set_state(store, 2, HumanState.UNTRIAGED, None)
    # Later results of a joined program follow.
    keep(store, "bwd", "7", warps=16)
    assert bug(store, 1).kernels["bwd"] == 2


@pytest.mark.parametrize(
    ("numbers", "said"), [((1, 1), "with itself"), ((1, 9), "there is no bug 9")]
)
def test_what_cannot_be_joined(store: Store, numbers: tuple[int, int], said: str) -> None:
    keep(store, "fwd", "1")
    with pytest.raises(UsageError, match=said):
        join_bugs(store, *numbers, "because")


def test_stores_that_are_merged_keep_bugs_apart_and_joined(home: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "other") as other:
        keep(other, "fwd", "1")
        keep(other, "bwd", "2")
        keep(other, "third", "3")
        list_bugs(other)
        join_bugs(other, 1, 2, "one fix for both")
    with Store.open(home) as store:
        keep(store, "bwd", "2")
        keep(store, "fwd", "1")
        set_state(store, bug(store, 1).record.number, HumanState.EXPECTED, None)
        with open_foreign(tmp_path / "other") as foreign:
            take_over(store, [foreign])
        assert sorted(bugs(store).values()) == [["bwd", "fwd"], ["third"]]
        keeper = next(each for each in list_bugs(store) if "fwd" in each.kernels)
        (joined,) = keeper.joined
        assert "another store has joined them" in joined.note


def test_a_failure_with_words_is_one_bug_in_all_kernels(store: Store) -> None:
    words = replace(ICE, template="Unknown symbol 'x'")
    for kernel in ("fwd", "bwd"):
        run = store.begin_run("triage compile")
        cell = CellId(
            kernel=kernel,
            launch="default",
            config=Config.of({}),
            target=Target.parse("sm_90"),
            compiler="ptx",
            ptxas="13.1.80",
        )
        row = Row(
            cell=str(cell),
            short=cell.short,
            kernel=kernel,
            launch="default",
            config={},
            target="sm_90",
            triton=None,
            ptxas="13.1.80",
            ptxas_origin="x",
            verdict=VerdictKind.PTXAS_ERROR,
            reason="Unknown symbol 'x'",
            stage="cubin",
            signature=words.key,
            ptx_body_sha256=kernel,
        )
        store.put_result(run, record_of(Evaluated(row=row, evidence={}, signature=words)))
    assert bugs(store) == {1: ["bwd", "fwd"]}
