"""`triage run --trace`: which element of which two runs, and the way of the difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gpu_emulator.values import Element, Schedule, Trace, TraceInput
from harness.frontends.bench import Workbench
from harness.frontends.registry import front_end
from harness.run.comparing import ELEMENTS, Array, as_tensor, near
from harness.run.emulating import emulate, trace_once
from harness.run.emulator_jobs import Emulation, Ran, RunTrial
from harness.run.executing import Beside
from harness.run.judging import schedule_words, source_line
from harness.run.launch import NotRunError, RunEvidence
from harness.run.references import Another
from harness.values.errors import UsageError
from harness.values.execution import Argument, TraceFacts, TraceStep
from harness.values.target import Target
from harness.values.toolchain import TRITON

_TRIAL = RunTrial(schedule=Schedule(warps="first", completion="early"))
"""The run of another PTX that is compared."""

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MOST_SPANS = 3
_SAME = (
    "both are made of the same bytes of global memory: what is done with them differs, or the "
    "order in which it is done"
)
_ELEMENT = re.compile(r"(?P<name>[\w.$%]+)(?:\[(?P<index>\s*\d{1,18}\s*(?:,\s*\d{1,18}\s*)*)\])?")
_NUMBER = re.compile(r"[0-9]{1,18}")


def read_element(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Read `NAME` or `NAME[I,J]`.

    Raises:
        UsageError: it is none.
    """
    match = _ELEMENT.fullmatch(text.strip())
    if not match:
        raise UsageError(
            f"--trace {text}: write NAME or NAME[INDEX], for example out[17] or c[0,3]"
        )
    index = match["index"]
    return match["name"], tuple(int(word) for word in index.split(",")) if index else None


async def follow_value(
    bench: Workbench,
    evidence: RunEvidence,
    beside: Beside | None,
    *,
    element: str,
    another: Another | None = None,
) -> TraceFacts:
    """Follow an element back to where two of the runs first differ.

    Of the runs the first is taken, and the first that leaves something else there; with other
    garbage only where schedules agree. With `another` PTX on the same inputs: to what the element
    is made of here, and not in that, by the first run that leaves something else than that does.

    Raises:
        UsageError: there is no such element.
        InfrastructureError: the emulator cannot be started.
    """
    name, index = read_element(element)
    tensors = {tensor.name: tensor for tensor in evidence.tensors}
    if name not in tensors:
        names = ", ".join(tensors) or "none"
        raise UsageError(f"--trace {element}: no tensor {name}; there are: {names}")
    tensor = tensors[name]
    runs = [run for run in evidence.runs if run.buffers]
    program: Emulation | None = None
    if another is None:
        runs += [run for run in evidence.garbage if run.buffers]
        if len(runs) < 2:
            return TraceFacts(element=element, reason="fewer than two runs came to their end")
        pairs = [(runs[0], run) for run in runs[1:]]
        same = f"all runs leave the same in {element}: there is nothing to follow"
    else:
        assert beside is not None, "a kernel has other configs"
        try:
            program = replace(await beside(another), trials=(_TRIAL,))
        except NotRunError as error:
            return TraceFacts(element=element, reason=str(error))
        [right, *_] = (await emulate(bench, program)).value.runs or [Ran(trial=_TRIAL)]
        if not right.buffers:
            why = right.refusal or "it does not come to its end"
            return TraceFacts(element=element, reason=f"{another.words}: {why}")
        if not runs:
            return TraceFacts(element=element, reason="no run came to its end")
        pairs = [(run, right) for run in runs]
        same = f"all runs leave in {element} what the other leaves: there is nothing to follow"

    def values(run: Ran) -> Array:
        sha256 = run.buffers[tensor.buffer]
        data = evidence.contents.get(sha256)
        return as_tensor(tensor, bench.store.artifacts.get(sha256) if data is None else data)

    for first, second in pairs:
        mine, theirs = values(first), values(second)
        shape = mine.shape
        if index is not None and (
            len(index) != len(shape) or any(n >= size for n, size in zip(index, shape, strict=True))
        ):
            raise UsageError(f"--trace {element}: {name} has the shape {list(shape)}")
        # Of one element that is asked for, and between two runs, every bit counts.
        differ = _bits(mine) != _bits(theirs)
        if another and index is None and mine.dtype.kind == "f":
            differ = ~near(mine, theirs, evidence.allowed(tensor))
        if differ.any() and (index is None or differ[index]):
            break
    else:
        return TraceFacts(element=element, reason=same)
    place = np.unravel_index(int(np.argmax(differ)), differ.shape)
    where = index or tuple(int(n) for n in place)
    step = sum(n * stride for n, stride in zip(where, tensor.strides, strict=False))
    target = Element(
        allocation=tensor.buffer, offset=tensor.offset + mine.itemsize * step, size=mine.itemsize
    )
    twice = replace(evidence.launch.emulation, trials=(first.trial, second.trial))
    trace = await trace_once(bench, twice, target, program)
    begins = trace.why
    if another:
        begins = "" if trace.not_run else _begins(trace, evidence, another)
    return TraceFacts(
        element=f"{name}[{', '.join(map(str, where))}]",
        runs=(_words(first), another.words if another else _words(second)),
        values=(str(mine[where]), str(theirs[where])),
        program=trace.program,
        begins=begins,
        steps=tuple(
            TraceStep(
                ptx_line=link.place.ptx_line,
                instruction=link.place.instruction,
                source_line=source_line(link.place),
                thread=link.thread,
                warp=link.warp,
                values=link.values,
            )
            for link in trace.links
        ),
        reason=trace.not_run or "",
    )


def _words(ran: Ran) -> str:
    garbage = ", other garbage" if ran.trial.schedule.garbage else ""
    return schedule_words(ran.trial.schedule) + garbage


def _bits(values: Array) -> Array:
    bits: Array = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    return bits


def _begins(trace: Trace, evidence: RunEvidence, another: Another) -> str:
    if not trace.inputs:
        return _SAME
    parts = []
    for run, side in enumerate(("here", f"with {another.words}")):
        reads = [_read_words(read, evidence.tensors) for read in trace.inputs if read.run == run]
        if reads:
            parts.append(f"only {side} it is made of {' and '.join(reads)}")
    return "; ".join(parts)


def _read_words(read: TraceInput, tensors: Sequence[Argument]) -> str:
    """Bytes of a buffer as elements of the first tensor that is in it."""
    tensor = next((tensor for tensor in tensors if tensor.buffer == read.allocation), None)
    spans = [_span_words(*span, tensor) for span in read.spans]
    more = f" and {len(spans) - _MOST_SPANS} more" if len(spans) > _MOST_SPANS else ""
    name = tensor.name if tensor else f"buffer {read.allocation}"
    return f"{name} {', '.join(spans[:_MOST_SPANS])}{more}"


def _span_words(first: int, behind: int, tensor: Argument | None) -> str:
    if tensor is None or tensor.dtype not in ELEMENTS:
        return f"bytes {first} to {behind - 1}"
    size = ELEMENTS[tensor.dtype].itemsize
    numbers = ((first - tensor.offset) // size, (behind - 1 - tensor.offset) // size)
    return " to ".join(_index(tensor, number) for number in dict.fromkeys(numbers))


def _index(tensor: Argument, number: int) -> str:
    """The place of an element, where the tensor lies in memory row by row."""
    dense = [prod(tensor.shape[n + 1 :]) for n in range(len(tensor.shape))]
    if list(tensor.strides) != dense or not 0 <= number < prod(tensor.shape):
        return f"element {number}"
    place = np.unravel_index(number, tensor.shape)
    return f"[{', '.join(map(str, place))}]"


def read_another(text: str) -> Another:
    """Read `num_stages=1,sm=80,triton=3.6.0`: what is not named is that of the cell.

    Raises:
        UsageError: it is not such a list, or there is no such Triton.
        InfrastructureError: the Triton cannot be installed.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    values = {name.strip(): value.strip() for name, _, value in pairs}
    numbers = {name: value for name, value in values.items() if name in _OPTIONS}
    unknown = values.keys() - numbers.keys() - {"sm", "triton"}
    if unknown or not all(values.values()) or not all(map(_NUMBER.fullmatch, numbers.values())):
        names = ", ".join((*_OPTIONS, "sm", "triton"))
        raise UsageError(f"--beside {text}: write NAME=VALUE,...; the names are {names}")
    return Another(
        words=text,
        target=Target.parse(values["sm"]) if "sm" in values else None,
        compiler=front_end(TRITON).install(values["triton"]) if "triton" in values else None,
        options={name: int(value) for name, value in numbers.items()},
    )
