"""What a run of a matrix costs: against the machine, against a plain loop, and when nothing is new.

    python benchmarks/matrix.py
    python benchmarks/matrix.py --cells 100000 --skip-compiling

One place of the corpus (a kernel, a target, a Triton) is run with every ptxas named, from an empty
store: wall seconds over (CPU seconds of the compilers / cores). Then a sample of the same cells is
compiled as a user would in a plain loop: one process a cell, nothing shared. Last, a large matrix
is filled by replaying rows (captured, but not compiled), and run twice from the store: a first
night, and an unchanged one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from compile import CORES, ONE_CONFIG, ROOT, plain_job, run, triage

import harness.cells.places
from harness.cells.evaluate import Evaluated
from harness.cli.main import cli
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell
from harness.io.toolchains.install import install_ptxas
from harness.values.row import Row
from harness.values.verdict import VerdictKind

PTXAS = ("13.0.88", "13.1.80", "13.1.115", "13.2.51", "13.2.78", "13.2.86", "13.3.33", "13.5.37")
CONFIGS = 210
"""Of each launch of the replayed kernel."""
TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")

KERNEL = """
import torch, triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 2**b}, num_warps=w, num_stages=s)
                  for b in range(5, 12) for w in (1, 2, 4, 8, 16) for s in range(1, 7)], key=[])
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), n)

"""
LAUNCH = """
def launch{number}(n={number}):
    fill[(1,)](torch.empty(4096, device="cuda"), n + 17)
"""


def matrix_file(folder: Path, **changes: object) -> None:
    """A matrix of the user's own in this folder; JSON is YAML."""
    base = {"version": 1, "toolchains": {"triton": {"spec": "installed"}}}
    (folder / "matrix.yaml").write_text(json.dumps({**base, **changes}))


def compiled(folder: Path, env: dict[str, str], options: argparse.Namespace) -> None:
    """The cold run of one place, and the plain loop on a sample of its cells."""
    ptxas = {"spec": ["bundled", *PTXAS]}
    toolchains = {"triton": {"spec": options.triton}, "ptxas": ptxas}
    matrix_file(folder, toolchains=toolchains, targets=[options.sm], kernels=[options.kernel])
    words = triage("matrix", "run", "--json")
    os.chdir(folder)
    run(triage("matrix", "run", "--list"), {**env, "TRIAGE_HOME": str(folder / "other")})
    wall, peak, output = run(words, env)
    document = json.loads(output)
    cells = sum(document["cells"].values())
    ideal = document["cpu_seconds"] / CORES
    print(f"{options.kernel} on {options.sm}: {cells} cells on {CORES} cores")
    print(f"cold    {wall:7.1f} s = {wall / ideal:.2f} x (compiler CPU / cores, {ideal:.1f} s)")
    print(f"memory  {peak / 2**20:7.0f} MiB in the parent")
    again, _, _ = run(words, env)
    print(f"again   {again:7.2f} s, nothing new")
    exported = run(triage("export", "--format", "jsonl"), env)[2]
    rows = [json.loads(line) for line in exported.splitlines()]
    job, path = plain_job(env["TRIAGE_HOME"], options.kernel, options.sm.removeprefix("sm_"))
    sample = rows[:: options.every]
    plain = loop(sample, job, {**env, "PYTHONPATH": path}) * len(rows) / len(sample)
    print(f"loop    {plain:7.1f} s = cold x {plain / wall:.1f} ({len(sample)} cells were run)")


def loop(rows: Sequence[dict[str, Any]], job: dict[str, Any], env: dict[str, str]) -> float:
    """Wall seconds of one process after another, one for each cell; failures are data."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "one.py"
        script.write_text(ONE_CONFIG)
        started = time.perf_counter()
        for number, row in enumerate(rows):
            path = Path(folder) / f"job-{number}.json"
            path.write_text(json.dumps({**job, "options": row["config"]}))
            mine = {**env, "TRITON_CACHE_DIR": f"{folder}/cache-{number}"}
            if row["ptxas_origin"] != "bundled":
                chosen = str(install_ptxas(row["ptxas"]).path)
                mine |= {"TRITON_PTXAS_PATH": chosen, "TRITON_PTXAS_BLACKWELL_PATH": chosen}
            words = [sys.executable, str(script), str(path)]
            done = subprocess.run(words, env=mine, check=False, capture_output=True, text=True)
            if done.returncode and "ptxas" not in done.stderr:
                sys.exit(f"the plain loop does not work: {done.stderr[-500:]}")
        return time.perf_counter() - started


async def replay(bench: Workbench, plan: PlannedCell) -> Evaluated:  # noqa: ARG001
    """A row as a real run leaves them, without the work."""
    cell = plan.cell
    row = Row(
        cell=str(cell),
        short=cell.short,
        kernel=cell.kernel,
        launch=cell.launch,
        config=cell.config.as_dict(),
        target=str(cell.target),
        triton=plan.compiler.version,
        ptxas=plan.ptxas.version,
        ptxas_origin=plan.ptxas.origin,
        verdict=VerdictKind.OK,
        reason="compiled, fits the target, nothing suspicious",
        n_regs=128,
        spill_stores=0,
        spill_loads=0,
        stack=0,
        shared=24576,
        threads=128,
        occupancy=0.25,
        occupancy_limiter="registers",
        instructions={"tensor": 16, "vector": 900, "special": 12, "memory": 300, "local": 0},
        ptx_version="8.8",
        ptx_sha256="ab" * 32,
        ptx_body_sha256="cd" * 32,
        cubin_sha256="ef" * 32,
        seconds=1.5,
    )
    return Evaluated(
        row=row, evidence={"lower": "12" * 32, "ptx": "34" * 32, "assemble": "56" * 32}
    )


def replayed(folder: Path, env: dict[str, str], wanted: int) -> None:
    """A large matrix with nothing new."""
    launches = max(1, round(wanted / (CONFIGS * len(TARGETS) * (1 + len(PTXAS)))))
    repro = folder / "repros" / "fill"
    repro.mkdir(parents=True)
    text = KERNEL + "".join(LAUNCH.format(number=number) for number in range(launches))
    (repro / "launch.py").write_text(text)
    (repro / "repro.yaml").write_text("kernel: fill\n")
    toolchains = {"triton": {"spec": "installed"}, "ptxas": {"spec": ["bundled", *PTXAS]}}
    matrix_file(
        folder, toolchains=toolchains, targets=list(TARGETS), kernels=["fill"], launches=["*"]
    )
    os.chdir(folder)
    os.environ.update(env)
    vars(harness.cells.places)["evaluate"] = replay  # the one place where cells are compiled
    filled = CliRunner().invoke(cli, ["matrix", "run", "--json"])
    cells = sum(json.loads(filled.stdout)["cells"].values())
    words = triage("matrix", "run", "--json")
    # The first has no night before it, as the rows were filled in by other words: all is new to it.
    for night in ("first", "again"):
        before = os.times()
        wall, peak, output = run(words, env)
        after = os.times()
        cpu = sum(after[2:4]) - sum(before[2:4])
        assert json.loads(output)["carried"] == cells
        print(
            f"{night}   {cpu:7.2f} CPU s ({wall:.2f} s) for {cells:,} cells that are stored: "
            f"{cells / cpu:,.0f} a CPU second; {peak / 2**20:.0f} MiB"
        )


def main() -> None:
    """Measure and print."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kernel", default="mamba3_siso_bwd_dqkv")
    parser.add_argument("--sm", default="sm_100a")
    parser.add_argument("--triton", default="3.6.0")
    parser.add_argument("--every", type=int, default=5, help="each so-manieth cell in the loop")
    parser.add_argument("--cells", type=int, default=10_000, help="of the replayed matrix")
    parser.add_argument("--skip-compiling", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for part in ("compiled", "replayed"):
            (Path(name) / part).mkdir()
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not options.skip_compiling:
            folder = Path(name) / "compiled"
            compiled(folder, {**env, "TRIAGE_HOME": str(folder / "home")}, options)
        folder = Path(name) / "replayed"
        replayed(folder, {**env, "TRIAGE_HOME": str(folder / "home")}, options.cells)


if __name__ == "__main__":
    main()
