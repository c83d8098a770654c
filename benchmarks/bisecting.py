"""What a bisection along ptxas costs, against the CPU time that its compilers need.

    python benchmarks/bisecting.py [--cold] [words of triage bisect]

First with the toolchains present and nothing stored, then again with everything stored; with
`--cold` also from an empty cache, downloads and all. `ratio` is wall seconds over (CPU seconds of
all child processes / cores). It is not called `bisect.py`, as a module of the standard library is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compile import CORES, triage

DEFAULT = [
    *("--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100a", "--set", "chunk_size=32"),
    *("--ptxas", "13.1.115", "--config", "num_warps=8,num_stages=1,maxnreg=none"),
]
_TICKS = os.sysconf("SC_CLK_TCK")


def own_cpu(pid: int) -> float:
    """CPU seconds of one living process, without its children; 0 when it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / _TICKS


def measure(name: str, words: list[str], env: dict[str, str]) -> None:
    """Run it once and print a line."""
    started, mine = time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            triage("bisect", "--json", *words), env=env, stdout=output, stderr=subprocess.DEVNULL
        )
        while True:
            mine = max(mine, own_cpu(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.01)
        wall = time.perf_counter() - started
        output.seek(0)
        text = output.read()
    code = os.waitstatus_to_exitcode(status)
    if code:
        sys.exit(f"{name}: triage bisect ended with exit code {code}")
    found = json.loads(text)
    children = usage.ru_utime + usage.ru_stime - mine
    print(
        f"{name:8} {wall:7.1f} s wall, {children:7.1f} s CPU in children, "
        f"ratio {wall / (children / CORES):5.2f}; {len(found['runs'])} versions, "
        f"last good {found['last_good']}, first bad {found['first_bad']}, "
        f"first fixed {found['first_fixed']}, confidence {found['confidence']}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cold", action="store_true", help="also with an empty cache")
    arguments, words = parser.parse_known_args()
    words = words or DEFAULT
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TRIAGE_HOME": f"{folder}/results"}
        subprocess.run(
            triage("bisect", *words),
            env={**env, "TRIAGE_HOME": f"{folder}/first"},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # installs what is missing
        measure("present", words, env)
        measure("stored", words, env)
        if arguments.cold:
            empty = {"TRIAGE_CACHE_DIR": f"{folder}/cache", "UV_CACHE_DIR": f"{folder}/uv"}
            measure("cold", words, {**env, **empty, "TRIAGE_HOME": f"{folder}/cold"})


if __name__ == "__main__":
    main()
