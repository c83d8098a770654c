"""The hub: how jobs end, and that nothing outlives them, nor us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.io.files.writing import scratch_disk
from harness.io.processes import hub
from harness.io.processes.hub import Hub, PeerGoneError, ResourceLimits, ToolResult, run_tool
from harness.values.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from harness.values.outcome import ProcessEnd

FAKE = Path(__file__).parents[3] / "fakes" / "ptxas"
ROOMY = ResourceLimits(timeout=60, memory=1 << 30)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Other runs on this machine keep out of the way, and their scratch out of the tests."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def comes_true(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def through_hub(body: Callable[[Hub], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with Hub() as hub:
            return await asyncio.wait_for(body(hub), 60)

    return asyncio.run(main())


def run_fake(word: str, folder: Path, limits: ResourceLimits = ROOMY) -> ProcessEnd:
    async def body(hub: Hub) -> ProcessEnd:
        env = {**os.environ, "FAKE_PTXAS": word}
        return await hub.execute([FAKE], folder=folder, limits=limits, env=env)

    end: ProcessEnd = through_hub(body)
    return end


def flags(end: ProcessEnd) -> tuple[bool, bool, bool]:
    return end.timed_out, end.over_memory, end.flooded


def test_an_exit_code_is_told_and_the_streams_are_kept(tmp_path: Path) -> None:
    end = run_fake("ice", tmp_path)
    assert (end.exit_code, end.signal, flags(end)) == (255, None, (False, False, False))
    assert (tmp_path / "stderr").read_text() == (
        "ptxas fatal   : (C7907) Internal compiler error.\n"
    )
    assert (tmp_path / "stdout").read_bytes() == b""
    assert 0 < end.cpu < 60
    assert 1 << 20 < end.peak_rss < 1 << 30
    assert 0 < end.wall < 60


def test_a_signal_is_told_apart_from_a_shells_exit_code(tmp_path: Path) -> None:
    end = run_fake("segv", tmp_path)
    assert (end.exit_code, end.signal, flags(end)) == (None, signal.SIGSEGV, (False,) * 3)
    assert (tmp_path / "stderr").read_bytes() == b""
    end = run_fake("exit139", tmp_path)
    assert (end.exit_code, end.signal) == (139, None)


@pytest.mark.parametrize("word", ["hang", "hang-daemon"])
def test_a_hanging_job_is_killed_with_its_grandchild(tmp_path: Path, word: str) -> None:
    async def body(hub: Hub) -> tuple[ProcessEnd, bool]:
        env = {**os.environ, "FAKE_PTXAS": word}
        limits = ResourceLimits(timeout=2.5, memory=1 << 30)
        end = await hub.execute([FAKE], folder=tmp_path, limits=limits, env=env)
        # Not a moment later: when the end is told, nothing is left.
        return end, alive(int((tmp_path / "grandchild.pid").read_text()))

    end, left = through_hub(body)
    assert (end.exit_code, end.signal) == (None, signal.SIGKILL)
    assert flags(end) == (True, False, False)
    assert 2.5 <= end.wall < 20
    assert not left


@pytest.mark.parametrize("word", ["leave", "leave-daemon"])
def test_what_a_job_leaves_behind_goes_with_it(tmp_path: Path, word: str) -> None:
    async def body(hub: Hub) -> tuple[ProcessEnd, bool]:
        env = {**os.environ, "FAKE_PTXAS": word}
        end = await hub.execute([FAKE], folder=tmp_path, limits=ROOMY, env=env)
        return end, alive(int((tmp_path / "grandchild.pid").read_text()))

    end, left = through_hub(body)
    assert end.ok
    assert not left


def test_one_jobs_end_leaves_the_others_descendants_alone(tmp_path: Path) -> None:
    """A shell that runs a tool is killed by its own limits only."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    async def body(hub: Hub) -> list[ProcessEnd]:
        def sh(name: str, script: str) -> Coroutine[Any, Any, ProcessEnd]:
            argv = ["/bin/sh", "-c", script]
            return hub.execute(argv, folder=tmp_path / name, limits=ROOMY)

        # The second's tool is an orphan while the first one ends.
        slow = asyncio.create_task(sh("b", "(sleep 1; echo done) & exec sleep 4"))
        quick = [await sh("a", "exit 3") for _ in range(3)]
        return [*quick, await slow]

    ends = through_hub(body)
    assert [end.exit_code for end in ends] == [3, 3, 3, 0]
    assert (tmp_path / "b" / "stdout").read_text() == "done\n"


@pytest.mark.parametrize("word", ["memory", "memory-below"])
def test_memory_is_limited_for_the_job_and_its_children(tmp_path: Path, word: str) -> None:
    limits = ResourceLimits(timeout=60, memory=200 << 20)
    end = run_fake(word, tmp_path, limits)
    assert (end.signal, flags(end)) == (signal.SIGKILL, (False, True, False))
    assert end.peak_rss > limits.memory


@pytest.mark.parametrize("word", ["flood", "flood-die"])
def test_output_is_limited(tmp_path: Path, word: str) -> None:
    end = run_fake(word, tmp_path, ResourceLimits(timeout=60, memory=1 << 30, file_size=1 << 20))
    assert flags(end) == (False, False, True)
    assert (tmp_path / "stdout").stat().st_size == 1 << 20


def test_binary_output_is_kept_as_it_is(tmp_path: Path) -> None:
    assert run_fake("binary", tmp_path).exit_code == 1
    assert (tmp_path / "stderr").read_bytes() == bytes(range(256))


def test_what_cannot_be_started_is_our_trouble(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)

    async def body(hub: Hub) -> list[str]:
        said = []
        for argv, folder in (
            (["/no/such/ptxas"], tmp_path),
            ([tmp_path], tmp_path),
            ([tmp_path / "text"], tmp_path),
            ([FAKE], tmp_path / "missing"),
        ):
            with pytest.raises(InfrastructureError) as raised:
                await hub.execute(argv, folder=folder, limits=ROOMY)
            said.append(str(raised.value))
        return said

    missing, folder, text, nowhere = through_hub(body)
    assert missing == ("cannot start /no/such/ptxas: No such file or directory: /no/such/ptxas")
    assert "Permission denied" in folder
    assert "Exec format error" in text
    assert "No such file or directory" in nowhere


def test_two_hundred_jobs_are_all_answered(tmp_path: Path) -> None:
    async def body(hub: Hub) -> list[ProcessEnd]:
        async def one(number: int) -> ProcessEnd:
            folder = hub.new_folder("job")
            argv = ["/bin/sh", "-c", f"echo {number}; exit {number % 7}"]
            end = await hub.execute(argv, folder=folder, limits=ROOMY)
            assert (folder / "stdout").read_text() == f"{number}\n"
            return end

        return list(await asyncio.gather(*map(one, range(200))))

    ends = through_hub(body)
    assert [end.exit_code for end in ends] == [number % 7 for number in range(200)]


def test_a_cancelled_job_is_killed(tmp_path: Path) -> None:
    async def body(hub: Hub) -> bool:
        env = {**os.environ, "FAKE_PTXAS": "hang"}
        job = asyncio.create_task(hub.execute([FAKE], folder=tmp_path, limits=ROOMY, env=env))
        pids = tmp_path / "grandchild.pid"
        while not pids.exists() or not pids.read_text():
            await asyncio.sleep(0.01)
        grandchild = int(pids.read_text())
        assert alive(grandchild)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        # Its folder may go at once: nothing is left that writes there.
        assert not alive(grandchild)
        # And the hub still works.
        assert (await hub.execute(["/bin/true"], folder=tmp_path, limits=ROOMY)).ok
        return True

    assert through_hub(body)


def test_leaving_the_hub_kills_all_and_takes_the_scratch_folder(tmp_path: Path) -> None:
    async def body() -> tuple[int, Path]:
        async with Hub() as hub:
            env = {**os.environ, "FAKE_PTXAS": "hang-daemon"}
            job = asyncio.create_task(hub.execute([FAKE], folder=tmp_path, limits=ROOMY, env=env))
            pids = tmp_path / "grandchild.pid"
            while not pids.exists() or not pids.read_text():
                await asyncio.sleep(0.01)
            job.cancel()
        return int(pids.read_text()), hub.scratch

    grandchild, scratch = asyncio.run(body())
    assert not alive(grandchild)
    assert not scratch.exists()


def test_a_runner_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async def body(hub: Hub) -> ProcessEnd:
        argv = [
            "/bin/sh",
            "-c",
            f"test -e {tmp_path}/again && exit 5; touch {tmp_path}/again; sleep 99",
        ]
        job = asyncio.create_task(hub.execute(argv, folder=tmp_path, limits=ROOMY))
        while not (tmp_path / "again").exists():
            await asyncio.sleep(0.01)
        for process in hub._processes:
            process.kill()
        return await job

    assert through_hub(body).exit_code == 5


CALLER = """
import asyncio, os, sys
from pathlib import Path
from harness.io.processes.hub import Hub, ResourceLimits

async def main():
    async with Hub() as hub:
        env = {**os.environ, "FAKE_PTXAS": "hang-daemon"}
        limits = ResourceLimits(timeout=1000, memory=1 << 30)
        job = asyncio.create_task(
            hub.execute([sys.argv[1]], folder=Path(sys.argv[2]), limits=limits, env=env)
        )
        while not Path(sys.argv[2], "grandchild.pid").exists():
            await asyncio.sleep(0.01)
        print(hub._processes[0].pid, hub.scratch, flush=True)
        await job

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_a_caller_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, str(FAKE), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as caller:
        try:
            assert caller.stdout
            runner, scratch = caller.stdout.readline().split()
            grandchild = int((tmp_path / "grandchild.pid").read_text())
            job = parent_of(grandchild)
            pids = [int(runner), job, grandchild]
            assert all(map(alive, pids))
            caller.send_signal(number)
            assert comes_true(lambda: not any(map(alive, pids))), [
                pid for pid in pids if alive(pid)
            ]
            caller.wait(10)
        finally:
            caller.kill()
    if number == signal.SIGINT:
        assert not Path(scratch).exists()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_long_temporary_folder_is_no_obstacle(
    own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = own_temporary_folder / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    async def body(hub: Hub) -> tuple[ProcessEnd, str]:
        folder = hub.new_folder("job")
        return await hub.execute(["/bin/true"], folder=folder, limits=ROOMY), hub.socket

    end, socket = through_hub(body)
    assert end.ok
    assert not Path(socket).parent.exists()


def test_a_scratch_disk_that_fails_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")

    async def nothing(hub: Hub) -> None:
        raise AssertionError

    with pytest.raises(InfrastructureError, match="set TMPDIR to another disk"):
        through_hub(nothing)
    with (
        pytest.raises(InfrastructureError, match="No space left on device"),
        scratch_disk(),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")


def test_what_a_tool_prints_is_handed_on_while_it_runs(tmp_path: Path) -> None:
    seen: list[str] = []

    def watch(printed: str) -> None:
        seen.append(printed)
        if printed.endswith("one\n"):
            (tmp_path / "go").touch()

    script = "echo one >&2; until [ -e go ]; do sleep 0.05; done; echo two >&2"
    result = run_tool(["/bin/sh", "-c", script], timeout=60, cwd=tmp_path, watch=watch)
    assert (result.end.ok, result.stderr) == (True, "one\ntwo\n")
    assert "one\n" in seen


def test_run_tool_tells_how_a_tool_ended() -> None:
    result = run_tool(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], timeout=20)
    assert (result.stdout, result.stderr, result.end.exit_code) == ("out\n", "err\n", 3)
    result = run_tool(["/bin/sh", "-c", "kill -11 $$"], timeout=20)
    assert (result.end.exit_code, result.end.signal) == (None, signal.SIGSEGV)
    result = run_tool([FAKE, "--version"], timeout=20, env={**os.environ, "X": "1"})
    assert "release 99.1, V99.1.7" in result.stdout
    with pytest.raises(InfrastructureError, match="cannot start /no/such/tool"):
        run_tool(["/no/such/tool"], timeout=20)


def test_run_tool_kills_a_tool_that_hangs_with_its_child(tmp_path: Path) -> None:
    started = time.monotonic()
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; echo said; wait"
    result = run_tool(["/bin/sh", "-c", script], timeout=1)
    assert result.end.timed_out
    assert result.stdout == "said\n"
    assert time.monotonic() - started < 20
    assert comes_true(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_run_tool_kills_what_left_its_group(tmp_path: Path) -> None:
    code = f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            open({str(tmp_path / "pid.new")!r}, "w").write(str(os.getpid()))
            os.rename({str(tmp_path / "pid.new")!r}, {str(tmp_path / "pid")!r})
            time.sleep(1000)
        while not os.path.exists({str(tmp_path / "pid")!r}):
            time.sleep(0.01)
        print("said", flush=True)
    """
    result = run_tool([sys.executable, "-I", "-S", "-c", textwrap.dedent(code)], timeout=50)
    assert result.end.ok
    assert result.stdout == "said\n"
    assert not alive(int((tmp_path / "pid").read_text()))


def test_run_tool_limits_a_foreign_tool(tmp_path: Path) -> None:
    limits = ResourceLimits(timeout=60, memory=200 << 20, file_size=1 << 20)

    def ran(word: str) -> ToolResult:
        env = {**os.environ, "FAKE_PTXAS": word}
        return run_tool([FAKE], timeout=60, cwd=tmp_path, limits=limits, env=env)

    assert flags(ran("memory-below").end) == (False, True, False)
    flooded = ran("flood")
    assert flags(flooded.end) == (False, False, True)
    assert flooded.stdout == "x" * (1 << 20)


TOOL_USER = """
from harness.io.processes.hub import run_tool
script = "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"
run_tool(["/bin/sh", "-c", f"setsid -w sh -c '{script}'; true"], timeout=1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_tool_outlives_a_caller_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TOOL_USER], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as caller:
        try:
            assert comes_true((tmp_path / "pid").exists, 30)
            tool = int((tmp_path / "pid").read_text())
            assert alive(tool)
            caller.send_signal(number)
            assert comes_true(lambda: not alive(tool))
            caller.wait(10)
        finally:
            caller.kill()


def test_a_child_cannot_speak_for_another_one() -> None:
    async def body(hub: Hub) -> tuple[list[bytes], bool]:
        name, hello = hub.expect()
        assert len(name) == 32
        answers = []
        for said in (b'{"hello": "child-1"}\n', b'{"hello": []}\n', b"nonsense\n", b"[" * 99_999):
            reader, writer = await asyncio.open_unix_connection(hub.socket)
            writer.write(said + b'{"captured": {}}\n')
            answers.append(await reader.read())
            writer.close()
        return answers, hello.done()

    assert through_hub(body) == ([b""] * 4, False)


def test_a_child_that_sends_nonsense_is_gone() -> None:
    async def body(hub: Hub) -> list[bool]:
        gone = []
        for said in (b"[]", b'{"end": 1}', b'{"end": {"exit_code": "x"}, "id": 1}', b"\xff"):
            name, hello = hub.expect()
            _, writer = await asyncio.open_unix_connection(hub.socket)
            writer.write(b'{"hello": "%s"}\n' % name.encode())
            peer = await hello
            _, job = peer.start({"op": "exec"})
            writer.write(said + b"\n")
            with pytest.raises(PeerGoneError):
                await job
            gone.append(peer.gone)
            writer.close()
        return gone

    assert all(through_hub(body))


def test_children_that_are_gone_are_forgotten() -> None:
    async def body(hub: Hub) -> int:
        for _ in range(20):
            name, hello = hub.expect()
            _, writer = await asyncio.open_unix_connection(hub.socket)
            writer.write(b'{"hello": "%s"}\n' % name.encode())
            await (await hello).close()
            writer.close()
        return len(hub._peers) + len(hub._waiting)

    assert through_hub(body) <= 1


_UNKILLABLE = """
import os, signal, socket, sys, time
from harness.io.children import supervisor

supervisor._LAST_BURIAL_SECONDS = 0.2
child = os.fork()
if child == 0:
    time.sleep(1000)
kill = os.kill
os.kill = lambda *_: None  # as where a process waits for a disk that never answers
mine, callers = socket.socketpair()
server = supervisor.Supervisor(mine)
callers.close()
server.serve()
kill(child, 0)
print("gave up")
kill(child, signal.SIGKILL)
"""


def test_a_child_that_cannot_be_killed_is_given_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UNKILLABLE],
        cwd=FAKE.parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.stdout, done.stderr) == ("gave up\n", "")


def test_a_child_that_ends_just_as_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(waited: Awaitable[int], _: float) -> None:
        await waited
        raise TimeoutError

    async def leave() -> int | None:
        process = await asyncio.create_subprocess_exec("true")
        monkeypatch.setattr(asyncio, "wait_for", late)
        await hub._leave(process)
        return process.returncode

    assert asyncio.run(leave()) == 0
