"""Nights on real Dask: its processes are killed at random, and nothing is lost, nothing done twice.

The compiler is the toy, ptxas a fake that keeps a list of its runs, and takes a second for each.
Reductions lose their workers, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, Triage
from fake_toolchains import FakeCache

pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")

pytestmark = [pytest.mark.tools, pytest.mark.long]

KERNELS = [f"k{number}.toy" for number in range(4)]
TARGETS = ["sm_80", "sm_86", "sm_89", "sm_90"]
WIDTHS = 2
SECONDS = 1
# Each kernel and target by each of three toys is one capture.
CAPTURES = 3 * len(KERNELS) * len(TARGETS)
CELLS = CAPTURES * WIDTHS
WORKERS = 2
KILLS = 30
OF_SCHEDULER = 6
LIST = """
with open({runs!r}, "a") as file:
    file.write("x\\n")
time.sleep({seconds})
"""

CRASHES = """
with open({runs!r}, "a") as file:
    file.write("x\\n")
time.sleep(0.3)
if "ex2.approx" in text:
    ice("C7907")
"""
# Of two opcodes in one entry.
DISLIKES = """
time.sleep(0.1)
for entry in text.split(".entry")[1:]:
    if "-O3" in sys.argv and "brev.b32" in entry and "sad.u32" in entry:
        ice("C7907")
"""
BROKEN = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
    .reg .b64 %rd<2>;
    .reg .f32 %f<{count}>;
    ld.param.u64 %rd1, [out];
    mov.f32 %f0, 0f3F800000;
{lines}
    st.global.f32 [%rd1], %f{last};
    ret;
}}
"""


@dataclass
class Cluster:
    """A scheduler and workers with their nannies, as a user starts them."""

    triage: Triage
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = 0

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.stop()
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._dask("scheduler", "--host", "127.0.0.1", "--port", str(self.port))
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                break
            time.sleep(0.2)
        for number in range(WORKERS):
            self.add(f"worker-{number}")

    def add(self, name: str) -> None:
        words = ("--nworkers", "1", "--nthreads", "1", "--memory-limit", "0")
        self._dask("worker", self.address, *words, name=name)

    def _dask(self, *words: str, name: str = "scheduler") -> None:
        with (self.triage.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, "--no-dashboard"],
                cwd=self.triage.folder,
                env=self.triage.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill what works for one of the nannies, or that nanny with it; whether there was one."""
        for name in [
            each for each, process in self.processes.items() if process.poll() is not None
        ]:
            # A nanny gives up where its first worker ends before it has begun.
            self.add(name)
        name = chance.choice([each for each in self.processes if each != "scheduler"])
        nanny = psutil.Process(self.processes[name].pid)
        working = [
            each for each in nanny.children() if "multiprocessing.spawn" in str(each.cmdline())
        ]
        if not working:
            return False
        if chance.random() < 0.25:
            nanny.kill()
            self.processes[name].wait()
            self.add(name)
        with suppress(psutil.NoSuchProcess):
            working[0].kill()
        return True

    def stop(self) -> None:
        for process in self.processes.values():
            with suppress(psutil.NoSuchProcess):
                for each in psutil.Process(process.pid).children(recursive=True):
                    each.kill()
            process.kill()
            process.wait()
        self.processes.clear()


@pytest.fixture
def toy(tmp_path: Path) -> Triage:
    fakes = FakeCache(tmp_path)
    fakes.ptxas("1.0", LIST.format(runs=str(tmp_path / "runs"), seconds=SECONDS))
    for name in KERNELS:
        widths = " ".join(map(str, range(1, WIDTHS + 1)))
        (tmp_path / name).write_text(f"kernel {name[:-4]}\nconfig width = {widths}\n")
    matrix = {
        "version": 1,
        "toolchains": {"ptxas": {"spec": "==1.0"}, "compilers": {"toy": {"spec": ">=1"}}},
        "targets": TARGETS,
        "kernels": KERNELS,
    }
    (tmp_path / "matrix.yaml").write_text(json.dumps(matrix))
    folders = (HERE / "front_ends", HERE / "front_ends" / "registered", HERE.parent)
    path = os.pathsep.join(map(str, folders))
    env = {
        **fakes.triage.env,
        "PYTHONPATH": path,
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s",
    }
    return Triage(tmp_path, env)


@pytest.fixture
def cluster(toy: Triage) -> Iterator[Cluster]:
    cluster = Cluster(toy)
    yield cluster
    cluster.stop()


def rows(home: Path) -> dict[str, dict[str, Any]]:
    """What the last run found out, without how long that took and what was there already."""
    with closing(sqlite3.connect(home / "triage.db")) as db:
        run = "(SELECT max(id) FROM runs)"
        found = db.execute(f"SELECT cell, row FROM results WHERE run_id = {run}").fetchall()
    # One row for each cell.
    assert len({cell for cell, _ in found}) == len(found)
    decoded = {cell: json.loads(row) for cell, row in found}
    for row in decoded.values():
        row.pop("seconds")
        row.pop("cached")
    return decoded


def worked(home: Path) -> list[str]:
    """The cells of all runs that were not taken over from another one, with repetitions."""
    with closing(sqlite3.connect(home / "triage.db")) as db:
        every = db.execute("SELECT cell, row FROM results").fetchall()
    return [cell for cell, row in every if not json.loads(row)["cached"]]


def alone(toy: Triage) -> tuple[dict[str, dict[str, Any]], int]:
    """The rows of a night without Dask, and how often ptxas ran."""
    home = toy.folder / "alone"
    done = Triage(toy.folder, {**toy.env, "TRIAGE_HOME": str(home)})(
        "matrix", "run", "--jobs", "16"
    )
    assert "Traceback" not in done.stderr, done.stderr
    runs = toy.folder / "runs"
    count = len(runs.read_text().splitlines())
    runs.unlink()
    return rows(home), count


def test_processes_of_this_machine_make_the_same_rows(toy: Triage) -> None:
    expected, _ = alone(toy)
    done = toy("matrix", "run", "--scheduler", "local:2", "--json")
    assert done.returncode == 0, done.stderr
    assert rows(toy.folder / "results") == expected
    assert len(expected) == CELLS
    again = toy("matrix", "run", "--json")
    assert json.loads(again.stdout)["carried"] == CELLS


def test_kills_at_random_lose_nothing_and_do_nothing_twice(toy: Triage, cluster: Cluster) -> None:
    expected, _ = alone(toy)
    chance = random.Random(15)
    schedulers = sorted(chance.sample(range(KILLS), OF_SCHEDULER))
    killed: list[str] = []
    night = None
    cluster.start()
    while len(killed) < KILLS:
        if night is None or night.poll() is not None:
            if night is not None:
                code, said = night.returncode, night.communicate()[1]
                # It ends by itself only where its scheduler is gone, or it has done all.
                assert code in (0, 4), said
                assert "Traceback" not in said
                if code == 0:
                    break
            night = subprocess.Popen(
                [sys.executable, "-m", "harness", "matrix", "run", "--scheduler", cluster.address],
                cwd=toy.folder,
                env=toy.env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            time.sleep(3)
        time.sleep(chance.uniform(0.2, 2))
        if len(killed) in schedulers:
            os.kill(cluster.processes["scheduler"].pid, signal.SIGKILL)
            said = night.communicate(timeout=120)[1]
            assert night.returncode == 4, said
            # It may have been about to connect.
            lines = [each for each in said.splitlines() if cluster.address in each]
            assert len(lines) == 1, said
            assert f"the scheduler at {cluster.address} is gone" in said or "no Dask" in said
            killed.append("scheduler")
            cluster.start()
        elif cluster.kill_worker(chance):
            killed.append("worker")
    assert night is not None
    night.communicate(timeout=300)
    print(f"killed: {killed.count('worker')} workers, {killed.count('scheduler')} schedulers")
    last = toy("matrix", "run", "--scheduler", cluster.address, "--json")
    assert last.returncode == 0, last.stderr
    home = toy.folder / "results"
    assert rows(home) == expected
    # What was stored is not compiled again, whatever was killed.
    every = worked(home)
    assert len(every) == len(set(every))
    runs = len((toy.folder / "runs").read_text().splitlines())
    print(f"ptxas ran {runs} times for {CELLS} cells")
    # A kill of a worker repeats the cells of one capture at the most, one of a scheduler those of
    # each worker's.
    lost = killed.count("worker") + WORKERS * killed.count("scheduler")
    assert runs <= CELLS + WIDTHS * lost
    assert len(killed) == KILLS, "all was done before all was killed: more cells are wanted"


def broken(folder: Path, count: int = 24) -> None:
    """A file of PTX with one instruction that makes ptxas crash."""
    words = [
        "ex2.approx.f32 %f{0}, %f{1};" if n == 9 else "add.f32 %f{0}, %f{1}, %f{1};"
        for n in range(1, count)
    ]
    lines = "\n".join("    " + each.format(n, n - 1) for n, each in enumerate(words, 1))
    text = BROKEN.format(count=count, lines=lines, last=count - 1)
    (folder / "broken.ptx").write_text(text)


@pytest.fixture
def crashing(toy: Triage) -> Triage:
    """Its ptxas crashes of that instruction."""
    fakes = FakeCache(toy.folder)
    runs = str(toy.folder / "runs")
    fakes.ptxas("2.0", CRASHES.format(runs=runs))
    broken(toy.folder)
    return toy


def started(triage: Triage, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        cwd=triage.folder,
        env=triage.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def minimize(triage: Triage, out: str, *words: str) -> subprocess.Popen[str]:
    asked = ["minimize", "broken.ptx", "--sm", "80", "--ptxas", "2.0", "--out", out]
    return started(triage, *asked, *words)


def test_a_reduction_that_loses_workers_comes_to_the_same(
    crashing: Triage, cluster: Cluster
) -> None:
    runs = crashing.folder / "runs"
    alone = minimize(crashing, "alone", "--jobs", str(WORKERS))
    _, said = alone.communicate(timeout=300)
    assert alone.returncode == 0, said
    count = len(runs.read_text().splitlines())
    runs.unlink()
    chance = random.Random(15)
    cluster.start()
    wait_for_workers(cluster)
    here = minimize(crashing, "there", "--scheduler", cluster.address)
    killed = 0
    while here.poll() is None:
        time.sleep(chance.uniform(1, 3))
        killed += cluster.kill_worker(chance) and here.poll() is None
    _, said = here.communicate()
    assert here.returncode == 0, said
    print(
        f"ptxas ran {count} times alone, {len(runs.read_text().splitlines())} with {killed} kills"
    )
    assert killed
    same = [(crashing.folder / each / "min.ptx").read_text() for each in ("alone", "there")]
    assert same[0] == same[1]
    # Each loses what it was at work on.
    assert len(runs.read_text().splitlines()) <= count + killed


def test_a_reduction_without_its_scheduler_is_one_line_and_goes_on(
    crashing: Triage, cluster: Cluster
) -> None:
    cluster.start()
    wait_for_workers(cluster)
    here = minimize(crashing, "there", "--scheduler", cluster.address)
    runs = crashing.folder / "runs"
    while here.poll() is None and (not runs.exists() or len(runs.read_text()) < 40):
        time.sleep(0.1)
    os.kill(cluster.processes["scheduler"].pid, signal.SIGKILL)
    _, said = here.communicate(timeout=120)
    assert here.returncode == 4, said
    lines = [each for each in said.splitlines() if "is gone" in each]
    assert len(lines) == 1, said
    assert "Traceback" not in said
    cluster.start()
    again = minimize(crashing, "there", "--scheduler", cluster.address, "--resume")
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert "ex2.approx" in (crashing.folder / "there" / "min.ptx").read_text()


def hunted(triage: Triage, *words: str) -> subprocess.Popen[str]:
    asked = ["hunt", "ptxas", "--on", "emulator", "--sm", "80", "--ptxas", "3.0", "--seed", "3"]
    return started(triage, *asked, "--max-tries", "256", "--json", *words)


def test_a_hunt_that_loses_workers_and_its_scheduler_finds_the_same(
    toy: Triage, cluster: Cluster
) -> None:
    FakeCache(toy.folder).ptxas("3.0", DISLIKES)
    said, words = hunted(toy, "--jobs", str(WORKERS)).communicate(timeout=300)
    [expected] = json.loads(said)["causes"]
    elsewhere = Triage(toy.folder, {**toy.env, "TRIAGE_HOME": str(toy.folder / "elsewhere")})
    cluster.start()
    wait_for_workers(cluster)
    here = hunted(elsewhere, "--scheduler", cluster.address)
    chance = random.Random(15)
    killed = 0
    while killed < 3 and here.poll() is None:
        time.sleep(chance.uniform(1, 3))
        killed += cluster.kill_worker(chance)
    assert killed
    os.kill(cluster.processes["scheduler"].pid, signal.SIGKILL)
    _, words = here.communicate(timeout=120)
    assert here.returncode == 4, words
    assert "Traceback" not in words
    [line] = [each for each in words.splitlines() if "is gone" in each]
    assert cluster.address in line
    cluster.start()
    said, words = hunted(elsewhere, "--scheduler", cluster.address).communicate(timeout=300)
    document = json.loads(said)
    [cause] = document["causes"]
    assert (cause["name"], cause["levels"]) == (expected["name"], expected["levels"])
    assert document["hunt"]["tried_in_all"] >= 256


def wait_for_workers(cluster: Cluster) -> None:
    """Until all of them are there: how many there are at first is how many candidates there are."""
    from distributed import Client

    with Client(cluster.address, timeout=60) as client:
        client.wait_for_workers(WORKERS, timeout=120)
