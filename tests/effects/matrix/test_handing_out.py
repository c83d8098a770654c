"""Nights on other machines, with an acted compiler and machines that fail as a test writes down.

The machines are threads of this process; what goes there and back is what Dask would carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from acted_front_end import Stage
from acted_machines import Threads, Work

from harness.cells.matrix_file import read_matrix
from harness.cells.places import RunProgress
from harness.io.processes.cluster import LostWorkersError
from harness.matrix import elsewhere as handing_out
from harness.matrix import workers as at_worker
from harness.matrix import workers as by_name
from harness.matrix import workers as common_evidence
from harness.matrix.night import MatrixReport, make_plan, run_matrix
from harness.matrix.run_policy import MatrixOptions
from harness.matrix.workers import CaptureAnswer, encode, worker_loop
from harness.store.merge import open_parcel, pack, take_over
from harness.store.store import Store
from harness.values.errors import InfrastructureError, UsageError

pytest_plugins = ("acted_fixtures",)

MATRIX = """\
version: 1
toolchains:
  ptxas: {spec: ['==1.0', '==2.0']}
  compilers: {acted: {spec: '>=1'}}
targets: [sm_80]
kernels: [kernel.acted]
"""
EXCLUDES = """\
exclude:
  - {config: width=1, reason: it is as width=2}
  - {config: width=9, reason: there is none}
"""
CELLS = {"ok": 8, "ptxas_ice": 4}


class OneAtATime(Threads):
    """One of them: it does one thing after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Lock()

    async def run(self, work: Work, message: bytes, *, name: str, rank: int) -> bytes:
        async with self.turn:
            return await super().run(work, message, name=name, rank=rank)


def night(
    stage: Stage,
    machines: Threads | None,
    more: str = "",
    *,
    max_time: float | None = None,
    store: Store | None = None,
) -> MatrixReport:
    path = Path("m.yaml")
    path.write_text(MATRIX + more)
    matrix = read_matrix(path)
    options = MatrixOptions(max_time=max_time, work=stage.how)
    home = store or stage.store

    async def work() -> MatrixReport:
        plan = make_plan(matrix, options, home)
        return await run_matrix(matrix, home, options, RunProgress(), plan, machines)

    return stage.run(work())


@pytest.fixture
def crashes(stage: Stage) -> Iterator[Stage]:
    ran = str(stage.folder / "ran")
    stage.ptxas("1.0", "2.0", before=f"open({ran!r}, 'a').write('x')\n")
    stage.acted.act = lambda version, _: "ice" if version == "1.1" else "ok"
    yield stage
    worker_loop().close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path / "other")) as store:
        yield store


def rows(store: Store, run: int = 1) -> list[dict[str, Any]]:
    """What a run found out, without how long that took and what was there already."""
    found = [msgspec.json.decode(each.row) for each in store.run_bodies(run)]
    return [{k: v for k, v in each.items() if k not in ("seconds", "cached")} for each in found]


def test_results_are_those_of_a_night_on_one_machine(crashes: Stage, other: Store) -> None:
    machines = Threads()
    report = night(crashes, machines)
    assert report.verdicts == CELLS
    assert (report.is_complete, report.unexpected) == (True, 4)
    # One piece of work for each capture.
    assert sorted(machines.sent) == [
        f"kernel.acted/acted@sm_80/acted-{version}" for version in ("1.0", "1.1", "2.0")
    ]
    crashes.acted.asked.clear()
    assert night(crashes, None, store=other).verdicts == CELLS
    assert rows(crashes.store) == rows(other)
    here, there = (
        {record.cell: record.evidence for record in each.latest_results("kernel.acted")}
        for each in (crashes.store, other)
    )
    assert here == there
    # What they were judged from came, too.
    [cell] = [each for each in here if "width=2" in each and "2.0/ptxas-2.0" in each]
    for kind in ("lower", "assemble", "inspect"):
        assert crashes.store.get_evidence(kind, here[cell][kind]) is not None


def test_what_captures_have_in_common_is_assembled_once_in_each_process(
    crashes: Stage, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = crashes.folder / "ran"
    Path("twin.acted").write_text(Path("kernel.acted").read_text())
    twice = MATRIX.replace("kernel.acted", "kernel.acted, twin.acted").replace(">=1", "==2.0")
    monkeypatch.setitem(globals(), "MATRIX", twice)
    night(crashes, None, store=other)
    alone = len(ran.read_text())
    many = common_evidence.TASKS_KEPT
    for kept, machines in ((many, OneAtATime()), (0, OneAtATime()), (many, Threads())):
        monkeypatch.setattr(common_evidence, "TASKS_KEPT", kept)
        crashes.acted.revision += 1
        ran.unlink()
        assert night(crashes, machines).verdicts == {"ok": 8}
        # What is not kept is made again; what two are at work on is made once.
        assert len(ran.read_text()) == (alone if kept else 2 * alone)
    assert rows(crashes.store) == rows(other)


def test_a_second_night_needs_no_machine(crashes: Stage) -> None:
    night(crashes, Threads())
    machines = Threads()
    report = night(crashes, machines)
    assert (report.carried, report.verdicts, machines.sent) == (12, CELLS, [])
    assert night(crashes, None).carried == 12


def test_work_that_was_lost_is_done_again_with_nothing_beside_it(crashes: Stage) -> None:
    def fate(name: str, nth: int) -> None:
        if "acted-1" in name and nth == 1:
            raise LostWorkersError(f"{name}: its worker was lost 4 times")

    machines = Threads(fate=fate)
    report = night(crashes, machines)
    assert (report.verdicts, report.failures) == (CELLS, ())
    assert len(machines.sent) == 5
    assert machines.alone[-2:] == machines.sent[-2:]
    # Nothing was worked on twice.
    assert sorted(crashes.acted.asked) == ["1.0"] * 2 + ["1.1"] * 2 + ["2.0"] * 2


def test_what_ends_every_machine_is_infra_and_holds_up_nothing(crashes: Stage) -> None:
    def fate(name: str, _nth: int) -> None:
        if name.endswith("acted-2.0"):
            raise LostWorkersError(f"{name}: its worker was lost 4 times")

    report = night(crashes, Threads(fate=fate))
    assert report.verdicts == {"ok": 4, "ptxas_ice": 4, "infra": 4}
    assert report.failures == ("kernel.acted/acted@sm_80/acted-2.0: its worker was lost 4 times",)
    assert report.exit_code(strict_fixed=False) == 1
    machines = Threads()
    assert night(crashes, machines).verdicts == CELLS
    assert machines.sent == ["kernel.acted/acted@sm_80/acted-2.0"]


def test_without_its_scheduler_a_night_keeps_what_it_has_and_goes_on(crashes: Stage) -> None:
    gone = InfrastructureError("the scheduler is gone")

    def fate(name: str, _nth: int) -> None:
        if name.endswith("acted-1.1"):
            # The others have answered by then.
            raise gone

    @dataclass
    class OneByOne(Threads):
        async def run(self, work: Work, message: bytes, *, name: str, rank: int) -> bytes:
            if name.endswith("acted-1.1"):
                while len(list(crashes.store.run_bodies(1))) < 8:
                    await asyncio.sleep(0.01)
            return await Threads.run(self, work, message, name=name, rank=rank)

    with pytest.raises(InfrastructureError, match="scheduler is gone"):
        night(crashes, OneByOne(fate=fate))
    assert len(rows(crashes.store)) == 8
    machines = Threads()
    report = night(crashes, machines)
    assert (report.verdicts, report.carried) == (CELLS, 8)
    assert machines.sent == ["kernel.acted/acted@sm_80/acted-1.1"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (CaptureAnswer(host="there", parcel=b"what is this"), "what there answered is refused"),
        (CaptureAnswer(host="there", failures=("its disk is full",)), "there: its disk is full"),
    ],
)
def test_an_answer_without_results_leaves_the_night_incomplete(
    crashes: Stage, answer: CaptureAnswer, said: str
) -> None:
    report = night(crashes, Threads(fate=lambda name, _: encode(answer) if "2.0" in name else None))
    assert report.verdicts == {"ok": 4, "ptxas_ice": 4}
    [failure] = report.failures
    assert said in failure
    assert not report.is_complete


def test_a_machine_with_another_triage_says_so(
    crashes: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_worker, "_code", lambda: "older")
    report = night(crashes, Threads())
    assert report.verdicts == {}
    [failure] = report.failures
    assert "its triage is another version" in failure


def test_a_machine_with_another_source_or_compiler_says_so(
    crashes: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = by_name._same
    asked = iter(range(9))

    def differs(place: Any) -> dict[str, str]:
        found = same(place)
        # First the three here, then those there.
        return found if next(asked) < 3 else {**found, "Acted 1.1 or its settings": "others"}

    monkeypatch.setattr(by_name, "_same", differs)
    report = night(crashes, Threads())
    assert report.verdicts == {"ok": 8}
    [failure] = report.failures
    assert failure.endswith("other than where the run was started: Acted 1.1 or its settings")


def test_what_failed_before_is_confirmed_there_too(crashes: Stage) -> None:
    night(crashes, Threads())
    crashes.acted.act = lambda *_: "ok"
    crashes.acted.revision = 1
    crashes.acted.asked.clear()
    report = night(crashes, Threads())
    assert report.verdicts == {"ok": 12}
    assert report.exit_code(strict_fixed=True) == 5
    # A fix is said when it was seen twice, for each ptxas.
    assert sorted(crashes.acted.asked) == ["1.0"] * 2 + ["1.1"] * 6 + ["2.0"] * 2


def test_exclusions_hold_there_and_are_counted_here(crashes: Stage) -> None:
    report = night(crashes, Threads(), EXCLUDES)
    assert report.verdicts == {"ok": 4, "ptxas_ice": 2}
    assert report.excluded == 6
    assert [each for each in report.warnings if "matches no cell" in each] == [
        "m.yaml:9: exclude[1] matches no cell"
    ]


def test_without_time_nothing_is_handed_out(crashes: Stage) -> None:
    machines = Threads()
    report = night(crashes, machines, max_time=0.0)
    assert (report.verdicts, machines.sent) == ({}, [])
    assert report.skipped_captures == 3
    assert report.exit_code(strict_fixed=False) == 4


def test_machines_that_never_answer_end_with_the_time(crashes: Stage) -> None:
    @dataclass
    class Gone(Threads):
        async def run(self, work: Work, message: bytes, *, name: str, rank: int) -> bytes:
            return await asyncio.Future()

    with pytest.MonkeyPatch.context() as patch:
        # What a compiler and launch code are given after the time is up.
        patch.setattr(handing_out.CaptureDispatcher, "_grace", lambda _: 0.1)
        report = night(crashes, Gone(), max_time=0.2)
    assert (report.verdicts, report.skipped_captures) == ({}, 3)


def test_a_parcel_is_data_from_elsewhere(tmp_path: Path) -> None:
    empty = msgspec.msgpack.encode((b"", {}))
    for data in (b"", b"\x80", empty):
        with pytest.raises(UsageError), open_parcel(data):
            pass
    with Store.open(tmp_path / "there") as store:
        sha256 = store.artifacts.put(b"what was found out")
        store.put_evidence("capture", "key", b"{}", {"log": sha256})
    parcel = msgspec.msgpack.decode(pack(tmp_path / "there"))
    for packed, kept in ((b"anything", None), (parcel[1][sha256], b"{}")):
        parcel[1][sha256] = packed
        with (
            Store.open(tmp_path / "here") as store,
            open_parcel(msgspec.msgpack.encode(parcel)) as source,
        ):
            take_over(store, [source])
            found = store.get_evidence("capture", "key")
        assert (found and found.body) == kept


def test_other_machines_have_limits_of_their_own(crashes: Stage) -> None:
    night(crashes, Threads(are_here=False))
    found = next(crashes.store.latest_results("kernel.acted"))
    # Not what this one was given, which is less than any machine gives.
    assert found.evidence["limits"] != "300 s, 1073741824 B"
