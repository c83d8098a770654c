"""A compiler in a virtual environment of its own, with an assembler of its own, and no PTX.

`tests/front_ends/brew_front_end.py` is all there is of both. Their packages are small wheels from
an index on this machine, so nothing is downloaded; once they are installed, the index is gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import HERE, Triage
from local_index import LocalIndex, wheel

FOLDERS = (HERE / "front_ends", HERE / "front_ends" / "registered", HERE.parent)

pytestmark = pytest.mark.tools

KERNEL = ("--kernel", "latte.brew", "--sm", "90a")
SOURCE = "cup latte\nconfig size = 1 2 4 16\nconfig foam = 1 2\n"
BREWC = """\
import beans

__version__ = {version!r}


class BrewError(Exception):
    pass


def steps(name, size, foam):
    if size > 8:
        raise BrewError(f"no cup holds {{size}}")
    stirs = ["stir twice"] if __version__ == "1.1" and foam == 2 else []
    pours = [f"pour {{beans.KIND}} {{measure}}" for measure in range(size)]
    return "\\n".join([f"cup {{name}}", *pours, *stirs]) + "\\n"
"""


@pytest.fixture(scope="module")
def index() -> Iterator[LocalIndex]:
    served = LocalIndex()
    for version in ("1.0", "1.1", "2.0"):
        served.add(*wheel("brewc", version, {"brewc/__init__.py": BREWC.format(version=version)}))
    beans = "KIND = 'arabica'\n__version__ = '3.1'\n"
    served.add(*wheel("beans", "3.1", {"beans/__init__.py": beans}))
    yield served
    served.close()


@pytest.fixture(scope="module")
def brew(index: LocalIndex, tmp_path_factory: pytest.TempPathFactory) -> Triage:
    """The command line where the package of Brew is installed, an empty cache, and no PyPI."""
    folder = tmp_path_factory.mktemp("brew")
    (folder / "latte.brew").write_text(SOURCE)
    env = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")},
        "TRIAGE_HOME": str(folder / "results"),
        "TRIAGE_CACHE_DIR": str(folder / "cache"),
        "UV_CACHE_DIR": str(folder / "uv"),
        "UV_DEFAULT_INDEX": index.url,
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(map(str, FOLDERS)),
    }
    return Triage(folder=folder, env=env, python_path=env["PYTHONPATH"])


def document(brew: Triage, *words: str, code: int) -> dict[str, Any]:
    done = brew(words[0], "--json", *words[1:])
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_compile(brew: Triage, index: LocalIndex) -> None:
    words = (*KERNEL, "--compiler", "brew==1.1", "--assembler", "kettle==1.1")
    rows = brew.compile(*words, code=1)["cells"]
    verdicts = {(row["config"]["size"], row["config"]["foam"]): row["verdict"] for row in rows}
    assert verdicts == {
        (1, 1): "ok", (2, 1): "ok", (4, 1): "compiler_crash", (16, 1): "rejected",
        (1, 2): "pass_failure", (2, 2): "pass_failure", (4, 2): "pass_failure",
        (16, 2): "rejected",
    }  # fmt: skip
    row = rows[0]
    assert row["cell"] == "latte.brew/brew/size=1,foam=1@sm_90a/brew-1.1/kettle-1.1"
    assert (row["compiler"], row["compiler_version"]) == ("brew", "1.1")
    assert (row["assembler"], row["ptxas"], row["partners"]) == ("kettle", "1.1", ["beans==3.1"])
    assert (row["ptx_sha256"], row["ptx_version"], row["n_regs"]) == (None, None, 9)
    assert row["program_sha256"]
    # What is installed needs no index any more.
    index.down = True
    offline = Triage(brew.folder, {**brew.env, "TRIAGE_OFFLINE": "1"})
    assert all(row["cached"] for row in offline.compile(*words, code=1)["cells"])
    index.down = False


def test_the_table_names_its_assembler(brew: Triage) -> None:
    done = brew("compile", *KERNEL, "--compiler", "brew==1.1", "--assembler", "kettle==1.1")
    assert done.returncode == 1
    assert "Brew 1.1 · Kettle 1.1" in done.stdout
    assert "ptx" not in done.stdout.lower()
    cell = "latte.brew/brew/size=1,foam=1@sm_90a/brew-1.1/kettle-1.1"
    for stage, shown in (
        ("steps", "cup latte\npour arabica 0\n"),
        ("cubin", "cup latte\ndone\n"),
        ("log", "--- Kettle, stdout\nused 9 spoons\n"),
    ):
        done = brew("show", cell, "--stage", stage)
        assert (done.returncode, done.stdout) == (0, shown), done.stderr
    done = brew("show", cell, "--stage", "crumbs")
    assert done.returncode == 2
    assert "'crumbs' is not one of" in done.stderr


def test_toolchains_and_doctor_know_it(brew: Triage) -> None:
    (installed,) = json.loads(brew("toolchain", "list", "--json").stdout)["installed"]
    assert (installed["name"][:10], installed["partners"]) == ("brew-1.1-e", ["beans==3.1"])
    assert brew("toolchain", "verify", "brew-1.1").returncode == 0
    done = brew("toolchain", "install", "brew-2.0", "brew<1.1")
    assert (done.returncode, done.stdout) == (0, "brew-2.0\nbrew-1.0\n")
    done = brew("toolchain", "install", "kettle-1.1", "kettle<=1.1")
    assert (done.returncode, done.stdout) == (0, "kettle-1.1\nkettle-1.0\nkettle-1.1\n")
    found = json.loads(brew("doctor", "--json").stdout)["checks"]
    (toolchains,) = (each["found"] for each in found if each["name"] == "toolchains")
    assert "(Python 3." in toolchains
    assert "beans==3.1" in toolchains


def test_bisect_along_both(brew: Triage) -> None:
    one = (*KERNEL, "--config", "size=4,foam=1")
    found = document(brew, "bisect", *one, "--assembler", "kettle==1.1", code=0)
    versions = found["last_good"], found["first_bad"], found["first_fixed"]
    assert (found["axis"], *versions, found["blame"]) == ("kettle", "1.0", "1.1", "2.0", "kettle")
    done = brew("bisect", *one, "--assembler", "kettle==1.1")
    assert "First bad: Kettle 1.1. Last good: 1.0. First fixed: 2.0." in done.stdout
    assert "--compiler brew==2.0 --assembler kettle==1.0" in done.stdout
    assert "ptx" not in done.stdout.lower()
    ends = "grep -q done $TRIAGE_CUBIN && test -z $TRIAGE_PTX && grep -q pour $TRIAGE_PROGRAM"
    found = document(
        brew,
        "bisect",
        *one,
        "--assembler",
        "kettle==1.1",
        "--repeat",
        "1",
        "--script",
        ends,
        code=0,
    )
    assert (found["last_good"], found["first_bad"], found["first_fixed"]) == versions
    other = (*KERNEL, "--config", "size=1,foam=2", "--compiler", "brew==1.1", "--axis", "compiler")
    found = document(brew, "bisect", *other, code=0)
    versions = found["last_good"], found["first_bad"], found["first_fixed"]
    assert (found["axis"], *versions, found["blame"]) == ("brew", "1.0", "1.1", "2.0", "brew")


def test_blame(brew: Triage) -> None:
    done = brew("blame", *KERNEL, "--config", "size=4,foam=1", "--assembler", "kettle==1.1")
    assert done.returncode == 0, done.stderr
    assert "Kettle is to blame." in done.stdout
    assert "ptx" not in done.stdout.lower()
    done = brew(
        "blame", *KERNEL, "--config", "size=1,foam=2", "--compiler", "brew==1.1",
        "--assembler", "kettle==2.0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Brew is to blame." in done.stdout
    assert "ptx" not in done.stdout.lower()


def test_workaround(brew: Triage) -> None:
    words = (*KERNEL, "--config", "size=4,foam=1", "--assembler", "kettle==1.1")
    found = document(brew, "workaround", *words, code=0)
    names = {step["name"] for each in found["candidates"] for step in each["change"]}
    assert {"size", "kettle"} <= names <= {"size", "foam", "brew", "kettle"}
    done = brew("workaround", *words)
    assert "use Kettle 2.0" in done.stdout or "kettle 1.1 -> " in done.stdout
    assert "ptx" not in done.stdout.lower()


def test_report(brew: Triage) -> None:
    words = (*KERNEL, "--config", "size=4,foam=1", "--assembler", "kettle==1.1")
    done = brew("report", *words, "--for", "project", "--out", "report")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Ready to be filed" in done.stdout
    issue = (brew.folder / "report" / "issue.md").read_text()
    assert "Kettle 1.1" in issue
    assert "ptx" not in issue.lower()
    done = brew("report", *words, "--for", "nvidia", "--out", "other")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_matrix_history_bugs_diff(brew: Triage) -> None:
    (brew.folder / "m.yaml").write_text(
        "version: 1\n"
        "toolchains:\n"
        "  compilers: {brew: {spec: '>=1'}}\n"
        "  assemblers: {kettle: {spec: '>=1'}}\n"
        "targets: [sm_90a]\n"
        "kernels: [latte.brew]\n"
    )
    done = brew("matrix", "run", "--matrix", "m.yaml", "--json")
    assert done.returncode == 1, done.stderr
    counted = json.loads(done.stdout)["cells"]
    assert counted == {"ok": 40, "rejected": 18, "pass_failure": 9, "compiler_crash": 5}
    done = brew("history", "--kernel", "latte.brew", "--json")
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert {(row["assembler"], row["ptxas"]) for row in cells} == {
        ("kettle", version) for version in ("1.0", "1.1", "2.0")
    }
    said = brew("bugs").stdout
    assert "it boils over" in said
    assert "Kettle since 1.1 until 1.1" in said
    assert "ptx" not in said.lower()


def test_what_it_cannot_do_is_one_line(brew: Triage) -> None:
    compiled = (*KERNEL, "--compiler", "brew==1.1")
    one = (*compiled, "--config", "size=1,foam=1", "--assembler", "kettle==1.1")
    for words, code, line in (
        (("compile", *compiled, "--ptxas", "13.1.115"), 2,
         "latte.brew: it is assembled by Kettle; --ptxas does not apply"),
        (("compile", *compiled, "--assembler", "ptxas==13.1.115"), 2,
         "--assembler ptxas==13.1.115: latte.brew is assembled by Kettle (kettle)"),
        (("compile", *compiled, "--assembler", "kettle==7"), 2, "there is no Kettle 7"),
        (("compile", *compiled, "--assembler", "7"), 2, "write KIND==VERSION"),
        (("bisect", *one, "--axis", "ptxas"), 2,
         "latte.brew: it is assembled by Kettle; use --axis assembler"),
        (("bisect", *one, "--axis", "flag"), 2, "latte.brew: flags of Kettle are not known"),
        (("bisect", *one, "--run"), 2, "launches of Brew cannot be run with values"),
        (("run", *one), 2, "launches of Brew cannot be run with values"),
        (("minimize", *KERNEL, "--config", "size=4,foam=1", "--assembler", "kettle==1.1"), 2,
         "what Brew generates is not PTX, which is all that can be reduced of it"),
    ):  # fmt: skip
        done = brew(*words)
        assert (done.returncode, done.stdout) == (code, ""), (words, done.stdout, done.stderr)
        assert line in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr
