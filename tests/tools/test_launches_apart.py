"""The launches of one kernel are told apart by what it is called with, not by their configs."""

from __future__ import annotations

import re
import shlex

import msgspec
import pytest
from conftest import HERE, Triage
from test_pull_requests_real import committed

pytestmark = pytest.mark.tools

FILE = HERE / "kernels" / "launches.py"
NEW, OLD = "3.9.0", "3.8.0"
BOTH = ("--triton", NEW, "--triton", OLD, "--sm", "90a")
_HEADING = re.compile(
    r"^\*\*.*::(\w+) · (launch(?:#\d)?) \((.*)\) · sm_90a · Triton ([0-9.]+) ", re.MULTILINE
)


def test_a_launch_has_one_number_whatever_configs_a_release_tries(module_triage: Triage) -> None:
    done = module_triage("compile", "--kernel", str(FILE), *BOTH, "--markdown")
    assert done.returncode == 1, done.stderr
    found: dict[str, dict[str, dict[str, str]]] = {}
    for kernel, label, words, triton in _HEADING.findall(done.stdout.replace("\\", "")):
        found.setdefault(triton, {}).setdefault(kernel, {})[label] = words
    # The new one does not try a config of the first launch of `pruned`.
    assert "pruned · launch (BLOCK=64, x=float32" in done.stdout.replace("\\", "")
    assert found[NEW] == found[OLD]
    of_four = ["launch", "launch#2", "launch#3", "launch#4"]
    words = [f"x={t}, y={t}, n={n}" for t in ("float32", "float16") for n in (64, 128)]
    assert found[OLD]["plain"] == dict(zip(of_four, words, strict=True))
    blocks = [f"BLOCK={64 << (n % 2)}, {word}" for n, word in enumerate(words)]
    assert found[OLD]["tuned"] == found[OLD]["pruned"] == dict(zip(of_four, blocks, strict=True))
    # Configs that the caller lists himself are those of one launch; so are sizes of one code.
    assert found[OLD]["swept"] == {
        "launch": "x=float32, y=float32",
        "launch#2": "x=float16, y=float16",
    }


def test_each_launch_has_its_own_configs(module_triage: Triage) -> None:
    document = module_triage.compile("--kernel", str(FILE), *BOTH, code=1)
    counts = {
        (each["triton"], each["kernel"].rpartition("::")[2], each["launch"]): each["headline"]
        for each in document["summary"]["survivorship"]
    }
    assert {counts[OLD, "plain", f"launch#{n}"] for n in (2, 3, 4)} == {"1 config: 1 compiles."}
    assert counts[NEW, "plain", "launch#4"] == "1 config: 0 compile; 1 does not work."
    assert [counts[triton, "pruned", "launch"] for triton in (OLD, NEW)] == [
        "2 configs: 2 compile.",
        "1 config: 1 compiles.",
    ]
    assert counts[NEW, "pruned", "launch#4"] == "2 configs: 2 compile."
    assert counts[OLD, "swept", "launch"] == "4 configs: 4 compile."
    none = module_triage("compile", "--kernel", f"{FILE}::plain", *BOTH, "--launch", "launch#5")
    assert f"--launch launch#5: {FILE}::plain is launched 4 times there" in none.stderr


def test_two_releases_are_compared_launch_by_launch(triage: Triage) -> None:
    done = triage("compile", "--kernel", f"{FILE}::plain", *BOTH)
    assert done.returncode == 1
    assert f"Triton {OLD} -> {NEW}: 1 of 4 launches worse: launch#4 ok -> rejected" in done.stdout
    assert "the same with both: 3 configs" in done.stdout
    assert "1 rejected [launch=launch#4]" in done.stdout
    # The command that follows it, as it is printed.
    command, *_ = re.findall(r"^  (triage bisect .*?)  # ", done.stdout, re.MULTILINE)
    found = triage(*shlex.split(command)[1:])
    assert found.returncode == 0, found.stderr
    assert f"First bad: Triton {NEW}. Last good: {OLD}." in found.stdout
    # What one release alone tries is compared with nothing.
    done = triage("compile", "--kernel", f"{FILE}::pruned", *BOTH)
    assert f"{OLD} -> {NEW}: nothing changed. 1 config only with Triton {OLD}" in done.stdout


# The one cell of each kernel that fails, in each verb that follows a failure.
_FOLLOWED = "launch#4"
_CELL = re.compile(r"::(tuned|plain)/(launch(?:#\d)?)/")
_NAMED = (
    re.compile(r"--launch[= ]'?(launch(?:#\d)?)"),
    re.compile(r"::(?:tuned|plain) · (launch(?:#\d)?) "),
    re.compile(r'"launch": ?"(launch(?:#\d)?)"'),
)
ONE_AXIS = ("--axis", "triton", "--good", OLD, "--bad", NEW, "--repeat", "1")
VERBS = {
    "bisect": (*ONE_AXIS, "--max-tries", "2"),
    "blame": ("--triton", NEW, "--max-tries", "6"),
    "minimize": ("--triton", NEW, "--max-time", "60s", "--max-tries", "8"),
    "workaround": (
        "--triton",
        NEW,
        "--change",
        "config",
        "--change",
        "launch",
        "--max-time",
        "60s",
    ),
    "report": ("--triton", NEW, "--for", "triton", "--quick"),
}
CODES = {
    "bisect": (0,),
    "blame": (0, 1),
    "minimize": (0, 1),
    "workaround": (0, 1),
    "report": (0, 1),
}


def is_failing(kernel: str, launch: str, config: dict[str, int], triton: str) -> bool:
    return launch == _FOLLOWED and triton == NEW and (kernel == "plain" or config["T"] == 1)


@pytest.mark.parametrize("kernel", ["tuned", "plain"])
@pytest.mark.parametrize(
    "verb", ["bisect", *(pytest.param(name, marks=pytest.mark.long) for name in [*VERBS][1:])]
)
def test_a_verb_that_follows_a_failure_speaks_of_its_launch_alone(
    module_triage: Triage, verb: str, kernel: str
) -> None:
    """Where it names a cell, in words, commands or documents, it is of the fourth launch."""
    words = ("--kernel", f"{FILE}::{kernel}", "--sm", "90a", *VERBS[verb])
    for form in ((), ("--json",)):
        out = ("--out", f"{kernel}{len(form)}") if verb == "minimize" else ()
        done = module_triage(verb, *words, *out, *form)
        assert done.returncode in CODES[verb], done.stderr
        text = done.stdout
        if form:
            document = msgspec.json.decode(text)
            # What the patched file makes of every launch is its proof.
            (document.get("patch") or {}).pop("cells", None)
            text = msgspec.json.encode(document).decode()
        cells = {(name, launch) for name, launch in _CELL.findall(text)}
        assert cells <= {(kernel, _FOLLOWED)}, text
        named = {launch for words in _NAMED for launch in words.findall(text)}
        assert named <= {_FOLLOWED}, text
        assert _FOLLOWED in text


def test_a_verb_that_lists_launches_gives_each_what_is_its_own(module_triage: Triage) -> None:
    """Which cell works is known of each: what is said of a launch is true of it."""
    compiled = module_triage.compile("--kernel", str(FILE), *BOTH, code=1)["cells"]
    history = msgspec.json.decode(module_triage("history", f"{FILE}::*", "--json").stdout)["cells"]
    runs = []
    for kernel in ("tuned", "plain"):
        words = ("--kernel", f"{FILE}::{kernel}", "--triton", NEW, "--sm", "90a", "--json")
        runs += msgspec.json.decode(module_triage("run", *words).stdout)["runs"]
    for rows, fails in ((compiled, "rejected"), (history, "rejected"), (runs, "not_run")):
        seen = set()
        for row in rows:
            name = row["kernel"].rpartition("::")[2]
            if name not in ("tuned", "plain"):
                continue
            seen.add((name, row["launch"]))
            said = row["run"] if rows is runs else row["verdict"]
            fault = is_failing(name, row["launch"], row["config"], row["triton"])
            assert (said == fails) == fault, row
        assert len(seen) == 8
    alone = module_triage("history", f"{FILE}::tuned", "--launch", "launch#2", "--json")
    of_second = msgspec.json.decode(alone.stdout)["cells"]
    assert {row["launch"] for row in of_second} == {"launch#2"}
    assert not {row["verdict"] for row in of_second} & {"rejected", "not_run"}
    said = module_triage("history", f"{FILE}::plain").stdout
    heads = [line for line in said.splitlines() if "::plain · " in line]
    assert [line.split(" · ")[1] for line in heads] == [
        "launch",
        *(f"launch#{n}" for n in (2, 3, 4)),
    ]


def test_a_pull_request_judges_the_configs_of_each_launch(triage: Triage) -> None:
    """The configs that the change breaks are those of the fourth launch, of both kernels."""
    committed(triage.folder, {"launches.py": FILE.read_text().replace("not NEW", "True")})
    (triage.folder / "launches.py").write_text(FILE.read_text())
    words = ("--base", "main", "--sm", "90a", "--triton", NEW, "--kernel", "launches.py")
    done = triage("pr", *words, "--json")
    assert done.returncode == 1, done.stderr
    changes = msgspec.json.decode(done.stdout)["changes"]
    worse = {
        (change["kernel"].rpartition("::")[2], change["launch"], change["config"].get("T"))
        for change in changes["regressed"]
    }
    assert worse == {("tuned", _FOLLOWED, 1), ("plain", _FOLLOWED, None)}
    assert {kind for kind, found in changes.items() if found} == {"regressed"}
