"""Our code as data: what is hashed with results, and what is started by its name.

A module that moves breaks neither an import nor a type, and yet a hash of nothing stays the same
for ever and a child that is named by hand does not start.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from test_architecture import MODULES, PACKAGE, module_at, name_of, read

import gpu_emulator
import harness
from harness.cells import reuse
from harness.cli.main import cli
from harness.frontends import registry
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.io.children import launch_code
from harness.io.files.own_code import code_sha256

# How a capture and a result name the code that they follow from.
CHILD = ("io/children", "frontends/pretend", "frontends/triton/child")
# Front ends are imported when they are asked for.
DECIDE_A_ROW = (
    "harness.cells.evaluate",
    *(where.partition(":")[0] for where in registry._OURS.values()),
)


def calls(name: str) -> Iterator[ast.Call]:
    for text in (text for path in MODULES if name in (text := path.read_text())):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and name in (
                getattr(node.func, "id", None),
                getattr(node.func, "attr", None),
            ):
                yield node


def words_of(call: ast.Call) -> list[str]:
    return [
        each.value
        for each in call.args
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


def is_below(path: Path, places: tuple[str, ...]) -> bool:
    name = Path(name_of(path))
    return any(name == Path(place) or Path(place) in name.parents for place in places)


def closure(names: tuple[str, ...]) -> set[Path]:
    """The modules of ours that these import, and those that they import, and so on."""
    found: set[Path] = set()
    left = [path for name in names if (path := module_at(name))]
    assert len(left) == len(names)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += [each for name in read(path).imports if (each := module_at(name))]
    return found


def test_a_hash_of_no_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "room").mkdir()
    for place in ("room", "no such room", "no_module.py"):
        with pytest.raises(FileNotFoundError, match=place):
            code_sha256(place)
    (tmp_path / "room" / "module.py").write_text("A = 1\n")
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        code_sha256("room", "elsewhere")


def test_the_hash_follows_every_module_below_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "__file__", str(tmp_path / "__init__.py"))
    deep = tmp_path / "room" / "wing" / "module.py"
    deep.parent.mkdir(parents=True)
    seen = set()
    for text in ("A = 1\n", "A = 2\n"):
        deep.write_text(text)
        seen |= {code_sha256("room"), code_sha256("room/wing/module.py", "room")}
    assert len(seen) == 4


def test_the_code_that_decides_a_row_is_part_of_its_identity() -> None:
    deciding = closure(DECIDE_A_ROW)
    places = (*reuse._JUDGING, *CHILD)
    missing = {name_of(path) for path in deciding if not is_below(path, places)}
    assert missing == set()
    assert len(deciding) > len(reuse._JUDGING)
    # What `repros` reads decides what is planned, though nothing that is planned imports it.
    assert {place for place in reuse._JUDGING if not covers(place, deciding)} <= {"cells/repros"}


def covers(place: str, modules: set[Path]) -> bool:
    return any(is_below(path, (place,)) for path in modules)


def test_the_code_of_a_child_is_part_of_what_it_captured() -> None:
    for kind in ("triton", "tilelang", "cutedsl", "cutile"):
        child = registry.front_end(kind)
        assert isinstance(child, CapturedFrontEnd)
        inside = ("io/children", *child.code)
        assert child.child_sha256() == code_sha256(*inside)
        served = closure((f"{child.module}.__main__" if kind == "triton" else child.module,))
        assert len(served) > len(inside)
        assert [path for path in served if not is_below(path, inside)] == []


def test_modules_that_are_named_in_a_string_exist() -> None:
    named = {
        node.value
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"harness(\.\w+)+(:\w+)?", node.value)
    }
    assert "harness.frontends.triton.child" in named
    for name in named:
        module, _, attribute = name.partition(":")
        assert importlib.util.find_spec(module), f"{name} is named, and is not there"
        assert not attribute or hasattr(importlib.import_module(module), attribute), name
    context = click.Context(cli)
    assert all(cli.get_command(context, name) for name in cli.list_commands(context))


def test_what_is_started_in_a_child_can_be_started() -> None:
    child = PACKAGE / "frontends" / "triton" / "child"
    assert (child / "__main__.py").is_file()
    assert 'if __name__ == "__main__":' in (child / "interpreting.py").read_text()
    working = [word for call in calls("run_with_values") for word in words_of(call)]
    assert len(working) > 1
    for name in working:
        assert "\ndef main(place: str)" in (child / name).with_suffix(".py").read_text()
    bare = [word for call in calls("bare_python") for word in words_of(call)]
    assert bare
    for name in bare:
        tree = ast.parse((PACKAGE / "io" / "children" / f"{name}.py").read_text())
        assert "main" in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, name


def test_a_child_takes_the_folder_of_this_program_off_its_path() -> None:
    # `stand_aside` counts the folders above itself.
    assert Path(launch_code.__file__).parents[3] == PACKAGE.parent


# Words of a private dialect.
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "emulator/README.md", "matrix.yaml")
RIDDLES = re.compile(
    r"\b(told|nobody|anew|whoever|ate|fare[ds]?|be it|be had|hangs on|for want of|at whose door"
    r"|bec[ao]mes? of|none the less|afresh|for ever|strayed|without a word|B a thread)\b",
    re.IGNORECASE,
)


def test_messages_docs_and_comments_are_in_plain_words() -> None:
    """In the field's words: "reported" or "determined" for "told", "depends on" for "hangs on"."""
    root = PACKAGE.parent
    texts = [*MODULES, *(root / name for name in DOCUMENTS)]
    for folder, pattern in (("docs", "*.md"), ("templates", "*.j2"), ("repros", "*.*")):
        texts += sorted((root / folder).rglob(pattern))
    assert len(texts) > len(MODULES) + 20
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in texts
        if path.suffix != ".pyc"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if RIDDLES.search(line)
    ]
    assert found == []


def test_the_emulator_is_released_with_the_program_that_needs_it() -> None:
    named = re.findall(r'"gpu-emulator==([^"]+)"', (PACKAGE.parent / "pyproject.toml").read_text())
    assert named == [harness.__version__] == [gpu_emulator.__version__]
