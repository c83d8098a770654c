"""The layers of the house: imports only go down, and one module spawns processes."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import harness

PACKAGE = Path(harness.__file__).parent
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if "data" not in path.relative_to(PACKAGE).parts
)

# Layer -> the layers below that it may import.
ALLOWED = {
    "values": {"values"},
    "logic": {"values", "logic"},
    "emulator": {"values", "logic", "emulator"},
    "effects": {"values", "logic", "emulator", "effects"},
    "child": {"child"},
    "verbs": {"values", "logic", "emulator", "effects", "verbs"},
    "presentation": {"values", "logic", "presentation"},
    "cli": {"values", "logic", "effects", "verbs", "presentation", "cli"},
}
# Read by both sides of a child's pipe: one definition of what is written down and compared.
SHARED = {"harness.child.read_facts"}
STDLIB = set(sys.stdlib_module_names)
THIRD_PARTY = {
    "values": {"packaging"},
    "logic": {"packaging", "elftools", "libcst", "markdown_it"},
    "emulator": {"numpy", "ml_dtypes"},
    "child": {"torch", "triton"},
    "presentation": {"rich", "jinja2", "markdown_it"},
}
# What touches the world, and so must not be imported by values and logic.
WORLDLY = {
    "subprocess",
    "socket",
    "sqlite3",
    "asyncio",
    "shutil",
    "tempfile",
    "time",
    "os",
    "click",
}
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
# Of Python 3.10's standard library, what its first release lacks: vermin tells minor releases only.
PATCH_RELEASES = {
    "data_filter": "tarfile, 3.10.12",
    "tar_filter": "tarfile, 3.10.12",
    "fully_trusted_filter": "tarfile, 3.10.12",
    "extraction_filter": "tarfile, 3.10.12",
    "set_int_max_str_digits": "sys, 3.10.7",
    "get_int_max_str_digits": "sys, 3.10.7",
}
EXTRACTS = {"extract", "extractall", "unpack_archive"}
MAY_SPAWN = {
    Path("effects/process.py"),
    # Forks jobs inside the child; and looks like `subprocess` to a foreign compiler.
    Path("child/supervisor.py"),
    Path("child/lowering.py"),
}


def layer_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imports_of(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_go_down(path: Path) -> None:
    layer = layer_of(path)
    if not layer:
        return
    for name in imports_of(path):
        head, *rest = name.split(".")
        if head == "harness":
            may = name in SHARED or not rest or rest[0] in ALLOWED[layer]
            assert may, f"{layer} must not import {name}"
        elif head not in STDLIB:
            allowed = THIRD_PARTY.get(layer)
            assert allowed is None or head in allowed, f"{layer} must not import {name}"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if layer_of(path) in ("values", "logic", "emulator")],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_values_and_logic_touch_nothing(path: Path) -> None:
    assert not WORLDLY & {name.split(".")[0] for name in imports_of(path)}


def test_one_module_spawns_processes() -> None:
    spawning = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            owner = getattr(getattr(node, "value", None), "id", None)
            if (
                isinstance(node, ast.Attribute)
                and owner in ("os", "asyncio")
                and node.attr in SPAWNS
            ):
                spawning.add(path.relative_to(PACKAGE))
            if isinstance(node, ast.Import) and any(a.name == "subprocess" for a in node.names):
                spawning.add(path.relative_to(PACKAGE))
            if isinstance(node, ast.ImportFrom) and node.module == "subprocess":
                spawning.add(path.relative_to(PACKAGE))
    assert spawning <= MAY_SPAWN
    assert Path("effects/process.py") in spawning


def test_no_module_is_named_after_the_standard_library_or_after_nothing() -> None:
    empty_words = {"utils", "common", "helpers", "manager", "misc"}
    for path in MODULES:
        if layer_of(path) in ("cli", "verbs"):
            # Named after the verbs of the command line; never run by path.
            assert path.stem not in empty_words
            continue
        assert path.stem.startswith("__") or path.stem not in STDLIB | empty_words, path


def test_every_module_says_what_it_is_and_what_it_offers() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), f"{path} has no docstring"
        defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
        names = {
            t.id
            for n in tree.body
            if isinstance(n, ast.Assign | ast.AnnAssign)
            for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
            if isinstance(t, ast.Name)
        }
        if defines and layer_of(path):
            assert "__all__" in names or path.name == "supervisor.py", f"{path} has no __all__"


def test_functions_fit_on_a_screen() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno
                assert length <= 70, f"{path}:{node.lineno} {node.name} has {length} lines"


def needs_a_patch_release(tree: ast.AST) -> list[str]:
    """What a module uses that came with a patch release of Python 3.10."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PATCH_RELEASES:
            found.append(PATCH_RELEASES[node.attr])
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in EXTRACTS:
            found += ["filter=, 3.10.12" for word in node.keywords if word.arg == "filter"]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_first_release_of_python_3_10_will_do(path: Path) -> None:
    assert not needs_a_patch_release(ast.parse(path.read_text()))


@pytest.mark.parametrize(
    "code",
    ["t.extractall(p, filter='data')", "tarfile.data_filter", "sys.set_int_max_str_digits(0)"],
)
def test_what_needs_a_patch_release_is_found(code: str) -> None:
    assert len(needs_a_patch_release(ast.parse(code))) == 1
