"""What launch code reads is seen, and looked up again before a stored capture is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import harness
from harness.frontends.launch_code import is_unchanged, withheld
from harness.values.outcome import Reads

# Runs a piece of launch code as the child of a capture does, and prints what it read.
_CHILD = """
import json, os, sys
from harness.io.children.reads import ReadsWatch
folder = sys.argv[1]
sys.path[:0] = [folder + "/beside", folder + "/elsewhere"]
os.chdir(folder)
os.environ["OURS"] = "set by the child itself"
reads = ReadsWatch([folder + "/own"], folder + "/launch.py")
reads.start()
try:
    exec(compile(open(folder + "/launch.py").read(), folder + "/launch.py", "exec"), {})
finally:
    found = reads.stop()
print(json.dumps(found))
"""


class Launch:
    """Launch code in a folder, and the environment that it gets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(harness.__file__).parent.parent),
            "MY_DIM": "64",
        }
        for name in ("beside", "elsewhere", "own", "data"):
            (folder / name).mkdir()
        (folder / "table.txt").write_text("32\n")
        (folder / "beside" / "helper.py").write_text("N = 1\n")

    def run(self, code: str) -> Reads:
        (self.folder / "launch.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(self.folder)],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Reads)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return Launch(tmp_path)


def _set(name: str, value: str | None) -> Callable[[Launch], None]:
    def change(launch: Launch) -> None:
        if value is None:
            del launch.env[name]
        else:
            launch.env[name] = value

    return change


def _write(name: str, text: str) -> Callable[[Launch], object]:
    return lambda launch: (launch.folder / name).write_text(text)


def _remove(name: str) -> Callable[[Launch], None]:
    return lambda launch: (launch.folder / name).unlink()


_STALE: list[tuple[str, Callable[[Launch], object]]] = [
    ("import os; os.environ['MY_DIM']", _set("MY_DIM", "128")),
    ("import os; os.getenv('MY_DIM')", _set("MY_DIM", None)),
    ("import os; os.environ.get('NOT_SET')", _set("NOT_SET", "1")),
    ("import os; 'NOT_SET' in os.environ", _set("NOT_SET", "")),
    ("import os; os.environb.get(b'MY_DIM')", _set("MY_DIM", "1")),
    ("from os import environ; dict(environ)", _set("ANYTHING", "1")),
    ("import os; [n for n in os.environ if n.startswith('MY_')]", _set("MY_OTHER", "1")),
    ("import os; os.environ.setdefault('MY_DIM', '1')", _set("MY_DIM", "2")),
    ("open('table.txt').read()", _write("table.txt", "64\n")),
    ("import os; os.close(os.open(b'table.txt', os.O_RDONLY))", _write("table.txt", "64\n")),
    ("import pathlib; pathlib.Path('table.txt').read_text()", _write("table.txt", "1")),
    ("import pathlib; pathlib.Path('tuned').exists()", _write("tuned", "")),
    ("import os; os.path.exists('tuned')", _write("tuned", "")),
    ("try: open('tuned')\nexcept OSError: pass", _write("tuned", "")),
    ("import os; os.path.getsize('table.txt')", _write("table.txt", "much longer")),
    ("import os; os.listdir('data')", _write("data/a.json", "{}")),
    ("import os; list(os.scandir('data'))", _write("data/a.json", "{}")),
    ("import glob; glob.glob('data/*.json')", _write("data/a.json", "{}")),
    ("import pathlib; list(pathlib.Path('data').glob('*'))", _write("data/a.json", "{}")),
    ("import helper", _write("beside/helper.py", "N = 2\n")),
    ("import helper, sys; del sys.modules['helper']", _remove("beside/helper.py")),
    ("try: import tuned\nexcept ImportError: pass", _write("elsewhere/tuned.py", "")),
    ("import importlib.util; importlib.util.find_spec('tuned')", _write("elsewhere/tuned.py", "")),
    ("import importlib; importlib.import_module('helper')", _write("beside/helper.py", "")),
    # The old file is still there, and the same; another one comes before it.
    ("import sys; sys.path.reverse(); import helper", _write("elsewhere/helper.py", "N = 1\n")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), _STALE)
def test_a_change_of_what_was_read_is_seen(
    launch: Launch, code: str, change: Callable[[Launch], object]
) -> None:
    reads = launch.run(code)
    assert not reads.unseen
    assert is_unchanged(reads, launch.env)
    change(launch)
    assert not is_unchanged(reads, launch.env)


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.environ['MY_DIM'] = '1'; os.environ['MY_DIM']",
        "import os; os.environ.get('OURS')",
        "open('new.txt', 'w').write('1'); open('new.txt').read()",
        "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').close()",
        "import tempfile; tempfile.NamedTemporaryFile().read()",
        "import os; os.makedirs('made/below'); os.listdir('made'); os.path.exists('made/below/x')",
        "open('own/anything', 'w').close(); import os; os.listdir('own')",
        "open('/proc/self/stat').read(); open('/dev/null').read()",
        "import json, sqlite3, decimal",
        "import platform; platform.processor()",
    ],
)
def test_what_is_the_launch_codes_own_is_no_input(launch: Launch, code: str) -> None:
    reads = launch.run(code)
    assert not reads.unseen
    assert not reads.files
    assert not reads.folders
    launch.env |= {"MY_DIM": "9", "FORCE_COLOR": "1"}
    # As it was before: what it leaves behind was not there when it looked.
    (launch.folder / "new.txt").unlink(missing_ok=True)
    shutil.rmtree(launch.folder / "made", ignore_errors=True)
    assert is_unchanged(reads, launch.env)


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os\nif os.fork() == 0: os._exit(0)\nos.wait()",
        "import os\ntry: open(b'\\xff\\xfe')\nexcept OSError: pass",
    ],
)
def test_what_cannot_be_seen_is_said(launch: Launch, code: str) -> None:
    reads = launch.run(code)
    assert len(reads.unseen) == 1
    assert not is_unchanged(reads, launch.env)


@pytest.mark.parametrize(
    "code",
    [
        "class P:\n  def __fspath__(self): 1 / 0\ntry: open(P())\nexcept ArithmeticError: pass",
        "open(0, closefd=False)",
        "import os; os.stat(0)",
        "import os; os.environ.clear(); os.environ.get('X')",
        "import os\ntry: os.environ[1]\nexcept TypeError: pass",
        "import os\ntry: os.stat('a\\0b')\nexcept ValueError: pass",
        "import sys; sys.path[:] = [1, None]\ntry: import nowhere\nexcept Exception: pass",
        "import os, sys; os.stat = None; sys.meta_path.clear()",
        "import sys; sys.modules['odd'] = 5; sys.modules['odder'] = None",
        "import shutil, os; os.mkdir('t'); shutil.rmtree('t')",
        "import threading; threading.Thread(target=open, args=['table.txt']).start()",
        "import os; os.mkfifo('pipe'); os.path.exists('pipe')",
    ],
)  # fmt: skip
def test_odd_launch_code_does_not_break_it(launch: Launch, code: str) -> None:
    launch.run(code)


def test_a_secret_is_not_kept(launch: Launch) -> None:
    launch.env["TOKEN"] = "s3cr3t-t0k3n"
    reads = launch.run("import os; os.environ['TOKEN']; dict(os.environ)")
    assert b"s3cr3t" not in msgspec.json.encode(reads)


def test_a_variable_that_was_not_passed_is_named(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = launch.run(
        "import os; os.environ.get('MY_SECRET'); os.environ.get('MY_DIM'); "
        "os.environ.get('COLUMNS')"
    )
    assert withheld(reads, launch.env) == []
    monkeypatch.setenv("MY_SECRET", "1")
    monkeypatch.setenv("MY_DIM", "64")
    monkeypatch.setenv("COLUMNS", "80")
    assert withheld(reads, launch.env) == ["MY_SECRET"]
