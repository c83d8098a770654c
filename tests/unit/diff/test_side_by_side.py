"""Two toolchains of one kernel: what is compared with what, what is said first, what leads on."""

from __future__ import annotations

import itertools
import shlex
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.console import Console

from harness.cells.spelling import SelectionOptions
from harness.diff.side_by_side import (
    bisect_worst,
    compared_document,
    side_by_side,
    side_by_side_said,
    sides_said,
)
from harness.tables.terminal import for_terminal
from harness.values.row import Row
from harness.values.verdict import VerdictKind


def row(
    triton: str | None = "3.5.0",
    launch: str = "main",
    config: dict[str, Any] | None = None,
    **facts: Any,
) -> Row:
    config = {"num_warps": 4} if config is None else config
    label = ",".join(f"{name}={value}" for name, value in config.items())
    known = {"n_regs": 64, "spill_stores": 0, "spill_loads": 0, "shared": 16, "occupancy": 0.5}
    made: dict[str, Any] = {
        "target": "sm_90a",
        "ptxas": {"3.5.0": "12.8.93"}.get(triton or "", "13.4.59"),
        "ptxas_origin": "bundled",
        "verdict": VerdictKind.OK,
        "reason": "compiled",
        **known,
        **facts,
    }
    cell = f"k/{launch}/{label}@{made['target']}/triton-{triton}/ptxas-{made['ptxas']}"
    return Row(
        cell=cell,
        short=f"{abs(hash(cell)):016x}"[:8],
        kernel="k",
        launch=launch,
        config=config,
        triton=triton,
        compiler="triton" if triton else None,
        compiler_version=triton,
        **made,
    )


def said(rows: list[Row], width: int = 300) -> str:
    pairs = side_by_side(rows)
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for pair in pairs:
            console.print(for_terminal([*sides_said(pairs), *side_by_side_said(pair)]))
    return capture.get()


OLD, NEW = "3.5.0", "3.9.0"


def test_two_launches_of_one_config_are_never_held_against_each_other() -> None:
    rows = [
        row(OLD, n_regs=48),
        row(OLD, "main#4", n_regs=255, spill_stores=4000, spill_loads=4000),
        # In another order than before: neither place nor config alone finds the partner.
        row(NEW, "main#4", n_regs=255, spill_stores=4000, spill_loads=4000),
        row(NEW, n_regs=48),
    ]
    (pair,) = side_by_side(rows)
    assert pair.sentence == "Triton 3.5.0 -> 3.9.0: nothing changed"
    assert pair.alone == (0, 0)
    assert bisect_worst([pair], rows, SelectionOptions(kernel="k.py")) == []
    assert "worse" not in said(rows)
    # A launch that only one side has is counted, and compared with nothing.
    (pair,) = side_by_side(rows[:3])
    assert pair.alone == (1, 0)
    assert pair.sentence.endswith("nothing changed. 1 config only with Triton 3.5.0")


def test_what_got_worse_is_first_and_said_by_launch() -> None:
    rows = [
        row(OLD, n_regs=48, occupancy=0.625),
        row(NEW, n_regs=56, occupancy=0.5625),
        row(OLD, "main#2", n_regs=91),
        row(NEW, "main#2", n_regs=94),
        row(OLD, "main#3"),
        row(NEW, "main#3", verdict=VerdictKind.PTXAS_ICE, reason="ptxas died", n_regs=None),
        row(OLD, "main#4", n_regs=128),
        row(NEW, "main#4", n_regs=96),
    ]
    (pair,) = side_by_side(rows)
    assert [change.facts.launch for change in pair.changes] == [
        "main#3",
        "main",
        "main#4",
        "main#2",
    ]
    assert pair.sentence == (
        "Triton 3.5.0 -> 3.9.0: 2 of 4 launches worse: main#3 ok -> ptxas_ice (ptxas died); "
        "main occupancy 62.5% -> 56.2%, registers 48 -> 56. "
        "1 of 4 launches better: main#4 registers 128 -> 96"
    )
    lines = [line.split() for line in said(rows).splitlines() if line.strip().startswith("main")]
    assert [line[1] for line in lines] == ["regressed", "worse", "better", "ok"]
    document = msgspec.json.decode(msgspec.json.encode(compared_document(pair)))
    assert document["changes"][0]["newer"]["verdict"] == "ptxas_ice"
    assert document["older"] == "sm_90a/triton-3.5.0/ptxas-12.8.93"
    assert document["newer"] == "sm_90a/triton-3.9.0/ptxas-13.4.59"


def test_equal_lines_are_one_and_what_is_equal_on_both_sides_is_counted() -> None:
    rows = [
        row(triton, config={"num_warps": warps, "num_stages": stages}, n_regs=registers)
        for triton, registers in ((OLD, 48), (NEW, 64))
        for warps in (2, 4)
        for stages in (1, 2, 4)
    ]
    rows = [replace(one, n_regs=40) if one.config["num_warps"] == 4 else one for one in rows]
    text = said(rows)
    table, _, _ = text.partition("the same with both")
    assert table.count("48 -> 64") == 1
    assert "Triton 3.5.0 -> 3.9.0 · num_warps=2 · num_stages=1|2|4" in text
    assert "the same with both: 3 configs" in text
    assert "3 of 6 configs worse: registers 48 -> 64" in text
    # What is not a product of values is no one line.
    other = [
        replace(one, n_regs=44)
        if one.triton == NEW and one.config == {"num_warps": 2, "num_stages": 4}
        else one
        for one in rows
    ]
    assert "1|2 " in said(other)


def test_a_failure_has_its_reason_on_the_side_that_has_it() -> None:
    failing = row(
        NEW, verdict=VerdictKind.OUT_OF_RESOURCES, reason="needs 262,144 B", stage="launch"
    )
    text = said([row(OLD), failing])
    assert "Triton 3.9.0 · ptxas 13.4.59 (bundled): 1 config: 0 compile; 1 does not work." in text
    assert "1 out_of_resources: needs 262,144 B" in text
    assert "ok -> out_of_resources" in text


def command(rows: list[Row]) -> list[str]:
    pairs = side_by_side(rows)
    ((line, _),) = bisect_worst(pairs, rows, SelectionOptions(kernel="d/k.py", sm=["90a"]))
    return shlex.split(line)


def options(line: list[str]) -> dict[str, str]:
    return dict(itertools.pairwise(line))


def test_the_worst_is_bisected_between_the_two_versions() -> None:
    spills = [row(OLD, "main#2", spill_stores=64), row(NEW, "main#2", spill_stores=4096)]
    line = command([row(OLD), row(NEW), *spills])
    assert line[:2] == ["triage", "bisect"]
    found = options(line)
    assert (found["--launch"], found["--config"]) == ("main#2", "num_warps=4,*=none")
    assert (found["--axis"], found["--good"], found["--bad"]) == ("triton", OLD, NEW)
    assert found["--while"] == "spill_stores>=4096"
    assert "--triton" not in line
    # Of several kernels, its own is named.
    rows = [row(OLD), row(NEW), *spills]
    ((of_many, _),) = bisect_worst(side_by_side(rows), rows, SelectionOptions())
    assert options(shlex.split(of_many))["--kernel"] == "k"
    # A failure is followed by its signature.
    failing = command([row(OLD), row(NEW, verdict=VerdictKind.PTXAS_ICE)])
    assert "--while" not in failing


def test_of_one_triton_the_assemblers_are_compared_oldest_first() -> None:
    rows = [
        row(NEW, ptxas=ptxas, ptxas_origin="wheel", n_regs=registers)
        for ptxas, registers in (("13.10.1", 128), ("13.2.5", 96), ("12.9.86", 64))
    ]
    pairs = side_by_side(rows)
    assert [pair.title for pair in pairs] == [
        "ptxas 12.9.86 -> 13.2.5, Triton 3.9.0",
        "ptxas 13.2.5 -> 13.10.1, Triton 3.9.0",
    ]
    found = options(command(rows))
    assert (found["--axis"], found["--triton"]) == ("ptxas", NEW)
    assert (found["--good"], found["--bad"]) == ("12.9.86", "13.2.5")


def test_where_both_tools_vary_one_is_held_fixed() -> None:
    rows = [
        row(triton, ptxas=ptxas, ptxas_origin="wheel")
        for triton in (OLD, NEW)
        for ptxas in ("12.9.86", "13.2.5")
    ]
    assert [pair.title for pair in side_by_side(rows)] == [
        "Triton 3.5.0 -> 3.9.0, ptxas 12.9.86",
        "Triton 3.5.0 -> 3.9.0, ptxas 13.2.5",
        "ptxas 12.9.86 -> 13.2.5, Triton 3.5.0",
        "ptxas 12.9.86 -> 13.2.5, Triton 3.9.0",
    ]


def test_of_one_toolchain_targets_are_compared_but_not_by_their_occupancy() -> None:
    rows = [row(NEW), row(NEW, target="sm_120a", occupancy=0.25, n_regs=80)]
    (pair,) = side_by_side(rows)
    assert pair.sentence == "sm_90a -> sm_120a: worse: registers 64 -> 80"
    assert "50.0% -> 25.0%" in said(rows)
    assert options(command(rows))["--axis"] == "target"
    assert side_by_side(rows, of_targets=False) == []
    assert side_by_side(rows[:1]) == []


def test_what_cannot_be_determined_is_neither_worse_nor_the_same() -> None:
    unsupported: dict[str, Any] = {"verdict": VerdictKind.UNSUPPORTED, "reason": "", "n_regs": None}
    for rows in ([row(OLD, **unsupported), row(NEW)], [row(OLD), row(NEW, **unsupported)]):
        (pair,) = side_by_side(rows)
        assert pair.sentence.endswith(": 1 config could not be determined")
        assert bisect_worst([pair], rows, SelectionOptions(kernel="k.py")) == []
    other = [row(OLD), row(NEW, "main#2")]
    (pair,) = side_by_side(other)
    assert ": no config is of both. 1 config only with Triton 3.5.0" in pair.sentence
