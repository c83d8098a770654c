"""Every command that a command prints is run, and compiles the cells that it promises."""

from __future__ import annotations

import json

import pytest
from acted_line import BAD, NEW, OLD, Line
from msgspec.structs import replace
from printed_commands import parse, printed_commands

from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Workbench
from harness.frontends.plan import CapturePlace, Plan

pytest_plugins = ("acted_fixtures",)

AROUND = ("--pass-env", "MY_TOKEN")
CASE = ("--kernel", "kernel.acted", "--sm", "80", "--compiler", "acted==1.1", "--ptxas", BAD)
ONE = (*CASE, "--config", "width=1", *AROUND)


def cell(width: int, compiler: str, ptxas: str) -> str:
    return f"kernel.acted/acted/width={width}@sm_80/acted-{compiler}/ptxas-{ptxas}"


def of_verb(found: dict[str, set[str]], verb: str) -> dict[str, set[str]]:
    return {line: cells for line, cells in found.items() if line.startswith(f"triage {verb} ")}


def test_compile_of_a_ptxas_failure(line: Line) -> None:
    line.stage.acted.act = lambda *_: f"{BAD}=ice *=ok"
    assert line("compile", *ONE) == 1
    shown, (command, cells) = sorted(line.lead_on().items(), reverse=True)
    assert shown[0].startswith("triage show ")
    assert cells == {cell(1, "1.1", f"{NEW}-frozen")}
    assert command == (
        "triage compile --kernel kernel.acted --sm 80 --compiler acted==1.1 --ptxas latest "
        "--config width=1 --freeze-ptx --pass-env MY_TOKEN"
    )


def test_a_summary_of_many_kernels_leads_to_the_cells_that_it_is_of(line: Line) -> None:
    line.stage.acted.act = lambda *_: f"{BAD}=ice *=ok"
    for name in ("one_a", "one_b"):
        folder = line.stage.folder / "repros" / name
        folder.mkdir(parents=True)
        (folder / "kernel.acted").write_text("kernel kernel\nconfig width = 1 2\n")
        about = "kernel: kernel\nfiles: [kernel.acted]\nsummary: s\ncompiler: acted\n"
        (folder / "repro.yaml").write_text(about)
    assert line("compile", "--kernel", "one_*", *ONE[2:]) == 1
    (cells,) = line.lead_on().values()
    assert cells == {f"one_a/kernel/width=1@sm_80/acted-1.1/ptxas-{BAD}"}
    assert "* from the store" in line.out


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("chosen", [True, False])
def test_a_bisection_of_compilers(line: Line, width: int, *, chosen: bool) -> None:
    acts = {"1.1": "ice", "2.0": "other"}
    line.stage.acted.act = lambda version, config: (
        acts.get(version, "ok") if config["width"] == width else "ok"
    )
    config = ("--config", f"width={width}") if chosen else ()
    words = (*CASE, *config, "--axis", "compiler", "--repeat", "1")
    assert line("bisect", *words, *AROUND) == 0
    found = line.lead_on()
    assert set.union(*of_verb(found, "compile").values()) == {
        cell(width, "1.0", BAD),
        cell(width, "1.1", BAD),
    }
    (followed,) = of_verb(found, "bisect").values()
    assert followed == {cell(width, version, BAD) for version in ("1.0", "1.1", "2.0")}


def test_a_bisection_follows_the_tool_in_whose_stage_it_goes_wrong(line: Line) -> None:
    """Before ptxas has anything to assemble, no version of ptxas can tell."""
    line.stage.acted.act = lambda version, _: "ok" if version == "1.0" else "refuses"
    assert line("bisect", *ONE, "--repeat", "1", "--json") == 0
    found = json.loads(line.out)
    assert (found["axis"], found["first_bad"], found["last_good"]) == ("acted", "1.1", "1.0")
    assert "before ptxas: followed along the versions of Acted" in line.err
    assert line("bisect", *ONE, "--repeat", "1", "--axis", "ptxas") == 2
    assert "before ptxas sees anything; use --axis" in line.err


def test_a_bisection_of_ptxas(line: Line) -> None:
    line.stage.acted.act = lambda *_: f"{OLD}=ok {BAD}=ice *=other"
    assert line("bisect", *ONE, "--repeat", "1") == 0
    found = line.lead_on()
    assert len(of_verb(found, "compile")) == 2
    assert len(of_verb(found, "bisect")) == 1
    every = {cell(1, "1.1", f"{version}-frozen") for version in (OLD, BAD, NEW)}
    tried = [cells for line, cells in found.items() if line.split()[1] in ("bisect", "compile")]
    assert set.union(*tried) <= {*every, cell(1, "1.1", BAD)}
    for verb in ("workaround", "blame"):
        (cells,) = of_verb(found, verb).values()
        assert cell(1, "1.1", f"{NEW}-frozen") in cells


ENDS = [
    (("compile",), "ok", {"compile"}),
    (("compile",), "spills4000", {"workaround"}),
    (("compile",), "refuses", {"show"}),
    (("bisect", "--axis", "compiler", "--repeat", "1"), "ice", {"workaround", "blame"}),
    (("blame",), f"{BAD}=ice *=ok", {"workaround", "report"}),
    (("rank",), "ok", {"rank"}),
]


@pytest.mark.parametrize(("words", "act", "verbs"), ENDS)
def test_every_end_leads_to_commands_that_can_be_given(
    line: Line, words: tuple[str, ...], act: str, verbs: set[str]
) -> None:
    """In the user's folder: their options exist, what they name is found, they lead to no meta."""
    line.stage.acted.act = lambda *_: act
    line(words[0], *ONE, *words[1:])
    commands = printed_commands(line.out.rpartition("Next:")[2])
    assert {command.split()[1] for command in commands} == verbs, line.out
    assert "--stage meta" not in line.out
    for command in commands:
        read = parse(command).params
        assert read.get("kernel", "kernel.acted") == "kernel.acted"
        if read.get("kernel"):
            assert len(select_all(SelectionOptions(kernel=read["kernel"], sm=["80"]))) == 1


def test_a_bisection_that_stops_says_how_it_goes_on(line: Line) -> None:
    line.stage.acted.act = lambda version, _: "ice" if version == "1.1" else "ok"
    line.stage.acted.failing = {"1.0"}
    assert line("bisect", *ONE, "--axis", "compiler", "--repeat", "1") == 4
    line.stage.acted.failing = set()
    ((command, cells),) = line.lead_on(line.err).items()
    assert command.endswith("--pass-env MY_TOKEN")
    assert cell(1, "1.0", BAD) in cells


@pytest.mark.parametrize(
    ("act", "width_2", "grid", "verbs"),
    [
        ("spills4000", "spills4000", (), {"minimize"}),
        (f"{BAD}=rejects *=killed", "ok", (), {"blame"}),
        (f"{BAD}=rejects *=killed", "ok", ("--compiler", "acted==2.0", "--ptxas", NEW), {"blame"}),
    ],
)
def test_blame(line: Line, act: str, width_2: str, grid: tuple[str, ...], verbs: set[str]) -> None:
    line.stage.acted.act = lambda _, config: act if config["width"] == 1 else width_2
    line("blame", *CASE, *AROUND, *grid)
    found = line.lead_on()
    assert {command.split()[1] for command in found} == verbs
    for command, cells in found.items():
        assert "--pass-env MY_TOKEN" in command
        assert cells
        assert all(each.startswith("kernel.acted/acted/width=1@sm_80/") for each in cells)


def reported(line: Line) -> list[str]:
    """The commands of a quick report, each for its case."""
    line.stage.acted.act = lambda *_: f"{BAD}=ice *=ok"
    line("report", *ONE, "--for", "nvidia", "--quick", "--out", "r")
    issue = (line.stage.folder / "r" / "issue.md").read_text()
    commands = printed_commands(issue)
    verbs = {each.split()[1] for each in commands}
    # A report of a crash does not look for a way around it.
    assert verbs == {"bisect", "blame", "compile", "minimize", "report"}
    for each in commands:
        read = parse(each).params
        assert (read["kernel"], read["config"]) == ("kernel.acted", "width=1")
        assert (read["compiler"], read["ptxas"]) == (("acted==1.1",), (BAD,))
        assert "--pass-env MY_TOKEN" in each
    return commands


def test_commands_of_a_report_select_its_case(line: Line) -> None:
    commands = [each for each in reported(line) if each.split()[1] in ("blame", "compile")]
    for cells in line.lead_on("\n".join(commands)).values():
        assert cell(1, "1.1", BAD) in cells


@pytest.mark.long
def test_all_commands_of_a_report_run(line: Line) -> None:
    for command, cells in line.lead_on("\n".join(reported(line))).items():
        # A bisection gives all versions one PTX, byte for byte, or changes a flag of this cell.
        assert any(each.startswith(cell(1, "1.1", BAD)) for each in cells), command


def test_pages_and_lists(line: Line) -> None:
    line.stage.acted.act = lambda _, config: f"{BAD}=ice *=ok" if config["width"] == 1 else "ok"
    both = ("--ptxas", OLD, "--ptxas", BAD)
    for version in ("1.0", "1.1"):
        line("compile", *CASE[:4], "--compiler", f"acted=={version}", *both)
    assert line("site", "--out", "pages") == 0, line.err
    pages = sorted((line.stage.folder / "pages").rglob("*.html"))
    found: dict[str, set[str]] = {}
    for page in pages:
        # An nvdisasm is needed to count live registers and to hunt; none is installed.
        text = page.read_text().replace(" --stage live", "").replace("triage hunt ptxas", "")
        found |= line.lead_on(text)
    (blame,) = of_verb(found, "blame")
    assert blame == (
        f"triage blame --kernel kernel.acted --sm sm_80 --compiler acted==1.0 --ptxas {BAD} "
        "--launch acted --config 'width=1,*=none'"
    )
    assert of_verb(found, "history")
    assert of_verb(found, "show")
    for words in (("bugs", "--json"), ("bugs", "show", "1")):
        assert line(*words) in (0, 1), line.err
        assert line.lead_on(), words


@pytest.mark.parametrize("verb", ["compile", "bisect", "blame", "minimize", "workaround", "rank"])
def test_every_verb_says_once_that_launch_code_lacks_a_variable(
    line: Line, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "kernel.acted: the launch code reads TOKEN, which was not passed: --pass-env TOKEN"
    planned = line.stage.acted.stored_plan

    def warned(bench: Workbench, place: CapturePlace) -> Plan:
        plan = planned(bench, place)
        assert plan
        return replace(plan, warnings=(said,))

    monkeypatch.setattr(line.stage.acted, "stored_plan", warned)
    line.stage.acted.act = lambda *_: f"{BAD}=ice *=ok"
    line(verb, *ONE)
    assert line.err.count(said) == 1, line.err
