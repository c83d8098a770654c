"""An error that nobody foresaw ends a command with exit code 4, whatever works side by side."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from fake_toolchains import FakeCache

from harness.cli.running import run_to_the_end

BROKEN = """
import sys
from harness.io.processes.cluster import MachinesGoneError
from harness.io.packages import wheels
from harness.io.processes.hub import Hub

error = eval(sys.argv.pop(1))

async def broken(*args, **kwargs):
    raise error

def broken_index(*args, **kwargs):
    raise error

Hub.execute = Hub.do = broken
wheels.resolve = broken_index
from harness.cli.main import main
main()
"""
PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
st.global.u32 [%rd1], 1;
ret;
}
"""
TOOLCHAIN = ("--sm", "80", "--ptxas", "13.0.88")
WORDS = ("kernel.ptx", *TOOLCHAIN, "--jobs", "2")
BUFFER = ("--buffer", "out=u32[4]:0")
COMMANDS = (
    ("compile", *WORDS),
    ("run", "kernel.ptx", *BUFFER, "--jobs", "2"),
    ("run", *WORDS, *BUFFER, "--on", "sass"),
    ("bisect", *WORDS, "--axis", "flag"),
    ("minimize", *WORDS),
    ("blame", *WORDS),
    ("workaround", *WORDS),
    ("rank", *WORDS),
    ("report", *WORDS, "--for", "nvidia"),
    ("hunt", "ptxas", *WORDS[1:], "--on", "emulator", "--for", "60s"),
    ("matrix", "run", "--matrix", "matrix.yaml", "--jobs", "2"),
    ("pr", "--base", "before", "--head", ".", "--kernel", "kernel.ptx", *TOOLCHAIN, "--jobs", "2"),
    ("binaries", *WORDS),
    ("pins", "requirements.txt", "--sm", "80"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> FakeCache:
    fake = FakeCache(tmp_path_factory.mktemp("broken"))
    for version in ("12.9.86", "13.0.88"):
        fake.ptxas(version)
    (fake.folder / "kernel.ptx").write_text(PTX)
    (fake.folder / "before").mkdir()
    (fake.folder / "before" / "kernel.ptx").write_text(PTX.replace("], 1;", "], 2;"))
    (fake.folder / "requirements.txt").write_text("torch==2.9.0\n")
    (fake.folder / "matrix.yaml").write_text(
        "version: 1\nkernels: [kernel.ptx]\ntargets: [sm_80]\n"
        "toolchains: {ptxas: {spec: ['13.0.88']}}\n"
    )
    return fake


def run(place: FakeCache, error: str, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    results = place.folder / "results" / str(len(list((place.folder).glob("results/*"))))
    return subprocess.run(
        [sys.executable, "-c", BROKEN, error, *words],
        cwd=place.folder,
        env={**place.triage.env, "TRIAGE_HOME": str(results)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_nobody_foresaw_is_said_to_be_a_mistake_of_triage(
    place: FakeCache, words: tuple[str, ...]
) -> None:
    done = run(place, "KeyError('nobody foresaw this')", words)
    assert done.returncode == 4, done.stderr
    assert "KeyError: 'nobody foresaw this'" in done.stderr
    *_, last = done.stderr.splitlines()
    assert last == "triage: the traceback above is a mistake of triage; please report it"
    assert "Aborted" not in done.stderr
    assert "interrupted" not in done.stderr
    assert "never retrieved" not in done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_machines_that_are_gone_are_one_line(place: FakeCache, words: tuple[str, ...]) -> None:
    done = run(place, "MachinesGoneError('the scheduler is gone: start it again')", words)
    assert done.returncode == 4, done.stderr
    assert "the scheduler is gone: start it again" in done.stderr
    for word in ("Traceback", "Aborted", "interrupted", "never retrieved"):
        assert word not in done.stderr


def test_work_that_nobody_stopped_is_not_called_interrupted() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="no signal asked for it"):
        run_to_the_end(work())
