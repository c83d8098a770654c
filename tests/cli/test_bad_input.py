"""Bad input: one clear line, the right exit code, no traceback."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

SMALL = str(HERE / "kernels" / "small.py")
SM = ["--sm", "90a", "--triton", "installed"]


def refused(triage: Triage, *words: str, code: int) -> str:
    done = triage("compile", *words, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    message = lines[-1]
    assert message.startswith(("triage: ", "Error: ")), done.stderr
    assert len([line for line in lines if line.startswith("triage: ")]) <= 1, done.stderr
    return message


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--kernel", "mamba3_siso_bwd_dqk"], 2, "mamba3_siso_bwd_dqkv"),
        (["--kernel", "?"], 2, "triage kernels"),
        (["--kernel", "no_such.py::k", *SM], 2, "no such file"),
        (["--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100z"], 2, "'100z' is not a GPU target"),
        (["--kernel", SMALL, "--sm", "42", "--triton", "installed"], 2, "the known ones are"),
        (["--kernel", SMALL], 2, "--sm is missing"),
        (["--kernel", SMALL, "--sm", "80a", "--triton", "installed"], 2, "exists from sm_90 on"),
        (["--kernel", SMALL, *SM, "--freeze-ptx"], 2, "name them with --ptxas"),
        (["--kernel", SMALL, *SM, "--set", "n=1", "--set", "n=2"], 2, "given twice"),
        (["--kernel", SMALL, *SM, "--set", "shape=3"], 2, "cannot be set here"),
        (["--kernel", f"{SMALL}::never", *SM], 2, "launched are add"),
        (["--kernel", SMALL, *SM, "--set", "blok=3"], 2, "did you mean block"),
        (["--kernel", SMALL, *SM, "--set", "block=big"], 2, "expected an integer"),
        (["--kernel", SMALL, *SM, "--set", "wide=perhaps"], 2, "expected true or false"),
        (["--kernel", SMALL, *SM, "--set", "block"], 2, "NAME=VALUE"),
        (["--kernel", SMALL, *SM, "--config", "num_warps"], 2, "not name=value"),
        (["--kernel", SMALL, *SM, "--config", "num_warps=3"], 3, "matches none"),
        (["--kernel", SMALL, *SM, "--launch", "other"], 2, "has launch"),
        (["--kernel", SMALL, "--sm", "90a", "--triton", "3.99.0"], 2, "3.99.0"),
        (["--kernel", SMALL, *SM, "--ptxas", "13.1.116"], 2, "13.1.115"),
        (["--kernel", SMALL, *SM, "--ptxas", "bananas"], 2, "bananas"),
        (["--kernel", SMALL, *SM, "--set", "block=100"], 2, ""),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else None,
)
def test_refused_in_one_line(triage: Triage, words: list[str], code: int, said: str) -> None:
    if "block=100" in words:
        # Not bad input to us: a kernel that Triton rejects is data.
        document = triage.compile(*words, code=1)
        assert document["cells"][0]["verdict"] == "rejected"
        return
    assert said in refused(triage, *words, code=code)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def launch(n=1):\n    raise RuntimeError('no such shape')\n",
            "bad.py:2: the launch raised RuntimeError: no such shape",
        ),
        ("def launch(n=1):\n    pass\n", "no Triton kernel is launched"),
        ("x = 1\n", "launches nothing"),
        ("def launch(n):\n    pass\n", "has no default"),
        ("def launch(:\n", "bad.py:1: not Python"),
        (
            "import torch\ndef launch():\n    int(torch.ones(3, device='cuda').sum().item())\n",
            "bad.py: it reads values of tensors before a launch; torch computes them on the CPU)",
        ),
        (
            "import torch\ndef launch():\n    torch.cuda.get_device_properties(0).clock_rate\n",
            "and a guess would decide what is launched, before the first launch",
        ),
        ("import os\ndef launch():\n    os.abort()\n", "SIGABRT"),
        ("import sys\ndef launch():\n    sys.exit(3)\n", "SystemExit"),
    ],
)
def test_launch_code_that_cannot_be_captured(triage: Triage, text: str, said: str) -> None:
    (triage.folder / "bad.py").write_text(text)
    assert said in refused(triage, "--kernel", "bad.py", *SM, code=2)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("lambda m: (1 // 0,)", "ZeroDivisionError: integer division or modulo by zero"),
        ("lambda m: (m['BLOK'],)", "KeyError: 'BLOK'"),
        ("lambda m: (m['num_warps'],)", "KeyError: 'num_warps'"),
        ("lambda m: (nosuch,)", "NameError: name 'nosuch' is not defined"),
        ("(1.5,)", "TypeError: 'float' object cannot be interpreted as an integer"),
    ],
)
def test_a_grid_that_raises_is_the_launch_s_exception(triage: Triage, grid: str, said: str) -> None:
    """As on a GPU, where Triton asks for the grid once it has compiled the kernel."""
    text = Path(SMALL).read_text()
    old = re.search(r"add\[(.*)\]\(", text)
    assert old
    (triage.folder / "grid.py").write_text(text.replace(f"[{old[1]}](", f"[{grid}]("))
    document = triage.compile("--kernel", "grid.py", *SM, code=4)
    assert [row["verdict"] for row in document["cells"]] == ["ok"]
    [failure] = document["summary"]["failures"]
    assert said in failure
    assert "grid.py:" in failure


def test_launch_code_that_changes_json(triage: Triage) -> None:
    change = "import json\njson.JSONEncoder.encode = lambda *a, **k: '{}'\n"
    text = change + Path(SMALL).read_text()
    (triage.folder / "odd.py").write_text(text)
    assert "makes no sense" in refused(triage, "--kernel", "odd.py", *SM, code=2)


def test_launch_code_of_a_million_lines(triage: Triage) -> None:
    (triage.folder / "long.py").write_text("x=1\n" * 10**6)
    assert "1,048,576 bytes: it is not read" in refused(triage, "--kernel", "long.py", *SM, code=2)


def test_launch_code_that_hangs(triage: Triage) -> None:
    (triage.folder / "hang.py").write_text("def launch():\n    while True: pass\n")
    message = refused(triage, "--kernel", "hang.py", *SM, "--timeout", "3", code=2)
    assert "did not end within 3 s" in message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"\x7fELF\x00\x01\x02" * 50, "binary data"),
        (b"hello\n", "no .version"),
        (b".version 8.8\n.target sm_90a\n", "no .entry"),
        (b" " * (33 << 20), "not read"),
    ],
    ids=["empty", "binary", "prose", "no entry", "huge"],
)
def test_ptx_that_is_none(triage: Triage, data: bytes, said: str) -> None:
    (triage.folder / "bad.ptx").write_bytes(data)
    assert said in refused(triage, "--kernel", "bad.ptx", code=2)


def write_repro(triage: Triage, yaml: str) -> None:
    folder = triage.folder / "repros" / "mine"
    folder.mkdir(parents=True)
    (folder / "repro.yaml").write_text(yaml)
    shutil.copy(SMALL, folder / "launch.py")


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("kernel: add\ntriton: 3.6\n", "repro.yaml:2: triton"),
        ("kernel: [add\n", "repro.yaml:2: not YAML"),
        ("kernel: add\nsumary: x\n", "repro.yaml:2:"),
        ("summary: x\n", "repro.yaml:1:"),
        ("kernel: add\nlaunch: ../../x.py\n", "launch"),
        ("", "empty"),
    ],
)
def test_malformed_repro_files_name_file_line_and_key(triage: Triage, yaml: str, said: str) -> None:
    write_repro(triage, yaml)
    assert said in refused(triage, "--kernel", "mine", *SM, code=2)


def test_a_wrong_sha256_is_refused(triage: Triage) -> None:
    wrong = hashlib.sha256(b"wrong").hexdigest()
    write_repro(
        triage,
        "kernel: add\nsource:\n  package: mamba-ssm\n  version: 2.3.2.post1\n"
        f"  sha256: {wrong}\n  module: mamba_ssm\n",
    )
    assert wrong[:12] in refused(triage, "--kernel", "mine", *SM, code=2)


def test_a_users_own_repro_works(triage: Triage) -> None:
    write_repro(triage, "kernel: add\nsummary: mine\ntargets: [sm_90a]\n")
    assert "mine" in triage("kernels").stdout
    document = triage.compile("--kernel", "mine", "--triton", "installed", code=0)
    assert [row["verdict"] for row in document["cells"]] == ["ok"]


def test_results_that_cannot_be_kept(triage: Triage) -> None:
    (triage.folder / "results").write_text("a file where a folder should be")
    message = refused(triage, "--kernel", SMALL, *SM, code=4)
    assert str(Path(triage.env["TRIAGE_HOME"])) in message


def test_offline_without_a_toolchain_says_so(triage: Triage, tmp_path: Path) -> None:
    triage.env["TRIAGE_CACHE_DIR"] = str(tmp_path / "empty")
    triage.env["TRIAGE_OFFLINE"] = "1"
    message = refused(triage, "--kernel", SMALL, "--sm", "90a", "--triton", "3.5.1", code=4)
    assert "3.5.1" in message or "triton" in message.lower()
    assert "offline" in message.lower() or "TRIAGE_OFFLINE" in message


def test_a_launch_that_fails_half_way_is_incomplete(triage: Triage) -> None:
    text = Path(SMALL).read_text() + "    raise RuntimeError('first line\\nsecond line')\n"
    (triage.folder / "half.py").write_text(text)
    document = triage.compile("--kernel", "half.py", *SM, code=4)
    assert [row["verdict"] for row in document["cells"]] == ["ok"]
    [failure] = document["summary"]["failures"]
    assert "the launch raised RuntimeError: first line, after the launches" in failure
    assert "half.py:" in failure


def test_every_entry_of_a_ptx_file_is_judged(triage: Triage) -> None:
    entry = ".visible .entry {}() {{ {} ret; }}\n"
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    text += entry.format("first", ".reg .b64 %a; st.global.u32 [%a], 1;")
    text += entry.format("second", "trap;")
    (triage.folder / "two.ptx").write_text(text)
    rows = triage.compile("--kernel", "two.ptx", "--ptxas", "13.1.115", code=1)["cells"]
    assert {row["kernel"]: row["verdict"] for row in rows} == {
        "two.ptx::first": "ok",
        "two.ptx::second": "trap_stub",
    }


def test_plain_launches_are_told_apart_by_their_meta_parameters(triage: Triage) -> None:
    text = Path(SMALL).read_text().replace("def launch(", "def once(")
    text += "\n\ndef launch():\n    once(block=256)\n    once(block=512)\n"
    (triage.folder / "plain.py").write_text(text)
    rows = triage.compile("--kernel", "plain.py", *SM, code=0)["cells"]
    assert [row["config"] for row in rows] == [{"BLOCK": 256}, {"BLOCK": 512}]
    [row] = triage.compile("--kernel", "plain.py", *SM, "--config", "BLOCK=512", code=0)["cells"]
    assert row["cell"] in {found["cell"] for found in rows}
