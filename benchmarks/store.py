"""How fast the store is, and how much memory it takes, with many replayed results.

    python benchmarks/store.py --results 100000

Each replayed result is what one cell of a matrix run leaves: a row of evidence that names three
artifacts, and a result, each in its own transaction. Times are wall times; on a shared machine
compare the best of several, as printed, and not single ones.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.store.trim import store_stats

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
LOOKUPS = 100
CONFIGS = 200
KERNELS = 20


def main() -> None:
    """Fill a store, then measure it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=int, default=100_000, help="how many to replay")
    parser.add_argument(
        "--home", type=Path, help="where the new store goes and stays (default: a temporary folder)"
    )
    options = parser.parse_args()
    if options.results < 1:
        parser.error("--results must be at least 1")
    if options.home is not None and options.home.exists():
        parser.error(f"{options.home} exists: name a folder that does not")
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.home or Path(temporary) / "home", options.results)


def measure(home: Path, count: int) -> None:
    """Print one line for each thing measured."""
    before = peak_memory()
    with Store.open(home) as store:
        evidence, results = replay(store, count)
        say(f"put_evidence, {count} rows", f"{count / evidence:,.0f} per second")
        say(f"put_result, {count} rows", f"{count / results:,.0f} per second")
    say("open existing store", milliseconds(best_of(lambda: Store.open(home).close())))
    keys = [f"key{number * count // LOOKUPS}" for number in range(LOOKUPS)]
    with Store.open(home) as store:
        one_by_one = best_of(lambda: [store.get_evidence("lower", key) for key in keys])
        say(f"{LOOKUPS} lookups, get_evidence", milliseconds(one_by_one))
        at_once = best_of(lambda: store.get_many("lower", keys))
        say(f"{LOOKUPS} lookups, get_many", milliseconds(at_once))
        run = store.runs(1)[0].id
        walk = best_of(lambda: sum(1 for _ in store.run_bodies(run)), rounds=1)
        say(f"run_bodies, {count} rows", f"{count / walk:,.0f} per second")
        say("database", f"{store_stats(store).database_bytes / 2**20:,.1f} MiB")
    say("peak memory", f"{peak_memory():,.1f} MiB ({before:,.1f} before the store)")


def replay(store: Store, count: int) -> tuple[float, float]:
    """Put that many pieces of evidence and results; return the seconds that each of them took."""
    names = {role: store.artifacts.put(role.encode() * 1000) for role in ("ptx", "log", "meta")}
    run = store.begin_run("benchmark")
    evidence = results = 0.0
    for number in range(count):
        record = replayed(number)
        start = time.perf_counter()
        store.put_evidence("lower", f"key{number}", b"x" * 500, names)
        middle = time.perf_counter()
        store.put_result(run, record)
        results += time.perf_counter() - middle
        evidence += middle - start
    store.finish_run(run)
    return evidence, results


def replayed(number: int) -> ResultRecord:
    """A result as a matrix run makes it, with a row of half a kilobyte."""
    kernel = f"kernel{number % KERNELS}"
    config = {"num_warps": 4, "num_stages": 3, "BLOCK": number // KERNELS % CONFIGS}
    cell = f"{kernel}/launch/BLOCK={config['BLOCK']}@sm_90a/{number}"
    return ResultRecord(
        cell=cell,
        short=f"{number:012x}",
        kernel=kernel,
        launch="launch",
        config=config,
        target="sm_90a",
        triton="3.6.0",
        ptxas="12.8.93",
        verdict="ok",
        row=b'{"cell": "..."}'.ljust(500),
        evidence={"lower": f"key{number}"},
    )


def best_of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The shortest of several wall times, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory() -> float:
    """The most memory that this process has had, in MiB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def milliseconds(seconds: float) -> str:
    """Seconds as text."""
    return f"{seconds * 1000:.2f} ms (best of {ROUNDS})"


def say(what: str, value: str) -> None:
    """Print one line of the table."""
    print(f"{what:<32}{value}", flush=True)


if __name__ == "__main__":
    main()
