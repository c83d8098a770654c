"""Live registers are counted by the first nvdisasm that can, once, and what is absent is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import HERE
from msgspec.structs import replace
from nights import record, row

from harness.cells.places import CompileOptions, open_bench
from harness.frontends.assemble import CountedLive, count_live
from harness.io.processes.hub import Hub
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.toolchain import Tool

CUBIN = HERE / "data" / "cubins" / "13.5.37" / "two_entries-sm_90a.cubin"
COUNTS = """\
// | GPR   |
.text.k: // |       |
        /*0000*/ EXIT ; // |   3   |
"""


@pytest.fixture
def cell(tmp_path: Path) -> ResultRecord:
    """A stored cell with a cubin."""
    with Store.open(tmp_path / "home") as store:
        cubin = store.artifacts.put(CUBIN.read_bytes())
        store.put_evidence("assemble", "key", b"{}", {"cubin": cubin})
    made = record(row())
    return replace(made, evidence={"assemble": "key"})


def tool(folder: Path, name: str, script: str) -> Tool:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/asked\n{script}\n')
    path.chmod(0o755)
    return Tool(name="nvdisasm", version=name, path=path)


def count(folder: Path, cell: ResultRecord, tools: Sequence[Tool]) -> CountedLive | None:
    async def main() -> CountedLive | None:
        with Store.open(folder / "home") as store:
            async with Hub() as hub:
                bench = open_bench(hub, store, CompileOptions(timeout=20))
                return await count_live(bench, cell, tools)

    return asyncio.run(main())


def test_the_first_that_can_counts_and_is_asked_once(tmp_path: Path, cell: ResultRecord) -> None:
    refuses = tool(tmp_path, "one", "echo no >&2; echo cannot >&2; exit 1")
    counts = tool(tmp_path, "two", f"cat <<'X'\n{COUNTS}X")
    for _ in range(2):
        found = count(tmp_path, cell, [refuses, counts])
        assert found is not None
        assert (found.tool, found.problem, found.kernels["k"].counts) == ("nvdisasm two", "", (3,))
    asked = [line.split()[:1] for line in (tmp_path / "asked").read_text().splitlines()]
    assert asked == [["one"], ["two"]]
    found = count(tmp_path, cell, [refuses])
    assert found == CountedLive(problem="live registers are not counted: nvdisasm one: cannot")


def test_without_a_tool_or_a_cubin_nothing_is_counted(tmp_path: Path, cell: ResultRecord) -> None:
    found = count(tmp_path, cell, [])
    assert found == CountedLive(problem="live registers are not counted: no nvdisasm is installed")
    assert count(tmp_path, record(row()), []) is None
    for path in (tmp_path / "home" / "artifacts").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(b"damaged")
    assert count(tmp_path, cell, [tool(tmp_path, "any", "exit 1")]) is None
