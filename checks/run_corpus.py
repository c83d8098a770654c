"""The corpus, executed on the emulator: writes docs/measured/run-corpus.md.

    python checks/run_corpus.py [--kernel K] [--sm SM] [--triton X] [--again VERDICT]
                                    [--older] [--time SECONDS] [--page]
                                    [--on sass [--ptxas V] [--sample N]]
                                    [--pack FOLDER] [--beside RESULTS ...]

Each kernel of the corpus on each target with each Triton, at the small sizes of its repro, with
the first of its configs that compiles. Rows are kept in `run_corpus.jsonl` beside this file as they
are found, so that a later call goes on where an earlier one ended, on another machine too.
`--again` repeats those with a verdict, `--older` those that another emulator executed, `--time`
bounds a call, and `--page` only writes the page. `--on sass` executes the cubins that each ptxas
makes of the same cells at -O3, beside their PTX and a cubin at -O0; of `--sample` kernels alone,
which are drawn with the seed `SEED`. `--pack` writes a pack of each kernel in place of executing
it, for a machine with a GPU (`python3 PACK --out RESULTS`); `--beside` emulates the SASS of the
same cubins on the same inputs, and keeps how far apart the two are. Nothing in that page is typed
in, apart from what `FOLLOWED` says of an alarm that was followed to its end, and `NO_GPU` of what
no GPU could execute.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions, at_bench
from harness.cells.repros.find import find_kernels
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.frontends.plan import Selection
from harness.io.files.locations import home_dir
from harness.run.comparing import Array, compare
from harness.run.emulating import emulator_sha256
from harness.run.executing import RunReport
from harness.run.executors import run_selections
from harness.run.gpu.evaluating import GpuQuestion, ask_gpu, find_gpu_batch
from harness.run.gpu.gpu_batch import GpuBatch
from harness.run.gpu.measured import Measured
from harness.run.gpu.packing import GpuWay, head_of_file, read_results
from harness.run.gpu.sass_emulator import SassEmulator
from harness.run.judging import as_document, differing, output_facts
from harness.run.launch import RunEvidence
from harness.run.raw import inputs_of
from harness.run.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Config, ConfigFilter
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, GPU, SASS

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "run-corpus.md"
ROWS = Path(__file__).with_name("results") / "run_corpus.jsonl"
KEPT = (
    "kernel", "target", "triton", "run", "run_reason", "run_signature", "reference", "seconds",
    "instructions_run",
)  # fmt: skip
TARGETS = ("80", "90a", "100a", "120a")
TRITONS = ("3.9.0", "3.6.0")
PTXAS = ("12.8.93", "12.9.86", "13.0.88", "13.3.73", "13.5.37")
SEED = 29
PROGRAMS = 8
"""So many programs of each launch are executed, from the first to the last of its grid."""
CONFIGS = 3
"""So many configs are tried where the first ones do not compile."""
HOW = CompileOptions(jobs=1, command="checks/run_corpus.py")
TOGETHER = 8
"""So many kernels share processes, and the time is looked at between them."""
_NO_LAUNCH = "it does not compile|out_of_resources|a block of"
EXECUTED = ("right", "as_interpreted", "consistent", "ran")

_SEE = "[wrong-code.md](wrong-code.md)"
FOLLOWED: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "one_pass_variance", "*", "3.[89].*", "race",
        f"true: a repro of triton-lang/triton#11614 ({_SEE})",
    ),
    (
        "liger_layer_norm_*", "*", "3.[89].*", "race",
        f"true: the store of triton-lang/triton#11614, sums of products ({_SEE})",
    ),
    (
        "mamba3_angle_dt_bwd", "*", "*", "race",
        f"true: four lanes store unequal copies of one sum, in every Triton ({_SEE})",
    ),
    (
        "verdict_compiler_crash_exit", "*", "3.[89].*", "uninitialised",
        "true: from 3.8.0 on LLVM reports the constraint, and Triton goes on without the code",
    ),
    (
        "verdict_compiler_crash_exit", "*", "3.[89].*", "differs",
        "expected: it stores a register that nothing writes (uninitialised, emulated)",
    ),
    (
        "mamba3_siso_fwd", "sm_[91]*", "3.[567].*", "wrong_result",
        f"true: a bulk store, then a bulk load of the same memory ({_SEE})",
    ),
    (
        "two_dots", "sm_100a", "3.[5678].*", "wrong_result",
        f"true: a repro of triton-lang/triton#10821 ({_SEE})",
    ),
    (
        "passed_on", "sm_[91]*", "3.[4567].*", "wrong_result",
        f"true: a bulk store, then a bulk load of the same memory ({_SEE})",
    ),
    (
        "scaled_values", "sm_100a", "*", "wrong_result",
        "true: open in the newest Triton (reports/running-state)",
    ),
    (
        "triton_product_in_branch", "*", "*", "wrong_result",
        "true: wrong on an H100, too (tests/tools/test_wrong_code.py)",
    ),
    (
        "triton_split_memory", "*", "3.9.*", "wrong_result",
        "true: reports/hunt-specialised-split-memory",
    ),
    (
        "triton_two_stores", "*", "3.9.*", "hang", "true: reports/hunt-specialised-two-stores",
    ),
    (
        "triton_*", "sm_100a", "3.6.*", "memory_fault",
        (
            "true by the letter: the last `tcgen05.commit` of the loop arrives at a barrier that "
            "`mbarrier.inval` ends without a wait for it; no result depends on it"
        ),
    ),
    (
        "verdict_trap_stub*", "*", "*", "launch_failed",
        "true: Triton lowers the kernel to a trap, as `triage compile` says",
    ),
)  # fmt: skip
"""Patterns of kernel, target, Triton and verdict, and what an alarm came to in the end."""

NO_GPU = {
    "verdict_compiler_crash_ptxas": "ptxas crashes on its PTX",
    "verdict_out_of_resources_shared_memory": "its blocks want more shared memory than there is",
    "verdict_out_of_resources_threads": "its blocks have 2,048 threads",
}
"""Kernels of the corpus whose PTX no GPU can be given, and why."""

Row = dict[str, Any]
Place = tuple[str, ...]


def place_of(row: Row) -> Place:
    """Kernel, target, Triton and, of a cubin, ptxas; and its flags, of one that a GPU executed."""
    flags = (row["flags"],) if "gpu" in row else ()
    return row["kernel"], row["target"], row["triton"], row.get("ptxas", ""), *flags


def read_rows(path: Path) -> dict[Place, Row]:
    """The last row of each place."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {place_of(row): row for row in map(json.loads, lines)}


class Nth(ConfigFilter, frozen=True, kw_only=True, eq=False):
    """Lets one config of a launch through, by its number in the order of the tuner."""

    number: int
    seen: list[Config] = []  # noqa: RUF012 - a new list for each, as msgspec has it

    def matches(self, config: Config) -> bool:
        """Whether this is the one."""
        if config not in self.seen:
            self.seen.append(config)
        return self.seen.index(config) == self.number


def fill(path: Path, options: argparse.Namespace) -> None:
    """Execute what has no row yet, and keep each row as it comes, as long as there is time.

    Where a config does not compile, the next one is tried.
    """
    known, ends = read_rows(path), time.monotonic() + options.time
    ptxas = options.ptxas if options.on == SASS or options.pack else []
    together = 1 if ptxas else TOGETHER
    for triton, sm in itertools.product(options.triton, options.sm):
        # One target at a time: the configs that a tuner lists depend on it.
        words = SelectionOptions(kernel=options.kernel, sm=[sm], triton=[triton], ptxas=ptxas)
        every = list(select_all(words))
        if options.sample is not None:
            every = random.Random(SEED).sample(every, min(options.sample, len(every)))
        wanted = [wanted_of(known, one, options) for one in every]
        wanted = [one for one in wanted if one.targets]
        for first in range(0, len(wanted), together):
            left = wanted[first : first + together]
            if time.monotonic() > ends:
                return
            for number in range(CONFIGS):
                chosen = [replace(one, config=Nth(number=number)) for one in left]
                if options.pack:
                    left = [one for one in chosen if not is_packed(one, options.pack)]
                    continue
                rows = execute(path, chosen, ptxas) if chosen else {}
                left = [refused_of(rows, one) for one in left]
                left = [one for one in left if one.targets]


def wanted_of(known: dict[Place, Row], one: Selection, options: argparse.Namespace) -> Selection:
    """With the targets of which there is no row yet, or one that is to be again."""

    def is_wanted(target: Target) -> bool:
        if options.pack:
            return not pack_of(replace(one, targets=(target,)), options.pack).is_file()
        names = one.repro.name, str(target), one.compilers[0].version
        every = options.ptxas if options.on == SASS else [""]
        rows = [known.get((*names, ptxas)) for ptxas in every]
        return any(
            row is None or row["run"] in options.again or (options.older and is_older(row))
            for row in rows
        )

    return replace(one, targets=tuple(filter(is_wanted, one.targets)))


def is_older(row: Row) -> bool:
    """Whether another emulator than this one executed it."""
    return bool(row["emulator"] != emulator_sha256()[:12])


def execute(path: Path, selections: Sequence[Selection], ptxas: Sequence[str]) -> dict[Place, Row]:
    """The rows. What cannot even be captured gets one that says so; `ptxas`: of their cubins."""
    found: dict[Place, Row] = {}
    last = time.monotonic()

    def keep(row: Row) -> None:
        nonlocal last
        wall, last = time.monotonic() - last, time.monotonic()
        if not ptxas:
            row = {**row, "ptxas": ""}
        before = found.get(place_of(row))
        if before and before["run"] not in EXECUTED:
            # It is launched several times: what is wrong with one of them counts.
            return
        found[place_of(row)] = row
        kept = {name: row.get(name) for name in KEPT} | ({"ptxas": row["ptxas"]} if ptxas else {})
        kept |= {"run_reason": row["run_reason"][:400], "rel_err": error_of(row)}
        kept |= {"wall": round(wall, 1), "emulator": emulator_sha256()[:12]}
        with path.open("ab") as file:
            file.write(msgspec.json.encode(kept) + b"\n")
        words = [*place_of(row), row["run"], f"{wall:.1f} s", row["run_reason"][:150]]
        print(*words, flush=True)

    run_them = run_cubins if ptxas else run_all
    failures = asyncio.run(
        run_them(selections, lambda row: keep(msgspec.to_builtins(as_document(row))))
    )
    for one in selections:
        name = one.repro.name
        said = [each for each in failures if ptxas or name in each]
        for target, version in itertools.product(one.targets, ptxas or [""]):
            place = {"target": str(target), "triton": one.compilers[0].version}
            row = {"kernel": name, **place, "ptxas": version, "run": "not_run"}
            if place_of(row) not in found and said:
                keep({**row, "run_reason": said[0]})
    return found


async def run_all(
    selections: Sequence[Selection], keep: Callable[[RunRow], None]
) -> tuple[str, ...]:
    """What could not be captured, in words."""
    trials = trials_of(read_schedules(DEFAULT), races=True)
    budget = Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)
    with Store.open(home_dir()) as store:
        try:
            done = await run_selections(
                selections, store, HOW, trials, budget, lambda _: None, keep
            )
        except TriageError as error:
            return (str(error),)
    return done.failures


async def run_cubins(
    selections: Sequence[Selection], keep: Callable[[RunRow], None]
) -> tuple[str, ...]:
    """The same of the cubins of one selection."""
    try:
        report = await ask(selections, SASS, GpuWay(place=SassEmulator()))
    except EmptySelectionError:
        # There are not so many configs.
        return ()
    except TriageError as error:
        return (str(error),)
    assert isinstance(report, RunReport)
    for row in report.rows:
        keep(row)
    return ()


async def ask(selections: Sequence[Selection], on: str, way: GpuWay) -> RunReport | GpuBatch:
    """Have the cubins of selections executed, or packed."""
    question = GpuQuestion(
        selections=selections,
        inputs=inputs_of,
        levels=(),
        trials=trials_of(read_schedules(DEFAULT), races=True),
        budget=Budget(max_instructions=INSTRUCTIONS),
        how=GpuBatch(command=HOW.command, on=on),
    )
    with Store.open(home_dir()) as store:
        return await ask_gpu(question, way, store, HOW, lambda _: None)


def pack_of(one: Selection, folder: Path) -> Path:
    """Where the pack of a kernel, target and Triton lies."""
    return folder / f"{one.repro.name}-{one.targets[0]}-{one.compilers[0].version}.pack"


def is_packed(one: Selection, folder: Path) -> bool:
    """Whether its cubins are in a pack now; it is said why not."""
    path = pack_of(one, folder)
    try:
        asyncio.run(ask([one], GPU, GpuWay(pack=path)))
    except TriageError as error:
        print(path.name, error, flush=True)
        return False
    print(path.name, path.stat().st_size, "bytes", flush=True)
    return True


async def hold_beside(results: Sequence[Path], rows: Path) -> None:
    """Keep how what a GPU left for packs compares with what the SASS of these cubins leaves."""
    with Store.open(home_dir()) as store:
        async with at_bench(store, HOW) as bench:
            for path in results:
                gpu_batch = find_gpu_batch(store, head_of_file(path))
                gpu = read_results(path, gpu_batch, store.artifacts.get)
                sass = await SassEmulator().answers(bench, gpu_batch)
                before = set(itertools.chain(*(launch.before for launch in gpu_batch.launches)))
                contents = {name: store.artifacts.get(name) if name else b"" for name in before}
                for number, case in enumerate(gpu_batch.carried):
                    evidence = RunEvidence(
                        launch=gpu_batch.launches[case.launch or 0],
                        ran=(),
                        contents={**contents, **sass.blobs, **gpu.blobs},
                    )
                    both = gpu.measured[number], sass.measured[number]
                    verdict, reason = nearness(evidence, *both)
                    version, _, flags = case.cell.ptxas.partition(",")
                    row = {
                        "kernel": case.cell.kernel,
                        "target": str(case.cell.target),
                        "triton": case.compiled.triton,
                        "ptxas": version,
                        "flags": flags or "-O3",
                        "gpu": f"{gpu.gpu.name}, driver {gpu.gpu.driver}, {gpu.gpu.day}",
                        "run": verdict,
                        "run_reason": reason,
                        "emulator": emulator_sha256()[:12],
                    }
                    with rows.open("ab") as file:
                        file.write(msgspec.json.encode(row) + b"\n")
                    print(*row.values(), flush=True)


def nearness(evidence: RunEvidence, gpu: Measured, sass: Measured) -> tuple[str, str]:
    """How near the nearest emulated run of a cubin is to what a GPU left, and in what it is not.

    What the runs of the GPU leave unequal (nothing wrote it, or atomics had another order) is left
    out, and counted.
    """
    if sass.problem:
        return "not_run", sass.problem
    if ended := [run for run in (*gpu.runs, *sass.runs) if run.status != "ended"]:
        return "not_run", f"{ended[0].status}: {ended[0].words}"
    tensors = evidence.tensors
    first, *repeats = [[evidence.values(x, run.buffers) for x in tensors] for run in gpu.ended]
    alike = [np.ones(values.shape, bool) for values in first]
    for repeat in repeats:
        alike = [
            a & (raw(x) == raw(y)).all(-1) for a, x, y in zip(alike, first, repeat, strict=True)
        ]
    left_out = sum(int((~places).sum()) for places in alike)
    found: list[tuple[int, int, str]] = []
    for run in sass.ended:
        outputs, is_equal = [], True
        for tensor, measured, places in zip(tensors, first, alike, strict=True):
            emulated = np.where(places, evidence.values(tensor, run.buffers), measured)
            is_equal &= bool((raw(emulated) == raw(measured)).all())
            difference = compare(emulated, measured, evidence.allowed(tensor))
            outputs.append(output_facts(tensor.name, tensor.dtype, difference))
        worst, words, _ = differing(outputs)
        kind = 0 if is_equal else 2 if worst.differing else 1
        apart = max((each.rel_err or 0.0 for each in outputs), default=0.0)
        found.append((kind, worst.differing or 0, ["", f"{apart:.1g}", words][kind]))
    kind, _, words = min(found)
    unstable = f"{left_out:,} elements differ between two runs on the GPU" if left_out else ""
    return ("equal", "noise", "differs")[kind], "; ".join(filter(None, (words, unstable)))


def raw(values: Array) -> Array:
    """The bytes of each element."""
    return np.ascontiguousarray(values)[..., None].view(np.uint8)


def refused_of(rows: dict[Place, Row], one: Selection) -> Selection:
    """With the targets for which its config does not compile."""

    def is_refused_for(target: Target) -> bool:
        place = (one.repro.name, str(target))
        own = [row for row in rows.values() if (row["kernel"], row["target"]) == place]
        return bool(own) and all(map(is_refused, own))

    return replace(one, targets=tuple(filter(is_refused_for, one.targets)))


def is_refused(row: Row | None) -> bool:
    """Whether its config does not compile."""
    return row is not None and row["run_reason"].startswith("it does not compile")


def error_of(row: Row) -> str:
    """The largest relative error of its outputs."""
    found = [each["rel_err"] for each in row.get("outputs") or [] if each["rel_err"] is not None]
    return f"{max(found):.1g}" if found else "-"


def followed(row: Row) -> str | None:
    """What the alarm of a row came to."""
    names = (row["kernel"], row["target"], row["triton"], row["run"])
    for *patterns, words in FOLLOWED:
        if all(map(fnmatchcase, names, patterns)):
            return words
    return None


def table(rows: dict[Place, Row], triton: str, references: list[str]) -> list[str]:
    """One Triton: a line for each kernel, a column for each target."""
    targets = [f"sm_{sm}" for sm in TARGETS]
    lines = [f"| kernel | {' | '.join(targets)} |", f"|---|{'---|' * len(targets)}"]
    for kernel in dict.fromkeys(name for name, *_ in rows):
        cells = [cell(rows.get((kernel, target, triton, "")), references) for target in targets]
        lines.append(f"| `{kernel}` | {' | '.join(cells)} |")
    return lines


def cell(row: Row | None, references: list[str]) -> str:
    """Verdict, relative error, reference and seconds."""
    if row is None:
        return "-"
    if row["run"] == "not_run":
        return "not run"
    verdict = row["run"] if row["run"] in EXECUTED else f"**{row['run']}**"
    mark = ""
    if row["reference"]:
        if row["reference"] not in references:
            references.append(row["reference"])
        mark = f" [{references.index(row['reference']) + 1}]"
    return f"{verdict} {row['rel_err']}{mark}, {row['seconds']:.1f} s"


def alarms(rows: dict[Place, Row]) -> Iterator[str]:
    """A line for all that is not as it should be, equal reasons together."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows.values():
        if row["run"] not in EXECUTED:
            reason = row["run_reason"].replace("|", "\\|")
            key = (row["run"], row.get("run_signature") or reason, followed(row) or "")
            groups.setdefault((row["kernel"], *key), []).append(row)
    for (kernel, verdict, _, words), found in sorted(groups.items()):
        where = ", ".join(" ".join(place_of(row)[1:]).strip() for row in found)
        said = found[0]["run_reason"].replace("\n", " ")
        yield f"- `{kernel}` ({where}): {verdict}. {said}{f' - **{words}**' if words else ''}"


def page(rows: dict[Place, Row]) -> str:
    """The whole page."""
    rows = dict(sorted(rows.items(), key=lambda each: each[0][0]))
    beside = [row for row in rows.values() if "gpu" in row]
    cubins = {place: row for place, row in rows.items() if place[3] and "gpu" not in row}
    rows = {place: row for place, row in rows.items() if not place[3]}
    count = Counter(row["run"] for row in rows.values())
    compiled = [row for row in rows.values() if not is_refused(row)]
    meant = [row for row in compiled if row["kernel"] not in NO_GPU]
    ran = [row for row in meant if row["run"] != "not_run"]
    older = sum(is_older(row) for row in rows.values())
    seconds = sorted(row["seconds"] or 0.0 for row in ran)
    references: list[str] = []
    tables = [
        line
        for triton in sorted({place[2] for place in rows}, reverse=True)
        for line in (f"## Triton {triton}", "", *table(rows, triton, references), "")
    ]
    median = seconds[len(seconds) // 2] if seconds else 0.0
    no_gpu = "; ".join(f"`{name}`: {why}" for name, why in NO_GPU.items())
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in count.most_common())
    head = f"""# The corpus, executed without a GPU

Every kernel of the corpus (`triage kernels`), at the small sizes of its repro, with the first of
its configs that compiles: lowered by Triton, its PTX executed on the emulator under four
schedules, held to a reference ([run.md](../run.md)). Of each launch {PROGRAMS} programs are
executed, evenly spread over its grid; what they leave is held to what the same programs leave
in the reference.
`python checks/run_corpus.py` generates this page.

Of {len(rows)} cells {len(compiled)} compile to PTX. Without {len(compiled) - len(meant)} that no
GPU could be given ({no_gpu}) that is {len(meant)},
and {len(ran)} of these ({len(ran) / max(len(meant), 1):.1%}) were executed, in {median:.1f} s
a cell (median of all its runs). {verdicts}. {older} rows are of an earlier state of the emulator.

A `-` is a cell that has not been tried yet. Any other is the verdict, the largest relative error of
an output, what it was compared with, and the seconds of all its runs (five, the first with the race
check), on a machine that did other work too.
"""
    notes = [f"[{n}]: {words}" for n, words in enumerate(references, 1)]
    listed = ["## What is not right", "", *alarms(rows)]
    return "\n".join([head, *tables, *notes, "", *listed, "", *shares(cubins), *agreement(beside)])


def shares(rows: dict[Place, Row]) -> Iterator[str]:
    """How many cubins were executed, by target and ptxas; what is not known; alarms."""
    if not rows:
        return
    yield """## The cubins of the same cells

`python checks/run_corpus.py --on sass` has each ptxas make a cubin of the PTX at -O3 and
executes its SASS under two orders of warps and of asynchronous copies, and with other garbage in
registers; what it leaves is held to what the PTX leaves. *Emulated SASS*, nothing measured.
"""
    yield "| target | ptxas | kernels | with a cubin | executed | as the PTX | alarms |"
    yield "|---|---|---|---|---|---|---|"
    unknown: Counter[str] = Counter()
    for target, ptxas in sorted({(row["target"], row["ptxas"]) for row in rows.values()}):
        own = [row for row in rows.values() if (row["target"], row["ptxas"]) == (target, ptxas)]
        made = [row for row in own if not re.match(_NO_LAUNCH, row["run_reason"])]
        ran = [row for row in made if row["run"] != "not_run"]
        fine = [row for row in ran if row["run"] in EXECUTED]
        share = f"{len(ran)} ({len(ran) / max(len(made), 1):.1%})"
        yield (
            f"| {target} | {ptxas} | {len({row['kernel'] for row in own})} | {len(made)} | {share} "
            f"| {len(fine)} | {len(ran) - len(fine)} |"
        )
        unknown.update(row["run_reason"] for row in made if row["run"] == "not_run")
    older = sum(map(is_older, rows.values()))
    yield f"""
Kernels are drawn from the corpus by seed {SEED}, or taken in the order of their names, as far as
the time went: some kernels are no share of the corpus. A cubin is missing where the PTX does not
compile, or a launch would be refused. {older} of these {len(rows)} rows are of an earlier state of
the emulator.
"""
    yield from (f"- not executed ({count}): {reason}" for reason, count in unknown.most_common())
    yield from alarms({place: row for place, row in rows.items() if row["run"] != "not_run"})
    yield ""


def agreement(rows: list[Row]) -> Iterator[str]:
    """What a GPU left, beside what the SASS of the same cubins leaves."""
    if not rows:
        return
    count = Counter(row["run"] for row in rows)
    devices = "; ".join(sorted({row["gpu"] for row in rows}))
    older = sum(map(is_older, rows))
    yield f"""## The same cubins on a GPU

`python checks/run_corpus.py --sm 90a --ptxas 13.5.37 --pack FOLDER` packs the cubins,
`python3 PACK --out RESULTS` launches each of them twice on a GPU, and `--beside RESULTS ...`
emulates their SASS on the same inputs. Elements that the two runs of the GPU leave unequal are left
out, and counted. *Equal* is to the byte, *noise* is within the noise that [run.md](../run.md)
defines, with the relative error. Of {len(rows)} cubins of {len({row["kernel"] for row in rows})}
kernels {count["equal"]} are equal, {count["noise"]} within the noise, {count["differs"]} differ,
and {count["not_run"]} were not executed on both. {older} of these {len(rows)} rows
are of an earlier state of the emulator. *Measured* on {devices}.
"""
    levels = sorted({row["flags"] for row in rows}, reverse=True)
    yield f"| kernel | {' | '.join(f'`{level}`' for level in levels)} |"
    yield f"|---|{'---|' * len(levels)}"
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        own = {row["flags"]: row for row in rows if row["kernel"] == kernel}
        yield f"| `{kernel}` | {' | '.join(near_cell(own.get(level)) for level in levels)} |"
    yield ""
    for row in rows:
        if row["run"] in ("differs", "not_run") or " elements " in row["run_reason"]:
            words = f" - **{words}**" if (words := followed(row)) else ""
            yield f"- `{row['kernel']}` `{row['flags']}`: {row['run']}. {row['run_reason']}{words}"
    yield ""


def near_cell(row: Row | None) -> str:
    """One cubin in the table of agreement."""
    if row is None:
        return "-"
    noise = f" {row['run_reason'].split(';')[0]}" if row["run"] == "noise" else ""
    return f"**{row['run']}**" if row["run"] == "differs" else f"{row['run']}{noise}"


def main() -> None:
    """Execute what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernel", default="*")
    parser.add_argument("--sm", nargs="+", default=TARGETS)
    parser.add_argument("--triton", nargs="+", default=TRITONS)
    parser.add_argument("--again", nargs="+", default=())
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--time", type=float, default=math.inf)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--on", choices=(EMULATOR, SASS), default=EMULATOR)
    parser.add_argument("--ptxas", nargs="+", default=PTXAS)
    parser.add_argument("--rows", type=Path, default=ROWS, help="where rows are kept")
    parser.add_argument("--sample", type=int, metavar="KERNELS")
    parser.add_argument("--pack", type=Path, metavar="FOLDER")
    parser.add_argument("--beside", type=Path, nargs="+", metavar="RESULTS")
    options = parser.parse_args()
    if options.beside:
        asyncio.run(hold_beside(options.beside, options.rows))
    elif not options.page:
        fill(options.rows, options)
    if options.page or options.rows == ROWS:
        known = {repro.name for repro in find_kernels("*")}
        rows = {place: row for place, row in read_rows(options.rows).items() if place[0] in known}
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
