"""The rooms of the house: imports only go down, and one module spawns processes."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import gpu_emulator
import harness

PACKAGE = Path(harness.__file__).parent
# A distribution of its own: it imports nothing of the others.
EMULATOR = Path(gpu_emulator.__file__).parent
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if "data" not in path.relative_to(PACKAGE).parts
) + sorted(EMULATOR.rglob("*.py"))

# The rooms of the house, each a package. A module imports from its own room and from those before.
ORDER = (
    "gpu_emulator/ptx/text",
    "gpu_emulator/numbers",
    "gpu_emulator/engines",
    "gpu_emulator",
    "gpu_emulator/state",
    "gpu_emulator/ptx/program",
    "gpu_emulator/ptx/instructions",
    "gpu_emulator/machine",
    "values",
    "children",
    "files",
    "processes",
    "machines",
    "packages",
    "toolchains",
    "store/files",
    "store/sqlite",
    "store/history",
    "store/exchange",
    "store",
    "ptxas",
    "bench",
    "judging",
    "frontends",
    "frontends/pretend",
    "frontends/triton",
    "frontends/triton/child",
    "frontends/triton/child/launches",
    "frontends/ptx",
    "frontends/cuda",
    "frontends/tilelang",
    "frontends/tilelang/child",
    "frontends/cutedsl",
    "frontends/cutedsl/child",
    "frontends/cutile",
    "frontends/cutile/child",
    "tables",
    "repros",
    "matrix",
    "cells",
    "runs/numbers",
    "runs",
    "runs/child",
    "runs/tracing",
    "gpu/device",
    "gpu",
    "bisect",
    "collapse",
    "minimize/reduction",
    "minimize/ptx",
    "minimize/python",
    "minimize/syntax",
    "minimize/ttgir",
    "minimize/launch",
    "minimize/executed",
    "minimize",
    "ranking",
    "workarounds",
    "survey",
    "blame",
    "changes",
    "bugs",
    "history",
    "report",
    "check",
    "nights",
    "site",
    "cli",
    "cli/progress",
    "cli/kernels",
    "cli/diagnosis",
    "cli/nights",
    "cli/machine",
)
EMULATES = "gpu_emulator/machine"
# Where the standard library, torch and the compiler of the child are all that there is.
INSIDE_CHILDREN = {
    "children": set(),
    "frontends/triton/child": {"torch", "triton"},
    "frontends/pretend": {"torch"},
    "frontends/triton/child/launches": {"torch", "triton"},
    "frontends/tilelang/child": {"torch", "triton", "tilelang", "tvm"},
    "frontends/cutedsl/child": {"torch", "triton", "cutlass"},
    "frontends/cutile/child": {"torch", "triton", "cuda"},
    "gpu/device": set(),
}
# Rooms in which every module may touch the world.
WORLDLY_ROOMS = {
    "bench",
    "children",
    "cli",
    "cli/diagnosis",
    "cli/kernels",
    "cli/machine",
    "cli/nights",
    "cli/progress",
    "files",
    "frontends",
    "frontends/cuda",
    "frontends/cutedsl",
    "frontends/cutedsl/child",
    "frontends/cutile",
    "frontends/cutile/child",
    "frontends/pretend",
    "frontends/ptx",
    "frontends/tilelang",
    "frontends/tilelang/child",
    "frontends/triton",
    "frontends/triton/child",
    "frontends/triton/child/launches",
    "gpu/device",
    "machines",
    "packages",
    "processes",
    "repros",
    "store",
    "store/exchange",
    "store/files",
    "store/history",
    "store/sqlite",
    "toolchains",
}
# Elsewhere, the modules that may. What is named in neither table is pure, or pure but for the
# exceptions that the table below gives to those that order the work of others.
TOUCHES = {
    "ptxas": {"help"},
    "matrix": {"file"},
    "cells": {"compile", "save"},
    "bisect": {"log", "predicate", "stages"},
    "minimize/reduction": {"folder", "progress"},
    "minimize/ptx": {"run"},
    "minimize": {
        "executing",
        "executing_ir",
        "executing_ptx",
        "keeping",
        "levels",
        "measuring",
        "run",
    },
    "workarounds": {"keeping", "patch", "proof", "run", "search", "trials"},
    "changes": {"diff"},
    "bugs": {"list"},
    "history": {"export"},
    "report": {"again", "attached", "executed", "facts", "filing", "gather", "run"},
    "gpu": {"inspecting", "packing", "places"},
    "runs/child": {"serving", "worker"},
    "runs": {"emulating", "raw_ptx", "recording", "referring"},
    "ranking": {"keeping"},
    "nights": {"at_worker", "common_evidence", "run", "steering", "tools_elsewhere", "watch"},
    "site": {"run"},
    "survey": {"pruning", "reaching", "run"},
}
# These await what others do, and touch nothing themselves: of the world they may import asyncio.
ORCHESTRATES = {
    "cells": {"elsewhere", "evaluate", "plan", "reuse", "run", "selection"},
    "bisect": {"axes", "neighbours", "probing", "run", "state"},
    "collapse": {"lifting"},
    "report": {"case"},
    "runs/tracing": {"apart", "following"},
    "minimize/reduction": {
        "ask_ptxas",
        "ask_compiler",
        "held",
        "interest",
        "references",
        "subject",
        "texts",
    },
    "minimize/ptx": {"predicate", "references", "report", "work"},
    "minimize/python": {"run"},
    "minimize/syntax": {"run"},
    "minimize": {"sources"},
    "minimize/ttgir": {"run"},
    "minimize/launch": {"run"},
    "minimize/executed": {"case", "emulated", "measured", "oracle"},
    "workarounds": {"executed", "expected", "measured", "numerics", "packed", "paste"},
    "blame": {"columns", "crossed", "executed", "lines", "measured", "pairs", "run", "trials"},
    "bugs": {"rekey"},
    "history": {"run"},
    "ranking": {"again", "run"},
    "check": {"run"},
    "gpu": {
        "answers",
        "asking",
        "evaluating",
        "gathering",
        "gathering_launches",
        "gathering_shapes",
        "run",
        "standalone",
        "timed_launches",
        "together",
        "trip",
    },
    "runs": {
        "executing",
        "launching",
        "ptx_launch",
        "real_values",
        "references",
        "run",
        "same_inputs",
    },
    "nights": {
        "ahead",
        "by_name",
        "executing",
        "handing_out",
        "listing",
        "merge",
        "news",
        "plan",
        "release_axis",
        "tasks",
        "tool_tasks",
        "words",
    },
}
# Pure modules of rooms that are worldly as a whole: what they say is decided, not looked up.
PURE_AMONG_WORLDLY = {
    "packages": {"versions"},
    "store/history": {"bug_identity"},
    "frontends": {"inline", "one_file", "syntax"},
    "frontends/cutile": {"bytecode", "one_file"},
    "frontends/tilelang": {"one_file"},
    "frontends/triton": {
        "config_source",
        "ir_text",
        "knobs",
        "one_file",
        "pass_dump",
        "tracebacks",
        "ttir",
        "wordings",
        "written_kernels",
    },
}
STDLIB = set(sys.stdlib_module_names)
# Third-party packages that pure modules use: they parse and print.
PURE_PACKAGES = {"packaging", "elftools", "libcst", "markdown_it", "jinja2", "numpy", "ml_dtypes"}
WORLDLY = {
    "asyncio",
    "click",
    "ctypes",
    "fcntl",
    "filelock",
    "mmap",
    "os",
    "platform",
    "platformdirs",
    "requests",
    "selectors",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "time",
    "zipfile",
}
# Methods of `Path` that look at the disk, or change it.
DISK = {
    "chmod",
    "exists",
    "glob",
    "is_dir",
    "is_file",
    "is_symlink",
    "iterdir",
    "lstat",
    "mkdir",
    "read_bytes",
    "read_text",
    "rename",
    "rglob",
    "rmdir",
    "stat",
    "symlink_to",
    "touch",
    "unlink",
    "write_bytes",
    "write_text",
}
# Templates are part of the program, as code is; the loader looks for the folder that holds them.
READS_ITS_OWN = {"tables/templates"}
# What is said is a value; these alone know a terminal, and what it shows while a command works.
KNOW_A_TERMINAL = ("tables/terminal.py", "cli/output.py", "cli/progress/")
SPAWNS = {
    "create_subprocess_exec",
    "create_subprocess_shell",
    "execve",
    "fork",
    "forkpty",
    "popen",
    "posix_spawn",
    "system",
}
MAY_SPAWN = {
    Path("processes/hub.py"),
    # Forks jobs inside the child; and looks like `subprocess` to a foreign compiler.
    Path("children/supervisor.py"),
    Path("frontends/triton/child/lowering.py"),
    # Beside the GPU, on another machine: none of our other modules is there.
    Path("gpu/device/pool.py"),
    Path("gpu/device/sanitizing.py"),
}


def name_of(path: Path) -> str:
    return str(path.relative_to(EMULATOR.parent if EMULATOR in path.parents else PACKAGE))


def room_of(path: Path) -> str:
    return Path(name_of(path)).parent.as_posix().removeprefix(".")


def kind_of(path: Path) -> str:
    """Pure, orchestrating, or worldly."""
    room = room_of(path)
    if path.stem in TOUCHES.get(room, ()):
        return "worldly"
    if path.stem in ORCHESTRATES.get(room, ()):
        return "orchestrating"
    if room in WORLDLY_ROOMS and path.stem not in PURE_AMONG_WORLDLY.get(room, ()):
        return "worldly"
    return "pure"


def module_at(name: str) -> Path | None:
    """The file of one of our modules; None for what is not ours, and for a package."""
    package, *rest = name.split(".")
    top = {"harness": PACKAGE, "gpu_emulator": EMULATOR}.get(package)
    path = top.joinpath(*rest).with_suffix(".py") if top and rest else None
    return path if path and path.is_file() else None


@dataclass(frozen=True)
class Facts:
    """What the tests ask of a module."""

    imports: list[str]
    methods_called: list[str]
    spawns: bool
    has_docstring: bool
    private_imports: list[str]


@functools.cache
def read(path: Path) -> Facts:
    """Each module is parsed once: twelve times would take a quarter of a minute."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    return Facts(
        imports=imports_of(path, nodes),
        methods_called=methods_called(nodes),
        spawns=any(map(spawns, nodes)),
        has_docstring=bool(ast.get_docstring(tree)),
        private_imports=[
            alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness")
            for alias in node.names
            if alias.name.startswith("_") and not alias.name.startswith("__")
        ],
    )


def imports_of(path: Path, nodes: Sequence[ast.AST]) -> list[str]:
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            submodules = [f"{module}.{alias.name}" for alias in node.names]
            ours = [name for name in submodules if module_at(name)]
            names += ours or [module]
    return names


IN_ROOMS = [path for path in MODULES if room_of(path) and path.stem != "__init__"]


def test_every_room_is_in_the_order() -> None:
    assert {room_of(path) for path in IN_ROOMS} == set(ORDER)
    for table in (TOUCHES, ORCHESTRATES, PURE_AMONG_WORLDLY):
        named = {f"{room}/{stem}" for room, stems in table.items() for stem in stems}
        assert named <= {name_of(path).removesuffix(".py") for path in IN_ROOMS}


def test_the_map_for_newcomers_has_every_room_in_its_order() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(?:harness|emulator)/([\w/]+)/` \|", text, re.MULTILINE)
    assert rows == list(ORDER)


def broken(rule: Callable[[Path], Iterable[str]]) -> list[str]:
    """What breaks a rule, by module."""
    return [f"{name_of(path)}: {said}" for path in IN_ROOMS for said in rule(path)]


def climbs(path: Path) -> Iterator[str]:
    room = room_of(path)
    # What others use of the emulator is gathered in one module.
    is_front = path == EMULATOR / "api.py"
    allowed = set(ORDER[: ORDER.index(EMULATES if is_front else room) + 1])
    for name in read(path).imports:
        if imported := module_at(name):
            if room_of(imported) not in allowed:
                yield f"{room} must not import {name}"
        elif name.startswith(("harness.", "gpu_emulator.")):
            yield f"{name} is a room, not a module of one"


def test_imports_only_go_down() -> None:
    assert broken(climbs) == []


def may_be_missing(path: Path) -> Iterator[str]:
    packages = INSIDE_CHILDREN.get(room_of(path))
    for name in read(path).imports if packages is not None else ():
        imported = module_at(name)
        head = name.split(".")[0]
        if imported and room_of(imported) not in INSIDE_CHILDREN:
            yield f"a child must not import {name}"
        elif not imported and head not in STDLIB | (packages or set()) | {"__future__"}:
            yield f"{head} may be missing in a child"


def test_what_runs_in_a_child_imports_nothing_of_ours() -> None:
    assert broken(may_be_missing) == []


def test_no_imports_go_in_a_circle() -> None:
    graph = {
        path: {found for name in read(path).imports if (found := module_at(name))}
        for path in MODULES
    }
    assert sum(map(len, graph.values())) > len(graph)
    TopologicalSorter(graph).prepare()


def touches(path: Path) -> Iterator[str]:
    kind = kind_of(path)
    if kind == "worldly":
        return
    names = read(path).imports
    heads = {name.split(".")[0] for name in names}
    awaits = {"asyncio"} if kind == "orchestrating" else set()
    yield from (WORLDLY - awaits) & heads
    if f"{room_of(path)}/{path.stem}" not in READS_ITS_OWN:
        yield from DISK & set(read(path).methods_called)
    if kind == "orchestrating":
        return
    packages = PURE_PACKAGES | ({"rich"} if path.stem == "terminal" else set())
    for name in names:
        if imported := module_at(name):
            if kind_of(imported) != "pure":
                yield f"{name} is not pure"
        elif name.split(".")[0] not in STDLIB | packages | {"harness", "gpu_emulator"}:
            yield name


def test_pure_modules_touch_nothing() -> None:
    assert broken(touches) == []


def methods_called(nodes: Sequence[ast.AST]) -> list[str]:
    calls = [n.func for n in nodes if isinstance(n, ast.Call)]
    return [f.attr for f in calls if isinstance(f, ast.Attribute)] + [
        f.id for f in calls if isinstance(f, ast.Name) and f.id == "open"
    ]


def test_words_know_no_layout() -> None:
    knowing = {
        name_of(path)
        for path in MODULES
        if any(name.split(".")[0] == "rich" for name in read(path).imports)
    }
    assert "tables/terminal.py" in knowing
    assert [name for name in knowing if not name.startswith(KNOW_A_TERMINAL)] == []


def test_tests_mirror_the_rooms() -> None:
    """In tests/unit and tests/effects a test lies in the folder of the room that it is about."""
    for lane in ("unit", "effects"):
        tests = Path(__file__).parent / lane
        folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("*.py")}
        assert folders <= set(ORDER), f"{folders - set(ORDER)} of tests/{lane} are not rooms"
    stems = Counter(path.stem for path in Path(__file__).parent.rglob("test_*.py"))
    assert [stem for stem, count in stems.items() if count > 1] == []


def spawns(node: ast.AST) -> bool:
    """Whether it starts a process, or imports what is there for that."""
    if isinstance(node, ast.Attribute):
        owner = getattr(node.value, "id", None)
        return owner in ("os", "asyncio") and node.attr in SPAWNS
    if isinstance(node, ast.Import):
        return any(alias.name == "subprocess" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.module == "subprocess"


def test_one_module_spawns_processes() -> None:
    spawning = {Path(name_of(path)) for path in MODULES if read(path).spawns}
    assert spawning <= MAY_SPAWN
    assert Path("processes/hub.py") in spawning


def test_no_module_is_named_after_the_standard_library_or_after_nothing() -> None:
    empty_words = {"utils", "common", "helpers", "manager", "misc"}
    for path in MODULES:
        assert path.stem not in empty_words
        # A child may be run by path, with its folder first on the module path.
        if room_of(path) in INSIDE_CHILDREN:
            assert path.stem.startswith("__") or path.stem not in STDLIB, path


def test_every_module_says_what_it_is() -> None:
    assert [name_of(path) for path in MODULES if not read(path).has_docstring] == []


def test_no_module_imports_a_private_name_of_another() -> None:
    private = {name_of(path): read(path).private_imports for path in MODULES}
    assert {name: names for name, names in private.items() if names} == {}
