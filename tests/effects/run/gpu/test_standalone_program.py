"""`repro.py` of a report: one program that needs Python, ptxas and a driver; here fakes of both."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_emulator.values import Budget, Pointer
from harness.run.emulator_jobs import Emulation, JobBuffer, Passed
from harness.run.gpu.launch_program import standalone_program
from harness.run.launch import Launch
from harness.values.execution import Argument, ArgumentKind

FAKE = Path(__file__).parents[3] / "fakes" / "libcuda.c"
# What the fake driver takes for a cubin: at -O3 it adds too little.
PTXAS = """#!/bin/sh
[ "$1" = --version ] && { echo "ptxas release 1.2, V1.2.3"; exit; }
case "$2" in -O3) text="add 4" ;; *) text="add 5" ;; esac
printf '%s\\0' "$text" > "$5"
"""
OUT, IN = np.zeros(4, np.uint32).tobytes(), np.arange(4, dtype=np.uint32).tobytes()
RIGHT = np.arange(5, 9, dtype=np.uint32).tobytes()


def launch() -> Launch:
    names = (("out", "0" * 64), ("x", "1" * 64))
    return Launch(
        emulation=Emulation(
            ptx="2" * 64,
            entry="k",
            grid=(1, 1, 1),
            block=(4, 1, 1),
            cluster=(1, 1, 1),
            dynamic_shared=0,
            buffers=tuple(JobBuffer(name=name, file=file, size=16) for name, file in names),
            arguments=tuple(Passed(pointer=Pointer(allocation=n)) for n in range(2)),
            trials=(),
            budget=Budget(),
        ),
        tensors=tuple(
            Argument(
                name=name,
                kind=ArgumentKind.TENSOR,
                buffer=number,
                dtype="u32",
                shape=(4,),
                strides=(1,),
            )
            for number, (name, _) in enumerate(names)
        ),
    )


def program(given: Launch, expected: bytes = RIGHT) -> str | None:
    return standalone_program(
        given,
        ".version 8.0\n",
        "sm_90a",
        {"0" * 64: OUT, "1" * 64: IN},
        [expected, IN],
        allowed=0.0,
        headline="ptxas 1.2.3 -O3 adds too little",
    )


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    argv = [compiler, "-shared", "-fPIC", "-w", "-o", str(folder / "libcuda.so.1"), str(FAKE)]
    subprocess.run(argv, check=True)
    (folder / "repro.py").write_text(text)
    (folder / "ptxas").write_text(PTXAS)
    (folder / "ptxas").chmod(0o755)
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder)}
    argv = [sys.executable, "-I", "-S", "repro.py", "./ptxas"]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_prints_expected_and_actual_values_of_each_level(tmp_path: Path) -> None:
    text = program(launch())
    assert text is not None
    done = run(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Fake GPU",
        *(f"ptxas V1.2.3 -O{level}: right" for level in range(3)),
        "ptxas V1.2.3 -O3: 4 of 4 elements of out differ; first at [0]: 4 in place of 5",
    ]


def test_where_all_is_right_or_there_is_no_gpu_the_status_says_so(tmp_path: Path) -> None:
    text = program(launch(), np.arange(5, 9, dtype=np.uint32).tobytes())
    assert text is not None
    right = run(tmp_path, text.replace('f"-O{level}"', '"-O0"'))
    assert right.returncode == 1
    (tmp_path / "libcuda.so.1").write_text("no library")
    argv = [sys.executable, "-I", "-S", "repro.py", "./ptxas"]
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(tmp_path)}
    none = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert none.returncode == 2
    assert none.stderr.startswith("it could not be run: ")


def test_what_needs_more_than_buffers_and_numbers_has_no_program() -> None:
    given = launch()
    assert program(replace(given, emulation=replace(given.emulation, cluster=(2, 1, 1)))) is None
