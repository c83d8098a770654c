"""The commands that `triage log` prints are the reporter's own case, and can be pasted."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from conftest import Triage

from harness.cells.repros.find import find_kernel

PTX = """\
{named}
Repro command: /x/ptxas --gpu-name=sm_90a /tmp/a.ptx -o /tmp/a.o
.version 8.7
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 p)
{{
  ret;
}}
================================================================
"""
FRAMES = """\
Traceback (most recent call last):
  File "{file}", line 12, in f
    add[grid](x)
  File "/x/site-packages/triton/runtime/jit.py", line 700, in run
    kernel = self.compile(src)
ValueError: no
"""


def commands(triage: Triage, text: str, *words: str) -> list[str]:
    (triage.folder / "a.log").write_text(text)
    done = triage("log", "a.log", "--json", *words)
    assert done.returncode == 1, done.stderr
    return [
        line for found in msgspec.json.decode(done.stdout)["found"] for line in found["commands"]
    ]


def test_what_was_written_elsewhere_is_found_there(triage: Triage) -> None:
    [command] = commands(triage, PTX.format(named=""), "--into", "elsewhere")
    words = shlex.split(command)
    named = words[words.index("--kernel") + 1]
    assert named.startswith("elsewhere/")
    assert find_kernel(str(triage.folder / named)).kernel == "add"


@pytest.mark.parametrize(
    ("release", "ptxas"), [("3.5.0", "12.8.93"), ("3.9.0", "13.4.59"), ("2.1.0", None)]
)
def test_ptx_goes_to_the_ptxas_of_the_triton_that_the_log_names(
    triage: Triage, release: str, ptxas: str | None
) -> None:
    [command] = commands(triage, PTX.format(named=f"triton=={release}"))
    assert ("--ptxas" in command) is (ptxas is not None)
    assert ptxas is None or command.endswith(f"--ptxas {ptxas}")


def test_no_command_lacks_the_gpu(triage: Triage) -> None:
    file = triage.folder / "mine.py"
    file.write_text("")
    text = FRAMES.format(file=file)
    assert commands(triage, text) == []
    guessed = f"triage compile --kernel {file} --sm 90a  # for an H100; no GPU is named: give yours"
    assert guessed in triage("log", "a.log").stdout
    [command] = commands(triage, text, "--sm", "90a")
    assert command == f"triage compile --kernel {file} --sm 90a"
