from __future__ import annotations

from dataclasses import replace

from msgspec import structs
from rich.console import Console

from harness.cells.compile import CompileReport
from harness.package.package import (
    FunctionCount,
    PackageReport,
    Pruning,
    Reached,
    TuningList,
    package_document,
    package_said,
)
from harness.tables.terminal import for_terminal
from harness.values.kernel import Pin
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.verdict import VerdictKind


def report(*needs: int, left_out: tuple[tuple[str, str], ...] = ()) -> PackageReport:
    """A list with a config that asks for each amount of shared memory; 100 is the most."""
    rows = tuple(
        Row(
            cell=f"repro::k/forward/n={n}@sm_80",
            short="",
            kernel="repro::k",
            launch="forward",
            config={"n": n},
            target="sm_80",
            triton="3.6.0",
            compiler="triton",
            compiler_version="3.6.0",
            ptxas=None,
            ptxas_origin=None,
            verdict=VerdictKind.OUT_OF_RESOURCES if need > 100 else VerdictKind.OK,
            signature="memory" if need > 100 else None,
            reason=f"needs {need} B" if need > 100 else "compiled",
        )
        for n, need in enumerate(needs)
    )
    record = LaunchFacts(
        key="0", kernel="k", config={}, autotuned=True, arguments=[], grid=None, file="/p/k.py"
    )
    one = TuningList(
        kernel="k", name="repro::k", file="p/k.py", record=record, keys=frozenset(), rows=rows
    )
    return PackageReport(
        reached=Reached(
            pin=Pin(package="p", version="1", sha256="0" * 64),
            is_pinned=True,
            pinned=("1",),
            launches=(),
            left_out=left_out,
        ),
        compiled=CompileReport(
            rows=rows, failures=(), notes=(), samples=(), wall_seconds=0.0, cpu_seconds=0.0
        ),
        lists=((one, None),),
        functions=FunctionCount(
            launched=(("p/k.py", "k"),), mentioned=(), unreached=(), tuned=(), unread=()
        ),
        elsewhere=(),
    )


def printed(found: PackageReport) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(package_said(found)))
    return capture.get()


def test_why_a_list_loses_some_of_its_configs() -> None:
    found = report(64, 96, 128, 200)
    said = "2 out_of_resources (n=2|3): needs 128 to 200 B"
    assert f"k (repro forward, Triton 3.6.0) on sm_80: {said}" in printed(found)
    (one,) = package_document(found)["lists"]
    assert one["reasons"] == [said]
    assert "Why lists lose some" not in printed(report(64, 96))


def test_what_was_not_compiled_is_in_the_result_with_its_command() -> None:
    found = report(64, left_out=(("repro", "varlen"),))
    said = printed(found)
    assert (
        "Not compiled: 1 launch function of the same repros; commands for them are below." in said
    )
    assert "  triage compile --kernel repro --sm sm_80 --launch varlen\n" in said
    assert package_document(found)["left_out"] == [{"kernel": "repro", "launch": "varlen"}]
    failed = structs.replace(found.compiled, failures=("k: the launch raised ValueError",))
    said = printed(replace(report(64), compiled=failed))
    assert "Not captured: 1, for reasons that are above." in said
    assert "Not c" not in printed(report(64))


def test_a_command_for_the_first_of_several_launches_means_it_alone() -> None:
    found = report(200)
    (one, _), *_ = found.lists
    why = Pruning(source=None, why_none="no config is left")
    lost = replace(found, lists=((one, why),))
    assert "--launch forward\n" in printed(lost)
    second = structs.replace(one.rows[0], launch="forward#2")
    beside = structs.replace(lost.compiled, rows=(*one.rows, second))
    assert "--launch 'forward#1'\n" in printed(replace(lost, compiled=beside))
