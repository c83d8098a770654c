"""The store: what was put is found again, whatever happens to the process, the disk or the file."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.effects import store as module
from harness.effects.artifacts import DamagedArtifactError
from harness.effects.store import ResultRecord, Store
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY = 86400.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def record(cell: str = "k/l/num_warps=4@sm_90a", **changes: object) -> ResultRecord:
    base = ResultRecord(
        cell=cell,
        short=cell.encode().hex()[:12],
        kernel="k",
        launch="l",
        config={"num_warps": 4, "maxnreg": None},
        target="sm_90a",
        triton="3.6.0",
        ptxas="12.8.93",
        verdict="ok",
        row=b'{"cell": "..."}',
        evidence={"lower": "aa", "assemble": "bb"},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def raw(home: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(home / "triage.db", isolation_level=None))


def one_line(error: pytest.ExceptionInfo[StorageError]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


# --- evidence ---------------------------------------------------------------------------------


@given(
    body=st.binary(max_size=2000),
    key=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    payloads=st.dictionaries(st.sampled_from(["ptx", "log", "cubin", "é"]), st.binary()),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
def test_evidence_round_trip(
    store: Store, body: bytes, key: str, payloads: dict[str, bytes]
) -> None:
    names = {role: store.artifacts.put(data) for role, data in payloads.items()}
    store.put_evidence("lower", key, body, names)
    found = store.get_evidence("lower", key)
    assert found == (body, names)
    assert found is not None
    assert {role: store.artifacts.get(name) for role, name in found.artifacts.items()} == payloads
    assert store.get_evidence("assemble", key) is None


def test_evidence_is_replaced_whole_and_survives_reopening(store: Store, home: Path) -> None:
    first, second = store.artifacts.put(b"1"), store.artifacts.put(b"2")
    store.put_evidence("lower", "key", b"old", {"ptx": first, "log": first})
    store.put_evidence("lower", "key", b"new", {"cubin": second})
    store.close()
    with Store.open(home) as again:
        assert again.get_evidence("lower", "key") == (b"new", {"cubin": second})
        assert again.notice is None
        again.drop_evidence("lower", "key")
        again.drop_evidence("lower", "never there")
        assert again.get_evidence("lower", "key") is None


def test_evidence_without_its_artifact_is_to_be_made_again(store: Store) -> None:
    name = store.artifacts.put(b"ptx")
    store.put_evidence("lower", "key", b"{}", {"ptx": name, "log": store.artifacts.put(b"log")})
    store.artifacts.remove(name)
    assert store.get_evidence("lower", "key") is None
    store.artifacts.put(b"ptx")
    assert store.get_evidence("lower", "key") is not None


def test_a_damaged_artifact_leads_to_made_again(store: Store) -> None:
    name = store.artifacts.put(b"ptx" * 100)
    store.put_evidence("lower", "key", b"{}", {"ptx": name})
    (file,) = (store.home / "artifacts" / name[:2]).iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert store.get_evidence("lower", "key") is not None  # looked for, not read
    with pytest.raises(DamagedArtifactError):
        store.artifacts.get(name)
    assert store.get_evidence("lower", "key") is None


def test_get_many(store: Store) -> None:
    for number in range(1500):
        store.put_evidence("inspect", f"key{number}", str(number).encode(), {})
    store.put_evidence("inspect", "lost", b"", {"sass": "0" * 64})
    found = store.get_many("inspect", [f"key{number}" for number in range(1, 2000)] + ["lost"])
    assert {key: body for key, (body, _) in found.items()} == {
        f"key{number}": str(number).encode() for number in range(1, 1500)
    }
    assert store.get_many("inspect", []) == {}


def test_last_use_is_written_once_a_day(home: Path) -> None:
    now = [1000.0]
    with Store.open(home, clock=lambda: now[0]) as store, raw(home) as db:

        def used() -> float:
            value: float = db.execute("SELECT used FROM evidence").fetchone()[0]
            return value

        def version() -> int:
            value: int = db.execute("PRAGMA data_version").fetchone()[0]
            return value

        store.put_evidence("lower", "key", b"{}", {})
        before = version()
        now[0] += DAY - 1
        assert store.get_evidence("lower", "key")
        assert used() == 1000.0
        assert version() == before, "reading wrote to the database"
        now[0] += 2
        assert store.get_evidence("lower", "key")
        assert used() == 1000.0 + DAY + 1
        assert version() != before


def test_a_changed_byte_in_evidence_is_noticed(store: Store, home: Path) -> None:
    store.put_evidence("lower", "body", b'{"n_regs": 32}', {})
    store.put_evidence("lower", "role", b"{}", {"ptx": store.artifacts.put(b"x")})
    with raw(home) as db:
        db.execute("UPDATE evidence SET body = ? WHERE key = 'body'", (b'{"n_regs": 33}',))
        db.execute("DELETE FROM evidence_artifacts WHERE key = 'role'")
    assert store.get_evidence("lower", "body") is None
    assert store.get_evidence("lower", "role") is None
    assert store.stats().evidence == {}


def test_speed(store: Store, home: Path) -> None:
    names = {role: store.artifacts.put(role.encode()) for role in ("ptx", "log", "meta")}
    for number in range(2000):
        store.put_evidence("lower", f"key{number}", b"x" * 500, names)

    def best_of(count: int, work: Callable[[], object]) -> float:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return min(times)

    # Twice the bars of the design: the machine is shared.
    assert best_of(7, lambda: Store.open(home).close()) < 0.020
    keys = [f"key{number}" for number in range(100)]
    assert best_of(7, lambda: [store.get_evidence("lower", key) for key in keys]) < 0.040
    assert best_of(7, lambda: store.get_many("lower", keys)) < 0.020


# --- history ----------------------------------------------------------------------------------


def test_runs(home: Path) -> None:
    now = [100.0]
    with Store.open(home, clock=lambda: now[0]) as store:
        assert store.last_run() is None
        first = store.begin_run("triage compile --kernel k")
        now[0] = 160.0
        second = store.begin_run("triage matrix run")
        store.finish_run(first)
        latest, earlier = store.runs()
        assert (latest.id, latest.command, latest.started) == (second, "triage matrix run", 160.0)
        assert latest.finished is None
        assert (earlier.id, earlier.finished) == (first, 160.0)
        assert latest.uid != earlier.uid
        assert store.last_run() == latest


def test_results_round_trip(home: Path) -> None:
    with Store.open(home, clock=lambda: 500.0) as store:
        run = store.begin_run("c")
        given_record = record(signature_key="assemble/C7907", row=b"\x00\xff not even JSON")
        store.put_result(run, given_record)
        assert list(store.run_rows(run)) == [replace(given_record, run=run, created=500.0)]
        store.put_result(run, replace(given_record, verdict="sick", created=7.0))
        assert list(store.run_rows(run)) == [
            replace(given_record, run=run, verdict="sick", created=7.0)
        ]


def test_result_of_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(StorageError, match="run 99 is not in") as error:
        store.put_result(99, record())
    one_line(error)
    assert list(store.run_rows(99)) == []


def test_a_batch_of_results_is_kept_whole_or_not_at_all(store: Store) -> None:
    run = store.begin_run("c")
    broken = record("b", verdict=None)
    with pytest.raises(StorageError):
        store.put_results(run, [record("a"), broken])
    assert list(store.run_rows(run)) == []
    store.put_results(run, [record("a"), record("b")])
    assert len(list(store.run_rows(run))) == 2


def test_pages_join_without_loss_or_doubles(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 7)
    run, other = store.begin_run("c"), store.begin_run("other")
    cells = [f"cell{number:03}" for number in range(50)]
    store.put_results(run, [record(cell) for cell in reversed(cells)])
    store.put_results(other, [record(cell) for cell in cells[:20]])
    assert [row.cell for row in store.run_rows(run)] == cells
    history = [(row.run, row.cell) for row in store.history("k")]
    assert history == [(run, cell) for cell in reversed(cells)] + [
        (other, cell) for cell in cells[:20]
    ]


def test_history_by_kernel_and_config(store: Store) -> None:
    run = store.begin_run("c")
    two: dict[str, int | None] = {"maxnreg": None, "num_warps": 2}
    store.put_results(
        run,
        [
            record("a", triton="3.7.1", created=3.0),
            record("b", triton="3.5.1", created=1.0),
            record("c", config=two, created=2.0),
            record("d", kernel="another", created=0.0),
        ],
    )
    assert [row.cell for row in store.history("k")] == ["b", "c", "a"]
    assert [row.cell for row in store.history("k", {"num_warps": 2, "maxnreg": None})] == ["c"]
    assert list(store.history("k", {"num_warps": 2})) == []
    assert list(store.history("none such")) == []


def test_find_cells(store: Store) -> None:
    first, second = store.begin_run("1"), store.begin_run("2")
    for run, created in ((second, 2.0), (first, 1.0)):  # the latest by time, not by insertion
        store.put_results(
            run,
            [
                record("ab", short="c0ffee", created=created),
                record("kernel/ab", short="c0ba17", created=created),
                record("100%_odd", short="ab0000", created=created),
            ],
        )

    def found(text: str) -> list[tuple[str, int | None]]:
        return [(row.cell, row.run) for row in store.find_cells(text)]

    assert found("ab") == [("ab", second)]
    assert found("c0ff") == [("ab", second)]
    assert sorted(found("c0")) == [("ab", second), ("kernel/ab", second)]
    assert found("ernel/") == [("kernel/ab", second)]
    assert found("0%_o") == [("100%_odd", second)]
    assert found("%") == [("100%_odd", second)]
    assert found("ab0") == [("100%_odd", second)]
    assert found("*") == found("nothing") == found("") == []
    store.put_results(first, [record(f"many{n:02}", short=f"f{n:02}") for n in range(30)])
    assert len(found("many")) == len(found("f")) == 20


# --- damage -----------------------------------------------------------------------------------


def filled(home: Path) -> int:
    """Make a store of some 100 pages; return its run."""
    with Store.open(home) as store:
        run = store.begin_run("triage compile")
        name = store.artifacts.put(b"ptx")
        for number in range(300):
            store.put_evidence("lower", f"key{number:03}", bytes([number % 256]) * 700, {"p": name})
            store.put_result(run, record(f"cell{number:03}", row=b'{"n": 1}' * 40))
        store.finish_run(run)
    assert not (home / "triage.db-wal").exists()
    return run


def garbage(data: bytes) -> bytes:
    return os.urandom(len(data))


def text(data: bytes) -> bytes:
    return b"hello"


def no_header(data: bytes) -> bytes:
    return bytes(100) + data[100:]


def no_schema(data: bytes) -> bytes:
    return data[:100] + os.urandom(3996) + data[4096:]


@pytest.mark.parametrize("damage", [garbage, text, no_header, no_schema])
def test_unreadable_database_is_moved_aside(home: Path, damage: Callable[[bytes], bytes]) -> None:
    filled(home)
    database = home / "triage.db"
    for number in (1, 2):
        damaged = damage(database.read_bytes())
        database.write_bytes(damaged)
        with Store.open(home) as store:
            assert store.notice is not None
            assert f"triage.db.corrupt-{number}" in store.notice
            assert "\n" not in store.notice
            assert store.get_evidence("lower", "key001") is None
            store.put_evidence("lower", "key001", b"again", {})
            run = store.begin_run("again")
            store.put_result(run, record())
            assert len(list(store.run_rows(run))) == 1
        assert (home / f"triage.db.corrupt-{number}").read_bytes() == damaged
        with Store.open(home) as store:
            assert store.notice is None
            assert store.get_evidence("lower", "key001") == (b"again", {})
    assert not (home / "triage.db.damaged").exists()
    assert not (home / "triage.db.rescued").exists()


def test_empty_database_is_a_new_one(home: Path) -> None:
    home.mkdir()
    (home / "triage.db").touch()
    with Store.open(home) as store:
        assert store.notice is None
        assert store.begin_run("c") == 1


@pytest.mark.parametrize("part", [0.25, 0.5, 0.9])
def test_truncated_database_keeps_the_history_that_is_left(home: Path, part: float) -> None:
    run = filled(home)
    database = home / "triage.db"
    os.truncate(database, int(database.stat().st_size * part) // 4096 * 4096 + 17)
    with Store.open(home) as store:
        assert store.notice is not None
        cells = [row.cell for row in store.run_rows(run)]
        assert f"{len(cells)} results" in store.notice
        assert len(cells) > 300 * part / 4
        assert len(set(cells)) == len(cells)
        (kept,) = store.runs()
        assert (kept.id, kept.command) == (run, "triage compile")
        assert store.begin_run("next") == run + 1


def test_zeroed_page_anywhere(home: Path, tmp_path: Path) -> None:
    """Wherever the hole is: nothing false is served, and what follows works."""
    run = filled(home)
    intact = (home / "triage.db").read_bytes()
    pages = len(intact) // 4096
    assert pages > 80
    with raw(home) as db:
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'results'"
        results_root = db.execute(root).fetchone()[0] - 1
    noticed = 0
    for page in range(pages):
        damaged = tmp_path / f"copy{page}"
        damaged.mkdir()
        shutil.copytree(home / "artifacts", damaged / "artifacts")
        (damaged / "triage.db").write_bytes(
            intact[: page * 4096] + bytes(4096) + intact[(page + 1) * 4096 :]
        )
        with Store.open(damaged) as store:
            for number in range(0, 300, 5):
                found = store.get_evidence("lower", f"key{number:03}")
                assert found is None or found.body == bytes([number % 256]) * 700
            cells = [row.cell for row in store.run_rows(run)]
            assert len(cells) == len(set(cells))
            assert all(row.row == b'{"n": 1}' * 40 for row in store.run_rows(run))
            store.put_evidence("lower", "new", b"{}", {})
            new = store.begin_run("new")
            store.put_result(new, record("cell000"))
            assert [row.run for row in store.find_cells("cell000")] == [new]
            if store.notice:
                noticed += 1
                # A page holds some ten results; the root of their tree and the schema lead to all.
                assert len(cells) > (280 if page not in {0, results_root} else -1)
            else:
                assert len(cells) == 300
        shutil.rmtree(damaged)
    assert noticed > pages * 0.3


def test_damage_while_running_is_survived(home: Path) -> None:
    """The run goes on, under its own number, with what it has recorded so far."""
    filled(home)
    with Store.open(home) as store:
        run = store.begin_run("the one at work")
        store.put_result(run, record("before"))
        assert store._db is not None
        root = store._db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'results_cell'")
        hole = (root.fetchone()[0] - 1) * 4096
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with (home / "triage.db").open("r+b") as file:
            file.seek(hole)
            file.write(os.urandom(4096))
        # SQLite serves pages from its memory until it has reason to look again.
        store._db.execute("PRAGMA shrink_memory")
        store.put_result(run, record("after"))
        assert store.notice is not None
        assert [row.cell for row in store.run_rows(run)] == ["after", "before"]
        assert len(list(store.run_rows(1))) == 300
        last = store.last_run()
        assert last is not None
        assert (last.id, last.command) == (run, "the one at work")


def test_other_process_lets_go_of_a_damaged_database(home: Path) -> None:
    """Two stores; one finds damage and must wait for the other, which joins at its next call."""
    filled(home)
    script = """
        import sys, time
        from pathlib import Path
        from harness.effects.store import Store
        with Store.open(Path(sys.argv[1])) as store:
            run = store.begin_run("the other")
            print(run, flush=True)
            until = time.monotonic() + 20
            while not list(Path(sys.argv[1]).glob("*.corrupt-*")) and time.monotonic() < until:
                store.get_evidence("lower", "key001")
                time.sleep(0.01)
            store.put_evidence("lower", "from the other", b"1", {})
            while not store.get_evidence("lower", "from us") and time.monotonic() < until:
                time.sleep(0.01)
            print(store.get_evidence("lower", "from us"), flush=True)
    """
    other = python(script, home)
    assert other.stdout is not None
    with other, Store.open(home) as store:
        other.stdout.readline()
        store._damage.set()  # as if we had met a malformed page
        store.put_evidence("lower", "from us", b"2", {})
        rest, _ = other.communicate(timeout=60)
        assert other.returncode == 0
        assert "body=b'2'" in rest
        assert store.get_evidence("lower", "from the other") == (b"1", {})
        assert len(list(home.glob("*.corrupt-*"))) == 1
        assert [run.command for run in store.runs()] == ["the other", "triage compile"]


def test_waiting_for_a_process_that_does_not_let_go(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY", 0.2)
    filled(home)
    with Store.open(home), Store.open(home) as store:
        store._damage.set()
        with pytest.raises(StorageError, match="another triage is using") as error:
            store.get_evidence("lower", "key")
        one_line(error)
    with Store.open(home) as store:
        assert store.notice is not None
        assert len(list(store.run_rows(1))) == 300


@pytest.mark.parametrize("moment", ["_rescue", "_free_name"])
def test_replacement_killed_in_the_middle_is_taken_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    run = filled(home)
    (home / "triage.db.damaged").touch()
    monkeypatch.setattr(module, moment, die)
    with pytest.raises(Killed):
        Store.open(home)
    monkeypatch.undo()
    assert (home / "triage.db.damaged").exists()
    with Store.open(home) as store:
        assert len(list(store.run_rows(run))) == 300
    assert {path.name for path in home.iterdir()} == {
        "artifacts",
        "triage.db",
        "triage.db.corrupt-1",
        "triage.lock",
    }


def test_a_changed_byte_in_history_is_never_served(home: Path) -> None:
    run = filled(home)
    with raw(home) as db:
        db.execute("UPDATE results SET verdict = 'ok?' WHERE cell = 'cell007'")
    with Store.open(home) as store:
        cells = {row.cell for row in store.run_rows(run)}
        assert store.notice is not None
        assert cells == {f"cell{number:03}" for number in range(300)} - {"cell007"}


def test_result_without_its_run_gets_one(home: Path) -> None:
    run = filled(home)
    with raw(home) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DELETE FROM runs")
    (home / "triage.db.damaged").touch()
    with Store.open(home) as store:
        assert len(list(store.run_rows(run))) == 300
        (invented,) = store.runs()
        assert (invented.id, invented.command) == (run, "")


def test_a_run_lost_with_the_database_is_recorded_again(home: Path) -> None:
    with Store.open(home) as store, raw(home) as db:
        run = store.begin_run("the one at work")
        db.execute("DELETE FROM runs")
        store._damage.set()
        store.put_result(run, record())
        assert [row.run for row in store.run_rows(run)] == [run]
        last = store.last_run()
        assert last is not None
        assert (last.id, last.command) == (run, "the one at work")


# --- migrations -------------------------------------------------------------------------------


def test_newer_database_is_refused_and_left_alone(home: Path) -> None:
    filled(home)
    with raw(home) as db:
        db.execute("INSERT INTO migrations VALUES ('9999-from-the-future', 0)")
    before = (home / "triage.db").read_bytes()
    for _ in range(2):
        with pytest.raises(StorageError, match="made by a newer triage") as error:
            Store.open(home)
        assert "9999-from-the-future" in one_line(error)
        (home / "triage.db.damaged").touch()
    assert (home / "triage.db").read_bytes() == before
    assert not list(home.glob("*.corrupt-*"))


def test_migration_is_applied_once_with_its_record(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    extra = ("0002-notes", ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('hi')"))
    monkeypatch.setattr(module, "_MIGRATIONS", (*module._MIGRATIONS, extra))
    for _ in range(2):
        with Store.open(home) as store, raw(home) as db:
            assert db.execute("SELECT text FROM notes").fetchall() == [("hi",)]
            assert len(list(store.run_rows(run))) == 300
            assert [name for (name,) in db.execute("SELECT name FROM migrations ORDER BY 1")] == [
                "0001-evidence-and-history",
                "0002-notes",
            ]


def test_migration_that_another_process_has_just_applied(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    applied = module._applied
    answers = [set[str]()]  # what was seen before the other process was done

    def late(db: sqlite3.Connection, path: Path) -> set[str]:
        return answers.pop() if answers else applied(db, path)

    monkeypatch.setattr(module, "_applied", late)
    with Store.open(home) as store:
        assert not answers
        assert len(list(store.run_rows(run))) == 300


def test_migration_that_fails_leaves_the_old_state(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    bad = ("0002-bad", ("CREATE TABLE notes (text TEXT)", "DELETE FROM results", "NONSENSE"))
    with monkeypatch.context() as patched:
        patched.setattr(module, "_MIGRATIONS", (*module._MIGRATIONS, bad))
        with pytest.raises(StorageError, match="NONSENSE") as error:
            Store.open(home)
        one_line(error)
    with Store.open(home) as store, raw(home) as db:
        assert store.notice is None
        assert len(list(store.run_rows(run))) == 300
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone()
        assert db.execute("SELECT count(*) FROM migrations").fetchone() == (1,)


def test_a_rescue_brings_an_older_database_up_to_date(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    (home / "triage.db.damaged").touch()
    extra = ("0002-host", ("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))
    monkeypatch.setattr(module, "_MIGRATIONS", (*module._MIGRATIONS, extra))
    with Store.open(home) as store, raw(home) as db:
        assert len(list(store.run_rows(run))) == 300
        assert db.execute("SELECT command, note FROM runs").fetchall() == [
            ("triage compile", "none")
        ]


def test_a_stranger_s_database_is_not_touched(home: Path) -> None:
    home.mkdir()
    with raw(home) as db:
        db.execute("CREATE TABLE runs (mine TEXT)")
    with pytest.raises(StorageError, match="already exists") as error:
        Store.open(home)
    one_line(error)
    with raw(home) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]


# --- processes --------------------------------------------------------------------------------


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


BUSY_WRITER = """
    import sys
    from pathlib import Path
    from harness.effects.store import ResultRecord, Store
    home, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with Store.open(home) as store:
        run = store.begin_run(name)
        print(run, flush=True)
        for number in range(count):
            artifact = store.artifacts.put(f"{name} {number}".encode() * 200)
            store.put_evidence("lower", f"{name}{number}", name.encode(), {"ptx": artifact})
            store.put_evidence("lower", f"both{number}", b"same", {})
            store.put_result(run, ResultRecord(
                cell=f"cell{number:05}", short="", kernel="k", launch="l", config={}, target="t",
                triton="3", ptxas="12", verdict="ok", row=b"{}", evidence={"lower": name}))
        store.finish_run(run)
"""


def test_two_processes_create_and_write_at_once(home: Path) -> None:
    for attempt in range(3):
        place = home / str(attempt)
        writers = [python(BUSY_WRITER, place, name, 200) for name in ("left", "right", "third")]
        runs = [int(writer.communicate(timeout=120)[0]) for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        assert sorted(runs) == [1, 2, 3]
        with Store.open(place) as store:
            assert store.notice is None
            for name in ("left", "right", "third"):
                assert len(store.get_many("lower", [f"{name}{n}" for n in range(200)])) == 200
            for run in runs:
                assert len(list(store.run_rows(run))) == 200
            assert all(run.finished for run in store.runs())


def test_kill_9_leaves_a_valid_store(home: Path) -> None:
    for attempt in range(20):
        writer = python(BUSY_WRITER, home, f"writer{attempt}-", 100_000)
        assert writer.stdout is not None
        with writer:
            run = int(writer.stdout.readline())
            time.sleep(0.005 * attempt)
            writer.kill()
        with Store.open(home) as store:
            assert store.notice is None
            last = store.last_run()
            assert last is not None
            assert last.id == run == attempt + 1
            rows = [row.cell for row in store.run_rows(run)]
            assert rows == [f"cell{number:05}" for number in range(len(rows))]
            # Everything before the cell in flight is there, evidence and artifacts too.
            keys = [f"writer{attempt}-{number}" for number in range(len(rows))]
            evidence = store.get_many("lower", keys)
            assert len(evidence) == len(rows)
            for number, key in enumerate(keys):
                content = store.artifacts.get(evidence[key].artifacts["ptx"])
                assert content == f"writer{attempt}- {number}".encode() * 200
    with raw(home) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_locked_for_too_long(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(home)
    monkeypatch.setattr(module, "_BUSY", 0.1)
    with Store.open(home) as store, raw(home) as db:
        db.execute("BEGIN IMMEDIATE")
        assert store.get_evidence("lower", "key001") is not None
        with pytest.raises(StorageError, match="locked by another process") as error:
            store.put_evidence("lower", "key", b"{}", {})
        one_line(error)
        db.execute("ROLLBACK")
        store.put_evidence("lower", "key", b"{}", {})
        assert store.get_evidence("lower", "key") == (b"{}", {})


# --- the disk ---------------------------------------------------------------------------------


def test_database_that_cannot_grow(home: Path) -> None:
    """SQLite's own limit gives the very error of a full disk, on every machine."""
    with Store.open(home) as store:
        store.put_evidence("lower", "small", b"{}", {})
        assert store._db is not None
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError, match="no space left") as error:
            store.put_evidence("lower", "large", bytes(100_000), {})
        one_line(error)
        assert store.get_evidence("lower", "small") == (b"{}", {})
        assert store.get_evidence("lower", "large") is None
        store._db.execute("PRAGMA max_page_count = 1000000")
        store.put_evidence("lower", "large", bytes(100_000), {})
        assert store.get_evidence("lower", "large") is not None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = (
        shutil.which("mount")
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with Store.open(small_disk / "home") as store:
        kept = store.artifacts.put(b"kept")
        store.put_evidence("lower", "kept", b"{}", {"ptx": kept})
        with pytest.raises(OSError, match="No space") as full:
            ballast.write_bytes(bytes(2**21))
        assert full.value.errno == errno.ENOSPC
        with pytest.raises(StorageError, match="no space left") as error:
            store.artifacts.put(os.urandom(100_000))
        one_line(error)
        with pytest.raises(StorageError, match="no space left") as error:
            store.put_evidence("lower", "large", os.urandom(100_000), {})
        one_line(error)
        assert store.get_evidence("lower", "kept") == (b"{}", {"ptx": kept})
        with pytest.raises(StorageError) as error:
            Store.open(small_disk / "another")
        one_line(error)
        ballast.unlink()
        store.put_evidence("lower", "large", bytes(1000), {})
        assert store.get_evidence("lower", "large") == (bytes(1000), {})
        assert store.notice is None


def as_nobody(work: Callable[[], str]) -> str:
    """Run `work` in a forked child without root's power to write everywhere."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("existing", [True, False])
def test_read_only_folder(*, existing: bool) -> None:
    # Not in tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        if existing:
            filled(home)
        for path in (*home.rglob("*"), home):
            path.chmod(0o555 if path.is_dir() else 0o444)

        def work() -> str:
            try:
                Store.open(home).close()
            except StorageError as error:
                return f"refused: {error}"
            return "opened"

        said = as_nobody(work)
        home.chmod(0o755)
        for path in home.rglob("*"):
            path.chmod(0o755)
        assert said.startswith("refused: ")
        assert "is not writable" in said
        assert "\n" not in said


@pytest.mark.parametrize("name", ["triage.db", "triage.lock", "artifacts"])
def test_something_else_is_in_the_way(home: Path, name: str) -> None:
    home.mkdir()
    if name == "artifacts":
        (home / name).write_text("a file")
    else:
        (home / name).mkdir()
    with pytest.raises(StorageError, match=name) as error:
        Store.open(home)
    one_line(error)


def test_home_is_a_file(home: Path) -> None:
    home.write_text("x")
    with pytest.raises(StorageError) as error:
        Store.open(home)
    one_line(error)


# --- size -------------------------------------------------------------------------------------


def age(store: Store, sha256: str, when: float) -> None:
    os.utime(store.artifacts.root / sha256[:2] / f"{sha256[2:]}.z", (when, when))


def test_stats(store: Store) -> None:
    assert store.stats().evidence == {}
    named, orphan = store.artifacts.put(b"named" * 50), store.artifacts.put(os.urandom(500))
    store.put_evidence("lower", "1", b"12345", {"ptx": named, "copy": named})
    store.put_evidence("lower", "2", b"123", {"ptx": named})
    store.put_evidence("inspect", "1", b"", {})
    store.put_result(store.begin_run("c"), record(row=b"1234567"))
    stats = store.stats()
    assert {kind: (of.rows, of.bytes) for kind, of in stats.evidence.items()} == {
        "lower": (2, 8),
        "inspect": (1, 0),
    }
    assert (stats.results.rows, stats.results.bytes, stats.runs) == (1, 7, 1)
    named_size, orphan_size = store.artifacts.size(named), store.artifacts.size(orphan)
    assert named_size
    assert orphan_size
    assert (stats.artifacts, stats.artifact_bytes) == (2, named_size + orphan_size)
    assert (stats.orphans, stats.orphan_bytes) == (1, orphan_size)
    assert stats.database_bytes > 4096


def test_trim_drops_the_least_recently_used_first(home: Path) -> None:
    now = [time.time()]
    with Store.open(home, clock=lambda: now[0]) as store:
        names = []
        for number in range(10):
            now[0] += 1
            names.append(store.artifacts.put(os.urandom(10_000)))
            store.put_evidence("lower", str(number), b"x" * 100, {"ptx": names[-1]})
        run = store.begin_run("c")
        store.put_result(run, record())
        now[0] += 2 * DAY
        assert store.get_evidence("lower", "0")  # the oldest is used again
        report = store.trim(max_bytes=45_000)
        left = [n for n in range(10) if store.get_evidence("lower", str(n))]
        assert left == [0, 7, 8, 9]
        assert [n for n in range(10) if store.artifacts.has(names[n])] == left
        assert (report.evidence, report.artifacts) == (6, 6)
        assert 6 * 10_100 <= report.bytes < 6 * 10_300
        assert store.trim(max_bytes=45_000).evidence == 0
        assert len(list(store.run_rows(run))) == 1


def test_trim_by_age(home: Path) -> None:
    now = [time.time()]
    with Store.open(home, clock=lambda: now[0]) as store:
        store.put_evidence("lower", "old", b"{}", {})
        now[0] += 100.0
        store.put_evidence("lower", "young", b"{}", {})
        now[0] += 100.0
        assert store.trim(older_than=150.0).evidence == 1
        assert store.get_evidence("lower", "old") is None
        assert store.get_evidence("lower", "young") is not None


def test_trim_never_removes_what_is_still_named(store: Store) -> None:
    shared = store.artifacts.put(b"shared" * 1000)
    store.put_evidence("lower", "old", b"{}", {"ptx": shared, "log": store.artifacts.put(b"log")})
    store.put_evidence("assemble", "young", b"{}", {"input": shared})
    age(store, shared, 1000.0)
    with raw(store.home) as db:
        db.execute("UPDATE evidence SET used = 1000.0 WHERE key = 'old'")
    report = store.trim(older_than=DAY)
    assert (report.evidence, report.artifacts) == (1, 1)
    assert store.artifacts.get(shared) == b"shared" * 1000
    assert store.get_evidence("assemble", "young") is not None
    assert store.trim(max_bytes=0).evidence == 1
    assert not list(store.artifacts.all())


def test_trim_spares_what_a_writer_is_about_to_name(store: Store) -> None:
    orphan = store.artifacts.put(b"killed writer")
    age(store, orphan, time.time() - 3700)
    young = store.artifacts.put(b"in flight")
    dropped = store.artifacts.put(b"dropped")
    again = store.artifacts.put(b"dropped, and put again")
    store.put_evidence("lower", "key", b"{}", {"ptx": dropped, "log": again})
    # By the kernel's clock, which ticks every few milliseconds.
    age(store, again, time.time() + 1)
    report = store.trim(max_bytes=0)
    assert (report.evidence, report.artifacts) == (1, 2)
    assert {sha256 for sha256, _, _ in store.artifacts.all()} == {young, again}
    store.put_evidence("lower", "new", b"{}", {"ptx": young, "log": again})
    assert store.get_evidence("lower", "new") is not None


def test_evidence_named_between_mark_and_sweep_is_kept(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.artifacts.put(b"old, unnamed")
    age(store, old, 1000.0)
    drop = module._drop_unused

    def drop_then_race(*arguments: object) -> object:
        result = drop(*arguments)  # type: ignore[arg-type]
        with Store.open(home) as other:
            other.put_evidence("lower", "key", b"{}", {"ptx": old})
        return result

    monkeypatch.setattr(module, "_drop_unused", drop_then_race)
    assert store.trim().artifacts == 0
    assert store.get_evidence("lower", "key") is not None


def test_trim_beside_a_writer(home: Path) -> None:
    """Whatever the trim takes, the store never serves evidence without its artifacts."""
    writer = python(BUSY_WRITER, home, "writer", 300)
    with writer, Store.open(home) as store:
        while writer.poll() is None:
            store.trim(max_bytes=2000)
        assert writer.returncode == 0
        keys = [f"writer{number}" for number in range(300)]
        for key, found in store.get_many("lower", keys).items():
            content = store.artifacts.get(found.artifacts["ptx"])
            assert content == f"writer {key.removeprefix('writer')}".encode() * 200
        assert len(list(store.run_rows(1))) == 300
        store.put_evidence("lower", "last", b"{}", {"ptx": store.artifacts.put(b"x")})
        assert store.get_evidence("lower", "last") is not None


def test_trim_gives_disk_space_back(store: Store) -> None:
    for number in range(200):
        store.put_evidence("lower", str(number), os.urandom(10_000), {})
    before = store.stats().database_bytes
    store.trim(max_bytes=0)
    assert store.stats().database_bytes < before / 10
