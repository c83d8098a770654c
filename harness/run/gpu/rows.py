"""From answers to rows: each launch is emulated, and its cubins are judged."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from gpu_emulator.values import Checks
from harness.cells.evaluate import Evaluated
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.run.emulating import emulate
from harness.run.executing import Executed
from harness.run.gpu.device.execute import GLIMPSE, glimpse_places
from harness.run.gpu.judging import (
    Glimpsed,
    Referee,
    Variant,
    filled_variants,
    held_together,
    judge_digests,
    judge_measured,
    moved_variants,
    numbers_of,
    read_freedom,
)
from harness.run.gpu.measured import GpuFacts, GpuRun, Measured
from harness.run.gpu.packing import Answers, manifest_bytes
from harness.run.gpu.trip import Trip, TripCase
from harness.run.jobs import JobBuffer
from harness.run.judging import Judgement, judge, run_row
from harness.run.launch import Launch, evidence_of
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.execution import RunVerdict, SanitizerFacts
from harness.values.timing import time_of
from harness.values.toolchain import GPU
from harness.values.verdict import Stage, VerdictKind

_KIND = "trip"

_Judged: TypeAlias = tuple[TripCase, Measured, Judgement]


def keep_trip(store: Store, trip: Trip) -> str:
    """Keep a trip, so that its results can be judged later; the sha256 of its manifest."""
    pack = hashlib.sha256(manifest_bytes(trip)).hexdigest()
    names = set(trip.blobs).union(*(launch.artifacts for launch in trip.launches))
    store.put_evidence(_KIND, pack, msgspec.json.encode(trip), {name: name for name in names})
    return pack


def find_trip(store: Store, pack: str) -> Trip:
    """The trip whose manifest has this sha256.

    Raises:
        UsageError: no pack of this store has it.
    """
    found = store.get_evidence(_KIND, pack)
    if found is None:
        raise UsageError(
            f"the results are of the pack {pack[:12]}, which was not written from these results "
            "(TRIAGE_HOME); import them where `--pack` was given"
        )
    try:
        return msgspec.json.decode(found.body, type=Trip)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the pack {pack[:12]} was written by another version of this program: {error}"
        ) from error


async def judge_trip(
    bench: Workbench, trip: Trip, answers: Answers, tell: Callable[[str], None]
) -> list[Executed]:
    """Judge every case that was asked for, in their order."""
    numbers = {id(case): number for number, case in enumerate(trip.carried)}

    async def judged(index: int, launch: Launch) -> list[_Judged]:
        cases = [case for case in trip.carried if case.launch == index]
        measured = [_measured(case, numbers[id(case)], answers) for case in cases]
        judgements = await _judgements(bench, launch, answers, measured, tell) if cases else []
        return list(zip(cases, measured, judgements, strict=True))

    parts = await asyncio.gather(*(judged(*pair) for pair in enumerate(trip.launches)))
    found = {
        id(case): _executed(case, judgement, answers.gpu, measured)
        for case, measured, judgement in _together(bench.store, trip, list(itertools.chain(*parts)))
    }
    for case in trip.cases:
        if case.problem:
            judgement = Judgement(verdict=RunVerdict.NOT_RUN, reason=case.problem)
            found[id(case)] = _executed(case, judgement, answers.gpu, None)
    return [found[id(case)] for case in trip.cases if not case.is_witness]


def _together(store: Store, trip: Trip, judged: Sequence[_Judged]) -> list[_Judged]:
    """With what cubins say of one another whose values did not come back."""
    seen: dict[int, Glimpsed] = {}
    for number, (case, measured, judgement) in enumerate(judged):
        launch = trip.launches[case.launch or 0]
        if not launch.digest or judgement.verdict is not RunVerdict.RAN:
            continue
        options = front_end(case.compiled.compiler).options
        config = {name: value for name, value in case.cell.config.items if name not in options}
        buffers = launch.emulation.buffers
        left = numbers_of(measured.ended[0].glimpses, launch.tensors, buffers)
        if not left or not case.cubin:
            continue
        places = tuple((each.name, each.file, each.size) for each in buffers)
        seen[number] = Glimpsed(
            place=(case.cell.kernel, case.cell.launch, str(config), places, tuple(left)),
            cubin=case.cubin,
            words=f"{case.cell.config.label} by {case.words}",
            judgement=judgement,
            types=frozenset(launch.types),
            numbers=left,
            changed=_changed(store, measured.ended[0], buffers) & left.keys(),
        )
    held = dict(zip(seen, held_together(list(seen.values())), strict=True))
    return [(*each[:2], held.get(number, each[2])) for number, each in enumerate(judged)]


def _changed(store: Store, run: GpuRun, buffers: Sequence[JobBuffer]) -> frozenset[str]:
    """Names of the buffers that do not look as they did before the launch."""
    return frozenset(
        each.name
        for each, digits in zip(buffers, run.glimpses, strict=False)
        if not each.file or glimpse_before(store.artifacts.get(each.file), each.size) != digits
    )


def glimpse_before(data: bytes, size: int) -> str:
    """What is seen of a buffer of so many bytes that is filled with these, again and again."""
    places = glimpse_places(size) if data else []
    return bytes(data[(at + n) % len(data)] for at in places for n in range(GLIMPSE)).hex()


def _measured(case: TripCase, number: int, answers: Answers) -> Measured:
    runs = tuple(answers.runs.get(number, ()))
    return Measured(
        words=case.words,
        runs=runs,
        times=answers.times.get(number),
        checks=tuple(answers.checks.get(number, ())),
    )


async def _judgements(
    bench: Workbench,
    launch: Launch,
    answers: Answers,
    measured: Sequence[Measured],
    tell: Callable[[str], None],
) -> list[Judgement]:
    if launch.digest:
        text = bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
        buffers = launch.emulation.buffers
        return [judge_digests(each, buffers, text, answers.gpu) for each in measured]
    referee = await _referee(bench, launch, answers, measured, tell)
    return judge_measured(measured, referee, answers.gpu)


async def _referee(
    bench: Workbench,
    launch: Launch,
    answers: Answers,
    measured: Sequence[Measured],
    tell: Callable[[str], None],
) -> Referee:
    """What the emulator says of a launch; of variants of its PTX too, where that matters."""
    tell(f"{launch.emulation.entry}: the emulator executes the PTX")
    emulated = (await emulate(bench, launch.emulation)).value
    text = bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
    evidence = evidence_of(launch, emulated, bench.store.artifacts.get)
    referee = Referee(
        evidence=evidence,
        judgement=judge(evidence),
        freedom=read_freedom(text),
        contents={**evidence.contents, **answers.blobs},
    )
    if not referee.needs_variants(measured):
        return referee
    moved = await _variants(bench, launch, moved_variants(text))
    filled = await _variants(bench, launch, filled_variants(text))
    more = {name for buffers in (*moved, *filled) for name in buffers or ()}
    read = {name: bench.store.artifacts.get(name) for name in more}
    return replace(referee, moved=moved, filled=filled, contents={**referee.contents, **read})


async def _variants(bench: Workbench, launch: Launch, texts: Sequence[str]) -> tuple[Variant, ...]:
    """The buffers after each of these programs was emulated in place of the launch's."""
    found: list[Variant] = []
    for text in texts:
        trial = replace(launch.emulation.trials[0], checks=Checks())
        wanted = replace(
            launch.emulation, ptx=bench.store.artifacts.put(text.encode()), trials=(trial,)
        )
        emulated = (await emulate(bench, wanted)).value
        ended = emulated.runs and emulated.runs[0].ended
        found.append(emulated.runs[0].buffers if ended else None)
    return tuple(found)


def _executed(
    case: TripCase, judgement: Judgement, gpu: GpuFacts, measured: Measured | None
) -> Executed:
    seconds = [run.seconds for run in measured.runs if run.seconds] if measured else []
    times = measured.times if measured and measured.times else None
    compiled = case.compiled
    row = run_row(
        case.cell,
        replace(judgement, races=()),
        triton=compiled.triton,
        on=GPU,
        device=gpu.name,
        seconds=round(sum(seconds), 6) if seconds else None,
        time_ms=time_of(times.ms, times.sm_mhz) if times else None,
        time_samples=times.ms if times else (),
        sm_mhz=times.sm_mhz if times else (),
        sanitizers=tuple(
            SanitizerFacts(tool=each.tool, errors=each.errors, words=each.words)
            for each in (measured.checks if measured else ())
        ),
        compiled=compiled,
    )
    # A result like any other: what was compiled, with the verdict of the run.
    kind = VerdictKind(row.run.value)
    result = replace(
        compiled,
        cell=row.cell,
        short=row.short,
        launch=row.launch,
        verdict=kind.value,
        reason=row.run_reason,
        stage=None if kind.compiles else Stage.RUN.value,
        signature=row.run_signature,
        code=None,
        seconds=row.seconds,
        time_ms=row.time_ms,
    )
    done = Evaluated(row=result, evidence={}, signature=judgement.signature)
    return Executed(row=row, done=done)
