"""How long `triage diff` and `triage export` take on much history, and how much memory.

    python benchmarks/history.py --cells 50000

Two nights of one matrix are replayed (nothing is compiled): `--cells` cells each, with rows as a
real run leaves them. In the second night a few cells changed. Each command then runs as a user
runs it, in a process of its own; the wall time and the most memory of that process are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.cells.evaluate import Evaluated
from harness.cells.places import record_of
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.row import Row
from harness.values.verdict import VerdictKind

TRITONS = ("3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0")
PTXAS = ("12.8.93", "12.9.86", "13.0.88", "13.1.115", "13.2.86", "13.3.73", "13.4.92", "13.5.37")
TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
WARPS = (2, 4, 8)
STAGES = (1, 2, 3)
FAILING = 7
"""Every so many cells one does not compile."""


def main() -> None:
    """Replay two nights, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=50_000, help="cells in each of two nights")
    parser.add_argument("--home", type=Path, help="where the history stays (default: nowhere)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = options.home or Path(temporary) / "home"
        fill(home, options.cells)
        say("history", f"2 runs, {2 * options.cells:,} cells")
        say("database", f"{(home / 'triage.db').stat().st_size / 2**20:,.0f} MiB")
        measure(home, Path(temporary))


def measure(home: Path, folder: Path) -> None:
    """One line for each command."""
    commands: list[Sequence[str]] = [["diff"], ["diff", "--json"]]
    commands += [
        ["export", "--all", "--format", form, "--out", str(folder / f"export.{form}")]
        for form in ("jsonl", "csv", "markdown", "sqlite", "parquet")
    ]
    commands.append(["history", "--kernel", "kernel0"])
    for words in commands:
        seconds, mebibytes, code = run(home, words)
        name = " ".join(word for word in words if not word.startswith(str(folder)))
        say(f"triage {name}", f"{seconds:6.2f} s  {mebibytes:6.0f} MiB  exit code {code}")


def run(home: Path, words: Sequence[str]) -> tuple[float, float, int]:
    """Wall seconds, peak MiB and exit code of one `triage` command."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        env={**os.environ, "TRIAGE_HOME": str(home)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - start, peak(used), process.returncode


def peak(used: resource.struct_rusage) -> float:
    """Linux counts in KiB."""
    return used.ru_maxrss / 1024


def fill(home: Path, cells: int) -> None:
    """Two nights; the second finds some of the cells changed, and says that it read the store."""
    with Store.open(home) as store:
        for night in (1, 2):
            number = store.begin_run("triage matrix run")
            batch = []
            for index, row in enumerate(rows(cells)):
                batch.append(record(changed(row, index) if night == 2 else row))
                if len(batch) == 1000:
                    store.put_results(number, batch)
                    batch = []
            store.put_results(number, batch)
            store.finish_run(number)


def rows(cells: int) -> Iterator[Row]:
    """As many cells of a matrix, kernel after kernel."""
    for index in range(cells):
        rest, ptxas = divmod(index, len(PTXAS))
        rest, triton = divmod(rest, len(TRITONS))
        rest, target = divmod(rest, len(TARGETS))
        rest, warps = divmod(rest, len(WARPS))
        kernel, stages = divmod(rest, len(STAGES))
        config = {"num_warps": WARPS[warps], "num_stages": STAGES[stages], "BLOCK_M": 64}
        label = ",".join(f"{name}={value}" for name, value in config.items())
        place = f"kernel{kernel}/default/{label}@{TARGETS[target]}"
        cell = f"{place}/triton-{TRITONS[triton]}/ptxas-{PTXAS[ptxas]}"
        digest = hashlib.sha256(cell.encode()).hexdigest()
        fails = index % FAILING == 0
        yield Row(
            cell=cell,
            short=digest[:8],
            kernel=f"kernel{kernel}",
            launch="default",
            config=dict(config),
            target=TARGETS[target],
            triton=TRITONS[triton],
            ptxas=PTXAS[ptxas],
            ptxas_origin="nvidia-cuda-nvcc",
            verdict=VerdictKind.PTXAS_ICE if fails else VerdictKind.OK,
            reason="ptxas: internal compiler error C7907" if fails else "compiled, nothing suspect",
            stage="cubin" if fails else None,
            signature="5f0d1a2b3c4d" if fails else None,
            code="C7907" if fails else None,
            exit_code=255 if fails else 0,
            n_regs=None if fails else 32 + index % 200,
            spill_stores=None if fails else 0,
            spill_loads=None if fails else 0,
            stack=None if fails else 0,
            shared=24576,
            static_shared=0,
            tmem_size=0,
            threads=128,
            occupancy=None if fails else 0.25,
            occupancy_limiter=None if fails else "registers",
            instructions=None if fails else {"tensor": 64, "vector": 1516, "total": 25906},
            ptx_version="8.8",
            ptx_sha256=digest,
            ptx_body_sha256=digest[::-1],
            ptxas_flags=("-lineinfo", "-v", f"--gpu-name={TARGETS[target]}"),
            cubin_sha256=None if fails else hashlib.sha256(digest.encode()).hexdigest(),
            seconds=1.25,
        )


def changed(row: Row, index: int) -> Row:
    """What the second night says of a cell: nearly always the same, from the store."""
    row = replace(row, cached=True)
    if row.verdict != "ok" or index % 1000:
        return row
    return replace(row, spill_stores=16, spill_loads=16, cubin_sha256=row.ptx_sha256)


def record(row: Row) -> ResultRecord:
    """As a run keeps it."""
    evidence = {"lower": "a" * 64, "ptx": "b" * 64, "assemble": "c" * 64}
    return record_of(Evaluated(row=row, evidence=evidence))


def say(what: str, value: str) -> None:
    """Print one line of the table."""
    print(f"{what:<42}{value}", flush=True)


if __name__ == "__main__":
    main()
