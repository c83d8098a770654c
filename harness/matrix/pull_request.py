"""`triage pr`: base and head of a checkout, each run as a matrix, and compared by machine code.

Base is checked out beside the toolchains, in one folder for each repository (more while several
commands are at work): the launches that a commit does not reach are captured there once. Nothing of
the repository is written but objects that git itself keeps: no worktree of its own, no index, no
hook.
"""

from __future__ import annotations

import ast
import contextlib
import filecmp
import glob
import hashlib
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.cells.matrix_rules import exclusion_of
from harness.cells.places import RunProgress, at_bench
from harness.cells.repros.find import find_kernels, list_repros
from harness.diff.compare import compare
from harness.diff.pairing import Launches, LaunchName
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import front_end, kinds, takes
from harness.io.files.locations import cache_dir, create_folder
from harness.io.files.writing import locked
from harness.io.processes.hub import run_tool
from harness.judging.origins import LOCAL_ACCESS, kernel_file, lines_of, ptx_origins, sass_origins
from harness.judging.ptxas.cubin import CubinError, code_sha256
from harness.judging.ptxas.sass import line_tables
from harness.matrix.night import MatrixReport, make_plan, run_matrix
from harness.matrix.run_policy import MatrixOptions, launch_timeout
from harness.store.artifacts import UnusableArtifactError
from harness.store.stages import stage_bytes
from harness.store.store import Store
from harness.values.cell import program_of
from harness.values.change import Change, ChangeKind, PullRequest
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError
from harness.values.matrix import Matrix
from harness.values.row import Facts
from harness.values.toolchain import PTX

_GIT = ("git", "-c", "core.fsmonitor=false")
"""A clone that came as an archive may name a program as its monitor of files."""
_GIT_SECONDS = 600.0
_DEEP = re.compile(r"\*\*(?=[^/*])")
_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
_SKIPPED = frozenset({"__pycache__", "node_modules"})


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Base or head: `name` in words, and the folder that it lies in."""

    name: str
    folder: Path


# Where base and head lie.


def head_of(text: str) -> Side:
    """A folder as it is now, with what is not committed.

    Raises:
        UsageError: it is no folder.
    """
    folder = Path(text).absolute()
    if not folder.is_dir():
        raise UsageError(f"--head {text}: not a folder; check the commit out there")
    return Side(name="working tree" if text == "." else text, folder=folder)


@contextlib.contextmanager
def base_of(text: str, head: Side) -> Iterator[Side]:
    """A folder, or what a commit of head's repository has in the place of head's folder.

    Of a branch it is the commit where head left it, as a pull request shows it. Until the context
    ends, no other process changes that folder: it has another one.

    Raises:
        UsageError: git does not know it.
        InfrastructureError: there is no git.
    """
    if os.path.isdir(text):  # noqa: PTH112 - any text may be given
        yield Side(name=text, folder=Path(text).absolute())
        return
    git = partial(_git, head.folder)
    commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    if not commit:
        raise UsageError(
            f"--base {text}: neither a folder nor a commit that git knows in {head.folder}; fetch "
            "it first (actions/checkout: `fetch-depth: 0`)"
        )
    commit = git("merge-base", commit, "HEAD") or commit
    top = Path(git("rev-parse", "--show-toplevel"))
    number = hashlib.sha256(os.fsencode(top)).hexdigest()[:16]
    with _held(cache_dir() / "checkouts" / number) as place:
        index = place.with_suffix(".index")
        # A git that was killed leaves its own lock.
        index.with_suffix(".index.lock").unlink(missing_ok=True)
        # `read-tree` alone brings a folder to a tree: it runs no hook, and its index is ours.
        env = {**os.environ, "GIT_INDEX_FILE": str(index)}
        words = ("--work-tree", str(place), "read-tree", "--reset", "-u", commit)
        result = run_tool([*_GIT, *words], timeout=_GIT_SECONDS, env=env, cwd=top)
        if result.end.exit_code != 0:
            problem = result.stderr.strip()[:300] or "no reason given"
            raise UsageError(f"--base {text}: git cannot check it out: {problem}")
        inside = place / git("rev-parse", "--show-prefix")
        yield Side(name=f"{text} ({commit[:10]})", folder=inside)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """This folder, or the first beside it that no other process works in."""
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(place, seconds=0))
            except InfrastructureError:
                continue
            yield create_folder(place)
            return


def _git(folder: Path, *words: str) -> str:
    result = run_tool([*_GIT, "-C", folder, *words], timeout=_GIT_SECONDS)
    return result.stdout.strip() if result.end.exit_code == 0 else ""


# What a change can reach.


def comments_alone(base: Side, head: Side) -> list[str] | None:
    """The files that differ, where that is in comments and layout of Python; None for any more."""
    changed = []
    for name in sorted(_files(base.folder) | _files(head.folder)):
        one, other = base.folder / name, head.folder / name
        if one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False):
            continue
        if not name.endswith(".py") or not (one.is_file() and other.is_file()):
            return None
        try:
            if ast.dump(ast.parse(one.read_bytes())) != ast.dump(ast.parse(other.read_bytes())):
                return None
        except (SyntaxError, ValueError, RecursionError):
            return None
        changed.append(name)
    return changed


def _files(folder: Path) -> set[str]:
    """The files below a folder: git's and those that are not ignored, or all but hidden ones."""
    listed = _git(folder, "ls-files", "-coz", "--exclude-standard")
    if listed:
        return {name for name in listed.split("\0") if name and (folder / name).is_file()}
    names = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED]
        names |= {os.path.relpath(os.path.join(place, name), folder) for name in files}  # noqa: PTH118
    return names


@contextlib.contextmanager
def _inside(side: Side) -> Iterator[None]:
    """Work in the folder of a side; its launches import what lies there, installed or not."""
    old = os.environ.get("PYTHONPATH")
    roots = [side.folder, *filter(Path.is_dir, [side.folder / "src"])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, roots), *([old] if old else [])])
    try:
        with contextlib.chdir(side.folder):
            yield
    finally:
        del os.environ["PYTHONPATH"]
        if old is not None:
            os.environ["PYTHONPATH"] = old


def kernels_of(side: Side, patterns: Sequence[str]) -> tuple[str, ...]:
    """What the patterns mean there: names of repros, files, and files by patterns (`x/**.py`).

    Without any these are the repros of its own folder `repros`. A file that a pattern matches
    and that launches nothing is left out.
    """
    suffixes = (".py", *(suffix for kind in kinds() for suffix in takes(kind)[0]))
    with _inside(side):
        if not patterns:
            own = Path("repros")
            return tuple(repro.name for repro in list_repros()[0] if own in repro.folder.parents)
        names: list[str] = []
        for pattern in patterns:
            path, colons, kernel = pattern.partition("::")
            if not path.endswith(suffixes):
                names.append(pattern)
                continue
            for file in sorted(glob.glob(_DEEP.sub("**/*", path), recursive=True)):  # noqa: PTH207
                with contextlib.suppress(*() if file == path else (UsageError,)):
                    find_kernels(file + colons + kernel)
                    names.append(file + colons + kernel)
    return tuple(dict.fromkeys(names))


# Both, compared.


async def run_side(
    side: Side, matrix: Matrix, patterns: Sequence[str], store: Store, options: MatrixOptions,
    progress: RunProgress, *, never: Side,
) -> tuple[MatrixReport, Launches] | None:  # fmt: skip
    """Compile (and execute) the kernels of one side as a run of its own; None where it has none.

    The report of the run, and the launches of its cells.

    Raises:
        UsageError: a launch reads files of the side `never`: what it shows is not this side.
        TriageError: as `run_matrix`.
    """
    kernels = kernels_of(side, patterns)
    if not kernels:
        return None
    with _inside(side):
        mine = replace(matrix, kernels=kernels)
        plan = make_plan(mine, options, store)
        report = await run_matrix(mine, store, options, progress, plan)
        cells: list[PlannedCell] = []
        async with at_bench(store, options.work, launch_timeout=launch_timeout(mine)) as bench:
            for place in plan.places:
                stored = front_end(place.compiler.kind).stored_plan(bench, place)
                cells += stored.cells if stored else ()
    # Each launch with its arguments, but for those that its configs set.
    launches: dict[LaunchName, str] = {}
    for cell in cells:
        for file in map(Path, cell.launch.capture.value.reads.files if cell.launch else ()):
            # An environment inside a checkout is shared by both.
            is_shared = file.is_relative_to(side.folder) or file.is_relative_to(sys.prefix)
            if file.is_relative_to(never.folder) and not is_shared:
                if any(part[0] == "." for part in file.relative_to(never.folder).parts):
                    continue
                raise UsageError(
                    f"{cell.cell.kernel} of {side.name} imports {file}, which is of {never.name}: "
                    "its package is installed in editable mode from a folder that is not searched; "
                    "set PYTHONPATH=FOLDER, relative to the checkout"
                )
        name = LaunchName(cell.cell.kernel, cell.cell.launch)
        if name not in launches:
            given = cell.record.arguments if cell.record else []
            own = [one for one in given if one.get("name") not in cell.cell.config.as_dict()]
            launches[name] = msgspec.json.encode(own, order="sorted").decode()
    return report, launches


def lines_of_worse(result: PullRequest, store: Store, head: Side) -> dict[str, tuple[str, int]]:
    """For each cell that got worse the file below head, and the line.

    That is the line most of whose code moves spilled registers, where there is more of it than in
    base; else the line where its kernel begins. Without debug information it is the first of the
    file that names the kernel.
    """
    lines: dict[str, tuple[str, int]] = {}
    for change in result.changes.changes:
        if not change.kind.is_bad:
            continue
        facts = change.facts
        name, line = facts.kernel.partition("::")[0], 1
        record = store.find_cells(facts.short)[0]
        text = (stage_bytes(store, record, "ptx") or b"").decode(errors="replace")
        origins = ptx_origins(text)
        file = Path(next((f for f in _FILE.findall(text) if Path(f).name == kernel_file(text)), ""))
        if file.is_relative_to(head.folder):
            name = str(file.relative_to(head.folder))
            line = next(filter(None, origins), 1)
            if any(step.worse and step.metric == "spills" for step in change.steps):
                data = (stage_bytes(store, record, stage) or b"" for stage in ("cubin", "sass"))
                tables, sass = line_tables(next(data)), next(data).decode(errors="replace")
                places = zip(lines_of(sass), sass_origins(sass, tables, origins), strict=True)
                spilled = Counter(at for code, at in places if at and LOCAL_ACCESS.search(code))
                line = spilled.most_common(1)[0][0] if spilled else line
        lines[facts.cell] = name, line
    return lines


def last_run(store: Store) -> int:
    """The last run that finished.

    Raises:
        EmptySelectionError: none has.
    """
    runs = [run.id for run in store.all_runs() if run.finished is not None]
    if not runs:
        raise EmptySelectionError(f"{store.home}: no run has finished there")
    return runs[-1]


def compare_sides(
    base: tuple[Store, int | None],
    head: tuple[Store, int],
    matrix: Matrix | None = None,
    *,
    named: Mapping[LaunchName, LaunchName] | None = None,
    is_whole: bool = True,
) -> PullRequest:
    """Compare two runs by machine code: cells that differ in names and line tables are the same.

    `named` says what the launches of base are in head, where that is known.

    What head does not launch any more was taken out; unless its run is not whole: then a launch
    of which nothing is left is missing.

    Raises:
        StorageError: the results cannot be read.
    """
    old = {} if base[1] is None else _facts(base[0], base[1], named or {})
    new = _facts(*head, {})
    same, other = 0, list[Change]()
    for cell, facts in new.items():
        before = old.get(cell)
        if before is None or not (facts.cubin_sha256 and before.cubin_sha256):
            continue
        if _code(base[0], before.cubin_sha256) == _code(head[0], facts.cubin_sha256):
            same += 1
            new[cell] = replace(facts, cubin_sha256=before.cubin_sha256)
        else:
            other.append(Change(kind=ChangeKind.SAME_OK, older=before, newer=facts))
    launched = {_place(facts) for facts in new.values()}
    changes = compare(
        old.values(),
        new.values(),
        runs=(base[1], head[1]),
        expectations=matrix.expect if matrix else (),
        excluded=partial(exclusion_of, matrix),
        removed=lambda facts: is_whole or _place(facts) in launched,
    )
    moved = {change.facts.cell for change in (*changes.changes, *changes.informational)}
    return PullRequest(
        changes=changes,
        cells=tuple(new.values()),
        same_code=same,
        other_code=tuple(change for change in other if change.facts.cell not in moved),
    )


def _facts(store: Store, run: int, named: Mapping[LaunchName, LaunchName]) -> dict[str, Facts]:
    """The cells of a run in their order; a file, of PTX too, is the same one on both sides."""
    cells = {}
    for stored in store.run_bodies(run):
        facts = msgspec.json.decode(stored.row, type=Facts)
        own = LaunchName(facts.kernel, facts.launch)
        name = named.get(own, own)
        cell = "/".join(name) + facts.cell.removeprefix("/".join(own))
        cell = cell.replace(f"/{PTX}-{program_of(facts.cell)}/", f"/{PTX}/")
        cells[cell] = replace(facts, cell=cell, file=None, **name._asdict())
    return dict(sorted(cells.items()))


def _place(facts: Facts) -> str:
    """Kernel and launch on a target."""
    return f"{facts.kernel} · {facts.launch} · {facts.target}"


def _code(store: Store, sha256: str) -> str:
    try:
        return code_sha256(store.artifacts.get(sha256))
    except (CubinError, UnusableArtifactError):
        return sha256  # trimmed, or no cubin: the file itself has to be the same
