"""Which launches of a file are compiled where it launches a kernel in very many ways."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

from harness.cells.compile import Survey
from harness.cells.spelling import SelectionOptions
from harness.frontends.base import CapturePlace, Plan, PlannedCell
from harness.values.cell import CellId
from harness.values.kernel import Config, ConfigFilter
from harness.values.outcome import LaunchFacts
from harness.values.target import Target

DTYPES = ("float32", "float16", "bfloat16", "int8")
TARGET = Target.parse("90a")


def cell(config: dict[str, Any], nth: int = 1, *, tuned: bool, **arguments: object) -> PlannedCell:
    """One config of the nth launch, whose arguments have these facts."""
    facts: list[dict[str, object]] = [
        {"name": name, "tensor": value, "shape": [nth]} for name, value in arguments.items()
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
    place = cast("CapturePlace", SimpleNamespace(selection=selection))
    survey = Survey(SelectionOptions(kernel="test_k.py", sm=["90a"]))
    chosen = survey.choose(place, cast("Plan", SimpleNamespace(cells=cells)))
    return [cell.record for cell in chosen if cell.record], survey.notes


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
        "k: 32 of 192 configs are compiled, of launches that differ the most; "
        "all: triage compile --kernel test_k.py::k --sm 90a"
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
    records, _ = surveyed(cells)
    # 6 launches of 5 configs each; with a 7th there would be 35.
    assert len(records) == 30
    shapes = [record.arguments[0]["shape"] for record in records]
    assert all(shapes.count(shape) == len(warps) for shape in shapes)
    # Those that show each type of both arguments come first, wherever they are.
    types = {(r.arguments[0]["tensor"], r.arguments[1]["tensor"]) for r in records}
    assert {(t, t) for t in DTYPES} <= types
    one = [cell({"num_warps": n}, tuned=True, a="float32") for n in range(200)]
    assert surveyed(one) == ([c.record for c in one], [])


def test_a_kernel_or_a_config_that_is_named_gets_every_launch() -> None:
    cells = of_many_tests()
    for asked in ({"kernel": "k"}, {"config": "BLOCK_M=16|32|64"}):
        records, notes = surveyed(cells, **asked)
        assert len(records) == len(cells)
        assert notes == []
    assert len(surveyed(cells[:32])[0]) == 32
