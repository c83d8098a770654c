"""Hostile launch code: what it tries has no effect, or ends in one clear line."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_sessions import KERNELS, ROOMY, Children

from harness.frontends.registry import OpenSessions
from harness.io.processes.hub import Hub, run_tool
from harness.io.processes.machine import confinement_words, held_parts
from harness.io.toolchains.install import installed_triton
from harness.values.errors import CaptureError

pytestmark = pytest.mark.tools

SECRETS = {
    "GITHUB_TOKEN": "ghp_0123456789",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "HF_TOKEN": "hf_0123456789",
    "HTTPS_PROXY": "http://alice:s3cr3t@proxy.example",
    "SSH_AUTH_SOCK": "/run/user/1000/agent",
    "TRITON_REMOTE_TOKEN": "t0k3n-0123456789",
}


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    """One server for all tests, which is started with secrets in the environment."""
    before = dict(os.environ)
    os.environ.update(SECRETS)
    os.environ.update(MY_FLAG="7", TRIAGE_PASS_ENV="OTHER, MY_FLAG", TRITON_DEFAULT_FP_FUSION="0")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    hub = Hub()
    made = Children(loop, hub, OpenSessions(hub, timeout=60, memory=0))
    made.do(hub.__aenter__())
    made.capture("hostile.py", "launch_own_folder")
    os.environ.clear()
    os.environ.update(before)
    yield made
    made.do(hub.__aexit__())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def attempt(children: Children, function: str, file: Path | None = None, **given: Any) -> Any:
    """What a hostile function says that came of it; its kernel is captured all the same."""
    path = file or KERNELS / "hostile.py"
    request = replace(children.request(path, function, 80), overrides=given)
    key = f"{path}::{function} {given}"
    found = children.do(children.sessions.capture(key, installed_triton(), request))
    children.do(children.sessions.close(key))
    assert [record.kernel for record in found.records] == ["innocent"], found.error
    assert found.error
    assert found.error.type == "RuntimeError", found.error
    return json.loads(found.error.message)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_this_machine_confines_launch_code() -> None:
    """If not, the tests below say nothing; then they are to be run elsewhere."""
    assert {"files", "network"} <= set(held_parts())
    assert confinement_words()[0]


def test_credentials_do_not_reach_launch_code(children: Children) -> None:
    own, started_with, parents = attempt(children, "launch_environment", pid=os.getpid())
    for name, value in SECRETS.items():
        assert name not in own
        assert value not in started_with
    assert own["MY_FLAG"] == "7"
    assert own["TRITON_DEFAULT_FP_FUSION"] == "0"
    assert own["PATH"] == os.environ["PATH"]
    for name in ("HOME", "TMPDIR"):
        assert Path(own[name]).is_relative_to(children.hub.scratch)
    assert parents == "PermissionError"


def test_launch_code_has_no_network(children: Children, tmp_path: Path) -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as tcp,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp,
        closing(socket.socket(socket.AF_UNIX)) as unix,
    ):
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        # It is there for everybody else.
        with socket.create_connection(("127.0.0.1", port)):
            tcp.accept()[0].close()
        said = attempt(children, "launch_network", port=port, path=str(tmp_path / "socket"))
        for listener in (tcp, udp, unix):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is udp else listener.accept()
    assert said == [
        f"{name}: PermissionError" for name in ("tcp", "udp", "unix", "another_program")
    ]


def snapshot(folder: Path) -> list[tuple[str, int, int, bytes]]:
    return [
        (path.name, path.stat().st_mode, path.stat().st_uid, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


@pytest.mark.parametrize("where", ["results", "cache", "home", "launch", "scratch", "other"])
def test_launch_code_writes_into_no_folder_but_its_own(
    children: Children, tmp_path: Path, where: str
) -> None:
    """The folders of the results, the toolchains, the user, the launch file, and other captures."""
    folder = tmp_path / where
    if where == "scratch":
        folder = children.hub.scratch
    elif where == "other":
        folder = next(iter(children.hub.scratch.glob("capture-*")))
    folder.mkdir(exist_ok=True)
    (folder / "thesis.txt").write_text("x")
    file = tmp_path / "launch" / "hostile.py"
    file.parent.mkdir(exist_ok=True)
    shutil.copy(KERNELS / "hostile.py", file)
    before = snapshot(folder) if where != "scratch" else []
    said = attempt(children, "launch_writes", file, folder=str(folder))
    assert (folder / "thesis.txt").read_text() == "x"
    assert not list(folder.glob("planted*"))
    if where != "scratch":
        assert snapshot(folder) == before
    assert len(said) == 14
    # What Python writes is kept apart, and what is done with that is none of the user's.
    kept = ("write", "append", "empty", "remove", "make", "make_folder", "change_mode")
    assert [deed for deed in said if deed.endswith(": done")] == [f"{name}: done" for name in kept]
    (folder / "thesis.txt").unlink()


def test_launch_code_has_a_home_of_its_own_and_lays_no_trap_there(children: Children) -> None:
    home, *traps = attempt(children, "launch_own_folder")
    assert traps == ["fifo: PermissionError", "link: PermissionError"]
    assert not Path(home).exists(), "a capture that is closed leaves nothing"


def test_launch_code_cannot_kill_what_runs_it(children: Children) -> None:
    if "signals" not in held_parts():
        pytest.skip("this kernel has no scope for signals")
    said = attempt(children, "launch_kills", pid=os.getpid())
    assert said == ["parent: PermissionError", "caller: PermissionError"]


def test_daemons_end_with_the_launch_code(children: Children) -> None:
    pids = attempt(children, "launch_daemons")
    assert len(pids) == 3
    until = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(alive, pids))


@pytest.mark.parametrize("function", ["launch_memory", "launch_memory_below"])
def test_the_memory_limit_holds_for_launch_code_and_what_it_starts(
    children: Children, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children.sessions, "_capture_memory", 1 << 30)
    with pytest.raises(CaptureError, match=r"\(killed at [12]\.\d GiB, see --memory\)"):
        children.capture("hostile.py", function)


def test_launch_code_that_replaces_functions_of_json_changes_nothing(children: Children) -> None:
    (record,) = children.capture("hostile.py", "launch_json").records
    assert record.kernel == "innocent"
    (result,) = children.lower("hostile.py", "launch_json", limits=ROOMY)
    assert result.result is not None
    assert result.result["error"] is None


@pytest.mark.parametrize("function", ["launch_json_inside", "launch_forges"])
def test_launch_code_that_speaks_for_what_runs_it_ends_in_one_line(
    children: Children, function: str
) -> None:
    with pytest.raises(CaptureError) as raised:
        children.capture("hostile.py", function)
    assert str(raised.value).startswith(f"{KERNELS}/hostile.py: the launch code ")
    assert "\n" not in str(raised.value)


def test_launch_code_cannot_speak_for_another_child(children: Children) -> None:
    async def expect() -> Any:
        return children.hub.expect()

    name, hello = children.do(expect())
    said = attempt(
        children,
        "launch_speaks_for_another",
        path=children.hub.socket,
        names=[name, "child-1", "child-2"],
    )
    assert said == ["forge: PermissionError", [children.hub.socket]]
    assert not hello.done()


WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
# landlock_create_ruleset is a call that this kernel has not.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("=HBBI", *step) for step in steps)
buffer = ctypes.create_string_buffer(program, len(program))
assert libc.syscall(317, 1, 0, struct.pack("@HP", len(steps), ctypes.addressof(buffer))) == 0
os.execv(sys.executable, [sys.executable, "-m", "harness", *sys.argv[1:]])
"""


def triage(tmp_path: Path, *words: str, prefix: tuple[str, ...] = ("-m", "harness")) -> Any:
    env = {**os.environ, "TRIAGE_HOME": str(tmp_path / "home"), "GITHUB_TOKEN": "ghp_0123456789"}
    done = subprocess.run(
        [sys.executable, *prefix, *words], env=env, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr.strip().splitlines()


def test_the_command_line_refuses_or_says_so_where_launch_code_cannot_be_confined(
    tmp_path: Path,
) -> None:
    words = ("compile", "--kernel", f"{KERNELS}/plain.py::double", "--sm", "80")
    helpless = ("-c", WITHOUT_LANDLOCK)
    code, out, err = triage(tmp_path, *words, "--confine=require", prefix=helpless)
    assert (code, out, len(err)) == (4, "", 1)
    assert "launch code cannot be confined here: it may write wherever you may" in err[0]
    code, _, err = triage(tmp_path, *words, "-v", prefix=helpless)
    assert code == 0
    assert err[0].startswith("launch code: confined in part: launch code may write wherever")
    code, _, err = triage(tmp_path, *words, "--confine=require", "-v")
    assert code == 0
    assert err[0].startswith("launch code: writes only in folders of its own, no network")
    code, out, _ = triage(tmp_path, "doctor", prefix=helpless)
    assert "-- launch code: confined in part" in out


def test_not_confined_is_explicit(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        (KERNELS / "plain.py").read_text()
        + "\nimport os\ntoken = os.environ.get('GITHUB_TOKEN')\n"
        + "if token:\n    open(__file__ + '.log', 'w').write(token)\n"
    )
    words = ("compile", "--kernel", f"{tmp_path}/mine.py::double", "--sm", "80")
    said = "the launch code reads GITHUB_TOKEN, which was not passed: --pass-env GITHUB_TOKEN"
    code, out, err = triage(tmp_path, *words)
    assert code == 0
    assert " ".join([*out.split(), *" ".join(err).split()]).count(said) == 1
    assert not (tmp_path / "mine.py.log").exists()
    code, out, err = triage(tmp_path, *words, "--confine", "off", "-v")
    assert code == 0
    assert "not passed" not in out + " ".join(err)
    assert err[0].startswith("launch code: not confined")
    assert (tmp_path / "mine.py.log").read_text() == "ghp_0123456789"


def test_a_foreign_tool_is_confined(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    script = f"echo x > {own}/a; echo x > {other}/a; echo done"
    said = run_tool(["/bin/sh", "-c", script], timeout=60, writable=[own])
    assert said.stdout == "done\n"
    assert "Permission denied" in said.stderr
    assert (own / "a").exists()
    assert not (other / "a").exists()
