"""Measures `triage minimize` beside cvise: the same file, the same oracle, in one run.

    python benchmarks/minimize.py FILE.ptx --sm 100a --ptxas 13.1.115 [--cap SECONDS] [--jobs N]

cvise runs as `cvise --not-c` (Debian package) on the `test.sh` that ours wrote, for as long as
`--cap` says. A call is one candidate that was tested; each is up to three runs of ptxas. What is
printed last is how much more cvise took, or left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpu_emulator.ptx.text.facts import retarget
from harness.io.toolchains.install import install_ptxas
from harness.minimize.ptx.reduce import count_instructions

CORES = len(os.sched_getaffinity(0))
# Counts its runs, one byte each, and then is the oracle.
COUNTER = '#!/bin/sh\nprintf . >>"$COUNT"\nexec sh "$ORACLE"\n'


@dataclass(frozen=True)
class Result:
    """What one reducer came to."""

    name: str
    instructions: int
    size: int
    calls: int
    wall: float
    ending: str


def ours(arguments: argparse.Namespace, out: Path) -> tuple[Result, dict[str, Any]]:
    """Run `triage minimize` into a folder; its result, and what it printed."""
    words = [sys.executable, "-m", "harness", "minimize", arguments.file, "--json"]
    words += ["--sm", arguments.sm, "--ptxas", arguments.ptxas, "--out", str(out)]
    words += ["--jobs", str(arguments.jobs)]
    if arguments.defined:
        words.append("--defined")
    started = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    wall = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"triage minimize ended with {done.returncode}: {done.stdout.decode()}")
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    result = Result(
        name="triage",
        instructions=found["instructions"],
        size=found["bytes"],
        calls=found["tests"],
        wall=wall,
        ending=found["ending"],
    )
    return result, found


def oracle_env(found: dict[str, Any], folder: Path) -> dict[str, str]:
    """The programs that `test.sh` asks for, and where calls are counted."""
    versions = {
        "PTXAS_BAD": found["fingerprint"]["fails"][0],
        "PTXAS_GOOD": found["last_good"],
        "PTXAS_FIXED": found["first_fixed"],
    }
    named = set(versions.values())
    for each in (*found["fingerprint"]["fails"], *found["fingerprint"]["accepted_by"]):
        if each not in named:
            versions["PTXAS_" + each.replace(".", "_")] = each
    tools = {name: str(install_ptxas(each).path) for name, each in versions.items() if each}
    return {
        **os.environ,
        **tools,
        "COUNT": str(folder / "count"),
        "ORACLE": str(Path(found["path"]).absolute() / "test.sh"),
    }


def cvise(arguments: argparse.Namespace, found: dict[str, Any], folder: Path) -> Result:
    """Run cvise until it ends or the cap is reached; it keeps its best in the file itself."""
    text = Path(arguments.file).read_text()
    if found["as_version"]:
        text = retarget(text, version=found["as_version"])
    file = folder / "kernel.ptx"
    file.write_text(text)
    script = folder / "counted.sh"
    script.write_text(COUNTER)
    script.chmod(0o755)
    words = ["cvise", "--not-c", "--n", str(arguments.jobs), str(script), file.name]
    started = time.perf_counter()
    with (folder / "cvise.log").open("wb") as log:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=oracle_env(found, folder),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = process.wait(arguments.cap)
            ending = "finished" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ending = "capped"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    wall = time.perf_counter() - started
    if ending.startswith("exit"):
        print((folder / "cvise.log").read_text()[-2000:], file=sys.stderr)
    left = file.read_text()
    count = folder / "count"
    return Result(
        name="cvise --not-c",
        instructions=count_instructions(left),
        size=len(left.encode()),
        calls=count.stat().st_size if count.exists() else 0,
        wall=wall,
        ending=ending,
    )


def main() -> None:
    """Run both and print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file")
    parser.add_argument("--sm", required=True)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--cap", type=float, default=900.0, help="seconds for cvise")
    parser.add_argument("--jobs", type=int, default=CORES)
    parser.add_argument("--defined", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        first, found = ours(arguments, folder / "ours")
        results = [first]
        original = found["original"]
        print(f"{arguments.file}: {original['instructions']:,} instructions, ", end="")
        print(f"{original['bytes']:,} bytes; {arguments.jobs} jobs")
        if shutil.which("cvise"):
            results.append(cvise(arguments, found, folder))
        else:
            print("cvise is not installed (apt-get install cvise): ours is measured alone")
        for each in results:
            print(
                f"{each.name:>14}  {each.instructions:>6,} instructions  {each.size:>8,} bytes  "
                f"{each.calls:>7,} calls  {each.wall:>7,.0f} s  {each.ending}"
            )
        for other in results[1:]:
            print(
                f"{other.name} took {other.calls / first.calls:.1f}x the calls and "
                f"{other.wall / first.wall:.1f}x the time, and left "
                f"{other.instructions / first.instructions:.1f}x the instructions"
            )


if __name__ == "__main__":
    main()
