"""The steps of `action.yml`, and of the workflows that docs/pull-requests.md has to copy.

GitHub's own actions and `gh` are replaced by stand-ins; each run starts on a clean machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from test_pull_requests_real import PTX, committed, edit
from test_workflows import actionlint, complaints

from harness.store.store import Store

if TYPE_CHECKING:
    from conftest import Triage

ROOT = Path(__file__).parent.parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
TO_COPY = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/pull-requests.md").read_text(), re.DOTALL)
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
GH = """\
#!/bin/sh
# Keeps the comments of a pull request in a folder: one file for each, named by its number.
case "$*" in
  *state=open*) echo 7 ;;
  *--paginate*) ls comments ;;
  *PATCH*comments/1*) cp triage-pr/comment.md comments/1; echo patched >> gh.log ;;
  *issues/7/comments*body=@*) cp triage-pr/comment.md comments/1; echo posted >> gh.log ;;
  *) exit 1 ;;
esac
"""
__all__ = ["actionlint"]
pytestmark = [pytest.mark.tools, pytest.mark.long]


class Runner:
    """A clean machine with a checkout; `cache` is what actions/cache keeps between them."""

    def __init__(self, triage: Triage, folder: Path, checkout: Path, cache: Path) -> None:
        self.temp, self.checkout, self.cache = folder / "temp", checkout, cache
        programs = folder / "bin"
        programs.mkdir(parents=True)
        for name, text in (
            ("triage", f'#!/bin/sh\nexec "{sys.executable}" -m harness "$@"\n'),
            ("gh", GH),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.files = {name: folder / name for name in ("env", "output", "summary.md")}
        for file in self.files.values():
            file.touch()
        self.env = {
            **{name: text for name, text in triage.env.items() if not name.startswith("TRIAGE_")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ENV": str(self.files["env"]),
            "GITHUB_OUTPUT": str(self.files["output"]),
            "GITHUB_STEP_SUMMARY": str(self.files["summary.md"]),
        }
        self.values = {"runner.temp": str(self.temp), "runner.os": "Linux", "github.token": "none"}
        self.artifact = folder / "artifact"

    def shell(self, step: dict[str, Any], folder: Path) -> int:
        env = {name: self.text(str(text)) for name, text in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        for name, prefix in (("env", "env"), ("output", "steps.compare.outputs")):
            for line in self.files[name].read_text().splitlines():
                key, _, value = line.partition("=")
                self.values[f"{prefix}.{key}"] = value
                if name == "env":
                    self.env[key] = value
        print(step["name"], done.stdout, done.stderr)
        return done.returncode

    def text(self, text: str) -> str:
        return EXPRESSION.sub(lambda match: self.values.get(match[1], ""), text)

    def act(self, **inputs: str) -> int:
        """Take the steps of the action with these inputs; its exit code."""
        given = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): text for name, text in inputs.items()}
        self.values |= {f"inputs.{name}": text for name, text in given.items()}
        code, keeps = 0, {}
        for step in ACTION["runs"]["steps"]:
            words = step.get("with", {})
            if step["name"] == "Install":
                continue
            if "run" in step:
                code = self.shell(step, self.checkout)
                assert code == 0 or step["name"] == "Exit code"
            elif step["uses"].startswith("actions/cache@"):
                place, key = Path(self.text(words["path"])), self.text(words["key"])
                keeps[key] = place
                starts = [key, *self.text(words.get("restore-keys", "")).split()]
                kept = [old for start in starts for old in sorted(self.cache.glob(f"{start}*"))]
                if kept:
                    shutil.copytree(kept[0], place)
            else:
                assert step["uses"].startswith("actions/upload-artifact@")
                shutil.copytree(self.text(words["path"]), self.artifact)
        for key, place in keeps.items():
            if not (self.cache / key).exists():
                shutil.copytree(place, self.cache / key)
        return code


def test_the_action_in_two_pull_requests_and_its_comment(triage: Triage, tmp_path: Path) -> None:
    checkout, cache = tmp_path / "checkout", tmp_path / "cache"
    checkout.mkdir()
    cache.mkdir()
    kernel = (ROOT / "tests" / "kernels" / "small.py").read_text()
    committed(checkout, {"small.py": kernel})
    inputs = {"base": "main", "kernels": "*.py\n", "sm": "80 90a"}

    runs = []
    for number in ("first", "second"):
        runner = Runner(triage, tmp_path / number, checkout, cache)
        runner.values |= {"github.head_ref": "topic", "github.run_id": number}
        (checkout / "small.py").write_text(f"{kernel}\nTURN = {number!r}\n")
        assert runner.act(**inputs) == 0
        comment = (runner.artifact / "comment.md").read_text()
        assert runner.files["summary.md"].read_text() == comment
        document = msgspec.json.decode((runner.artifact / "triage.json").read_bytes())
        assert document["same_code"] == document["cells"] > 0
        with Store.for_reading(runner.temp / "triage/home") as store:
            rows = [msgspec.json.decode(row.row) for row in store.run_bodies(document["older"])]
        runs.append([row["cached"] for row in rows])
    # What the first compiled of base, the second takes from the caches.
    assert (any(runs[0]), all(runs[1])) == (False, True)

    # The comment is one, and is updated.
    comments = tmp_path / "clean"
    (comments / "comments").mkdir(parents=True)
    [step] = [
        step
        for step in yaml.safe_load(TO_COPY[1])["jobs"]["comment"]["steps"]
        if step.get("name") == "Comment"
    ]
    shutil.copytree(runner.artifact, comments / "triage-pr")
    for _ in range(2):
        assert runner.shell(step, comments) == 0
    assert (comments / "gh.log").read_text() == "posted\npatched\n"
    assert (comments / "comments/1").read_text() == comment


def test_a_run_without_an_artifact_is_noticed(
    triage: Triage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = yaml.safe_load(TO_COPY[1])["jobs"]["comment"]
    fetch, comment, sarif = job["steps"]
    # By a name, an artifact that is not there is an error; by a pattern, none is found.
    assert {"pattern", "merge-multiple"} <= set(fetch["with"])
    assert "name" not in fetch["with"]
    assert sarif["if"] == "hashFiles('triage-pr/triage.sarif') != ''"
    runner = Runner(triage, tmp_path / "machine", tmp_path, tmp_path)
    runner.values["github.event.workflow_run.html_url"] = "https://example.com/runs/7"
    assert runner.shell(comment, tmp_path) == 0
    said = capsys.readouterr().out.split(maxsplit=1)[1].strip()
    assert said.count("\n") == 0
    assert said.startswith("::notice::https://example.com/runs/7 ended before")
    # What another program wrote is not posted.
    (tmp_path / "triage-pr").mkdir()
    (tmp_path / "triage-pr/comment.md").write_text("Buy now\n")
    assert runner.shell(comment, tmp_path) == 1
    assert "is not one of triage pr" in capsys.readouterr().out
    assert not (tmp_path / "gh.log").exists()


def test_a_regression_ends_the_action_with_its_code(triage: Triage, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "cache").mkdir()
    committed(checkout, {"k.ptx": PTX})
    edit(checkout / "k.ptx", "mov.u32 %r1, 7", "mov.u32 %r2, 7")
    runner = Runner(triage, tmp_path / "machine", checkout, tmp_path / "cache")
    assert runner.act(base="main", kernels="k.ptx", sm="80", ptxas="13.1.115") == 1
    assert "### triage: 1 worse" in runner.files["summary.md"].read_text()


def test_inputs_are_words_and_a_full_disk_is_no_failure(triage: Triage, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    runner = Runner(triage, tmp_path / "machine", tmp_path, tmp_path / "cache")
    # In the place of triage: keeps its words, makes the comment, and cannot trim.
    stand_in = tmp_path / "machine/bin/triage"
    stand_in.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {tmp_path}/words\n"
        '[ "$1" = cache ] && exit 4\n'
        f'mkdir -p {runner.temp}/triage-pr "$TRIAGE_HOME" "$TRIAGE_CACHE_DIR"\n'
        f"echo compared > {runner.temp}/triage-pr/comment.md\n"
    )
    code = runner.act(
        base="main", kernels="a.py\r\nb c.py\r\n", sm="80\r\n90*", triton="3.6.0\r", ptxas="*"
    )
    assert code == 0
    assert runner.values["steps.compare.outputs.code"] == "0"
    assert (runner.artifact / "comment.md").read_text() == "compared\n"
    words = (tmp_path / "words").read_text().splitlines()
    assert words[:1] == ["pr"]
    assert words[words.index("--kernel") :] == [
        *("--kernel", "a.py", "--kernel", "b c.py", "--sm", "80", "--sm", "90*"),
        *("--triton", "3.6.0", "--ptxas", "*", "cache", "--trim", "1GB"),
    ]


def test_the_workflows_to_copy_are_sound(actionlint: Path, tmp_path: Path) -> None:
    for number, text in enumerate(TO_COPY):
        (tmp_path / f"{number}.yml").write_text(text)
    assert len(TO_COPY) == 2
    assert complaints(actionlint, *sorted(tmp_path.glob("*.yml"))) == []
