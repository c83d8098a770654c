"""Scripts against plain Triton, config by config: writes docs/measured/tutorials.md.

    python checks/tutorials.py FOLDER --work FOLDER [--script PATTERN] [--sm SM] [--whole]

FOLDER holds the tutorials, `python/tutorials` of a clone of Triton: no package of the index has
them. Each is captured and compiled by `triage compile`, and run against the installed Triton by
`plain_triton.py`; the PTX of each config is the same, byte for byte, or there is none on either
side. The folder of `--work` keeps what was compiled and compared: a second call goes on from it.
Of scripts that take an hour, a fixed part of the configs is compared (`PARTS`), unless `--whole`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.values.kernel import Config, ConfigFilter
from harness.values.limits import limits_of
from harness.values.target import Target

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "tutorials.md"
TARGETS = ("80", "90a", "100a")

PARTS = {
    "06-fused-attention.py": "num_warps=4|none,num_stages=3|5|none",
    "09-persistent-matmul.py": "num_warps=8|none,num_stages=3|none",
}
"""What `--config` lets through; `none` (and the 5 stages of 06) are of kernels without a tuner."""

Outcome = tuple[str, str, str | None]
"""A kernel, a tuner's config as JSON (null without a tuner), the sha256 of its PTX if any."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What both sides gave for one script on one target, and how long `triage compile` took."""

    script: Path
    target: str
    ours: frozenset[Outcome]
    plain: frozenset[Outcome]
    seconds: float
    part: str = ""

    @property
    def same(self) -> int:
        """Configs whose PTX is the same."""
        return sum(ptx is not None for _, _, ptx in self.ours & self.plain)

    @property
    def same_failures(self) -> int:
        """Configs that come to no PTX on either side."""
        return len(self.ours & self.plain) - self.same


def compare(script: Path, sm: str, work: Path, part: str = "") -> Comparison:
    """Ask both sides about one script; of a tuner's configs only those that `part` lets through.

    Raises:
        RuntimeError: one of them gave no answer.
    """
    target = Target.parse(f"sm_{sm}")
    limits = limits_of(target.capability)
    assert limits is not None
    assert limits.multiprocessors is not None
    facts = target.capability, limits.multiprocessors, limits.max_shared_per_block
    beside = Path(__file__).with_name("plain_triton.py")
    wanted = ConfigFilter.parse(part)
    plain = [
        entry
        for entry in _answer(
            [str(beside), str(script), *map(str, facts), json.dumps(dict(wanted.wanted))],
            {"TRITON_CACHE_DIR": f"{work}/triton"},
        )
        if entry[1] is None or wanted.matches(Config.of(entry[1]))
    ]
    words = ["compile", "--kernel", str(script), "--sm", sm, "--triton", "installed", "--json"]
    words += ["--config", part] if part else []
    began = time.perf_counter()
    document = _answer(["-m", "harness", *words], {"TRIAGE_HOME": f"{work}/triage"})
    seconds = time.perf_counter() - began
    names = {(kernel, name) for kernel, config, _, _ in plain for name in config or ()}
    ours = set()
    for cell in document["cells"]:
        kernel = cell["kernel"].rpartition("::")[2]
        # A kernel without a tuner has what its launch gives: two of these are one to Triton.
        config = {n: v for n, v in cell["config"].items() if (kernel, n) in names} or None
        ours.add((kernel, json.dumps(config, sort_keys=True), cell["ptx_sha256"]))
    theirs = {(kernel, json.dumps(config, sort_keys=True), ptx) for kernel, config, ptx, _ in plain}
    return Comparison(script, str(target), frozenset(ours), frozenset(theirs), seconds, part)


def kept(script: Path, sm: str, work: Path, *, whole: bool) -> Comparison:
    """As `compare`, or what that said of this file, this Triton and this part before."""
    part = "" if whole else PARTS.get(script.name, "")
    version = importlib.metadata.version("triton")
    key = hashlib.sha256(script.read_bytes() + f"{sm} {part} {version}".encode()).hexdigest()
    place = work / "rows" / f"{key}.json"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        row = compare(script, sm, work, part)
        place.write_text(json.dumps([[*row.ours], [*row.plain], row.seconds]))
    ours, plain, seconds = json.loads(place.read_text())
    sides = frozenset(map(tuple, ours)), frozenset(map(tuple, plain))
    return Comparison(script, f"sm_{sm}", *sides, seconds, part)


def _answer(words: list[str], variables: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def page(rows: list[Comparison], missing: list[str]) -> str:
    """The page; `missing` has what was not compared, in words."""
    version = importlib.metadata.version("triton")
    files = sorted({row.script for row in rows})
    hashes = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    parts = "\n".join(
        f"- `{name}`: `--config '{part}'`"
        for name, part in sorted({(row.script.name, row.part) for row in rows if row.part})
    )
    left_out = f"""
Of these only a part of the tuner's configs was compared (`--whole` compares all):

{parts}
""" * bool(parts)
    lines = "\n".join(
        f"| `{row.script.name}` | {row.target} | {len(row.ours | row.plain):,} | {row.same:,} | "
        f"{row.same_failures:,} | {len(row.plain - row.ours):,} | {len(row.ours - row.plain):,} | "
        f"{row.seconds:.0f} |"
        for row in rows
    )
    listed = "\n".join(f"- `{file.name}`: sha256 `{hashes[file]}`" for file in files)
    return f"""# Triton's tutorials against plain Triton

`python checks/tutorials.py FOLDER --work FOLDER` makes this page of the unmodified files in
`python/tutorials` of a clone of Triton (below, by their sha256), which no package of the index has.
Each is captured and compiled by Triton {version} for each target twice: by `triage compile`, and by
plain Triton on tensors without storage (`checks/plain_triton.py`, which has nothing of triage).
A config counts as the same where the PTX is, byte for byte, or where neither side comes to one.
Evidence: *compiled*. Kernels of our own that do what the tutorials do are compared in the same way
by `tests/tools/test_tutorials_real.py`.

| script | target | configs | same PTX | same failure | only Triton | only triage | seconds |
|---|---|---|---|---|---|---|---|
{lines}

Seconds are those of wall time of `triage compile`, on a machine of two cores that did other work
too. Not compared: {", ".join(missing) or "none"}.
{left_out}
The files:

{listed}
"""


def main() -> None:
    """Compare the scripts, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="keeps what was compiled")
    parser.add_argument("--script", default="0[1-9]-*.py", help="a pattern of names")
    parser.add_argument("--sm", action="append", help="of the targets; default: all three")
    parser.add_argument("--whole", action="store_true", help="every config of every script")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    names = sorted(options.folder.absolute().glob("*.py"))
    rows = []
    for script in (path for path in names if fnmatchcase(path.name, options.script)):
        for sm in options.sm or TARGETS:
            row = kept(script, sm, options.work.absolute(), whole=options.whole)
            rows.append(row)
            print(page([row], []).split("|---|\n")[1].splitlines()[0], flush=True)
            for title, configs in (
                ("Triton", row.plain - row.ours),
                ("triage", row.ours - row.plain),
            ):
                for config in sorted(configs, key=str)[:5]:
                    print(f"  only {title}: {config}", flush=True)
            compared = {(row.script, row.target) for row in rows}
            missing = [
                f"`{path.name}` on sm_{sm}"
                for path in names
                for sm in TARGETS
                if fnmatchcase(path.name, "0[1-9]-*.py") and (path, f"sm_{sm}") not in compared
            ]
            options.page.write_text(page(rows, missing))


if __name__ == "__main__":
    main()
