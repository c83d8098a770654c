"""What the runs of one launch mean: the verdict, and what differs where. Pure.

In this order: what could not be executed; faults; values against what they must be; schedules that
disagree; garbage that shows; races. Formal races (the letter of the memory model alone is broken,
or no more than rounding comes of them) are listed, and change no verdict unless they are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from msgspec import structs

from gpu_emulator.values import Fault, Place, Race, Schedule
from harness.judging.signature import run_template
from harness.run.comparing import Difference, compare
from harness.run.emulator_jobs import Ran
from harness.run.launch import RunEvidence, Trusted
from harness.values.cell import CellId
from harness.values.execution import OutputFacts, RaceFacts, RunRow
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, EVIDENCE, without_evidence
from harness.values.verdict import Signature, Stage, VerdictKind

# Faults and races of a run in words, and what of them identifies a bug.


def source_line(place: Place) -> str | None:
    """`kernel.py:12`: the folder of the file is this machine's."""
    return place.source and place.source.rpartition("/")[2]


def place_words(place: Place) -> str:
    """The instruction, its line, and that of the source where it is known."""
    source = f" ({source_line(place)})" if place.source else ""
    return f"{place.words}: {place.instruction}{source}"


def fault_words(fault: Fault) -> str:
    """What went wrong, and where."""
    return f"{fault.what}; {place_words(fault.place)}" if fault.place else fault.what


def fault_identity(fault: Fault) -> str:
    """What stays the same in other configs and versions: not registers, nor widths."""
    if fault.place is None:
        return fault.what
    return f"{fault.what}; {family(fault.place.instruction)}"


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


def is_formal(race: Race, *, is_alike: bool, is_near: bool) -> bool:
    """Whether only the letter of the memory model is broken, or rounding is all that comes of it.

    `is_alike`: with the warps in either order every byte comes out the same, so what was read of a
    warp beside it shows nowhere. So it is where threads that hold copies of an element read it, and
    one of them updates it. `is_near`: in either order no value is wrong. Lanes of one store that
    hold copies of a sum, each with other last bits, have both orders (`Schedule` of the emulator).
    """
    if race.kind == "lanes":
        return is_near
    return race.formal or (is_alike and race.within_cta)


def race_facts(
    races: Iterable[Race], *, is_alike: bool = False, is_near: bool = False
) -> tuple[RaceFacts, ...]:
    """Each pair of lines once, those with effect first; the rest is as in `is_formal`."""
    pairs: dict[object, RaceFacts] = {}
    for race in races:
        facts = RaceFacts(
            kind=race.kind,
            space=race.space,
            words=race_words(race),
            formal=is_formal(race, is_alike=is_alike, is_near=is_near),
            ptx_lines=(race.first.ptx_line, race.second.ptx_line),
            source_lines=(source_line(race.first), source_line(race.second)),
            what=race.what,
        )
        pairs.setdefault((facts.kind, facts.formal, facts.ptx_lines), facts)
    return tuple(sorted(pairs.values(), key=lambda facts: facts.formal))


EMULATOR_WORDS = "the emulator"
EMULATED_PTX = "the emulated PTX"
BY_VALUE = (VerdictKind.WRONG_RESULT, VerdictKind.NONDETERMINISTIC)
"""What is said of values; under some schedules only, it may be."""

FAULTS: dict[str, VerdictKind] = {
    "memory_fault": VerdictKind.MEMORY_FAULT,
    "hang": VerdictKind.HANG,
    "trap": VerdictKind.LAUNCH_FAILED,
    "assertion": VerdictKind.LAUNCH_FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with all that a row tells of it."""

    verdict: VerdictKind
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
        return not any(output.differing for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """Runs that left the same bytes, and what they were compared with."""

    runs: list[Ran] = field(default_factory=list)
    compared: list[_Compared] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        final = [comparison.is_right for comparison in self.compared if comparison.trusted.is_final]
        return all(final) if final else any(comparison.is_right for comparison in self.compared)

    @property
    def is_wrong(self) -> bool:
        is_held = any(not comparison.trusted.may_differ for comparison in self.compared)
        return is_held and not self.is_right

    @property
    def schedules(self) -> str:
        return _schedules(self.runs)


def judge(evidence: RunEvidence) -> Judgement:
    """Say what the runs of one launch mean, also of those with fewer blocks at once.

    If none of these goes on with as many as fit on the target, it hangs there.
    """
    launch = evidence.launch
    stuck = next((ran for ran in evidence.ran if launch.lacks_blocks(ran)), None)
    if stuck and launch.resident == launch.fits:
        fault = stuck.faults[0]
        hang = Judgement(
            verdict=VerdictKind.HANG,
            reason=f"{evidence.how}: {fault_words(fault)}; more do not fit on the target",
            schedule=schedule_words(stuck.trial.schedule),
            signature=signature_of(VerdictKind.HANG, fault_identity(fault)),
        )
        return _of_sample(hang, stuck)
    evidence = replace(evidence, ran=tuple(ran for ran in evidence.ran if ran is not stuck))
    sample = next((ran for ran in evidence.runs if ran.is_sample), None)
    if sample:
        # Of a sample of its programs, no more than it shows.
        sampled = (trusted for trusted in launch.trusted if trusted.is_sampled)
        judgement = _of_sample(_judge(evidence.held_to(*sampled)), sample)
    else:
        judgement = _judge(evidence)
    if launch.resident and judgement.verdict.is_fine_run and not (stuck and stuck.is_sample):
        words = f"it ends with {launch.resident:,} of {launch.blocks:,} blocks at once, too"
        if stuck:
            words = f"a grid hangs that does not fit as a whole: {fault_words(stuck.faults[0])}"
        judgement = replace(judgement, reason=f"{judgement.reason}; {words}")
    return judgement


def _of_sample(judgement: Judgement, sample: Ran) -> Judgement:
    if not sample.is_sample:
        return judgement
    programs = f"{sample.ctas:,} of {sample.ctas_of:,} programs were run (--programs)"
    reason = f"{judgement.reason}; {programs}"
    if judgement.verdict in (VerdictKind.HANG, VerdictKind.UNINITIALISED):
        # They may wait for programs that are left out, or read what these write.
        return Judgement(verdict=VerdictKind.NOT_RUN, reason=reason)
    return replace(judgement, reason=reason)


def _judge(evidence: RunEvidence) -> Judgement:
    all_races = [race for ran in evidence.ran for race in ran.races]
    early = _fault(evidence)
    refusal = next((ran.refusal for ran in evidence.runs if ran.refusal), evidence.problem)
    if refusal and not early:
        early = Judgement(verdict=VerdictKind.NOT_RUN, reason=refusal)
    if early:
        return replace(early, races=race_facts(all_races))
    results = _results(evidence)
    judgement = _by_value(evidence, results)
    has_orders = {ran.trial.schedule.warps for ran in evidence.runs} >= {"first", "last"}
    is_alike, is_near = (
        len(results) == 1 and has_orders,
        has_orders and not judgement.verdict.is_failure,
    )
    races = race_facts(all_races, is_alike=is_alike, is_near=is_near)
    if judgement.verdict.is_failure:
        return replace(judgement, races=races)
    for assertion in evidence.launch.asserted:
        if not assertion.holds and evidence.is_rounding(assertion):
            words = f"the file's own assertion fails ({assertion.where}), by what rounding explains"
            judgement = replace(judgement, reason=f"{judgement.reason}; {words}")
    serious = [
        race
        for race in all_races
        if evidence.launch.formal or not is_formal(race, is_alike=is_alike, is_near=is_near)
    ]
    if serious:
        judgement = replace(
            judgement,
            verdict=VerdictKind.RACE,
            reason=f"{serious[0].what}; the values are not affected under these schedules",
            signature=signature_of(VerdictKind.RACE, race_words(serious[0])),
        )
    elif races:
        lanes = next((race.what for race in races if race.kind == "lanes"), None)
        words = "formal races: in the letter of the memory model alone (--json)"
        if lanes:
            words = f"{lanes}: whichever stays, values differ by rounding at most"
        judgement = replace(judgement, reason=f"{judgement.reason}; {words}")
    return replace(judgement, races=races)


def _fault(evidence: RunEvidence) -> Judgement | None:
    faulty = [ran for ran in evidence.runs if ran.faults]
    if not faulty:
        return None
    fault, schedules = faulty[0].faults[0], _schedules(faulty)
    verdict = FAULTS[fault.kind]
    ended = _schedules(ran for ran in evidence.runs if ran.ended)
    only = f"only under {schedules}, not under {ended}: " if ended else ""
    return Judgement(
        verdict=verdict,
        reason=f"{only}{fault_words(fault)}",
        schedule=schedules,
        signature=signature_of(verdict, fault_identity(fault)),
    )


def _results(evidence: RunEvidence) -> list[_Result]:
    groups: dict[tuple[str, ...], _Result] = {}
    for ran in evidence.runs:
        groups.setdefault(ran.buffers, _Result()).runs.append(ran)
    for result in groups.values():
        result.compared.extend(
            _compare(evidence, result.runs[0], trusted) for trusted in evidence.launch.trusted
        )
    return list(groups.values())


def _compare(
    evidence: RunEvidence, ran: Ran, trusted: Trusted, allowed: float | None = None
) -> _Compared:
    outputs = tuple(_outputs(evidence, ran, trusted, allowed))
    return _Compared(trusted=trusted, outputs=outputs)


def _outputs(
    evidence: RunEvidence, ran: Ran, trusted: Trusted | None = None, allowed: float | None = None
) -> Iterator[OutputFacts]:
    """Each tensor that was written, or had to be."""
    for tensor in evidence.tensors:
        after = evidence.values(tensor, ran.buffers)
        must = trusted.buffers if trusted and trusted.buffers[tensor.buffer] is not None else None
        expected = after if must is None else evidence.values(tensor, must)
        was = evidence.values(tensor, evidence.launch.before).tobytes()
        if after.tobytes() == was and expected.tobytes() == was:
            continue
        sha256 = hashlib.sha256(after.tobytes()).hexdigest()
        if must is None:
            yield OutputFacts(
                name=tensor.name, dtype=tensor.dtype, elements=after.size, sha256=sha256
            )
            continue
        most = evidence.allowed(tensor) if allowed is None else allowed
        difference = compare(after, expected, most)
        if difference.differing:
            # That it is wrong is beyond doubt: then what no rounding explains is what differs.
            difference = compare(after, expected, min(most, evidence.rounding))
        facts = output_facts(tensor.name, tensor.dtype, difference, sha256)
        baseline = evidence.launch.baseline
        if trusted and trusted.is_final and baseline and baseline[tensor.buffer]:
            other = compare(evidence.values(tensor, baseline), expected, most).rel_err
            if facts.rel_err is not None and other:
                facts = structs.replace(facts, error_ratio=facts.rel_err / other)
        yield facts


def output_facts(name: str, dtype: str, difference: Difference, sha256: str = "") -> OutputFacts:
    """A tensor that was compared; where it differs, the first element that does."""
    measures, where = asdict(difference), None
    place = measures.pop("first")
    if difference.differing:
        where = f"[{', '.join(map(str, place or ()))}]"
    else:
        measures |= {"expected": None, "actual": None}
    return OutputFacts(name=name, dtype=dtype, sha256=sha256, where=where, **measures)


def differing(outputs: Sequence[OutputFacts]) -> tuple[OutputFacts, str, str]:
    """The output that differs most, how much of it in words, and all that differ by name."""
    worst = max(outputs, key=lambda output: output.differing or 0)
    names = ", ".join(sorted(output.name for output in outputs if output.differing))
    words = f"{worst.differing:,} of {worst.elements:,} elements of {worst.name} differ"
    return worst, words, f"differs: {names}"


def _by_value(evidence: RunEvidence, results: Sequence[_Result]) -> Judgement:
    depends = _depends_on_garbage(evidence)
    if depends and not evidence.launch.is_clean:
        return _uninitialised(evidence, depends)
    refused = _refused(evidence, results)
    if refused:
        return refused
    wrong = [result for result in results if result.is_wrong]
    if wrong:
        return _wrong(evidence, results, wrong)
    if depends:
        return _uninitialised(evidence, depends)
    disagreement = _disagreement(evidence, results)
    if disagreement:
        return disagreement
    compared = results[0].compared
    independent = [each for each in compared if not each.trusted.is_emulated]
    independent.sort(key=lambda each: each.trusted.is_same_config)
    agreeing = next((each for each in (*independent, *compared) if each.is_right), None)
    rounding = "" if len(results) == 1 else ", schedules differ by rounding only"
    schedules = _schedules(evidence.runs)
    if agreeing is None:
        return Judgement(
            verdict=VerdictKind.RAN,
            reason=f"{evidence.how}: finished{rounding}; no reference to compare with",
            schedule=schedules,
            outputs=tuple(_outputs(evidence, results[0].runs[0])),
        )
    is_right = agreeing in independent
    against = [each.trusted.words for each in independent if not each.trusted.may_differ]
    words = "" if is_right else "".join(f", not with {words}" for words in against)
    verdict = VerdictKind.RIGHT if is_right else VerdictKind.CONSISTENT
    if agreeing.trusted.is_same_config:
        verdict, words = VerdictKind.AS_INTERPRETED, f", for the same config{words}"
    ratios = [output.error_ratio for output in agreeing.outputs if output.error_ratio is not None]
    if ratios:
        words += f"; its error is {max(ratios):.2f} times that of the repro's baseline at most"
    return Judgement(
        verdict=verdict,
        reason=f"{evidence.how}: agrees with {agreeing.trusted.words}{words}{rounding}",
        schedule=schedules,
        reference=agreeing.trusted.words,
        outputs=agreeing.outputs,
    )


def _refused(evidence: RunEvidence, results: Sequence[_Result]) -> Judgement | None:
    """What the launch code's own assertion refuses: values like those that it saw.

    Not where what it compares is apart by what rounding explains: torch rounds otherwise on a CPU.
    """
    for assertion in evidence.launch.asserted:
        if assertion.holds or evidence.is_rounding(assertion):
            continue
        values = Trusted(
            words=f"the file's own assertion ({assertion.where})", buffers=assertion.buffers
        )
        compared = (
            _compare(evidence, result.runs[0], values, evidence.rounding) for result in results
        )
        match = next((comparison for comparison in compared if comparison.is_right), None)
        if not match:
            continue
        names = " and ".join(assertion.kernels)
        also = f"; which of {names} is wrong it does not say" if assertion.kernels[1:] else ""
        covered = sorted(output.name for output in match.outputs if output.differing is not None)
        message = f"{assertion.where}: {assertion.message}"
        return Judgement(
            verdict=VerdictKind.WRONG_RESULT,
            reason=f"{evidence.how}: the file's own assertion fails: {message}{also}",
            schedule=", ".join(result.schedules for result in results),
            reference=values.words,
            outputs=tuple(_outputs(evidence, results[0].runs[0])),
            signature=signature_of(
                VerdictKind.WRONG_RESULT, f"refused by an assertion: {', '.join(covered)}"
            ),
        )
    return None


def _wrong(
    evidence: RunEvidence, results: Sequence[_Result], wrong: Sequence[_Result]
) -> Judgement:
    compared = wrong[0].compared[0]
    worst, words, names = differing(compared.outputs)
    schedules = ", ".join(result.schedules for result in wrong)
    right = ", ".join(result.schedules for result in results if result not in wrong)
    only = f"only under {schedules}, right under {right}: " if right else ""
    values = f"{worst.actual:.6g} in place of {worst.expected:.6g}"
    if compared.trusted.is_pipelined:
        values = f"{worst.actual:.6g} and {worst.expected:.6g}; which of them is right is not known"
    return Judgement(
        verdict=VerdictKind.WRONG_RESULT,
        reason=(
            f"{evidence.how}: {only}{words} from {compared.trusted.words}, by up to "
            f"{worst.max_abs:.3g}; first at {worst.where}: {values}"
        ),
        schedule=schedules,
        reference=compared.trusted.words,
        outputs=compared.outputs,
        signature=signature_of(VerdictKind.WRONG_RESULT, names),
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
        words = f"latent on {row.device}, which left what {row.schedule} leave each time (--on gpu)"
        reason = f"{EVIDENCE[EMULATOR]}: {words}; {without_evidence(judgement.reason)}"
    else:
        is_same = row.run is VerdictKind.RIGHT and row.reference == EMULATOR_WORDS
        words = "its cubin computes the same" if is_same else row.run.value
        reason = f"{judgement.reason}; on {row.device} (--on gpu): {words}"
    return replace(judgement, reason=reason)


def _depends_on_garbage(evidence: RunEvidence) -> str:
    """The tensors that two runs with other garbage leave different; empty where there are none."""
    by_schedule = {ran.trial.schedule: ran for ran in evidence.runs}
    names: list[str] = []
    for ran in evidence.garbage:
        twin = by_schedule.get(replace(ran.trial.schedule, garbage=0))
        if twin is None or twin.buffers == ran.buffers:
            continue
        for tensor in evidence.tensors:
            left, right = (evidence.values(tensor, run.buffers) for run in (twin, ran))
            if left.tobytes() != right.tobytes():
                names.append(tensor.name)
    return ", ".join(dict.fromkeys(names))


def _uninitialised(evidence: RunEvidence, names: str) -> Judgement:
    read = next((read for ran in evidence.ran for read in ran.uninitialised), None)
    details, cause = "", "what nothing wrote"
    if read:
        cause = "what the PTX ISA leaves open" if read.space == "lanes" else cause
        details = f"; {read.what}, {place_words(read.place)}"
    outputs = tuple(_outputs(evidence, evidence.runs[0]))
    written = {output.name for output in outputs}
    empty = [
        tensor.name
        for tensor in evidence.tensors
        if evidence.launch.emulation.buffers[tensor.buffer].unwritten and tensor.name not in written
    ]
    if empty:
        details += f"; the launch code only asks for the memory of {', '.join(empty)} (torch.empty)"
    return Judgement(
        verdict=VerdictKind.UNINITIALISED,
        reason=f"{evidence.how}: {names} depends on {cause}{details}",
        schedule=schedule_words(evidence.garbage[0].trial.schedule),
        outputs=outputs,
        signature=signature_of(
            VerdictKind.UNINITIALISED,
            f"{names} on {family(read.place.instruction)}" if read else f"depends: {names}",
        ),
    )


def _disagreement(evidence: RunEvidence, results: Sequence[_Result]) -> Judgement | None:
    """Schedules that leave what rounding in another order does not explain."""
    first = results[0].runs[0]
    first_words = schedule_words(first.trial.schedule)
    base = Trusted(words=f"the schedule {first_words}", buffers=first.buffers)
    for result in results[1:]:
        compared = _compare(evidence, result.runs[0], base)
        if compared.is_right:
            continue
        _, words, names = differing(compared.outputs)
        schedule = schedule_words(result.runs[0].trial.schedule)
        return Judgement(
            verdict=VerdictKind.NONDETERMINISTIC,
            reason=f"{evidence.how}: {words} between the schedules {first_words} and {schedule}",
            schedule=schedule,
            reference=base.words,
            outputs=compared.outputs,
            signature=signature_of(VerdictKind.NONDETERMINISTIC, names),
        )
    return None


def schedule_words(schedule: Schedule) -> str:
    """As `--schedules` takes it."""
    seed = f":{schedule.seed}" if schedule.seed else ""
    resident = f"@{schedule.resident}" if schedule.resident else ""
    return f"{schedule.warps}/{schedule.completion}{seed}{resident}"


def _schedules(runs: Iterable[Ran]) -> str:
    return ", ".join(schedule_words(ran.trial.schedule) for ran in runs)


def signature_of(verdict: VerdictKind, words: str) -> Signature:
    """What was executed, as a kind of failure; `words` without numbers of one run."""
    return Signature(
        stage=Stage.RUN.value,
        kind=verdict.value,
        failing_pass=None,
        code=None,
        template=run_template(words),
    )


# From a judgement to a row.


def run_row(cell: CellId, judgement: Judgement, **more: Any) -> RunRow:  # noqa: ANN401 - fields
    """The row of a cell that was executed, or could not be."""
    return RunRow(
        **cell.names,
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
    compiled = {name: getattr(row.compiled, name, None) for name in Row.__struct_fields__}
    run = {name: getattr(row, name) for name in row.__struct_fields__ if name != "compiled"}
    return {**compiled, **run, "suspect": row.suspect or compiled["suspect"]}
