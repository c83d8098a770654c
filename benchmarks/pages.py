"""How long `triage site` takes over many replayed cells, and how much memory and disk.

    python benchmarks/pages.py --cells 100000
    python benchmarks/pages.py --cells 100000 --kernels 1 --targets 1

One cell in ten fails. Wall times are of this machine, as busy as it is; CPU time is printed beside
them. The peak memory is that of the process that writes the pages and of nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.cells.evaluate import Evaluated
from harness.cells.places import record_of
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind

TOOLCHAINS = 20
BATCH = 1000


def main() -> None:
    """Fill a store, then let a process of its own write the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--targets", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, out = Path(folder) / "home", Path(folder) / "site"
        fill(home, options.cells, options.kernels, options.targets)
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "harness", "site", "--out", str(out), "--json"],
            env={**os.environ, "TRIAGE_HOME": str(home)},
            stdout=subprocess.PIPE,
            check=True,
        )
        wall = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = json.loads(done.stdout)
        print(f"cells                {report['cells']:,}")
        print(f"wall time            {wall:,.1f} s")
        print(f"CPU time             {used.ru_utime + used.ru_stime:,.1f} s")
        print(f"peak memory          {used.ru_maxrss / 1024:,.1f} MiB")
        print(f"pages                {report['pages']:,}, {report['bytes'] / 1e6:,.1f} MB")
        print(f"largest page         {report['largest'] / 1e6:,.2f} MB")


def fill(home: Path, count: int, kernels: int, targets: int) -> None:
    """Keep one finished run with that many cells."""
    with Store.open(home) as store:
        run = store.begin_run("triage matrix run")
        batch = []
        for row in rows(count, kernels, targets):
            batch.append(record_of(Evaluated(row=row, evidence={})))
            if len(batch) == BATCH:
                store.put_results(run, batch)
                batch = []
        store.put_results(run, batch)
        store.finish_run(run)


def rows(count: int, kernels: int, targets: int) -> Iterator[Row]:
    """Cells as a matrix has them: every kernel, target and config on every toolchain."""
    names = ("sm_80", "sm_90a", "sm_100a", "sm_120a")[:targets]
    for number in range(count):
        place, toolchain = divmod(number, TOOLCHAINS)
        place, kernel = divmod(place, kernels)
        point, target = divmod(place, len(names))
        config = Config.of({"num_warps": 4, "num_stages": 3, "BLOCK": point})
        ptxas = f"13.{toolchain}.80"
        cell = CellId(
            kernel=f"kernel{kernel}",
            launch="default",
            config=config,
            target=Target.parse(names[target]),
            compiler="triton-3.6.0",
            ptxas=ptxas,
        )
        fails = (point + toolchain) % 10 == 0
        yield Row(
            cell=str(cell),
            short=cell.short,
            kernel=cell.kernel,
            launch="default",
            config=config.as_dict(),
            target=names[target],
            triton="3.6.0",
            ptxas=ptxas,
            ptxas_origin="nvidia-cuda-nvcc",
            verdict=VerdictKind.PTXAS_ICE if fails else VerdictKind.OK,
            reason="Internal compiler error." if fails else "compiled, nothing suspect",
            stage="cubin" if fails else None,
            signature=f"signature{kernel % 7}" if fails else None,
            n_regs=None if fails else 64 + toolchain,
            spill_stores=None if fails else 8 * toolchain,
            spill_loads=None if fails else 8 * toolchain,
            shared=None if fails else 1024,
            occupancy=None if fails else 0.5,
        )


if __name__ == "__main__":
    main()
