"""Which launches of a file are compiled where it launches a kernel in very many ways."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

from harness.cells.compile import SamplePolicy
from harness.cells.spelling import SelectionOptions
from harness.frontends.plan import CapturePlace, Plan, PlannedCell
from harness.values.cell import CellId
from harness.values.kernel import Config, ConfigFilter
from harness.values.outcome import LaunchFacts
from harness.values.target import Target
from harness.values.toolchain import Compiler

DTYPES = ("float32", "float16", "bfloat16", "int8")
TARGET = Target.parse("90a")


def cell(config: dict[str, Any], nth: int = 1, *, tuned: bool, **arguments: object) -> PlannedCell:
    """One config of the nth launch, whose arguments have these facts."""
    facts: list[dict[str, object]] = [
        {"name": name, "constexpr": str(value)}
        if isinstance(value, int)
        else {"name": name, "tensor": value, "shape": [nth]}
        for name, value in arguments.items()
    ]
    record = LaunchFacts(
        key=f"{config} {arguments}",
        kernel="k",
        config=config,
        autotuned=tuned,
        arguments=facts,
        grid=None,
        file="/p/k.py",
    )
    name = CellId(
        kernel="test_k.py::k",
        launch=f"tests#{nth}" if nth > 1 else "tests",
        config=Config.of(config),
        target=TARGET,
        compiler="triton-3.9.0",
        ptxas="13.0.88",
        assembler="ptxas",
    )
    plan = SimpleNamespace(cell=name, record=record)
    return cast("PlannedCell", plan)


def surveyed(
    cells: list[PlannedCell], kernel: str | None = None, config: str = ""
) -> tuple[list[LaunchFacts], list[str]]:
    repro = SimpleNamespace(kernel=kernel, group="")
    selection = SimpleNamespace(repro=repro, config=ConfigFilter.parse(config))
    compiler = Compiler(version="3.9.0", origin="triton")
    place = cast("CapturePlace", SimpleNamespace(selection=selection, compiler=compiler))
    survey = SamplePolicy(SelectionOptions(kernel="test_k.py", sm=["90a"]))
    chosen = survey.choose(place, cast("Plan", SimpleNamespace(cells=cells)))
    return [cell.record for cell in chosen if cell.record], [s.words for s in survey.samples]


def launches_told(cells: list[PlannedCell]) -> dict[str, str]:
    repro = SimpleNamespace(kernel="k", group="")
    place = cast("CapturePlace", SimpleNamespace(selection=SimpleNamespace(repro=repro)))
    survey = SamplePolicy(SelectionOptions(kernel="test_k.py", sm=["90a"]))
    survey.choose(place, cast("Plan", SimpleNamespace(cells=cells)))
    return survey.launches


def of_many_tests() -> list[PlannedCell]:
    """As of a test with parameters: 4 x 4 types, 3 x 4 sizes of blocks."""
    return [
        cell({"BLOCK_M": m, "BLOCK_N": n}, tuned=False, a=a, b=b, BLOCK_M=m, BLOCK_N=n)
        for m, n, a, b in product((16, 32, 64), (16, 32, 64, 128), DTYPES, DTYPES)
    ]


def test_of_a_thousand_launches_those_that_differ_the_most_are_taken() -> None:
    records, [note] = surveyed(of_many_tests())
    assert len(records) == 32
    assert note == (
        "test_k.py::k, sm_90a, Triton 3.9.0: 32 of 192 configs were compiled; not compiled: "
        "160 of tests. For all: triage compile --kernel test_k.py::k --sm 90a"
    )
    # Each type of each argument is among them, and each size.
    kinds = {(r.arguments[0]["tensor"], r.arguments[1]["tensor"]) for r in records}
    assert {a for a, _ in kinds} == {b for _, b in kinds} == set(DTYPES)
    assert {r.config["BLOCK_M"] for r in records} == {16, 32, 64}
    assert {r.config["BLOCK_N"] for r in records} == {16, 32, 64, 128}


def test_a_tuner_keeps_all_its_configs_and_gets_as_many_launches_as_there_is_room_for() -> None:
    warps = (1, 2, 4, 8, 16)
    cells = [
        cell({"num_warps": n}, nth, tuned=True, a=a, b=b)
        for nth, (a, b) in enumerate(product(DTYPES, DTYPES), 1)
        for n in warps
    ]
    records, [note] = surveyed(cells)
    # One config of each of 16 launches, and the 4 others of four of them.
    assert len(records) == 32
    shapes = Counter(str(record.arguments[0]["shape"]) for record in records)
    assert sorted(shapes.values()) == [1] * 12 + [len(warps)] * 4
    assert note.count("4 of tests#") == 12
    # Those that show each type of both arguments come first, wherever they are.
    types = {
        (r.arguments[0]["tensor"], r.arguments[1]["tensor"])
        for r in records
        if shapes[str(r.arguments[0]["shape"])] > 1
    }
    assert {(t, t) for t in DTYPES} <= types
    one = [cell({"num_warps": n}, tuned=True, a="float32") for n in range(200)]
    assert surveyed(one) == ([c.record for c in one], [])


def test_the_launch_with_the_largest_tile_and_the_widest_type_is_never_left_out() -> None:
    """The config that spills is of the last of four launches, and no fact is new there."""
    cells = [
        cell({"num_warps": n}, nth, tuned=True, x=dtype, BLOCK_SIZE=block)
        for nth, (block, dtype) in enumerate(
            [(1024, "float32"), (1024, "float16"), (8192, "float16"), (32768, "float16")], 1
        )
        for n in range(1, 13)
    ]
    records, [note] = surveyed(cells)
    counts = Counter(str(record.arguments[0]["shape"]) for record in records)
    assert counts == {"[1]": 12, "[2]": 1, "[3]": 1, "[4]": 12}
    assert "26 of 48 configs were compiled; not compiled: 11 of tests#2, 11 of tests#3" in note
    # Of those that are tried with one config, it is the one with the most for each warp.
    assert {r.config["num_warps"] for r in records if r.arguments[0]["shape"] == [2]} == {1}
    widest = [cell({}, n, tuned=False, x=t) for n, t in enumerate([*["float16"] * 40, "float64"])]
    assert "float64" in {record.arguments[0]["tensor"] for record in surveyed(widest)[0]}


def test_a_kernel_or_a_config_that_is_named_gets_every_launch() -> None:
    cells = of_many_tests()
    for asked in ({"kernel": "k"}, {"config": "BLOCK_M=16|32|64"}):
        records, notes = surveyed(cells, **asked)
        assert len(records) == len(cells)
        assert notes == []
    assert len(surveyed(cells[:32])[0]) == 32


def test_launches_of_one_kernel_are_told_apart_by_what_their_configs_share() -> None:
    cells = [
        cell({"num_warps": warps, "TUNED": warps}, nth, tuned=True, x=x, y="int8", BLOCK=block, N=n)
        for nth, block, x, n in ((1, 1024, "float32", 7), (2, 1024, "float16", 7))
        for warps in (4, 8)
    ]
    # Two configs of what is counted as one launch, with sizes of their own.
    cells += [
        cell({"num_warps": warps}, 3, tuned=False, x="float16", y="int8", BLOCK=64 * warps, N=7)
        for warps in (4, 8)
    ]
    told = launches_told(cells)
    assert [told[str(one.cell)] for one in cells] == [
        *["BLOCK=1024, x=float32"] * 2,
        *["BLOCK=1024, x=float16"] * 2,
        *["x=float16"] * 2,
    ]
    # Of one launch, or of launches that are alike in all that is known, there is nothing to say.
    assert launches_told(cells[:2]) == {}
    assert launches_told([cell({}, nth, tuned=False, x="int8") for nth in (1, 2)]) == {}
    # A long list ends: constants come first.
    many = {f"x{n}": ("int8", "float16") for n in range(4)} | {"BLOCK": (16, 32)}
    pair = [
        cell({}, nth + 1, tuned=False, **{name: one[nth] for name, one in many.items()})
        for nth in (0, 1)
    ]
    assert launches_told(pair)[str(pair[1].cell)] == (
        "BLOCK=32, x0=float16, x1=float16, x2=float16, ..."
    )
