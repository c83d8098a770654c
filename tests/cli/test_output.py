"""What is printed where: widths, colours, documents."""

from __future__ import annotations

import os

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

SMALL = ["--kernel", str(HERE / "kernels" / "small.py"), "--sm", "90a", "--triton", "installed"]


@pytest.mark.parametrize("columns", ["", "abc", "0", "80"])
def test_any_columns_will_do(triage: Triage, columns: str) -> None:
    triage.env["COLUMNS"] = columns
    done = triage("kernels")
    assert done.returncode == 0, done.stderr
    assert "mamba3_siso_bwd_dqkv" in done.stdout


def test_json_is_all_that_is_on_stdout_also_when_it_fails(triage: Triage) -> None:
    done = triage("compile", "--json", *SMALL, "--config", "num_warps=3")
    assert done.returncode == 3
    document = msgspec.json.decode(done.stdout)
    assert document["schema"] == 1
    assert document["exit_code"] == 3
    assert "matches none" in document["error"]
    assert document["error"] in done.stderr


def test_several_ptxas_give_a_table_each(triage: Triage) -> None:
    words = [*SMALL, "--ptxas", "bundled", "--ptxas", "13.1.115"]
    document = triage.compile(*words, code=0)
    assert len(document["cells"]) == 2
    groups = document["summary"]["survivorship"]
    assert [group["headline"] for group in groups] == ["1 config: 1 compiles."] * 2
    assert len({group["ptxas"] for group in groups}) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_file_name_that_is_not_utf_8_is_spelled_out(triage: Triage, encoding: str) -> None:
    triage.env["PYTHONIOENCODING"] = encoding
    name = os.fsdecode(b"caf\xe9.ptx")
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"
    (triage.folder / name).write_text(text)
    document = triage.compile("--kernel", name, "--ptxas", "13.1.115", code=0)
    assert [row["kernel"] for row in document["cells"]] == [r"caf\xe9.ptx"]
    assert triage("history", "--kernel", r"caf\xe9.ptx").returncode == 0
