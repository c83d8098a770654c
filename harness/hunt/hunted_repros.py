"""The causes of a hunt as repros, in folders that `triage run` and `triage compile` know."""

from __future__ import annotations

import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from gpu_emulator.values import Scalar
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.hunt.causes import Cause
from harness.hunt.generator import RESULTS, THREADS, WORDS, launch_of
from harness.hunt.ir_corpus import suffix_of
from harness.hunt.oracles import LEVELS
from harness.hunt.plan import HuntPlan, HuntReport
from harness.hunt.triton_sources import KERNEL
from harness.hunt.voting import Vote, emulated_ptx
from harness.values.errors import StorageError

# Of the name of a repro; and the file of one that is wrong at every level.
_PREFIX, _EXPECTED = "hunt_", "what_the_emulated_ptx_leaves.npy"


def write_repros(report: HuntReport, home: Path) -> list[str]:
    """Write the least program of each new cause as a repro; their folders, as the causes came up.

    They lie in a folder `repros`: where that is, `--kernel NAME` knows them.

    Raises:
        StorageError: a folder cannot be written.
    """
    plan = report.plan
    files_of = _ptx_files if plan.of_ptxas else _kernel_files
    target = f"-{plan.targets[0]}" if plan.of_ptxas else ""
    place = home / "hunt" / f"{plan.tool.kind}-{plan.tool.version}{target}" / "repros"
    folders: list[str] = []
    for cause in report.state.new:
        name = f"{_PREFIX}{re.sub(r'[^a-z0-9]+', '_', cause.name.lower()).strip('_')[:60]}"
        # Two causes may have one name: they fail on different versions.
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        names = {Path(other).name for other in folders}
        folder = place / next(one for one in itertools.chain([name], numbered) if one not in names)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # An earlier run of the hunt may have left it for another cause of this name.
            (folder / _EXPECTED).unlink(missing_ok=True)
            for file, content in files_of(plan, folder.name, cause).items():
                (folder / file).write_bytes(content)
        except OSError as error:
            raise StorageError(f"{folder}: {error.strerror or error}") from error
        folders.append(str(folder))
    return folders


def _ptx_files(plan: HuntPlan, name: str, cause: Cause) -> dict[str, bytes]:
    """A program of PTX with its inputs; it is named as its entry."""
    least = cause.least
    launch = launch_of(least.seed, least.text)
    n, m = (
        int.from_bytes(scalar.raw, "little")
        for scalar in launch.arguments
        if isinstance(scalar, Scalar)
    )
    text = re.sub(r"\.entry\s+k\b", f".entry {name}", least.text, count=1)
    files = {"case.ptx": text.encode(), "in.npy": _as_npy(launch.allocations[0].data)}
    words = f"{cause.name} (ptxas {plan.tool.version}); {least.answer.words}"
    lines = [
        f"kernel: {name}",
        "files: [case.ptx]",
        f"summary: {json.dumps(words)}",
        f"targets: [{plan.targets[0]}]",
    ]
    if least.answer.vote is Vote.WRONG:
        read = f"u32[{THREADS * WORDS}]:in.npy"
        written = f"u32[{THREADS * RESULTS // 4}]:0xa5a5a5a5"
        # A failure is known by what differs: so each cause is a bug of its own.
        out = f"out_of_{name.removeprefix(_PREFIX)}"
        lines += [
            "inputs:",
            f"  buffers: {{in: '{read}', {out}: '{written}'}}",
            f"  scalars: {{n: {n}, m: {m}}}",
            "  grid: 1",
            f"  block: {THREADS}",
        ]
        if least.answer.levels == LEVELS:
            # No cubin says the same as the PTX.
            lines.append(f"  expect: {{{out}: {_EXPECTED}}}")
            files[_EXPECTED] = _as_npy(emulated_ptx(launch).allocations[1].data)
    return {**files, "repro.yaml": "\n".join([*lines, ""]).encode()}


def _as_npy(data: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, data.view(np.uint32), allow_pickle=False)
    return stream.getvalue()


def _kernel_files(plan: HuntPlan, name: str, cause: Cause) -> dict[str, bytes]:
    """A launch file, or a module of Triton's IR."""
    least = cause.least
    if plan.corpus:
        file, text = f"{name}{suffix_of(least.text)}", least.text
        lines = [f"kernel: {read_triton_ir(text).kernel}", f"files: [{file}]"]
    else:
        file, text = "launch.py", re.sub(rf"\b{KERNEL}\b", name, least.text)
        lines = [f"kernel: {name}"]
    lines += [
        f"summary: {json.dumps(f'{cause.name}; {least.answer.words}'[:400])}",
        f"triton: {plan.tool.version}",
        f"targets: [{plan.target_of(least.seed)}]",
    ]
    return {file: text.encode(), "repro.yaml": "\n".join([*lines, ""]).encode()}
