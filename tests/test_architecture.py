"""The rooms of the house: imports only go down, and few modules touch the world."""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gpu_emulator
import harness

PACKAGE = Path(harness.__file__).parent
# A distribution of its own: it imports nothing of the others.
EMULATOR = Path(gpu_emulator.__file__).parent
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if "data" not in path.relative_to(PACKAGE).parts
) + sorted(EMULATOR.rglob("*.py"))

# A room is a folder. A module imports from its own room and from the rooms before it.
LAYERS = (
    ("gpu_emulator",),
    ("values", "io", "store", "tables", "judging"),
    ("frontends",),
    ("cells", "run"),
    (
        "bisect",
        "minimize",
        "workaround",
        "blame",
        "diff",
        "bugs",
        "matrix",
        "package",
        "binaries",
        "hunt",
        "report",
        "verify",
        "site",
    ),
    ("cli",),
)
ROOMS = [room for layer in LAYERS for room in layer]
# Folders and modules that run where the standard library, torch and the compiler of the child are
# all there is.
INSIDE_CHILDREN: dict[str, set[str]] = {
    "io/children": set(),
    "frontends/triton/child": {"torch", "triton"},
    "frontends/pretend": {"torch", "triton"},
    "frontends/tilelang/child.py": {"torch", "triton", "tilelang", "tvm"},
    "frontends/cutedsl/child.py": {"torch", "triton", "cutlass"},
    "frontends/cutedsl/host_code.py": set(),
    "frontends/cutile/child.py": {"torch", "triton", "cuda"},
    "frontends/cutile/driver.py": set(),
    "run/gpu/device": set(),
}
# Here every module is pure, and elsewhere each whose docstring says "Pure.": it decides, and looks
# nothing up.
PURE_ROOMS = {"gpu_emulator", "values", "tables", "judging"}
STDLIB = set(sys.stdlib_module_names)
# Third-party packages that pure modules use: they parse and print.
PURE_PACKAGES = {
    "packaging",
    "elftools",
    "libcst",
    "markdown_it",
    "jinja2",
    "msgspec",
    "numpy",
    "ml_dtypes",
    "lz4",
    "pygments",
    "tree_sitter",
    "tree_sitter_cuda",
    "zstandard",
}
WORLDLY = {
    "asyncio",
    "click",
    "ctypes",
    "fcntl",
    "filelock",
    "mmap",
    "os",
    "platform",
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
# Modules of pure rooms that may: templates are part of the program, as code is.
TOUCH = {"tables/file_templates.py", "judging/ptxas/help.py"}
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
    Path("io/processes/hub.py"),
    # Forks jobs inside the child; and looks like `subprocess` to a foreign compiler.
    Path("io/children/supervisor.py"),
    # Starts a tool that it traces.
    Path("io/children/forked.py"),
    Path("frontends/triton/child/answers.py"),
    # Beside the GPU, on another machine: none of our other modules is there.
    Path("run/gpu/device/pool.py"),
    Path("run/gpu/device/sanitizing.py"),
}


def name_of(path: Path) -> str:
    return str(path.relative_to(EMULATOR.parent if EMULATOR in path.parents else PACKAGE))


def room_of(path: Path) -> str:
    """The folder of `harness` that a module lies in; empty at the top."""
    name, *rest = Path(name_of(path)).parts
    return name if rest else ""


def folder_of(path: Path) -> str:
    return Path(name_of(path)).parent.as_posix()


def is_pure(path: Path) -> bool:
    top = name_of(path).split("/")[0]
    return (top in PURE_ROOMS or read(path).says_pure) and name_of(path) not in TOUCH


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
    says_pure: bool
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
        says_pure=bool(
            re.search(r"^Pure\.|\bPure\.$", ast.get_docstring(tree) or "", re.MULTILINE)
        ),
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


def test_every_room_is_in_a_layer() -> None:
    assert {room_of(path) for path in IN_ROOMS} == set(ROOMS)


def test_the_map_for_newcomers_has_every_room_in_its_order() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(?:harness|emulator)/(\w+)/` \|", text, re.MULTILINE)
    assert rows == ROOMS


def broken(rule: Callable[[Path], Iterable[str]]) -> list[str]:
    """What breaks a rule, by module."""
    return [f"{name_of(path)}: {said}" for path in IN_ROOMS for said in rule(path)]


def climbs(path: Path) -> Iterator[str]:
    room = room_of(path)
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for name in read(path).imports:
        if imported := module_at(name):
            if room_of(imported) not in allowed:
                yield f"{room} must not import {name}"
        elif name.startswith(("harness.", "gpu_emulator.")):
            yield f"{name} is a folder, not a module"


def test_imports_only_go_down() -> None:
    assert broken(climbs) == []


def runs_in_a_child(path: Path) -> set[str] | None:
    """Packages that may be imported where this module runs; None where it is no child's."""
    places = [name_of(path), folder_of(path)]
    return next((INSIDE_CHILDREN[place] for place in places if place in INSIDE_CHILDREN), None)


def may_be_missing(path: Path) -> Iterator[str]:
    packages = runs_in_a_child(path)
    for name in read(path).imports if packages is not None else ():
        imported = module_at(name)
        head = name.split(".")[0]
        if imported and runs_in_a_child(imported) is None:
            yield f"a child must not import {name}"
        elif not imported and head not in STDLIB | (packages or set()) | {"__future__"}:
            yield f"{head} may be missing in a child"


def test_what_runs_in_a_child_imports_nothing_of_ours() -> None:
    assert broken(may_be_missing) == []


# What `gpu_emulator.api` says that it keeps stable.
STABLE_IN_THE_EMULATOR = (
    "gpu_emulator.api",
    "gpu_emulator.values",
    "gpu_emulator.ptx.text.",
    "gpu_emulator.ptx.forms",
    "gpu_emulator.sass.cubin",
    "gpu_emulator.sass.hazards",
)


def reaches_into_the_emulator(path: Path) -> Iterator[str]:
    if room_of(path) == "gpu_emulator":
        return
    for name in read(path).imports:
        if name.startswith("gpu_emulator.") and not name.startswith(STABLE_IN_THE_EMULATOR):
            yield name


def test_the_emulator_is_used_by_its_interface() -> None:
    assert broken(reaches_into_the_emulator) == []


def reaches_a_compiler(path: Path) -> Iterator[str]:
    """What a module outside of the room imports of one compiler."""
    if room_of(path) == "frontends":
        return
    shared = {"harness.frontends.texts"}
    for name in read(path).imports:
        folder, _, _ = name.rpartition(".")
        if folder.startswith("harness.frontends.") and folder not in shared:
            yield f"{name} is one compiler's"


def test_compilers_are_reached_through_their_door() -> None:
    assert broken(reaches_a_compiler) == []
    ours = PACKAGE / "frontends" / "triton" / "front_end.py"
    assert "harness.frontends.triton.source" in read(ours).imports


def test_no_imports_go_in_a_circle() -> None:
    graph = {
        path: {found for name in read(path).imports if (found := module_at(name))}
        for path in MODULES
    }
    assert sum(map(len, graph.values())) > len(graph)
    TopologicalSorter(graph).prepare()


def touches(path: Path) -> Iterator[str]:
    if not is_pure(path):
        return
    names = read(path).imports
    yield from WORLDLY & {name.split(".")[0] for name in names}
    yield from DISK & set(read(path).methods_called)
    packages = PURE_PACKAGES | ({"rich"} if path.stem == "terminal" else set())
    for name in names:
        if imported := module_at(name):
            if not is_pure(imported) and name_of(imported) not in TOUCH:
                yield f"{name} is not pure"
        elif name.split(".")[0] not in STDLIB | packages | {"harness", "gpu_emulator"}:
            yield name


def test_pure_modules_touch_nothing() -> None:
    assert sum(map(is_pure, IN_ROOMS)) > len(IN_ROOMS) / 3
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
        rooms = {path.relative_to(tests).parts[0] for path in tests.rglob("*.py")}
        assert rooms <= set(ROOMS), f"{rooms - set(ROOMS)} of tests/{lane} are not rooms"
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
    assert Path("io/processes/hub.py") in spawning


def test_siblings_end_with_the_first_error() -> None:
    """`asyncio.gather` lets them go on with what their caller closes: `in_parallel` does not."""
    bare = [
        f"{module.relative_to(PACKAGE)}:{node.lineno}"
        for module in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.gather"
    ]
    assert not bare


def test_the_command_line_reads_files_of_the_user_to_a_bound() -> None:
    """`read_regular` waits for no pipe, and reads no device without end."""
    found = [
        f"{module.relative_to(PACKAGE)}:{node.lineno}"
        for module in sorted((PACKAGE / "cli").rglob("*.py"))
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("read_text", "read_bytes")
    ]
    assert not found


# Names of Python, of files of others, and of an example.
SAID_OF_OTHERS = {
    "__global__",
    "dltensor",
    "exists",
    "getsize",
    "is_file",
    "splitlines",
    "st_other",
}
SAID_OF_OTHERS |= {"kettle", "put"}


def names_in(tree: ast.Module) -> set[str]:
    """Every name of a module, and the words of its texts, without its docstrings."""
    names: set[str] = set()
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        for field in ("id", "arg", "attr", "name", "asname", "module"):
            if isinstance(value := getattr(node, field, None), str):
                names |= set(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            names |= set(re.findall(r"\w+", node.value))
    return names


def test_docstrings_speak_of_names_that_there_are() -> None:
    """One that was renamed is a name of nothing: no parameter, no name or word of the module."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    values = {
        node.value
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    known = values | SAID_OF_OTHERS | set(keyword.kwlist) | set(dir(builtins))
    stale: list[str] = []
    for path, tree in trees.items():
        unknown = [
            (node, word)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for word in re.findall(r"`([a-z_]+)`", ast.get_docstring(node) or "")
            if word not in known and word not in path.parts and word != path.stem
        ]
        names = names_in(tree) if unknown else set()
        stale += [f"{path}:{node.lineno}: `{word}`" for node, word in unknown if word not in names]
    assert not stale


def test_no_module_is_named_after_the_standard_library_or_after_nothing() -> None:
    empty_words = {"utils", "common", "helpers", "manager", "misc"}
    for path in MODULES:
        assert path.stem not in empty_words
        # A child may be run by path, with its folder first on the module path.
        if runs_in_a_child(path) is not None:
            assert path.stem.startswith("__") or path.stem not in STDLIB, path


def test_every_module_says_what_it_is() -> None:
    assert [name_of(path) for path in MODULES if not read(path).has_docstring] == []


def test_no_module_imports_a_private_name_of_another() -> None:
    private = {name_of(path): read(path).private_imports for path in MODULES}
    assert {name: names for name, names in private.items() if names} == {}


# Where a config is compared, or looked up, within one launch, or with the launch's arguments.
WITHIN_ONE_LAUNCH = {
    "cells/places.py": "a filter: whatever has the config of a variant",
    "minimize/launch_level.py": "settings of one launch, before and after",
    "run/inputs.py": "with the arguments of the launch",
    "workaround/expiry.py": "of the results that are of the launch (`is_about`)",
    "workaround/patch.py": "trials of one launch, by what was asked",
    "workaround/rank/order.py": "of two orders of one launch",
}


def names_a_config(node: ast.AST) -> bool:
    """Whether a whole config is in it; one value of a config is none."""
    values = [
        ast.walk(part)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr == "get"
    ]
    of_values = {id(part) for parts in values for part in parts}
    return any(
        isinstance(part, ast.Attribute) and part.attr == "config" and id(part) not in of_values
        for part in ast.walk(node)
    )


def pairs_by_config(node: ast.AST) -> bool:
    """Whether cells are told apart by their config: by comparing it, or as the key of a table."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        sides = [node.left, *node.comparators]
        nothing = any(isinstance(side, ast.Constant) for side in sides)
        return any(map(names_a_config, sides)) and not nothing
    return isinstance(node, ast.DictComp) and names_a_config(node.key)


def test_cells_are_paired_by_their_place_and_never_by_their_config() -> None:
    """Another launch of the kernel has the same config: `same_place` of `values/cell.py` pairs."""
    pairing = {
        f"{name_of(path)}: {ast.unparse(node)}"
        for path in MODULES
        if name_of(path) not in WITHIN_ONE_LAUNCH and runs_in_a_child(path) is None
        for node in ast.walk(ast.parse(path.read_text()))
        if pairs_by_config(node)
    }
    assert pairing == set()


@pytest.mark.parametrize(
    ("line", "is_pairing"),
    [
        ("next((cell for cell in cells if cell.cell.config == config), None)", True),
        ("there = {tuple(row.config.items()): row for row in rows}", True),
        ("same = (row for row in rows if Config.of(row.config) == config)", True),
        ("is_set = options.config is None", False),
        ("has_it = name in cell.cell.config.as_dict()", False),
        ("is_other = case.config.get(name) != value", False),
        ("cell = next(cell for cell in cells if same_place(cell.cell, case.cell))", False),
    ],
)
def test_what_pairs_by_config_is_seen(line: str, *, is_pairing: bool) -> None:
    assert any(map(pairs_by_config, ast.walk(ast.parse(line)))) is is_pairing
