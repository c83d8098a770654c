"""A tool that is started once and forked for each input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.io.processes.forked import ForkedTool
from harness.io.processes.hub import Hub, ResourceLimits
from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd

# Says that it starts, looks at its input, makes its tables, and only then reads the input.
TOOL = """#!{python}
import os, sys, time
with open({starts!r}, "a") as starts:
    starts.write("a start\\n")
with open(sys.argv[1]) as looked_at:
    looked_at.read(1)
with open({tables!r}, "a") as tables:
    tables.write("tables\\n")
with open(sys.argv[1]) as given:
    text = given.read()
if text == "hang":
    time.sleep(60)
if text == "die":
    os.kill(os.getpid(), 6)
print(text.upper())
print("read", file=sys.stderr)
sys.exit(3 if text == "fail" else 0)
"""
LIMITS = ResourceLimits(timeout=20, memory=1 << 31)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    starts, tables = str(tmp_path / "starts"), str(tmp_path / "tables")
    path.write_text(TOOL.format(python=sys.executable, starts=starts, tables=tables))
    path.chmod(0o755)
    return path


def run(
    argv: Sequence[str | Path], inputs: Sequence[str], limits: ResourceLimits = LIMITS
) -> tuple[list[tuple[ProcessEnd, str]], bool]:
    """What came out for each input, and whether the tool was forked for the last one."""

    async def work() -> tuple[list[tuple[ProcessEnd, str]], bool]:
        async with Hub() as hub:
            forked = ForkedTool(hub, argv)
            ended = [await forked.run(text.encode(), limits) for text in inputs]
            return ended, forked.is_forked

    return asyncio.run(work())


def test_what_comes_before_the_input_is_done_once(tool: Path) -> None:
    inputs = [f"input {number}" * number for number in range(1, 6)]
    ended, is_forked = run([tool], inputs)
    assert is_forked
    assert [text for _, text in ended] == [f"{text.upper()}\n" for text in inputs]
    assert all(end.ok and end.cpu > 0 for end, _ in ended)
    assert not processes_of(tool)
    assert (tool.parent / "starts").read_text() == "a start\n"
    # The first fork began before the tables, and the tool went there for the second.
    assert (tool.parent / "tables").read_text() == "tables\n" * 2


def test_an_input_that_fails_hangs_or_kills_spoils_no_other(tool: Path) -> None:
    limits = ResourceLimits(timeout=2, memory=1 << 31)
    inputs = ["good", "fail", "hang", "die", "good"]
    ended, is_forked = run([tool], inputs, limits)
    good, failed, hung, died, last = (end for end, _ in ended)
    assert is_forked
    assert good.ok
    assert failed.exit_code == 3
    assert hung.timed_out
    assert died.signal == signal.SIGABRT
    assert last.ok
    assert [text for _, text in ended] == ["GOOD\n", "FAIL\n", "", "", "GOOD\n"]


def test_a_tool_that_never_opens_its_input_is_started_for_each(tmp_path: Path) -> None:
    path = tmp_path / "blind"
    path.write_text("#!/bin/sh\necho one\nexit 4\n")
    path.chmod(0o755)
    ended, is_forked = run([path], ["a", "b"])
    assert not is_forked
    assert [(end.exit_code, text) for end, text in ended] == [(4, "one\n")] * 2


def test_a_tool_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot start"):
        run([tmp_path / "nothing"], ["a"])


def test_where_the_tool_is_killed_it_is_started_for_each(tool: Path) -> None:
    async def work() -> None:
        async with Hub() as hub:
            forked = ForkedTool(hub, [tool])
            assert (await forked.run(b"a", LIMITS))[1] == "A\n"
            waiting = processes_of(tool)
            assert len(waiting) == 1
            os.kill(waiting[0], signal.SIGKILL)
            assert (await forked.run(b"b", LIMITS))[1] == "B\n"
            assert not forked.is_forked

    asyncio.run(work())
    assert not processes_of(tool)


def processes_of(tool: Path) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(tool).encode() in words[:2] and b"-c" not in words:
            found.append(int(folder.name))
    return found


def test_one_that_was_cancelled_writes_into_no_later_answer(tool: Path) -> None:
    """`tail -f` prints its input and whatever is appended, until it is killed."""
    path = tool.parent / "follows"
    path.write_text('#!/bin/sh\nexec tail -s 0.1 -f "$1"\n')
    path.chmod(0o755)

    async def work() -> str:
        async with Hub() as hub:
            forked = ForkedTool(hub, [path])
            first = asyncio.ensure_future(forked.run(b"the first\n", LIMITS))
            await asyncio.sleep(1)
            first.cancel()
            await asyncio.wait({first})
            limits = ResourceLimits(timeout=2, memory=1 << 31)
            return (await forked.run(b"the second\n", limits))[1]

    assert asyncio.run(work()) == "the second\n"
