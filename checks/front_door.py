"""Public scripts as they are, at the first command: writes docs/measured/front-door.md.

    python checks/front_door.py [--script PATTERN] [--again PATTERN] [--seconds S] [--page]
        [--home FOLDER]

Each script lies in a source distribution of the package index, pinned by its sha256, and none is
changed. `triage compile --kernel SCRIPT --sm 90a --jobs 1` runs in an empty folder with an empty
store; that distribution, and the packages of `front_door.txt`, are on the module path, as if they
were installed. Rows are kept in `front_door.jsonl` beside this file, so that a later call goes on
where an earlier one ended; `--again` repeats the scripts that a pattern names, or all that gave no
table (`failed`), and `--page` only writes the page. With `--home`, the store of each script is kept
in that folder: where a call was ended, the next one goes on (its row is marked).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from harness.io.files.locations import cache_dir
from harness.io.packages.archives import fetch_sdist
from harness.values.verdict import VerdictKind

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "front-door.md"
ROWS = Path(__file__).with_name("results") / "front_door.jsonl"
SCRIPTS = Path(__file__).with_name("results") / "front_door.json"
PACKAGES = Path(__file__).with_name("results") / "front_door.txt"
TARGET = "90a"


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned source distribution; its scripts, and the folders that are on the module path."""

    package: str
    version: str
    sha256: str
    roots: tuple[str, ...] = (".",)
    scripts: tuple[str, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one script gave."""

    package: str
    version: str
    script: str
    kernels: int = 0
    verdicts: dict[str, int] = {}
    error: str | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    exit_code: int | None
    """None: it ran past the limit."""
    cpu: float
    """Seconds of all of its processes; where it went on from an ended call, of the last one."""
    in_parts: bool = False
    """Whether an ended call left results that this one found."""
    state: str = ""
    """The commit of the program; empty for rows that were made before this was kept."""

    @property
    def is_table(self) -> bool:
        """Whether it gave a table, with the exit code that goes with its verdicts."""
        fails = any(not VerdictKind(name).compiles for name in self.verdicts)
        return bool(self.verdicts) and self.exit_code == int(fails)

    @property
    def line(self) -> str:
        """What it said beside the table, or in its place; empty where there was no more."""
        ends = (note for note in reversed(self.notes) if "the capture ends here" in note)
        text = self.error or next(iter(self.failures), None) or next(ends, "")
        return next(iter(text.splitlines()), "")

    @property
    def names_package(self) -> bool:
        """Whether its line says what to install."""
        return "pip install" in self.line

    @property
    def names_line(self) -> bool:
        """Whether its line names a line of a Python file."""
        return re.search(r"\.py:\d+: ", self.line) is not None


def installed() -> Path:
    """The folder of the packages, which are installed once."""
    name = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:8]
    folder = cache_dir() / f"front-door-{name}" / "site-packages"
    if not folder.is_dir():
        partial = folder.with_name("partial")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--target", partial, "--requirement", PACKAGES], check=True)
        partial.rename(folder)
    return folder


def row_of(package: Distribution, script: str, seconds: float, home: Path | None = None) -> Row:
    """Run the command for one script; `home` has the stores of calls that were ended."""
    tree = fetch_sdist(package.package, package.version, package.sha256)
    folders = [*(tree / root for root in package.roots), installed()]
    path = os.pathsep.join(map(str, folders))
    began = _cpu_seconds()
    kept = home and home.absolute() / hashlib.sha256(script.encode()).hexdigest()[:8]
    in_parts = bool(kept and kept.exists())
    with tempfile.TemporaryDirectory() as folder:
        store = str(kept or f"{folder}/home")
        environment = os.environ | {"PYTHONPATH": path, "TRIAGE_HOME": store}
        work = Path(folder) / "work"
        work.mkdir()
        words = ["compile", "--kernel", str(tree / script), "--sm", TARGET, "--jobs", "1", "--json"]
        executable = Path(sys.executable).with_name("triage")
        with subprocess.Popen(
            [executable, *words],
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            code: int | None = None
            while code is None:
                try:
                    stdout, stderr = process.communicate(timeout=5)
                    code = process.returncode
                except subprocess.TimeoutExpired:
                    if _cpu_below(process.pid) < seconds:
                        continue
                    # It ends its own children.
                    process.terminate()
                    process.communicate()
                    stdout, stderr = "", f"ran past {seconds:.0f} CPU seconds"
                    break
    document = _document(stdout)
    places = re.compile("|".join(re.escape(f"{place}/") for place in (tree, work)))
    cells = document.get("cells", [])
    summary = document.get("summary", {})
    error = document.get("error") or (None if cells else stderr.strip())
    return Row(
        package=package.package,
        version=package.version,
        script=script,
        kernels=len({cell["kernel"] for cell in cells}),
        verdicts=dict(Counter(cell["verdict"] for cell in cells)),
        error=places.sub("", error) if error else None,
        notes=tuple(places.sub("", note) for note in summary.get("notes", ())),
        failures=tuple(places.sub("", str(line)) for line in summary.get("failures", ())),
        exit_code=code,
        cpu=round(_cpu_seconds() - began, 1),
        in_parts=in_parts,
        state=_state(),
    )


def _state() -> str:
    """The commit that changed the program last; with a + where it is changed since."""
    places = ["--", "harness", "emulator/gpu_emulator"]
    folder = PAGE.parents[1]
    last = subprocess.check_output(["git", "log", "-1", "--format=%h", *places], cwd=folder)
    changed = subprocess.check_output(["git", "status", "--porcelain", *places], cwd=folder)
    return last.decode().strip() + ("+" if changed else "")


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _cpu_below(ancestor: int) -> float:
    """Seconds of a process that runs, and of all that came of it."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = file.read_text().rpartition(")")[2].split()
            number = int(file.parent.name)
            parents[number], ticks[number] = int(words[1]), sum(map(int, words[11:15]))
    total = 0
    for process in parents:
        above = process
        while above not in (ancestor, 0):
            above = parents.get(above, 0)
        total += ticks[process] if above else 0
    return total / os.sysconf("SC_CLK_TCK")


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def page(rows: list[Row]) -> str:
    """The page, of the rows alone."""
    tables = [row for row in rows if row.is_table]
    others = [row for row in rows if not row.is_table]
    packages = [row for row in others if row.names_package]
    lines = [row for row in others if row.names_line and not row.names_package]
    rest = len(others) - len(packages) - len(lines)
    cpu = sorted(row.cpu for row in rows)
    listed = [f"{package.package}-{package.version}/{script}" for package, script in _scripts("*")]
    made = {f"{row.package}-{row.version}/{row.script}" for row in rows}
    missing = ", ".join(f"`{name}`" for name in listed if name not in made)
    return f"""# Public scripts, at the first command

{len(rows)} of the {len(listed)} scripts of `checks/results/front_door.json`, which lists
{len(_packages())} distributions of the package index with their sha256. Each is unmodified, as
it lies in its distribution: `triage compile --kernel SCRIPT --sm {TARGET} --jobs 1`,
in an empty folder, with an empty store, and with the distribution and the packages of
`checks/results/front_door.txt` on the module path, as if they were installed.
`python checks/front_door.py` makes this page.

A script is in the list by what it is, not by what it gives:

- a program (`if __name__ == "__main__"`, or statements that call) or a file of tests for pytest;
- it launches, on one GPU and in one process, Triton kernels that it or its distribution defines;
- it runs without arguments, on sm\\_{TARGET} and on Python 3.11;
- it needs no code that is compiled when its distribution is installed, no weights or data that are
  downloaded, and nothing beside it that its distribution lacks.

38 were chosen by hand from distributions that name Triton, before this rule was written down; the
one of unsloth, and those of the twelve last distributions, are the first by name (two at most) that
it admits. Two entries were exchanged while the list was made: two benchmarks of fastaf 0.1.1 for
two tests of disentangled-flash 1.1.1 (why, was not noted), and test\\_api of lanczos-triton,
which launches no kernel, for its test\\_geometry. Triton's own tutorials
lie in no source distribution of the index; FlagGems and torchao have none with their kernels, those
of Helion and fla have no scripts, and vLLM's need compiled code.

{len(tables)} gave a table of configs, and the exit code of its verdicts (0: every config compiles,
1: some do not). {len(packages)} gave one line that names a package that is not installed here, and
the command that installs it; {len(lines)} one line with a line of a file; {rest} something else.
The median took {cpu[len(cpu) // 2] if cpu else 0:.0f} CPU seconds. `--timeout` of triage is wall
time: where it ended a script, `CPU s` is what it got until then; `>`: the last of several calls, of
which each went on with what an ended one had stored (`--home`). Not run yet: {missing or "none"}.

{_states(rows)}

| script | configs, or the line | exit code | CPU s | state |
|---|---|---|---|---|
{"".join(map(_line, rows))}"""


def _states(rows: list[Row]) -> str:
    """Which states of the program made the rows."""
    states = Counter(row.state for row in rows)
    earlier = states.pop("", 0)
    words = [f"{count} by the program of commit `{state}`" for state, count in states.items()]
    if earlier:
        words.append(f"{earlier} by earlier ones (until `30127363`)")
    return f"Of the rows, {', '.join(words)}; the last column has it."


def _line(row: Row) -> str:
    kernels = f" ({row.kernels} kernels)" if row.kernels > 1 else ""
    verdicts = ", ".join(f"{count:,} {name}" for name, count in sorted(row.verdicts.items()))
    text = ": ".join(filter(None, (verdicts and verdicts + kernels, row.line))) or "nothing"
    words = re.sub(r"([|<*_\[\]`])", r"\\\1", text)
    code = "-" if row.exit_code is None else row.exit_code
    name = f"{row.package}-{row.version}/{row.script}"
    cpu = f"{'> ' * row.in_parts}{row.cpu:.0f}"
    return f"| `{name}` | {words} | {code} | {cpu} | {row.state} |\n"


def _packages() -> list[Distribution]:
    return msgspec.json.decode(SCRIPTS.read_bytes(), type=list[Distribution])


def _scripts(pattern: str) -> Iterator[tuple[Distribution, str]]:
    for package in _packages():
        for script in package.scripts:
            if fnmatchcase(f"{package.package}/{script}", pattern):
                yield package, script


def main() -> None:
    """Run the scripts that have no row yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--script", default="*", help="PACKAGE/PATH, or a pattern of it")
    parser.add_argument("--again", help="a pattern, or `failed`")
    parser.add_argument("--seconds", type=float, default=1200, help="of CPU, for one script")
    parser.add_argument("--home", type=Path, help="keeps what an ended call left")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    rows = _read()
    for package, script in () if options.page else _scripts(options.script):
        name = f"{package.package}/{script}"
        if name in rows:
            row = rows[name]
            is_failed = options.again == "failed" and not row.is_table
            if not (is_failed or fnmatchcase(name, options.again or "")):
                continue
        row = row_of(package, script, options.seconds, options.home)
        # Another call may have made others meanwhile.
        rows = {**_read(), name: row}
        _write(rows)
        print(_line(row), end="", flush=True)
    _write(_read())


def _read() -> dict[str, Row]:
    lines = ROWS.read_bytes().splitlines() if ROWS.is_file() else ()
    rows = [msgspec.json.decode(line, type=Row) for line in lines]
    return {f"{row.package}/{row.script}": row for row in rows}


def _write(rows: dict[str, Row]) -> None:
    ordered = [
        rows[name]
        for package, script in _scripts("*")
        if (name := f"{package.package}/{script}") in rows
    ]
    ROWS.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in ordered))
    PAGE.write_text(page(ordered))


if __name__ == "__main__":
    main()
