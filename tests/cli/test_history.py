"""`triage history`, as a user runs it, on nights that were replayed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from conftest import Triage
from nights import as_json, night, row

VERSIONS = ("12.9.86", "13.0.88", "13.1.80", "13.10.1")


@pytest.fixture
def home(triage: Triage) -> Path:
    home = Path(triage.env["TRIAGE_HOME"])
    night(home, [row("ptxas_ice", "s1", ptxas=ptxas) for ptxas in VERSIONS])
    night(
        home,
        [
            row(ptxas="13.10.1", n_regs=128, spill_stores=96),
            row(ptxas="13.0.88", n_regs=96),
            row("ptxas_ice", "s1", ptxas="13.1.80", code="C7907"),
            row(ptxas="12.9.86"),
            row("unsupported", triton="3.10.0", ptxas="12.9.86"),
            row(warps=8, ptxas="12.9.86"),
            row(target="sm_90a", ptxas="12.9.86"),
            row(launch="default:chunk_size=32", ptxas="12.9.86"),
            row(kernel="scan_bwd"),
        ],
    )
    return home


FIRST_BLOCK = ["--kernel", "scan_fwd", "--sm", "100a", "--config", "num_warps=4"]


def test_a_row_a_version_and_a_sparkline(triage: Triage, home: Path) -> None:
    done = triage("history", *FIRST_BLOCK, "--launch", "default")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    assert lines[0] == "scan_fwd · default · sm_100a · num_warps=4,maxnreg=128"
    assert lines[1] == "registers ▁▅x█· 64 to 128"
    assert lines[2] == "spills ▁▁x█· 0 to 96 B"
    assert lines[3] == "cell Triton ptxas verdict regs spill st spill ld occupancy"
    assert [line.split(maxsplit=1)[1] for line in lines[5:10]] == [
        "3.6.0 12.9.86 ok 64 0 0 50.0%",
        "3.6.0 13.0.88 ok 96 0 0 50.0%",
        "3.6.0 13.1.80 ptxas_ice C7907 - - - -",
        "3.6.0 13.10.1 ok 128 96 0 50.0%",
        "3.10.0 12.9.86 unsupported - - - -",
    ]


def test_a_launch_is_one_table_and_what_is_alike_one_line(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    rows = [
        row(warps=warps, ptxas=ptxas, launch=launch, n_regs=registers + (launch == "other"))
        for launch in ("default", "other")
        for warps in (4, 8, 16)
        for ptxas, registers in (("12.9.86", 64), ("13.0.88", 64), ("13.1.80", 96))
    ]
    rows[2] = row(ptxas="13.1.80", n_regs=128)
    night(home, rows)
    done = triage("history", "scan_fwd", "--launch", "default")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    assert lines[0] == "scan_fwd · default · sm_100a · maxnreg=128"
    assert lines[1:3] == [
        "registers ▁▁█ 64 to 96 [num_warps=8|16]",
        "registers ▁▁█ 64 to 128 [num_warps=4]",
    ]
    table = [line.split(maxsplit=1)[1] for line in lines[3:] if "─" not in line]
    assert table == [
        "warps Triton ptxas verdict regs spill st spill ld occupancy",
        "8|16 3.6.0 12.9.86, 13.0.88 ok 64 0 0 50.0%",
        "8|16 3.6.0 13.1.80 ok 96 0 0 50.0%",
        "4 3.6.0 12.9.86, 13.0.88 ok 64 0 0 50.0%",
        "4 3.6.0 13.1.80 ok 128 0 0 50.0%",
    ]
    # Another launch of the same configs is a table of its own.
    both = triage("history", "scan_fwd").stdout
    assert both.count(" regs ") == 2
    other = both[both.index("scan_fwd · other") :]
    assert " 65 " in other
    assert " 64 " not in other


def test_rows_are_those_of_every_command(triage: Triage, home: Path) -> None:
    done = triage("history", "--json", *FIRST_BLOCK, "--ptxas", ">=13.0,<13.2")
    document = msgspec.json.decode(done.stdout)
    assert [cell["ptxas"] for cell in document["cells"]] == ["13.0.88", "13.1.80"]
    assert document["cells"][1] == as_json(row("ptxas_ice", "s1", ptxas="13.1.80", code="C7907"))


def test_it_says_where_a_condition_holds(triage: Triage, home: Path) -> None:
    words = [*FIRST_BLOCK, "--launch", "default", "--while", "n_regs >= 96"]
    lines = [" ".join(line.split()) for line in triage("history", *words).stdout.splitlines()]
    assert lines[3:5] == [
        "n_regs >= 96 holds with Triton 3.6.0, ptxas 13.0.88: 96 registers",
        "n_regs >= 96 holds with Triton 3.6.0, ptxas 13.10.1: 128 registers",
    ]
    rows = [line for line in lines if line.startswith(tuple("0123456789abcdef")) and " 3." in line]
    assert [line.endswith(" holds") for line in rows[:5]] == [False, True, False, True, False]
    ends = (" no", " holds", " - other failure", " holds", " - -")
    assert all(line.endswith(end) for line, end in zip(rows[:5], ends, strict=True))
    document = msgspec.json.decode(triage("history", "--json", *words).stdout)
    assert document["while"] == "n_regs >= 96"
    first = document["ranges"][0]
    tools = {
        "triton": "3.6.0", "ptxas": "13.0.88", "compiler": "triton", "compiler_version": "3.6.0",
        "assembler": "ptxas",
    }  # fmt: skip
    assert (first["first"], first["last"], len(document["ranges"])) == (tools, tools, 2)
    assert first["cells"] == [document["cells"][1]["cell"]]
    # The launch with another chunk_size has none.
    assert "n_regs >= 96 holds with none of them" in lines
    assert triage("history", *words[:-1], "n_regs >= ").returncode == 2


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--kernel", "scan_*"], 9),
        (["--kernel", "scan_fwd", "--set", "chunk_size=32"], 1),
        (["--kernel", "scan_fwd", "--sm", "90a", "--sm", "sm_100a", "--triton", "3.6.0"], 7),
        (["--kernel", "scan_fwd", "--config", "num_warps=8"], 1),
        (["--kernel", "scan_fwd", "--launch", "def*", "--ptxas", "12.9.86"], 5),
    ],
)
def test_selection(triage: Triage, home: Path, words: list[str], count: int) -> None:
    document = msgspec.json.decode(triage("history", "--json", *words).stdout)
    assert len(document["cells"]) == count


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--kernel", "scan_fwt"], 2, "did you mean scan_fwd?"),
        (["--kernel", "scan_fwd", "--sm", "80"], 3, "targets sm_100a, sm_90a"),
        (["--kernel", "scan_fwd", "--ptxas", "new"], 2, "--ptxas 'new' is not a specifier"),
        (["--kernel", "scan_fwd", "--config", "num_warps"], 2, "is not name=value"),
    ],
)
def test_what_is_not_there(
    triage: Triage, home: Path, words: list[str], code: int, said: str
) -> None:
    done = triage("history", *words)
    assert done.returncode == code
    assert said in done.stderr


def test_a_file_stands_for_its_one_kernel(triage: Triage, home: Path) -> None:
    night(home, [row(kernel="one.py::scale"), row(kernel="two.py::a"), row(kernel="two.py::b")])
    cells = json.loads(triage("history", "--kernel", "folder/one.py", "--json").stdout)["cells"]
    assert [cell["kernel"] for cell in cells] == ["one.py::scale"]
    refused = triage("history", "--kernel", "two.py")
    assert refused.returncode == 2
    assert "two.py::a or two.py::b" in refused.stderr
