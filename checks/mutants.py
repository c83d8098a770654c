"""Changes the code of verdicts in one place at a time, and lists the changes that no test notices.

    python checks/mutants.py [--all] [--jobs N] [PATH ...]

A change (a *mutant*) turns a comparison round, takes an operand of `and`, `or` or `+` away, drops a
condition, counts one more, and the like. It is made in memory, in a process of its own, in which
the unit tests of its room run, first those that import the module. A mutant that they pass
survives: either what a user is told does not depend on the place, or a test is missing.
`checks/results/mutants.txt` lists the known survivors, below `#` lines that say why they may
survive. A survivor that is not there is an error (exit code 1); one that is there and is noticed
today is said, to be taken out.

Without `--all` and without paths every `_SHARE`th mutant is made, chosen by a hash of its words:
the same ones in each run, and no others when code changes elsewhere.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

# What tests import from elsewhere is read once, before the processes are forked.
import hypothesis.internal.conjecture.engine
import numpy as np
import pytest
import rich.console

PRELOADED = (hypothesis, np, rich)
ROOT = Path(__file__).parent.parent
KNOWN = ROOT / "checks" / "results" / "mutants.txt"
ROOMS = {
    "harness/judging": "tests/unit/judging",
    "harness/bisect/search.py": "tests/unit/bisect",
    "harness/bugs/life.py": "tests/unit/bugs",
}
_SHARE = 48
_MEMORY = 4 << 30
_TURNED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_DROPPED_KEYWORDS = ("key", "reverse", "default")


class Mutant(NamedTuple):
    """One change of one module: what it is, in words, and the module's code with it."""

    words: str
    module: str
    tree: ast.Module


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of one expression or statement."""
    match node:
        case ast.Compare(ops=[operator]):
            for other in _TURNED[type(operator)]:
                yield ast.Compare(left=node.left, ops=[other()], comparators=node.comparators)
        case ast.BoolOp(values=values):
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.BitOr()):
            yield node.left
        case ast.Constant(value=bool(value)):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value=value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            yield ast.Call(func=ast.Name(id=_SWAPPED[name]), args=node.args, keywords=node.keywords)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.If(test=ast.Name() | ast.Call() | ast.Attribute()):
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in _DROPPED_KEYWORDS:
                rest_of = [each for each in node.keywords if each is not keyword]
                yield ast.Call(func=node.func, args=node.args, keywords=rest_of)


def mutants(path: Path) -> Iterator[Mutant]:
    """Each change of the module in a file, in the order of its lines."""
    name = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_bytes())
    seen: dict[str, int] = {}
    for where, parent, field, index in list(_places(tree, "")):
        holder = getattr(parent, field)
        node = holder if index is None else holder[index]
        for other in changed(node):
            words = f"{name} {where}: {_line(node)} -> {_line(other)}"
            seen[words] = seen.get(words, 0) + 1
            _put(parent, field, index, other)
            made = ast.fix_missing_locations(copy.deepcopy(tree))
            _put(parent, field, index, node)
            number = f" ({seen[words]})" if seen[words] > 1 else ""
            yield Mutant(words + number, name.removesuffix(".py").replace("/", "."), made)


def _places(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST, str, int | None]]:
    """Where an expression or statement lies, with the function's name; types are left out."""
    if isinstance(node, ast.Assert):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or (
            isinstance(node, ast.ClassDef) and field == "keywords"
        ):
            continue
        items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, item in items:
            if isinstance(item, ast.AST):
                yield where or "-", node, field, index
                yield from _places(item, where)


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _line(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.comprehension):
        return ast.unparse(node).strip()
    return " ".join(ast.unparse(node).split())


class _Changed(SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - of this module alone
        return self.code


class _Finder(PathFinder):
    mutant: Mutant | None = None

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,
        target: object = None,  # noqa: ARG003 - as the base class has it
    ) -> ModuleSpec | None:
        if cls.mutant is None or fullname != cls.mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _Changed(fullname, spec.origin)
        loader.code = compile(cls.mutant.tree, spec.origin, "exec")
        spec.loader = loader
        return spec


def start(mutant: Mutant | None, tests: Sequence[Sequence[str]], seconds: int) -> int:
    """Run tests in a fork, on changed code; the fork's process id.

    Past `seconds` of processor time the change has made a loop without end: it is noticed. Seconds
    of a clock would say so of each mutant on a busy machine.
    """
    pid = os.fork()
    if pid:
        return pid
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)

    def look(*_: object) -> None:
        if time.process_time() > seconds:
            os._exit(1)
        signal.alarm(1)

    signal.signal(signal.SIGALRM, look)
    signal.alarm(1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    _Finder.mutant = mutant
    sys.meta_path.insert(0, _Finder)
    code = 70
    try:
        words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long"]
        codes = (int(pytest.main([*words, *files])) for files in tests if files)
        code = next(filter(None, codes), 0)
    finally:
        os._exit(code)


def survivors(chosen: Sequence[Mutant], room: str, jobs: int) -> Iterator[str]:
    """The words of each mutant that the tests pass."""
    start(None, [[room]], 600)
    _, status, used = os.wait4(-1, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{room} fails without a change: make it pass first")
    seconds = 10 + 3 * int(used.ru_utime + used.ru_stime)
    texts = {str(path): path.read_text() for path in sorted(Path(room).rglob("test_*.py"))}
    waiting, running = list(reversed(chosen)), dict[int, Mutant]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            near = [path for path, text in texts.items() if f"{mutant.module} import" in text]
            running[start(mutant, [near, [room]], seconds)] = mutant
        pid, status = os.wait()
        mutant = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SystemExit(f"pytest ended with exit code {code}: {mutant.words}")
        if code == 0:
            yield mutant.words


def main() -> None:
    """Make the mutants, and hold those that survive against the known ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every mutant, not a share of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("paths", nargs="*", help="modules whose mutants are all made")
    given = parser.parse_args()
    os.chdir(ROOT)
    known = {line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")}
    made, found = set[str](), set[str]()
    for room, tests in ROOMS.items():
        files = sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / room]
        chosen = [
            mutant
            for path in files
            if not given.paths or str(path.relative_to(ROOT)) in given.paths
            for mutant in mutants(path)
            if given.all or given.paths or _is_of_share(mutant.words)
        ]
        made |= {mutant.words for mutant in chosen}
        for words in survivors(chosen, tests, given.jobs) if chosen else ():
            found.add(words)
            if words not in known:
                print(f"no test notices: {words}", flush=True)
    for words in sorted((known & made) - found):
        print(f"noticed now, to be taken out of {KNOWN.name}: {words}")
    new = found - known
    print(f"{len(made)} changes; {len(found)} survive, of which {len(new)} are not known")
    raise SystemExit(1 if new else 0)


def _is_of_share(words: str) -> bool:
    return int(hashlib.sha256(words.encode()).hexdigest(), 16) % _SHARE == 0


if __name__ == "__main__":
    main()
