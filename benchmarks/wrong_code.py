"""Silent wrong code of Triton, found by executing its PTX: writes docs/wrong-code.md.

`python benchmarks/wrong_code.py [NAME ...]` runs `triage run` for each case below, Triton after
Triton, and writes what it said. Nothing in that page is typed in: a case names the kernel, the
target, the versions and where upstream describes the bug.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "wrong-code.md"
_ENTIRE = (
    "chunk_size=64",
    "seqlen=256",
    "headdim_qk=128",
    "headdim_v=64",
    "nheads=1",
    "nheads_qk=1",
)
_NEW = ("3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel on targets and Tritons; `columns` are what is varied: options of `triage run`."""

    name: str
    title: str
    upstream: str
    kernel: str
    tritons: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    sets: tuple[str, ...] = ()
    note: str = ""


CASES = (
    Case(
        name="two-dots",
        title="Two products into one accumulator, in a pipelined loop",
        upstream="triton-lang/triton#10821, #10858, #10988; linkedin/Liger-Kernel#1435",
        kernel="two_dots",
        tritons=_NEW,
        columns=(
            ("--sm", "100a", "--set", "stages=1"),
            ("--sm", "100a", "--set", "stages=2"),
            ("--sm", "100a", "--set", "stages=3"),
            ("--sm", "90a", "--set", "stages=2"),
            ("--sm", "80", "--set", "stages=2"),
        ),
    ),
    Case(
        name="mamba3-accumulator",
        note=(
            "With two stages and four warps the accumulator is lost under every schedule, up "
            "to the newest Triton. With one stage, or two warps, only the late schedules are "
            "wrong, and only up to 3.7.1: that is the bulk store of the next section. The "
            "`race` of 3.8 and 3.9 is two warps that store a sum to one address of shared "
            "memory; a product is contracted into the sum on one side of an exchange only, so "
            "that the warps' sums differ in the last bit, and which one stays is not "
            "determined."
        ),
        title="Mamba-3 forward with stages, on tensor memory",
        upstream="state-spaces/mamba#997; triton-lang/triton#10993",
        kernel="mamba3_siso_fwd",
        tritons=_NEW,
        sets=_ENTIRE,
        columns=(
            ("--sm", "100a", "--config", "num_warps=4,num_stages=2,maxnreg=none"),
            ("--sm", "100a", "--config", "num_warps=4,num_stages=1,maxnreg=none"),
            ("--sm", "100a", "--config", "num_warps=2,num_stages=2,maxnreg=none"),
        ),
    ),
    Case(
        name="running-state",
        title="An output beside a running state: the pattern of the above in 13 lines",
        upstream="triton-lang/triton#10993",
        kernel="scaled_values",
        tritons=_NEW,
        columns=(
            ("--sm", "100a", "--set", "stages=1"),
            ("--sm", "100a", "--set", "stages=2"),
            ("--sm", "100a", "--set", "stages=2", "--set", "warps=2"),
        ),
    ),
    Case(
        name="mamba3-bulk-store",
        title="Mamba-3 forward: a bulk store, then a bulk load of the same memory",
        upstream="state-spaces/mamba#997",
        kernel="mamba3_siso_fwd",
        tritons=_NEW,
        columns=(
            ("--sm", "90a", "--config", "num_warps=4,num_stages=1,maxnreg=none"),
            ("--sm", "120a", "--config", "num_warps=4,num_stages=1,maxnreg=none"),
        ),
    ),
)


def run(case: Case, triton: str, column: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The command, and its row."""
    words = ["triage", "run", "--kernel", case.kernel, *column, "--triton", triton]
    words += [word for each in case.sets for word in ("--set", each)]
    command = [sys.executable, "-m", "harness", *words[1:], "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 4):
        sys.exit(f"{shlex.join(words)}: {done.stderr[-500:]}")
    [row] = json.loads(done.stdout)["runs"]
    return shlex.join(words), row


def cell(row: dict[str, Any]) -> str:
    """What a row says, in a table."""
    if row["run"] != "wrong_result":
        return str(row["run"])
    worst = max(row["outputs"], key=lambda each: each["differing"] or 0)
    share = f"{worst['differing']:,} of {worst['elements']:,} elements of `{worst['name']}`"
    return f"**wrong**: {share}, by up to {worst['max_abs']:.3g}; schedule {row['schedule']}"


def section(case: Case) -> str:
    """The case as Markdown."""
    titles = [
        " ".join(word for word in column if not word.startswith("--")) for column in case.columns
    ]
    lines = [f"## {case.title}", "", f"Upstream: {case.upstream}.", ""]
    lines += [f"| Triton | {' | '.join(f'`{title}`' for title in titles)} |"]
    lines += [f"|---|{'---|' * len(titles)}"]
    example, references = "", set()
    for triton in case.tritons:
        found = [run(case, triton, column) for column in case.columns]
        # Each line is held to what its own Triton compiles.
        own = f" with Triton {triton}"
        references |= {row["reference"].replace(own, "") for _, row in found if row["reference"]}
        example = example or next((c for c, row in found if row["run"] == "wrong_result"), "")
        lines.append(f"| {triton} | {' | '.join(cell(row) for _, row in found)} |")
        print(lines[-1], flush=True)
    lines += ["", f"Compared with: {'; '.join(sorted(references))}.", ""]
    lines += [case.note, ""] if case.note else []
    return "\n".join([*lines, "```sh", example or "triage run ...", "```", ""])


def main() -> None:
    """Write the page, or print the named cases."""
    chosen = [case for case in CASES if not sys.argv[1:] or case.name in sys.argv[1:]]
    started = time.monotonic()
    parts = [section(case) for case in chosen]
    if len(chosen) < len(CASES):
        return
    minutes = (time.monotonic() - started) / 60
    head = f"""# Silent wrong code, found without a GPU

These kernels compile without a word, and what they compile to computes something else. Each cell of
a table is a `triage run`: the PTX of that Triton for that target, executed on the emulator
([run.md](run.md)). What it says is *emulated*: true of the PTX under the rules of the PTX ISA; no
GPU took part.

`python benchmarks/wrong_code.py` generates this page ({minutes:.0f} minutes on two cores).
"""
    PAGE.write_text("\n".join([head, *parts]).rstrip() + "\n")


if __name__ == "__main__":
    main()
