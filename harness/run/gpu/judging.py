"""What cubins of one PTX computed on a GPU, and whose fault it is where they disagree. Pure.

The referee is the emulator: it executed the same PTX on the same inputs. What the repro's author
says comes before it. A cubin is accused only where another one of the same PTX confirms the referee
(or the author does), and only of what the PTX specifies: what depends on approximations, on
contraction or on registers that nothing wrote accuses no cubin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.run.evidence import Trusted
from harness.run.gpu.measured import GpuFacts, GpuRun, Measured
from harness.run.gpu.referee import EMULATOR_WORDS, Referee
from harness.run.judging import Judgement, signature_of
from harness.values.execution import OutputFacts, RunVerdict

# CUDA driver API, CUresult: what a kernel that was started may end with.
_TRAPS = frozenset({710, 715, 718, 719})
_NO_BINARY = 209
_OUT_OF_MEMORY = 2
_WHOLE = 2.0**53


def judge_measured(cases: Sequence[Measured], referee: Referee, gpu: GpuFacts) -> list[Judgement]:
    """Say what each cubin of one launch did; each is a witness of the others."""
    bench = _Bench(cases=cases, referee=referee, gpu=gpu)
    return [bench.judge(case) for case in cases]


def judge_end(case: Measured, names: Sequence[str], gpu: GpuFacts) -> Judgement | None:
    """What went wrong before there were values, by what its machine saw; `names` of the buffers."""
    if not case.runs:
        return _not_run("the GPU's machine gave no result for it: the run was cut off")
    last = case.runs[-1]
    if last.status == "refused":
        return _refused(last, gpu)
    verdict, words = _end_of(last)
    if verdict is None:
        guard = next((each for run in case.runs for each in run.guards), None)
        if guard is None:
            return None
        verdict = RunVerdict.MEMORY_FAULT
        words = f"{guard.bytes} bytes {guard.side} {names[guard.buffer]} were written"
    return Judgement(
        verdict=verdict, reason=f"measured: {words}", signature=signature_of(verdict, words)
    )


@dataclass(slots=True, kw_only=True)
class _Bench:
    """One launch's cubins before their judge."""

    cases: Sequence[Measured]
    referee: Referee
    gpu: GpuFacts

    def judge(self, case: Measured) -> Judgement:
        """The verdict of one cubin."""
        early = self._not_ended(case)
        if early:
            return early
        first, *others = case.ended
        for other in others:
            if self.referee.differing(other.buffers, self._bytes(first)):
                return self._nondeterministic(first, other)
        return self._by_value(case, first)

    def _bytes(self, run: GpuRun) -> tuple[bytes, ...]:
        return tuple(self.referee.contents[sha256] for sha256 in run.buffers)

    def _not_ended(self, case: Measured) -> Judgement | None:
        """What went wrong before there were values."""
        found = judge_end(case, self.referee.names, self.gpu)
        if found is None or found.verdict is RunVerdict.NOT_RUN or _is_refused(case):
            return found
        return self._accused(case, found)

    def _accused(self, case: Measured, found: Judgement) -> Judgement:
        """A fault: the PTX's own where the emulator says so, else the cubin's."""
        of_ptx = self._fault_of_ptx()
        if of_ptx is not None:
            return replace(
                found,
                reason=f"{found.reason}; {of_ptx}",
                reference=EMULATOR_WORDS,
                signature=self.referee.judgement.signature or found.signature,
            )
        unspecified = self._unspecified()
        if unspecified:
            return replace(unspecified, reason=f"{found.reason}; {unspecified.reason}")
        alike = [each.words for each in self._others(case) if self.referee.agrees(each)]
        if self.referee.emulated is None or not alike:
            return found
        return replace(found, reason=f"{found.reason}; {alike[0]} ends as the emulator does")

    def _fault_of_ptx(self) -> str | None:
        """What is wrong with the program itself, with every compiler."""
        found = self.referee.judgement
        if found.verdict in (RunVerdict.RIGHT, RunVerdict.RAN, RunVerdict.NOT_RUN):
            return None
        if found.verdict is RunVerdict.WRONG_RESULT:
            return None
        return f"the PTX itself: {found.verdict.value}, {found.reason}"

    def _others(self, case: Measured) -> Iterable[Measured]:
        return (each for each in self.cases if each is not case)

    def _nondeterministic(self, first: GpuRun, other: GpuRun) -> Judgement:
        unspecified = self._unspecified()
        if unspecified:
            return unspecified
        outputs = self.referee.outputs(other.buffers, self._bytes(first))
        worst = max(outputs, key=lambda each: each.differing or 0)
        reason = (
            f"measured: {worst.differing:,} of {worst.elements:,} elements of {worst.name} differ "
            "between two runs of the same cubin on the same inputs"
        )
        return Judgement(
            verdict=RunVerdict.NONDETERMINISTIC,
            reason=reason,
            outputs=outputs,
            signature=signature_of(RunVerdict.NONDETERMINISTIC, _names(outputs)),
        )

    def _unspecified(self) -> Judgement | None:
        """What the emulator finds wrong with the PTX: then no cubin is to blame."""
        found = self.referee.judgement
        said = self._fault_of_ptx()
        if said:
            return replace(found, reason=f"{said}; the cubin is not accused", outputs=())
        if self.referee.hangs_on_registers:
            names = ", ".join(self.referee.freedom.undefined[:4])
            return Judgement(
                verdict=RunVerdict.UNINITIALISED,
                reason=f"the result depends on registers that nothing wrote: {names}; no cubin is "
                "accused",
                signature=signature_of(RunVerdict.UNINITIALISED, "depends on registers"),
            )
        return None

    def _by_value(self, case: Measured, run: GpuRun) -> Judgement:
        emulated = self.referee.emulated
        author = next((each for each in self.referee.evidence.trusted if each.is_final), None)
        if author:
            outputs = self.referee.outputs(run.buffers, author.buffers)
            if not any(each.differing for each in outputs):
                return Judgement(
                    verdict=RunVerdict.RIGHT,
                    reason=f"measured: agrees with {author.words}",
                    reference=author.words,
                    outputs=outputs,
                )
        if emulated is None:
            return self._faulty_ptx() or self._without_referee(case, run)
        outputs = self.referee.outputs(run.buffers, emulated.buffers)
        if any(each.differing for each in outputs):
            return self._differs(case, outputs, author)
        found = self.referee.judgement
        if found.verdict in (RunVerdict.RIGHT, RunVerdict.RAN):
            return Judgement(
                verdict=RunVerdict.RIGHT,
                reason="measured: agrees with the emulator, which executed the same PTX",
                reference=EMULATOR_WORDS,
                outputs=outputs,
            )
        said = f"agrees with the emulator, which says of the PTX: {found.reason}"
        return replace(found, reason=f"measured: {said}")

    def _faulty_ptx(self) -> Judgement | None:
        """The PTX faults in the emulator and came to an end here: it is wrong all the same.

        Not where it took too long there: a GPU is faster.
        """
        found = self.referee.judgement
        if found.verdict not in (RunVerdict.MEMORY_FAULT, RunVerdict.LAUNCH_FAILED):
            return None
        return replace(found, reason=f"it came to an end; {self._fault_of_ptx()}")

    def _differs(
        self, case: Measured, outputs: tuple[OutputFacts, ...], author: Trusted | None
    ) -> Judgement:
        """A cubin that left something else than the emulator did."""
        unspecified = self._unspecified()
        if unspecified:
            return unspecified
        open_ = self._left_open(case)
        if open_:
            return open_
        witnesses = [each.words for each in self._others(case) if self.referee.agrees(each)]
        # One of the same ptxas says most: what is said depends on no other that went along.
        witnesses.sort(key=lambda words: words.split()[:2] != case.words.split()[:2])
        worst = max(outputs, key=lambda each: each.differing or 0)
        said = (
            f"{worst.differing:,} of {worst.elements:,} elements of {worst.name} differ from "
            f"{EMULATOR_WORDS}'s; first at {worst.where}: {_number(worst.actual)} in place of "
            f"{_number(worst.expected)}"
        )
        agrees = self.referee.judgement.verdict is RunVerdict.RIGHT and author is not None
        if not witnesses and not agrees:
            return _not_run(
                f"measured, and cannot tell: {said}; no other cubin of this PTX agrees with the "
                "emulator, so that either may be wrong; add -O levels or versions of ptxas",
                outputs,
            )
        confirmed = author.words if author and agrees else witnesses[0]
        return Judgement(
            verdict=RunVerdict.WRONG_RESULT,
            reason=f"measured: {said}; {confirmed} agrees with {EMULATOR_WORDS}",
            reference=EMULATOR_WORDS,
            outputs=outputs,
            signature=signature_of(RunVerdict.WRONG_RESULT, f"ptxas: {_names(outputs)}"),
        )

    def _left_open(self, case: Measured) -> Judgement | None:
        """Whether all that differs depends on what the PTX leaves open, or may."""
        freedom = self.referee.freedom
        if freedom.is_exact and not freedom.has_floats:
            return None
        if self.referee.stable_differences(case.ended[0].buffers):
            return None
        return _not_run(
            "measured, and cannot tell: what differs depends on what the PTX leaves open "
            f"({freedom.words or 'which NaN it is'}); no cubin is accused"
        )

    def _without_referee(self, case: Measured, run: GpuRun) -> Judgement:
        """Nothing says what the PTX computes: all that can be said is whether cubins agree."""
        why = self.referee.judgement.reason
        others = [each for each in self._others(case) if each.ended and not _went_wrong(each)]
        apart = [
            each.words
            for each in others
            if self.referee.differing(each.ended[0].buffers, self._bytes(run))
        ]
        if apart:
            return _not_run(
                f"measured, and cannot tell: {apart[0]} computes something else, and the emulator "
                f"does not say which is right: {why}"
            )
        trusted = next(iter(self.referee.evidence.trusted), None)
        if trusted:
            outputs = self.referee.outputs(run.buffers, trusted.buffers)
            if not any(each.differing for each in outputs):
                return Judgement(
                    verdict=RunVerdict.RIGHT,
                    reason=f"measured: agrees with {trusted.words}",
                    reference=trusted.words,
                    outputs=outputs,
                )
        alike = f"agrees with {len(others)} other cubins" if others else "came to its end, alike"
        return Judgement(
            verdict=RunVerdict.RAN,
            reason=f"measured: {alike}; there is nothing to compare it with: {why}",
        )


def _is_refused(case: Measured) -> bool:
    return case.runs[-1].status == "refused"


def _went_wrong(case: Measured) -> bool:
    return any(run.status != "ended" or run.guards for run in case.runs)


def _end_of(run: GpuRun) -> tuple[RunVerdict | None, str]:
    """The verdict of a run that did not come to its end, in words."""
    if run.status == "hang":
        return RunVerdict.HANG, f"no end within {run.seconds or 0:g} s"
    if run.status == "died":
        return RunVerdict.MEMORY_FAULT, f"the process died by signal {run.signal}"
    if run.status == "fault":
        said = f"{run.name} ({run.code}): {run.words}"
        trapped = run.code in _TRAPS
        return (RunVerdict.LAUNCH_FAILED if trapped else RunVerdict.MEMORY_FAULT), said
    return None, ""


def _refused(run: GpuRun, gpu: GpuFacts) -> Judgement:
    """What the driver does not start, with the limit where one is known."""
    limit = ""
    if run.code == _NO_BINARY:
        limit = f"; this GPU is sm_{gpu.capability}"
    elif run.code == _OUT_OF_MEMORY:
        limit = f"; this GPU has {gpu.memory / 2**30:.0f} GiB"
    elif run.needs:
        needs = ", ".join(f"{name} {value}" for name, value in sorted(run.needs.items()))
        limit = (
            f"; the entry has {needs}; this GPU gives a block {gpu.max_shared:,} bytes of shared "
            f"memory and {gpu.max_threads:,} threads"
        )
    return Judgement(
        verdict=RunVerdict.LAUNCH_FAILED,
        reason=f"measured: {run.call}: {run.name} ({run.code}): {run.words}{limit}",
        signature=signature_of(RunVerdict.LAUNCH_FAILED, run.name),
    )


def _not_run(reason: str, outputs: tuple[OutputFacts, ...] = ()) -> Judgement:
    return Judgement(verdict=RunVerdict.NOT_RUN, reason=reason, outputs=outputs)


def _number(value: float | None) -> str:
    """Integers in full: the last digit may be what differs."""
    if value is None:
        return "nothing"
    if value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    return f"{value:.6g}"


def _names(outputs: Sequence[OutputFacts]) -> str:
    return "differs: " + ", ".join(sorted(each.name for each in outputs if each.differing))
