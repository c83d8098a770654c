"""What handing work out costs: workers that only wait, and real cells on workers of this machine.

    python benchmarks/scheduler.py
    python benchmarks/scheduler.py --skip-cells --seconds 2

First tasks that only wait, on 8 and on 64 workers of a Dask in this process: each answers with a
parcel of results, as a worker does, and they are all stored. Efficiency is that of the workers
(time waited, over time times workers), over that of as many threads which put the same results into
the same kind of store. Then a matrix of real cells (Triton, ptxas), by one process with as many
jobs as there are workers, and by `--scheduler local:N`, whose start is in it: the ratios of their
wall seconds, which say little where others use the machine, and of the CPU seconds of all their
processes. No two launches generate the same PTX, unless they are to be `--alike`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import msgspec
from distributed import LocalCluster

from harness.cells.evaluate import Evaluated
from harness.cells.places import record_of
from harness.io.processes.cluster import open_machines
from harness.store.merge import open_parcel, pack, take_over
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind

_SET_CHILD_SUBREAPER = 36
ROOT = Path(__file__).parent.parent
CELLS = 20
"""Of each task that only waits."""
ARTIFACT = 20_000
"""Bytes of each of their two artifacts; they do not get smaller."""
KERNEL = """
import torch, triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 2**b}, num_warps=w)
                  for b in range(5, 11) for w in (1, 2, 4, 8)], key=[])
@triton.jit
def total(x, y, n, K: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y, tl.sum(tl.exp(K * tl.load(x + at, at < n, 0.0)), 0))

"""
LAUNCH = """
def launch{number}():
    x = torch.empty({number} + 4096, device="cuda")
    total[(16,)](x, torch.empty(1, device="cuda"), x.numel() * {number}, {factor}.5)
"""


def parcel(number: int, home: Path) -> Path:
    """What a worker answers, in a file: results of cells of its own, with their evidence."""
    with Store.open(home) as store:
        run = store.begin_run("benchmark", uid="benchmark")
        for index in range(CELLS):
            cell = CellId(
                kernel="waits",
                launch=f"task{number}",
                config=Config.of({"index": index}),
                target=Target.parse("sm_90a"),
                compiler="triton-3.6.0",
                ptxas="13.1.115",
            )
            key = f"{number}-{index}"
            held = {role: store.artifacts.put(os.urandom(ARTIFACT)) for role in ("ptx", "cubin")}
            store.put_evidence("lower", key, b"{}", held)
            row = Row(
                cell=str(cell),
                short=cell.short,
                kernel=cell.kernel,
                launch=cell.launch,
                config=cell.config.as_dict(),
                target="sm_90a",
                triton="3.6.0",
                ptxas="13.1.115",
                ptxas_origin="nvidia-cuda-nvcc",
                verdict=VerdictKind.OK,
                reason="compiled, fits the target, nothing suspicious",
            )
            store.put_result(run, record_of(Evaluated(row=row, evidence={"lower": key})))
    path = home.with_suffix(".parcel")
    path.write_bytes(pack(home))
    return path


def wait(message: bytes) -> bytes:
    """The task: it waits, and answers what lies in a file."""
    seconds, answer = msgspec.msgpack.decode(message, type=tuple[float, str])
    time.sleep(seconds)
    return Path(answer).read_bytes()


def take(store: Store, answer: bytes) -> None:
    """As `HandingOut` keeps an answer."""
    with open_parcel(answer) as source:
        take_over(store, [source])


async def stored(
    home: Path, messages: list[bytes], run: Callable[[int, bytes], Awaitable[bytes]]
) -> float:
    """Wall seconds until the answers to all messages are stored."""
    with Store.open(home) as store:

        async def one(number: int, message: bytes) -> None:
            take(store, await run(number, message))

        started = time.perf_counter()
        await asyncio.gather(*(one(*each) for each in enumerate(messages)))
        return time.perf_counter() - started


async def by_dask(workers: int, home: Path, messages: list[bytes]) -> float:
    """On so many workers of a scheduler, reached by its address."""
    # What each worker watches of its machine, 64 in one process would all watch of this one.
    dask.config.set(
        {
            "distributed.admin.system-monitor.interval": "10s",
            "distributed.worker.profile.enabled": False,
        }
    )
    async with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            asynchronous=True,
            dashboard_address=":0",
        ) as cluster,
        open_machines(cluster.scheduler_address) as machines,
    ):

        async def run(number: int, message: bytes) -> bytes:
            return await machines.run(wait, message, name="waits", rank=number)

        return await stored(home, messages, run)


async def by_threads(workers: int, home: Path, messages: list[bytes]) -> float:
    """The same by so many threads, without anything between."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(workers) as pool:

        async def run(_number: int, message: bytes) -> bytes:
            return await loop.run_in_executor(pool, wait, message)

        return await stored(home, messages, run)


def waiting(folder: Path, workers: int, seconds: float, rounds: int) -> None:
    """Efficiency of workers that wait."""
    count = workers * rounds
    answers = [parcel(number, folder / f"parcel-{workers}-{number}") for number in range(count)]
    messages = [msgspec.msgpack.encode((seconds, str(answer))) for answer in answers]
    ideal = seconds * rounds
    dask = ideal / asyncio.run(by_dask(workers, folder / f"dask-{workers}", messages))
    plain = ideal / asyncio.run(by_threads(workers, folder / f"threads-{workers}", messages))
    print(
        f"waiting  {workers:3} workers, {count} tasks of {seconds:g} s with {CELLS} cells each: "
        f"Dask {dask:.1%}, threads {plain:.1%}, ratio {dask / plain:.1%}"
    )


def matrix(folder: Path, launches: int, *, alike: bool) -> None:
    """A matrix with its one kernel; each launch on each target is a capture with 24 cells."""
    repro = folder / "repros" / "total"
    repro.mkdir(parents=True)
    factors = [1 if alike else number for number in range(1, launches + 1)]
    text = KERNEL + "".join(LAUNCH.format(number=n + 1, factor=f) for n, f in enumerate(factors))
    (repro / "launch.py").write_text(text)
    (repro / "repro.yaml").write_text("kernel: total\nsummary: sums of a benchmark\n")
    document = {
        "version": 1,
        "toolchains": {"triton": {"spec": "installed"}, "ptxas": {"spec": "bundled"}},
        "targets": ["sm_80", "sm_90a"],
        "kernels": ["total"],
        "launches": ["launch*"],
    }
    (folder / "matrix.yaml").write_text(json.dumps(document))


def used() -> float:
    """CPU seconds of all processes that descended from this one, once all are gone."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    known = resource.getrusage(resource.RUSAGE_CHILDREN)
    return known.ru_utime + known.ru_stime


def night(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a night with nothing stored; it is printed, too."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "TRIAGE_HOME": home, "PYTHONPATH": str(ROOT)}
        before, started = used(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "harness", "matrix", "run", "--json", *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        wall, cpu = time.perf_counter() - started, used() - before
    if done.returncode:
        sys.exit(f"{words}: exit code {done.returncode}: {done.stderr[-500:]}")
    document = json.loads(done.stdout)
    count, compilers = sum(document["cells"].values()), document["cpu_seconds"]
    print(
        f"{' '.join(words):20} {count} cells in {wall:.1f} s, {cpu:.1f} CPU s,"
        f" of which the compilers {compilers:.1f}"
    )
    return wall, cpu


def cells(folder: Path, workers: int, launches: int, *, alike: bool) -> None:
    """Real cells by processes of this machine, against one process with as many jobs."""
    # Supervisors outlive who started them, for a moment: their CPU seconds count.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    matrix(folder, launches, alike=alike)
    alone = night(folder, ["--jobs", str(workers)])
    dask = night(folder, ["--scheduler", f"local:{workers}"])
    by_wall, by_cpu = (one / other for one, other in zip(alone, dask, strict=True))
    print(f"cells    {workers} workers: {by_wall:.1%} of one process by wall, {by_cpu:.1%} by CPU")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each task waits")
    parser.add_argument("--rounds", type=int, default=3, help="tasks for each worker that waits")
    parser.add_argument("--workers", type=int, default=2, help="processes for the real cells")
    parser.add_argument("--launches", type=int, default=4, help="captures are twice as many")
    parser.add_argument("--alike", action="store_true", help="all launches generate the same")
    parser.add_argument("--skip-cells", action="store_true")
    parser.add_argument("--skip-waiting", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not options.skip_waiting:
            for workers in (8, 64):
                waiting(Path(folder), workers, options.seconds, options.rounds)
        if not options.skip_cells:
            cells(Path(folder), options.workers, options.launches, alike=options.alike)


if __name__ == "__main__":
    main()
