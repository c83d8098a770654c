"""What bugs and hunts cost grows with what there is, not with its square: counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from nights import night, record, row

from harness.bugs import list as bug_list
from harness.bugs.list import list_bugs
from harness.hunt import plan as hunt_plan
from harness.hunt.causes import Cause, LeastProgram, is_same_cause
from harness.hunt.oracles import HuntCase
from harness.hunt.plan import HuntPlan, HuntState, keep_hunt, known_causes
from harness.hunt.voting import HuntAnswer, Vote
from harness.store.bugs import number_bugs
from harness.store.store import Store
from harness.values.row import BugFacts
from harness.values.target import Target
from harness.values.toolchain import Assembler

SIZES = (100, 200, 400)


def check_linear(work: Callable[[int], int]) -> None:
    """Twice as much is at most 2.6 times the work: where it is quadratic, it is four times."""
    small, middle, large = map(work, SIZES)
    assert middle < 2.6 * small
    assert large < 2.6 * middle


def test_numbers_are_given_in_steps_of_sqlite_that_grow_with_the_bugs(tmp_path: Path) -> None:
    def steps(count: int) -> int:
        home, ticks = tmp_path / str(count), list[None]()
        night(home, [row("ptxas_ice", f"s{n}", warps=n) for n in range(count)])
        with sqlite3.connect(home / "triage.db") as db:
            db.set_progress_handler(lambda: ticks.append(None), 100)
            number_bugs(db)
            db.set_progress_handler(None, 0)
            assert db.execute("SELECT count(*) FROM bugs").fetchone() == (count,)
        return len(ticks)

    check_linear(steps)


def test_a_row_that_nights_repeat_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    decode = bug_list._decode

    def counted(body: bytes) -> BugFacts:
        decoded.append(body)
        return decode(body)

    monkeypatch.setattr(bug_list, "_decode", counted)
    rows = [row("ptxas_ice", "s", warps=n) for n in range(10)] + [row(warps=99)]
    night(tmp_path, rows)
    with Store.open(tmp_path) as store:
        for _ in range(20):
            again = store.begin_run("triage matrix run")
            store.put_again(again, store.latest_of([each.cell for each in rows]).values())
            store.finish_run(again)
        [bug] = list_bugs(store)
        assert (bug.first_seen, bug.last_seen) == (1, 21)
        assert len(decoded) == len(rows)
        # One that changes is another row.
        changed = store.begin_run("triage matrix run --config num_warps=0")
        store.put_result(changed, record(row("ok", warps=0)))
        store.finish_run(changed)
        decoded.clear()
        [bug] = list_bugs(store)
    assert len(decoded) == len(rows) + 1
    assert (bug.cells, bug.cells_now) == (10, 9)


def test_what_hunts_have_in_common_is_compared_once_for_each_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[None] = []

    def counted(one: LeastProgram, two: LeastProgram) -> bool:
        compared.append(None)
        return is_same_cause(one, two)

    monkeypatch.setattr(hunt_plan, "is_same_cause", counted)
    answer = HuntAnswer(vote=Vote.WRONG, levels=(3,))
    ptxas = Assembler(version="13.0.88", path=Path("ptxas"), sha256="0", origin="test")

    def comparisons(count: int) -> int:
        text = ".version 8.0\n.target sm_90\n.visible .entry k()\n{{\nop{0} %r1, %r0;\nret;\n}}\n"
        state = HuntState(
            causes=[
                Cause(programs=[LeastProgram.of(HuntCase(text.format(n), n), answer)])
                for n in range(count)
            ]
        )
        compared.clear()
        with Store.open(tmp_path / str(count)) as store:
            for seed in (1, 2):
                plan = HuntPlan(tool=ptxas, targets=(Target.parse("90"),), seed=seed, seconds=1.0)
                keep_hunt(store, plan, state)
            assert not compared
            assert len(known_causes(store, plan)) == count
        return len(compared)

    check_linear(comparisons)
