"""How a fork that runs a piece of a computation ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE

# Each of these is the end of one fork.
_CODE = """
import json, os, resource, signal, sys, time
from pathlib import Path
import torch
from harness.frontends.triton.child.interpreting import Forks, end_with

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def die(number):
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(1000)

def refuse():
    raise ValueError("the first line\\nand a second")

ends = {
    "fault": lambda path: die(signal.SIGSEGV),
    "bus": lambda path: die(signal.SIGBUS),
    "killed": lambda path: die(signal.SIGKILL),
    "real time": lambda path: die(signal.SIGRTMIN + 1),
    "raises": lambda path: end_with(path, refuse),
    "leaves": lambda path: end_with(path, lambda: {"x": torch.arange(3)}),
    "silent": lambda path: (path.write_text(""), os._exit(3)),
    "exits": lambda path: os._exit(3),
    "exits well": lambda path: os._exit(0),
    "hangs": lambda path: time.sleep(1000),
}
said = {}
for name, end in ends.items():
    forks = Forks(Path(sys.argv[1]), time.monotonic() + (0.2 if name == "hangs" else 600))
    path, child = forks.fork()
    if child == 0:
        end(path)
    trial = forks.collect(child, path)
    said[name] = trial.error or trial.tensors["x"].tolist()
said["left over"] = len(os.listdir(sys.argv[1]))
print(json.dumps(said))
"""


@pytest.mark.tools
def test_every_end_has_its_words(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE, str(tmp_path)],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    astray = ": it reads or writes outside its tensors"
    assert json.loads(done.stdout) == {
        "fault": f"died by SIGSEGV{astray}",
        "bus": f"died by SIGBUS{astray}",
        "killed": "died by SIGKILL",
        "real time": "died by signal 35",
        "raises": "ValueError: the first line",
        "leaves": [0, 1, 2],
        "silent": "exit code 3, saying nothing",
        "exits": "the launch code ended its process, exit code 3",
        "exits well": "the launch code ended its process, exit code 0",
        "hangs": "the time limit (--timeout) came first; make the launch smaller",
        "left over": 0,
    }
