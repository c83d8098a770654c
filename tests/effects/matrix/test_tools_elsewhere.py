"""Reductions and workarounds whose ptxas runs on machines that fail as a test writes down.

The machines are threads of this process; what goes there and back is what Dask would carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from acted_front_end import Stage
from acted_machines import Threads
from click.testing import CliRunner
from msgspec import structs

from gpu_emulator.values import Budget, Pointer
from harness.cells.places import open_bench
from harness.cli.minimize import command as minimize_command
from harness.cli.workaround import command as workaround_command
from harness.io.processes.cluster import LostWorkersError, MachinesGoneError
from harness.io.processes.hub import Hub
from harness.io.toolchains.install import bundled_nvdisasm, find_tool, name_tool
from harness.matrix.elsewhere import ToolsElsewhere
from harness.matrix.workers import ToolAnswer, encode, worker_loop
from harness.minimize.minimizing import minimize
from harness.minimize.reduction.minimization import Ending, Minimization
from harness.minimize.reduction.work import MinimizeOptions, Watch
from harness.run.emulating import emulate_once
from harness.run.emulator_jobs import Emulation, JobBuffer, Passed
from harness.run.launch import Launch, RunEvidence
from harness.run.schedules import DEFAULT, read_schedules, trials_of
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import ProcessEnd
from harness.workaround.result import WorkaroundReport
from harness.workaround.settings import SettingKind
from harness.workaround.workarounds import WorkaroundOptions, find_workarounds

pytest_plugins = ("acted_fixtures",)

GONE = InfrastructureError("the scheduler is gone")
WRITES = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry writes(.param .u64 out)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    st.global.u32 [%rd1], 7;
    ret;
}
"""


def opened(stage: Stage, machines: Threads | None) -> Callable[[], Hub]:
    if machines is None:
        return Hub
    return lambda: ToolsElsewhere(machines, structs.replace(stage.how, jobs=3), stage.tell)


def reduced(
    stage: Stage, machines: Threads | None, out: str = "min", *, resume: bool = False
) -> Minimization:
    """With three candidates on their way, wherever they are."""
    asked = MinimizeOptions(folder_of=lambda _: Path(out), resume=resume)
    how = structs.replace(stage.how, jobs=3)
    selection = stage.selection(compiler=["acted==1.1"], config="width=1")
    work = minimize(selection, stage.store, how, asked, Watch(), opened(stage, machines))
    found = stage.run(work)
    assert isinstance(found, Minimization), found
    return found


def worked_around(stage: Stage, machines: Threads | None) -> WorkaroundReport:
    kinds = (SettingKind.CONFIG, SettingKind.PTXAS)
    options = WorkaroundOptions(budget=60, kinds=kinds)
    selection = stage.selection(compiler=["acted==1.1"], config="width=2")
    how = structs.replace(stage.how, jobs=3)
    work = find_workarounds(
        selection, stage.store, how, options, stage.tell, opened(stage, machines)
    )
    return stage.run(work)


def essence(found: Minimization) -> tuple[object, ...]:
    """What was found, without how long it took."""
    return (
        found.left.text,
        found.spent.tests,
        found.spent.passes,
        found.left.is_minimal,
        found.spent.ending,
    )


@pytest.fixture
def crashes(stage: Stage) -> Iterator[Stage]:
    """Each run of ptxas leaves a mark in `ran`, which ends with the folder that it runs in."""
    ran = str(stage.folder / "ran")
    mark = f"import os\nopen({ran!r}, 'a').write(os.path.basename(os.getcwd()) + '\\n')\n"
    stage.ptxas("1.0", "2.0", before=mark)
    stage.acted.act = lambda *_: "2.0=ice *=ok"
    yield stage
    worker_loop().close()


def where_it_ran(stage: Stage) -> list[str]:
    """For each run of ptxas the kind of folder that it ran in."""
    ran = stage.folder / "ran"
    folders = [line.partition("-")[0] for line in ran.read_text().splitlines()]
    ran.unlink()
    return folders


def test_a_reduction_takes_the_same_steps(crashes: Stage) -> None:
    machines = Threads()
    there = reduced(crashes, machines)
    ran = where_it_ran(crashes)
    assert set(ran) == {"tool"}
    assert len(ran) == len(machines.sent)
    assert set(machines.sent) == {"ptxas 1.0", "ptxas 2.0"}
    assert essence(there) == essence(reduced(crashes, None, "alone"))
    assert "tool" not in where_it_ran(crashes)


def test_without_its_scheduler_a_reduction_keeps_the_best_and_goes_on(crashes: Stage) -> None:
    def fate(_name: str, nth: int) -> None:
        if nth > 12:
            raise GONE

    stopped = reduced(crashes, Threads(fate=fate))
    assert (stopped.spent.ending, stopped.spent.trouble) == (
        Ending.TROUBLE,
        "the scheduler is gone",
    )
    assert Path("min/min.ptx").read_text() == stopped.left.text
    whole = reduced(crashes, Threads(), resume=True)
    assert whole.spent.ending is Ending.FINISHED
    assert whole.left.text == reduced(crashes, None, "alone").left.text


def test_what_a_machine_cannot_do_is_said_once_and_done_here(crashes: Stage) -> None:
    escaped = ToolAnswer(host="there", end=ProcessEnd(exit_code=0), files={"../escaped": b""})
    answers = [
        encode(ToolAnswer(host="there", failure="its disk is full")),
        encode(escaped),
        b"what is this",
    ]
    found = reduced(crashes, Threads(fate=lambda _name, nth: answers[nth % len(answers)]))
    assert found.spent.ending is Ending.FINISHED
    assert "tool" not in where_it_ran(crashes)
    said = (
        "there: its disk is full",
        "there: it names files of other folders",
        "threads: its answer cannot be read",
    )
    versions = ("1.0", "2.0")
    expected = {f"{each}; ptxas {version} runs here" for each in said for version in versions}
    assert len(crashes.heard) == len(set(crashes.heard))
    assert set(crashes.heard) == expected
    assert not list(crashes.folder.rglob("escaped"))


def test_a_workaround_is_the_same(crashes: Stage) -> None:
    crashes.acted.act = lambda _, config: "2.0=ice *=ok" if config["width"] == 2 else "ok"
    machines = Threads()
    there = worked_around(crashes, machines)
    ran = where_it_ran(crashes)
    assert set(ran) == {"tool"}
    assert len(ran) == len(machines.sent)
    crashes.acted.revision += 1
    here = worked_around(crashes, None)
    changes = [
        [
            (each.change, each.numerics, structs.asdict(each.row) | {"seconds": 0, "cached": False})
            for each in found.candidates
        ]
        for found in (there, here)
    ]
    assert changes[0] == changes[1]
    assert {each.change for each in there.candidates} >= {"width 2 -> 1"}


def test_without_its_machines_a_search_ends_at_once(crashes: Stage) -> None:
    """Nothing takes it for a verdict on a candidate, and tries the next one."""
    crashes.acted.act = lambda _, config: "2.0=ice *=ok" if config["width"] == 2 else "ok"

    def fate(_name: str, nth: int) -> None:
        if nth > 1:
            raise LostWorkersError("ptxas 2.0: its worker was lost 4 times")

    machines = Threads(fate=fate)
    with pytest.raises(MachinesGoneError, match="was lost 4 times"):
        worked_around(crashes, machines)
    verdicts = [each.verdict for each in crashes.store.latest_results("kernel.acted")]
    assert "infra" not in verdicts
    assert verdicts


def test_a_tool_is_found_again_by_its_names(crashes: Stage) -> None:
    path = crashes.selection(ptxas=["1.0"]).ptxas[0].path  # type: ignore[union-attr]
    name = name_tool(path)
    assert name is not None
    assert (name.words, name.file) == ("ptxas 1.0", "bin/ptxas")
    assert find_tool(name) == path
    path.write_text(path.read_text() + "\n")
    with pytest.raises(InfrastructureError, match=r"ptxas 1\.0 is another file than where"):
        find_tool(name)
    with pytest.raises(InfrastructureError, match=r"there is no other of ptxas 1\.0"):
        find_tool(structs.replace(name, file="bin/other"))
    assert name_tool(Path("/bin/sh")) is None


def test_what_the_triton_beside_triage_brings_along_has_a_name() -> None:
    bundled = bundled_nvdisasm(None)
    if bundled is None:
        pytest.skip("there is no Triton beside triage")
    name = name_tool(bundled.path)
    assert name is not None
    assert name.words.startswith("nvdisasm of triton ")
    assert find_tool(name) == bundled.path


def executed(stage: Stage, machines: Threads | None) -> RunEvidence:
    """A launch of `WRITES` on the emulator, as a night or a reduction has it executed."""
    wanted = Emulation(
        ptx="",
        entry="writes",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        cluster=(1, 1, 1),
        dynamic_shared=0,
        buffers=(JobBuffer(name="out", size=4),),
        arguments=(Passed(pointer=Pointer(allocation=0)),),
        trials=trials_of(read_schedules(DEFAULT), races=True),
        budget=Budget(),
    )

    async def work() -> RunEvidence:
        async with opened(stage, machines)() as hub:
            bench = open_bench(hub, stage.store, stage.how)
            return await emulate_once(bench, Launch(emulation=wanted, tensors=()), WRITES, {})

    return stage.run(work())


def test_what_is_executed_there_comes_out_as_here(stage: Stage) -> None:
    machines = Threads()
    there, here = executed(stage, machines), executed(stage, None)
    worker_loop().close()
    assert machines.sent == ["emulator"]
    assert there.contents == here.contents
    assert (7).to_bytes(4, "little") in here.contents.values()
    runs = [[replace(ran, seconds=0) for ran in done.ran] for done in (there, here)]
    assert runs[0] == runs[1]
    assert runs[0]


def test_what_a_machine_cannot_execute_is_executed_here(stage: Stage) -> None:
    full = encode(ToolAnswer(host="there", failure="its disk is full"))
    done = executed(stage, Threads(fate=lambda _name, _nth: full))
    assert (7).to_bytes(4, "little") in done.contents.values()
    assert stage.heard == ["there: its disk is full; emulator runs here"]


@pytest.mark.parametrize("command", [minimize_command, workaround_command])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scheduler", "local:0"), "--scheduler local:0: write"),
        (("--scheduler", "local:2", "--jobs", "2"), "--jobs does not apply to --scheduler"),
    ],
)
def test_what_other_machines_do_not_take_is_a_usage_error(
    command: object, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(command, ["--kernel", "k", *words], catch_exceptions=False)  # type: ignore[arg-type]
