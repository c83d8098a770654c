"""Measures `triage compile`, everything in one run on one machine, and prints ratios.

    python benchmarks/compile.py [--kernel K] [--sm SM]

cold    wall of a compile with an empty store, over (CPU seconds in the compilers) / cores
warm    wall of the same command again, from the store
loop    wall of what a user would write: a process for each config, one after another,
        that compiles it with the same Triton and the ptxas that this bundles
        (no resources, no SASS, no verdict)
help    wall of `triage --help`
memory  peak resident memory of the parent
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from harness.cells.repros.find import find_kernel
from harness.frontends.launch_code import fetch_launch_code
from harness.io.toolchains.install import install_triton
from harness.values.outcome import Capture
from harness.values.target import Target

ROOT = Path(__file__).parent.parent
CORES = len(os.sched_getaffinity(0))


def run(words: list[str], env: dict[str, str]) -> tuple[float, int, str]:
    """Wall seconds, peak resident bytes of that process alone, and its output."""
    started = time.perf_counter()
    peak = 0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, env=env, stdout=output, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            # What wait4 tells counts children too, so the kernel's own high-water mark is read.
            peak = max(peak, high_water_mark(process.pid))
            time.sleep(0.01)
        wall = time.perf_counter() - started
        output.seek(0)
        return wall, peak, output.read().decode()


def high_water_mark(pid: int) -> int:
    """Peak resident bytes of one process; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def triage(*words: str) -> list[str]:
    """The words that run our command line."""
    return [sys.executable, "-m", "harness", *words]


# What a user would write to try one config alone: `triton.compile` on the kernel's signature.
ONE_CONFIG = """
import json, sys, types
job = json.load(open(sys.argv[1]))
sys.path[:0] = job["paths"]
for name, path in job["bare"].items():
    package = types.ModuleType(name)
    package.__path__ = [path]
    sys.modules[name] = package
import importlib, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
kernel = getattr(importlib.import_module(job["module"]), job["kernel"])
while not isinstance(kernel, triton.JITFunction):
    kernel = kernel.fn
attrs = {(i,): [["tt.divisibility", 16]] for i in job["divisible"]}
source = ASTSource(fn=kernel, signature=job["signature"], constexprs=job["constexprs"], attrs=attrs)
triton.compile(source, target=GPUTarget("cuda", job["capability"], 32), options=job["options"])
"""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "int32": "i32"}


def job_of(capture: Capture, kernel: str) -> dict[str, Any]:
    """The signature of the captured launch, as `ASTSource` wants it."""
    arguments = next(record for record in capture.records if record.kernel == kernel).arguments
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    divisible = []
    for index, argument in enumerate(arguments):
        name = str(argument["name"])
        if "tensor" in argument:
            signature[name] = f"*{_DTYPES[str(argument['tensor'])]}"
        elif "integer" in argument and not argument["one"]:
            signature[name] = str(argument["integer"])
        else:
            signature[name] = "constexpr"
            text = str(argument.get("constexpr", argument.get("value")))
            constants[name] = ast.literal_eval(text)
        if argument.get("aligned") or argument.get("divisible"):
            divisible.append(index)
    return {"signature": signature, "constexprs": constants, "divisible": divisible}


def loop(rows: list[dict[str, Any]], job: dict[str, Any], env: dict[str, str]) -> float:
    """Wall seconds of one process after another, one for each config; ptxas failures are data."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "one.py"
        script.write_text(ONE_CONFIG)
        started = time.perf_counter()
        for number, row in enumerate(rows):
            path = Path(folder) / f"job-{number}.json"
            path.write_text(json.dumps({**job, "options": row["config"]}))
            mine = {**env, "TRITON_CACHE_DIR": f"{folder}/cache-{number}"}
            words = [sys.executable, str(script), str(path)]
            done = subprocess.run(words, env=mine, check=False, capture_output=True, text=True)
            if done.returncode and "ptxas" not in done.stderr:
                sys.exit(f"the plain loop does not work: {done.stderr[-500:]}")
        return time.perf_counter() - started


def plain_job(home: str, kernel: str, sm: str) -> tuple[dict[str, Any], str]:
    """The job of the plain loop, and the module path that holds the same Triton."""
    repro = find_kernel(kernel)
    assert repro.source
    assert repro.kernel
    assert repro.version
    with sqlite3.connect(Path(home) / "triage.db") as database:
        [[found]] = database.execute("SELECT body FROM evidence WHERE kind = 'capture'").fetchall()
    capture = msgspec.json.decode(found, type=Capture)
    code = fetch_launch_code(repro, repro.launches[0], {})
    parts = repro.source.module.split(".")[:-1]
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    job = {
        **job_of(capture, repro.kernel),
        "paths": [str(path) for path in code.paths],
        "bare": {name: str(code.bare[0] / name.replace(".", "/")) for name in names},
        "module": repro.source.module,
        "kernel": repro.kernel,
        "capability": Target.parse(sm).capability,
    }
    return job, str(install_triton(repro.version).path)


def main() -> None:
    """Measure and print."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kernel", default="mamba3_siso_bwd_dqkv")
    parser.add_argument("--sm", default="100a")
    options = parser.parse_args()
    words = triage("compile", "--kernel", options.kernel, "--sm", options.sm, "--json")
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "TRIAGE_HOME": home, "PYTHONPATH": str(ROOT)}
        # Toolchains and sources are installed by a first, small run in a store of its own.
        with tempfile.TemporaryDirectory() as other:
            run([*words, "--config", "num_warps=none"], {**env, "TRIAGE_HOME": other})
        cold, memory, output = run(words, env)
        document = json.loads(output)
        warm = statistics.median(run(words, env)[0] for _ in range(5))
        helps = statistics.median(run(triage("--help"), env)[0] for _ in range(5))
        job, triton_path = plain_job(home, options.kernel, options.sm)
        plain = loop(document["cells"], job, {**env, "PYTHONPATH": triton_path})
    cpu = document["summary"]["cpu_seconds"]
    print(f"{len(document['cells'])} cells on {CORES} cores")
    ideal = cpu / CORES
    print(f"cold    {cold:7.2f} s = {cold / ideal:.2f} x (compiler CPU {cpu:.1f} s / cores)")
    print(f"warm    {warm:7.2f} s = cold / {cold / warm:.0f}")
    print(f"loop    {plain:7.2f} s = cold x {plain / cold:.1f}")
    print(f"help    {helps:7.2f} s")
    print(f"memory  {memory / 2**20:7.0f} MiB in the parent")


if __name__ == "__main__":
    main()
