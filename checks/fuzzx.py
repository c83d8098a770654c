"""What ptxas makes of FuzzX' known miscompiles, with inputs of our own: without a GPU, or on one.

    python checks/fuzzx.py FOLDER [--case PATTERN] [--ptxas V ...] [--sm SM]
                               [--pack FOLDER | --import RESULTS ...]

FOLDER is a checkout of github.com/SemiAnalysisAI/FuzzX (231179d has 87 programs). Each program is
given the target SM (and version 8.8 of PTX), and launched in five ways: `LAUNCHES` has how many
threads there are and what `in_ptr` holds; `n` is 32, any other number 0. The cubins at -O0 and -O3
are emulated beside the PTX. `--pack` writes a pack of each program in place of that, for a machine
with a GPU (`python3 PACK --out RESULTS`), and `--import` judges what that gave. A line says what
came of each program with each ptxas and level, one verdict for each launch. Programs stay where
they are.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.io.files.locations import home_dir
from harness.run.executing import RunReport
from harness.run.gpu.evaluating import GpuQuestion, ask_gpu, import_results
from harness.run.gpu.gpu_batch import GpuBatch
from harness.run.gpu.packing import GpuWay
from harness.run.gpu.sass_emulator import SassEmulator
from harness.run.raw import BufferWords, RawInputs
from harness.run.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of
from harness.store.store import Store
from harness.values.errors import TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Repro
from harness.values.toolchain import GPU, SASS
from harness.values.verdict import VerdictKind

_WORDS = 1024
_RANDOM = np.random.default_rng(29)
LAUNCHES = {
    "random": (32, _RANDOM.integers(0, 1 << 32, _WORDS, np.uint32)),
    "small": (32, _RANDOM.integers(0, 64, _WORDS, np.uint32)),
    "zeros": (32, np.zeros(_WORDS, np.uint32)),
    "four": (4, _RANDOM.integers(0, 1 << 32, _WORDS, np.uint32)),
    "one": (1, np.zeros(_WORDS, np.uint32)),
}
HOW = CompileOptions(jobs=1, command="checks/fuzzx.py")
_ENTRY = re.compile(r"\.entry\s+\w+\s*\((?P<parameters>[^)]*)\)")
_PARAMETER = re.compile(r"\.param\s+\.u(?P<bits>32|64)\s+(?P<name>\w+)")


def inputs_of(repro: Repro) -> RawInputs:
    """What one launch of a program gets; the file is called by the launch."""
    path = Path(repro.ptx or "")
    threads, _ = LAUNCHES[path.stem]
    entry = _ENTRY.search(path.read_text())
    assert entry is not None
    buffers, scalars = [], []
    for parameter in _PARAMETER.finditer(entry["parameters"]):
        name = parameter["name"]
        if parameter["bits"] == "64":
            fill = f"{path.stem}.npy" if name == "in_ptr" else "0xa5a5a5a5"
            buffers.append(BufferWords(name=name, type="u32", count=_WORDS, fill=fill))
        else:
            scalars.append((name, "32" if name.endswith("n") else "0"))
    return RawInputs(
        buffers=tuple(buffers),
        scalars=tuple(scalars),
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        folder=path.parent,
    )


async def executed(ptx: str, way: GpuWay, on: str, ptxas: list[str]) -> RunReport | GpuBatch:
    """Every launch of one program: its rows, or the pack that was written."""
    with tempfile.TemporaryDirectory() as name, Store.open(home_dir()) as store:
        folder = Path(name)
        for launch, (_, values) in LAUNCHES.items():
            np.save(folder / f"{launch}.npy", values)
            (folder / f"{launch}.ptx").write_text(ptx)
        question = GpuQuestion(
            selections=[
                selection
                for launch in LAUNCHES
                for selection in select_all(
                    SelectionOptions(kernel=str(folder / f"{launch}.ptx"), ptxas=ptxas)
                )
            ],
            inputs=inputs_of,
            levels=(0, 3),
            trials=trials_of(read_schedules(DEFAULT), races=True),
            budget=Budget(max_instructions=INSTRUCTIONS),
            how=GpuBatch(command=HOW.command, on=on),
        )
        return await ask_gpu(question, way, store, HOW, lambda _: None)


def tell(program: str, rows: Sequence[RunRow]) -> None:
    """A line for each ptxas and level: all verdicts, and the reason of the gravest."""
    kinds = list(VerdictKind)
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(str(row.cell).rpartition("/")[2], []).append(row)
    for assembler, own in groups.items():
        verdicts = ",".join(str(row.run) for row in own)
        wrong = [row for row in own if row.run not in ("right", "consistent", "ran")]
        wrong.sort(key=lambda row: (row.run == "not_run", kinds.index(row.run)))
        reason = wrong[0].run_reason.replace("\n", " ")[:200] if wrong else ""
        print(program, assembler, verdicts, reason, sep="\t", flush=True)


def main() -> None:
    """Execute, pack or import."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", default="m*")
    parser.add_argument("--ptxas", nargs="+", default=["13.5.37"])
    parser.add_argument("--sm", default="90a")
    parser.add_argument("--pack", type=Path, metavar="FOLDER")
    parser.add_argument("--import", dest="results", type=Path, nargs="+", metavar="RESULTS")
    options = parser.parse_args()
    for path in options.results or ():
        with Store.open(home_dir()) as store:
            tell(path.stem, asyncio.run(import_results(path, store, HOW, lambda _: None)).rows)
    if options.results:
        return
    for path in sorted(options.folder.glob(f"ptx/known-miscompiles/{options.case}/reduced.ptx")):
        program = path.parent.name
        # One has 7.0, which does not know sm_90.
        ptx = re.sub(r"\.version\s+\S+", ".version 8.8", path.read_text())
        ptx = re.sub(r"\.target\s+\w+", f".target sm_{options.sm}", ptx)
        on, way = SASS, GpuWay(place=SassEmulator())
        if options.pack:
            on, way = GPU, GpuWay(pack=options.pack / f"{program}.pack")
        try:
            report = asyncio.run(executed(ptx, way, on, options.ptxas))
        except TriageError as error:
            print(program, "", "not_run", str(error).replace("\n", " ")[:200], sep="\t", flush=True)
            continue
        if isinstance(report, RunReport):
            tell(program, report.rows)


if __name__ == "__main__":
    main()
