"""What the runs of one launch mean: the verdict, and what differs where. Pure.

In this order: what could not be executed; faults; values against what they must be; schedules that
disagree; garbage that shows; races. Formal races (the letter of the memory model alone is broken)
are listed, and change no verdict unless they are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gpu_emulator.values import Fault, Place, Race, Schedule
from harness.judging.signature import RULE, template
from harness.run.comparing import Difference, as_tensor, compare
from harness.run.jobs import Ran
from harness.run.launch import RunEvidence, Trusted
from harness.values.cell import CellId
from harness.values.execution import OutputFacts, RaceFacts, RunRow, RunVerdict
from harness.values.row import Row
from harness.values.verdict import Signature

# Faults and races of a run in words, and what of them identifies a bug.


def source_line(place: Place) -> str | None:
    """`kernel.py:12`: the folder of the file is this machine's."""
    return place.source and place.source.rpartition("/")[2]


def fault_words(fault: Fault) -> str:
    """What went wrong, and where."""
    if fault.place is None:
        return fault.what
    where = f"PTX line {fault.place.ptx_line}: {fault.place.instruction}"
    source = f" ({source_line(fault.place)})" if fault.place.source else ""
    return f"{fault.what}; {where}{source}"


def fault_identity(fault: Fault) -> str:
    """What stays the same in other configs and versions: not registers, nor widths."""
    if fault.place is None:
        return fault.what
    source = f" ({source_line(fault.place)})" if fault.place.source else ""
    return f"{fault.what}; {family(fault.place.instruction)}{source}"


def family(instruction: str) -> str:
    """An instruction's name without types and widths: `ld.global`, `cp.async`, `tcgen05.mma`.

    `.shared` is `.shared::cta` (PTX ISA, "State Spaces: .shared"), and is written so.
    """
    words = instruction.split()
    opcode = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
    return ".".join(opcode.rstrip(";").split(".")[:2]).replace(".shared::cta", ".shared")


def race_words(race: Race) -> str:
    """What stays the same of a race in other configs and versions."""
    opcodes = [family(place.instruction) for place in (race.first, race.second)]
    return f"{race.kind} {race.space}: {' and '.join(opcodes)}"


def is_formal(race: Race, *, is_alike: bool) -> bool:
    """Whether only the letter of the memory model is broken.

    `is_alike`: with the warps in either order every byte comes out the same, so what was read of a
    warp beside it shows nowhere. So it is where threads that hold copies of an element read it, and
    one of them updates it.
    """
    return race.formal or (is_alike and race.within_cta)


def race_facts(races: Iterable[Race], *, is_alike: bool = False) -> tuple[RaceFacts, ...]:
    """Each pair of lines once, those with effect first; `is_alike` as in `is_formal`."""
    found: dict[object, RaceFacts] = {}
    for race in races:
        formal = is_formal(race, is_alike=is_alike)
        key = (race.kind, formal, race.first.ptx_line, race.second.ptx_line)
        found.setdefault(
            key,
            RaceFacts(
                kind=race.kind,
                space=race.space,
                formal=formal,
                ptx_lines=(race.first.ptx_line, race.second.ptx_line),
                source_lines=(source_line(race.first), source_line(race.second)),
                what=race.what,
            ),
        )
    return tuple(sorted(found.values(), key=lambda each: each.formal))


EMULATOR_WORDS = "the emulator"
BY_VALUE = (RunVerdict.WRONG_RESULT, RunVerdict.NONDETERMINISTIC)
"""What is said of values; under some schedules only, it may be."""

_FAULTS = {
    "memory_fault": RunVerdict.MEMORY_FAULT,
    "hang": RunVerdict.HANG,
    "trap": RunVerdict.LAUNCH_FAILED,
    "assertion": RunVerdict.LAUNCH_FAILED,
}
_STAGE = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with all that a row tells of it."""

    verdict: RunVerdict
    reason: str
    schedule: str | None = None
    reference: str | None = None
    outputs: tuple[OutputFacts, ...] = ()
    races: tuple[RaceFacts, ...] = ()
    signature: Signature | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    trusted: Trusted
    outputs: tuple[OutputFacts, ...]

    @property
    def is_right(self) -> bool:
        return not any(each.differing for each in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """Runs that left the same bytes, and what they were compared with."""

    runs: list[Ran] = field(default_factory=list)
    compared: list[_Compared] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        final = [each.is_right for each in self.compared if each.trusted.is_final]
        return all(final) if final else any(each.is_right for each in self.compared)


def judge(evidence: RunEvidence) -> Judgement:
    """Say what the runs of one launch mean; of a sample of its programs, no more than it shows."""
    sample = next((ran for ran in evidence.runs if ran.is_sample), None)
    if sample is None:
        return _judge(evidence)
    found = _judge(
        evidence.held_to(*(each for each in evidence.launch.trusted if each.is_emulated))
    )
    said = f"{found.reason}; {sample.ctas:,} of {sample.ctas_of:,} programs were run (--programs)"
    if found.verdict in (RunVerdict.HANG, RunVerdict.UNINITIALISED):
        # They may wait for programs that are left out, or read what these write.
        return Judgement(verdict=RunVerdict.NOT_RUN, reason=said)
    return replace(found, reason=said)


def _judge(evidence: RunEvidence) -> Judgement:
    early = _not_run(evidence) or _fault(evidence)
    if early:
        return replace(early, races=race_facts(_races(evidence)))
    results = _results(evidence)
    found = _by_value(evidence, results)
    orders = {ran.trial.schedule.warps for ran in evidence.runs}
    is_alike = len(results) == 1 and orders >= {"first", "last"}
    races = race_facts(_races(evidence), is_alike=is_alike)
    if found.verdict.is_wrong:
        return replace(found, races=races)
    for each in evidence.launch.asserted:
        if not each.holds and evidence.is_rounding(each):
            said = f"the file's own assertion fails ({each.where}), by what rounding explains"
            found = replace(found, reason=f"{found.reason}; {said}")
    serious = [
        race
        for race in _races(evidence)
        if evidence.launch.formal or not is_formal(race, is_alike=is_alike)
    ]
    if serious:
        found = replace(
            found,
            verdict=RunVerdict.RACE,
            reason=f"{serious[0].what}; the values are not affected under these schedules",
            signature=signature_of(RunVerdict.RACE, race_words(serious[0])),
        )
    elif races:
        said = f"{found.reason}; formal races: in the letter of the memory model alone (--json)"
        found = replace(found, reason=said)
    return replace(found, races=races)


def _not_run(evidence: RunEvidence) -> Judgement | None:
    said = next((ran.not_run for ran in evidence.runs if ran.not_run), None) or evidence.problem
    is_lost = not evidence.runs or any(ran.not_run for ran in evidence.runs)
    if said and (is_lost or not any(ran.faults for ran in evidence.runs)):
        return Judgement(verdict=RunVerdict.NOT_RUN, reason=said)
    return None


def _fault(evidence: RunEvidence) -> Judgement | None:
    for ran in evidence.runs:
        for fault in ran.faults:
            verdict = _FAULTS[fault.kind]
            return Judgement(
                verdict=verdict,
                reason=fault_words(fault),
                schedule=schedule_words(ran.trial.schedule),
                signature=signature_of(verdict, fault_identity(fault)),
            )
    return None


def _results(evidence: RunEvidence) -> list[_Result]:
    groups: dict[tuple[str, ...], _Result] = {}
    for ran in evidence.runs:
        groups.setdefault(ran.buffers, _Result()).runs.append(ran)
    for result in groups.values():
        result.compared.extend(
            _compare(evidence, result.runs[0].buffers, each) for each in evidence.launch.trusted
        )
    return list(groups.values())


def _compare(
    evidence: RunEvidence, buffers: Sequence[str], trusted: Trusted, allowed: float | None = None
) -> _Compared:
    outputs = tuple(_outputs(evidence, buffers, trusted, allowed))
    return _Compared(trusted=trusted, outputs=outputs)


def _outputs(
    evidence: RunEvidence,
    buffers: Sequence[str],
    trusted: Trusted | None,
    allowed: float | None = None,
) -> Iterator[OutputFacts]:
    """Each tensor that was written, or had to be."""
    for tensor in evidence.tensors:
        before = as_tensor(tensor, evidence.contents[evidence.launch.before[tensor.buffer]])
        after = as_tensor(tensor, evidence.contents[buffers[tensor.buffer]])
        must = trusted.buffers[tensor.buffer] if trusted else None
        expected = after if must is None else as_tensor(tensor, evidence.contents[must])
        was = before.tobytes()
        if after.tobytes() == was and expected.tobytes() == was:
            continue
        sha256 = hashlib.sha256(after.tobytes()).hexdigest()
        if must is None:
            yield OutputFacts(
                name=tensor.name, dtype=tensor.dtype, elements=after.size, sha256=sha256
            )
            continue
        most = evidence.allowed(tensor) if allowed is None else allowed
        found = compare(after, expected, most)
        if found.differing:
            # That it is wrong is beyond doubt: then what no rounding explains is what differs.
            found = compare(after, expected, min(most, evidence.rounding))
        yield output_facts(tensor.name, tensor.dtype, found, sha256)


def output_facts(name: str, dtype: str, found: Difference, sha256: str = "") -> OutputFacts:
    """A tensor that was compared; where it differs, the first element that does."""
    is_apart = bool(found.differing)
    where = "[" + ", ".join(map(str, found.first)) + "]" if found.first is not None else None
    return OutputFacts(
        name=name,
        dtype=dtype,
        elements=found.elements,
        differing=found.differing,
        max_abs=found.max_abs,
        rel_err=found.rel_err,
        sha256=sha256,
        where=where if is_apart else None,
        expected=found.expected if is_apart else None,
        actual=found.actual if is_apart else None,
    )


def _by_value(evidence: RunEvidence, results: Sequence[_Result]) -> Judgement:
    depends = _depends_on_garbage(evidence)
    if depends and not evidence.launch.is_clean:
        return _uninitialised(evidence, depends)
    refused = _refused(evidence, results)
    if refused:
        return refused
    wrong = [result for result in results if result.compared and not result.is_right]
    if wrong:
        return _wrong(results, wrong)
    if depends:
        return _uninitialised(evidence, depends)
    disagreement = _disagreement(evidence, results)
    if disagreement:
        return disagreement
    agreed = next((each for each in results[0].compared if each.is_right), None)
    alike = "" if len(results) == 1 else ", schedules differ by rounding only"
    schedules = ", ".join(schedule_words(ran.trial.schedule) for ran in evidence.runs)
    if agreed is None:
        return Judgement(
            verdict=RunVerdict.RAN,
            reason=f"emulated: came to its end{alike}; there is nothing to compare it with",
            schedule=schedules,
            outputs=tuple(_outputs(evidence, results[0].runs[0].buffers, None)),
        )
    return Judgement(
        verdict=RunVerdict.RIGHT,
        reason=f"emulated: agrees with {agreed.trusted.words}{alike}",
        schedule=schedules,
        reference=agreed.trusted.words,
        outputs=agreed.outputs,
    )


def _refused(evidence: RunEvidence, results: Sequence[_Result]) -> Judgement | None:
    """What the launch code's own assertion refuses: values like those that it saw.

    Not where what it compares is apart by what rounding explains: torch rounds otherwise on a CPU.
    """
    for each in evidence.launch.asserted:
        if each.holds or evidence.is_rounding(each):
            continue
        seen = Trusted(words=f"the file's own assertion ({each.where})", buffers=each.buffers)
        firsts = [one.runs[0].buffers for one in results]
        compared = [_compare(evidence, one, seen, evidence.rounding) for one in firsts]
        alike = [one for one in compared if one.is_right]
        if not alike:
            continue
        names = " and ".join(each.kernels)
        also = f"; which of {names} is wrong it does not say" if each.kernels[1:] else ""
        covered = sorted(one.name for one in alike[0].outputs if one.differing is not None)
        runs = [ran for result in results for ran in result.runs]
        return Judgement(
            verdict=RunVerdict.WRONG_RESULT,
            reason=f"emulated: the file's own assertion fails: {each.where}: {each.message}{also}",
            schedule=", ".join(schedule_words(ran.trial.schedule) for ran in runs),
            reference=seen.words,
            outputs=tuple(_outputs(evidence, runs[0].buffers, None)),
            signature=signature_of(
                RunVerdict.WRONG_RESULT, f"refused by an assertion: {', '.join(covered)}"
            ),
        )
    return None


def _wrong(results: Sequence[_Result], wrong: Sequence[_Result]) -> Judgement:
    result = wrong[0]
    compared = result.compared[0]
    worst = max(compared.outputs, key=lambda each: each.differing or 0)
    schedules = [schedule_words(ran.trial.schedule) for each in wrong for ran in each.runs]
    right = [each for each in results if each not in wrong]
    under = ", ".join(schedule_words(ran.trial.schedule) for each in right for ran in each.runs)
    only = f"only under {', '.join(schedules)}, right under {under}: " if right else ""
    names = sorted(each.name for each in compared.outputs if each.differing)
    values = f"{worst.actual:.6g} in place of {worst.expected:.6g}"
    if compared.trusted.is_pipelined:
        values = f"{worst.actual:.6g} and {worst.expected:.6g}; which of them is right is not known"
    return Judgement(
        verdict=RunVerdict.WRONG_RESULT,
        reason=(
            f"emulated: {only}{worst.differing:,} of {worst.elements:,} elements of {worst.name} "
            f"differ from {compared.trusted.words}, by up to {worst.max_abs:.3g}; "
            f"first at {worst.where}: {values}"
        ),
        schedule=", ".join(schedules),
        reference=compared.trusted.words,
        outputs=compared.outputs,
        signature=signature_of(RunVerdict.WRONG_RESULT, f"differs: {', '.join(names)}"),
    )


def beside_gpu(judgement: Judgement, measured: Iterable[RunRow], ptx: str) -> Judgement:
    """With what a GPU did with the same PTX (by its sha256), of values that are wrong.

    `measured` are rows of the cell that a GPU executed, the newest first. Where each of its runs
    left what only some of the emulator's schedules leave, the race is latent there.
    """
    row = next((row for row in measured if row.compiled and row.compiled.ptx_sha256 == ptx), None)
    if row is None:
        return judgement
    if row.schedule:
        said = f"latent on {row.device}, which left what {row.schedule} leave each time (--on gpu)"
        reason = f"emulated: {said}; {judgement.reason.removeprefix('emulated: ')}"
    else:
        is_same = row.run is RunVerdict.RIGHT and row.reference == EMULATOR_WORDS
        said = "its cubin computes the same" if is_same else row.run.value
        reason = f"{judgement.reason}; on {row.device} (--on gpu): {said}"
    return replace(judgement, reason=reason)


def _depends_on_garbage(evidence: RunEvidence) -> str:
    """The tensors that two runs with other garbage leave different; empty where there are none."""
    by_schedule = {_same(ran.trial.schedule): ran for ran in evidence.runs}
    names: list[str] = []
    for ran in evidence.garbage:
        twin = by_schedule.get(_same(ran.trial.schedule))
        if twin is None or twin.buffers == ran.buffers:
            continue
        for tensor in evidence.tensors:
            left, right = (
                as_tensor(tensor, evidence.contents[each.buffers[tensor.buffer]]).tobytes()
                for each in (twin, ran)
            )
            if left != right:
                names.append(tensor.name)
    return ", ".join(dict.fromkeys(names))


def _same(schedule: Schedule) -> Schedule:
    return replace(schedule, garbage=0)


def _uninitialised(evidence: RunEvidence, names: str) -> Judgement:
    runs = (*evidence.runs, *evidence.garbage)
    read = next((each for ran in runs for each in ran.uninitialised), None)
    source, what = "", "what nothing wrote"
    if read:
        what = "what the PTX ISA leaves open" if read.space == "lanes" else what
        place = f" ({source_line(read.place)})" if read.place.source else ""
        source = f"; {read.what}, PTX line {read.place.ptx_line}: {read.place.instruction}{place}"
    outputs = tuple(_outputs(evidence, evidence.runs[0].buffers, None))
    empty = [
        each.name
        for each in evidence.tensors
        if evidence.launch.emulation.buffers[each.buffer].unwritten
        and each.name not in {one.name for one in outputs}
    ]
    if empty:
        source += f"; the launch code only asks for the memory of {', '.join(empty)} (torch.empty)"
    return Judgement(
        verdict=RunVerdict.UNINITIALISED,
        reason=f"emulated: {names} depends on {what}{source}",
        schedule=schedule_words(evidence.garbage[0].trial.schedule),
        outputs=outputs,
        signature=signature_of(
            RunVerdict.UNINITIALISED,
            f"{names} on {family(read.place.instruction)}" if read else f"depends: {names}",
        ),
    )


def _disagreement(evidence: RunEvidence, results: Sequence[_Result]) -> Judgement | None:
    """Schedules that leave what rounding in another order does not explain."""
    first = results[0].runs[0]
    base = Trusted(
        words=f"the schedule {schedule_words(first.trial.schedule)}", buffers=first.buffers
    )
    for result in results[1:]:
        compared = _compare(evidence, result.runs[0].buffers, base)
        if compared.is_right:
            continue
        worst = max(compared.outputs, key=lambda each: each.differing or 0)
        other = schedule_words(result.runs[0].trial.schedule)
        names = sorted(each.name for each in compared.outputs if each.differing)
        return Judgement(
            verdict=RunVerdict.NONDETERMINISTIC,
            reason=(
                f"emulated: {worst.differing:,} of {worst.elements:,} elements of {worst.name} "
                f"differ between the schedules {schedule_words(first.trial.schedule)} and {other}"
            ),
            schedule=other,
            reference=base.words,
            outputs=compared.outputs,
            signature=signature_of(RunVerdict.NONDETERMINISTIC, f"differs: {', '.join(names)}"),
        )
    return None


def schedule_words(schedule: Schedule) -> str:
    """As `--schedules` takes it."""
    seed = f":{schedule.seed}" if schedule.seed else ""
    return f"{schedule.warps}/{schedule.completion}{seed}"


def signature_of(verdict: RunVerdict, words: str) -> Signature:
    """What was executed, as a kind of failure; `words` without numbers of one run."""
    return Signature(
        rule=RULE,
        stage=_STAGE,
        kind=verdict.value,
        failing_pass=None,
        code=None,
        template=template(words),
    )


def _races(evidence: RunEvidence) -> list[Race]:
    return [race for ran in (*evidence.runs, *evidence.garbage) for race in ran.races]


# From a judgement to a row.


def run_row(cell: CellId, judgement: Judgement, **more: Any) -> RunRow:  # noqa: ANN401 - fields
    """The row of a cell that was executed, or could not be."""
    return RunRow(
        cell=str(cell),
        short=cell.short,
        kernel=cell.kernel,
        launch=cell.launch,
        config=cell.config.as_dict(),
        target=str(cell.target),
        run=judgement.verdict,
        run_reason=judgement.reason,
        run_signature=judgement.signature.key if judgement.signature else None,
        reference=judgement.reference,
        schedule=judgement.schedule,
        outputs=judgement.outputs,
        races=judgement.races,
        **more,
    )


def as_document(row: RunRow) -> dict[str, Any]:
    """A row for JSON: the keys of a compiled cell (null where it was not), and the run's."""
    compiled = {each.name: getattr(row.compiled, each.name, None) for each in fields(Row)}
    run = {name: getattr(row, name) for name in row.__struct_fields__ if name != "compiled"}
    return {**compiled, **run}
