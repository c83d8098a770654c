"""`triage run --trace`: which element of which two runs, and the way of the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_emulator.values import Element, Schedule, Trace, TraceInput
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.run.comparing import ELEMENTS, as_tensor, near
from harness.run.emulating import emulate, trace_once
from harness.run.executing import Beside
from harness.run.jobs import Emulation, Ran, RunTrial
from harness.run.judging import schedule_words, source_line
from harness.run.launch import RunEvidence
from harness.run.launching import NotRunError
from harness.run.references import Another
from harness.values.errors import UsageError
from harness.values.execution import Argument, TraceFacts, TraceStep
from harness.values.target import Target
from harness.values.toolchain import TRITON

_TRIAL = RunTrial(schedule=Schedule(warps="first", completion="early"))
"""The run of another PTX that is compared."""

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MOST_SPANS = 3
Array = npt.NDArray[Any]
_SAME = (
    "both are made of the same bytes of global memory: what is done with them differs, or the "
    "order in which it is done"
)
_ELEMENT = re.compile(r"(?P<name>[\w.$%]+)(?:\[(?P<index>[\d,\s]+)\])?")


def read_element(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Read `NAME` or `NAME[I,J]`.

    Raises:
        UsageError: it is none.
    """
    found = _ELEMENT.fullmatch(text.strip())
    if not found:
        raise UsageError(
            f"--trace {text}: write NAME or NAME[INDEX], for example out[17] or c[0,3]"
        )
    index = found["index"]
    return found["name"], tuple(int(word) for word in index.split(",")) if index else None


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
    tensor, index = _tensor_of(evidence, element)
    ran = [run for run in evidence.runs if run.buffers]
    other: Emulation | None = None
    if another is None:
        ran += [run for run in evidence.garbage if run.buffers]
        if len(ran) < 2:
            return TraceFacts(element=element, reason="fewer than two runs came to their end")
        pairs = [(ran[0], run) for run in ran[1:]]
        same = f"all runs leave the same in {element}: there is nothing to follow"
    else:
        assert beside is not None, "a kernel has other configs"
        try:
            other = replace(await beside(another), trials=(_TRIAL,))
        except NotRunError as error:
            return TraceFacts(element=element, reason=str(error))
        [right, *_] = (await emulate(bench, other)).value.runs or [Ran(trial=_TRIAL)]
        if not right.buffers:
            why = right.not_run or "it does not come to its end"
            return TraceFacts(element=element, reason=f"{another.words}: {why}")
        if not ran:
            return TraceFacts(element=element, reason="no run came to its end")
        pairs = [(run, right) for run in ran]
        same = f"all runs leave in {element} what the other leaves: there is nothing to follow"

    def left(run: Ran) -> Array:
        name = run.buffers[tensor.buffer]
        data = evidence.contents.get(name)
        return as_tensor(tensor, bench.store.artifacts.get(name) if data is None else data)

    for first, second in pairs:
        mine, theirs = left(first), left(second)
        if index is not None:
            _check_index(element, index, mine.shape)
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
    trace = await trace_once(bench, twice, target, other)
    begins = trace.why
    if another:
        begins = "" if trace.not_run else _begins(trace, evidence, another)
    return TraceFacts(
        element=f"{tensor.name}[{', '.join(map(str, where))}]",
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


def _tensor_of(evidence: RunEvidence, element: str) -> tuple[Argument, tuple[int, ...] | None]:
    """The tensor that is named, and the index, if there is one.

    Raises:
        UsageError: there is no such tensor.
    """
    name, index = read_element(element)
    tensors = {tensor.name: tensor for tensor in evidence.tensors}
    if name not in tensors:
        names = ", ".join(tensors) or "none"
        raise UsageError(f"--trace {element}: no tensor {name}; there are: {names}")
    return tensors[name], index


def _check_index(element: str, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if len(index) != len(shape) or any(n >= size for n, size in zip(index, shape, strict=True)):
        name, _ = read_element(element)
        raise UsageError(f"--trace {element}: {name} has the shape {list(shape)}")


def _words(ran: Ran) -> str:
    garbage = ", other garbage" if ran.trial.schedule.garbage else ""
    return schedule_words(ran.trial.schedule) + garbage


def _bits(values: Array) -> Array:
    bits: Array = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    return bits


def _begins(found: Trace, evidence: RunEvidence, another: Another) -> str:
    if not found.inputs:
        return _SAME
    sides = ("here", f"with {another.words}")
    parts = []
    for run, side in enumerate(sides):
        mine = [_read(each, evidence.tensors) for each in found.inputs if each.run == run]
        if mine:
            parts.append(f"only {side} it is made of {' and '.join(mine)}")
    return "; ".join(parts)


def _read(read: TraceInput, tensors: Sequence[Argument]) -> str:
    """Bytes of a buffer as elements of the first tensor that is in it."""
    tensor = next((each for each in tensors if each.buffer == read.allocation), None)
    spans = list(_elements(read, tensor))
    more = f" and {len(spans) - _MOST_SPANS} more" if len(spans) > _MOST_SPANS else ""
    name = tensor.name if tensor else f"buffer {read.allocation}"
    return f"{name} {', '.join(spans[:_MOST_SPANS])}{more}"


def _elements(read: TraceInput, tensor: Argument | None) -> Iterator[str]:
    for first, end in read.spans:
        if tensor is None or tensor.dtype not in ELEMENTS:
            yield f"bytes {first} to {end - 1}"
            continue
        size = ELEMENTS[tensor.dtype].itemsize
        ends = [(first - tensor.offset) // size, (end - 1 - tensor.offset) // size]
        names = [_index(tensor, each) for each in ends]
        yield names[0] if ends[0] == ends[1] else f"{names[0]} to {names[1]}"


def _index(tensor: Argument, number: int) -> str:
    """The place of an element, where the tensor lies in memory row by row."""
    dense = [prod(tensor.shape[n + 1 :]) for n in range(len(tensor.shape))]
    if list(tensor.strides) != dense or not 0 <= number < prod(tensor.shape):
        return f"element {number}"
    place = np.unravel_index(number, tensor.shape)
    return f"[{', '.join(str(int(each)) for each in place)}]"


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
    if unknown or not all(values.values()) or not all(map(str.isdigit, numbers.values())):
        known = ", ".join((*_OPTIONS, "sm", "triton"))
        raise UsageError(f"--beside {text}: write NAME=VALUE,...; the names are {known}")
    return Another(
        words=text,
        target=Target.parse(values["sm"]) if "sm" in values else None,
        compiler=front_end(TRITON).install(values["triton"]) if "triton" in values else None,
        options={name: int(value) for name, value in numbers.items()},
    )
