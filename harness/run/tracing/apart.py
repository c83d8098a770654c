"""`triage run --trace NAME --beside CHANGES`: what an element is made of in one PTX of two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_emulator.values import Element, Schedule, Trace, TraceInput
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.run.emulating import Emulation, emulate, trace_once
from harness.run.evidence import RunEvidence
from harness.run.executing import Beside
from harness.run.jobs import Ran, RunTrial
from harness.run.judging import schedule_words
from harness.run.launching import NotRunError
from harness.run.numbers.comparing import as_tensor, near
from harness.run.numbers.scalars import ELEMENTS
from harness.run.references import Another
from harness.run.tracing.following import check_index, offset_of, steps_of, tensor_of
from harness.values.errors import UsageError
from harness.values.execution import Argument, TraceFacts
from harness.values.target import Target
from harness.values.toolchain import TRITON

_TRIAL = RunTrial(schedule=Schedule(warps="first", completion="early"))
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MOST_SPANS = 3
Array = npt.NDArray[Any]
_SAME = (
    "both are made of the same bytes of global memory: what is done with them differs, or the "
    "order in which it is done"
)


async def follow_apart(
    bench: Workbench,
    wanted: Emulation,
    ptx: str,
    evidence: RunEvidence,
    beside: Beside | None,
    *,
    element: str,
    another: Another,
) -> TraceFacts:
    """Follow an element to what it is made of here, and not in another PTX on the same inputs.

    Of the runs the first is taken that leaves something else there than the other does.

    Raises:
        UsageError: there is no such element.
        InfrastructureError: the emulator cannot be started.
    """
    assert beside is not None, "a kernel has other configs"
    try:
        other, other_ptx = await beside(another)
        other = replace(other, trials=(_TRIAL,))
        runs = (await emulate(bench, other)).value.runs
    except NotRunError as error:
        return TraceFacts(element=element, reason=str(error))
    if not runs or not runs[0].buffers:
        why = (runs[0].not_run if runs else None) or "it does not come to its end"
        return TraceFacts(element=element, reason=f"{another.words}: {why}")
    right = bench.store.artifacts.get
    chosen = _choose(evidence, element, lambda tensor: right(runs[0].buffers[tensor.buffer]))
    if isinstance(chosen, str):
        return TraceFacts(element=element, reason=chosen)
    tensor, where, ran, values = chosen
    target = Element(
        allocation=tensor.buffer,
        offset=offset_of(tensor, where),
        size=ELEMENTS[tensor.dtype].itemsize,
    )
    twice = replace(wanted, trials=(ran.trial, _TRIAL))
    contents = evidence.contents
    found = await trace_once(bench, twice, ptx, contents, target, (other, other_ptx))
    place = ", ".join(map(str, where))
    return TraceFacts(
        element=f"{tensor.name}[{place}]",
        runs=(schedule_words(ran.trial.schedule), another.words),
        values=values,
        program=found.program,
        begins=_begins(found, evidence, another) if not found.not_run else "",
        steps=steps_of(found.links),
        reason=found.not_run or "",
    )


def _choose(
    evidence: RunEvidence, element: str, right: Callable[[Argument], bytes]
) -> tuple[Argument, tuple[int, ...], Ran, tuple[str, str]] | str:
    """The tensor, the element, the run and both values; a sentence where nothing differs."""
    tensor, index = tensor_of(evidence, element)
    ran = [each for each in evidence.runs if each.buffers]
    if not ran:
        return "no run came to its end"
    beside = as_tensor(tensor, right(tensor))
    if index is not None:
        check_index(element, index, beside.shape)
    for each in ran:
        mine = as_tensor(tensor, evidence.contents[each.buffers[tensor.buffer]])
        # Of one element that is asked for, every bit counts.
        differ = _bits(mine) != _bits(beside)
        if index is None and mine.dtype.kind == "f":
            differ = ~near(mine, beside, evidence.allowed(tensor))
        if not differ.any() or (index is not None and not differ[index]):
            continue
        where = index or tuple(
            int(n) for n in np.unravel_index(int(np.argmax(differ)), differ.shape)
        )
        return tensor, where, each, (str(mine[where]), str(beside[where]))
    return f"all runs leave in {element} what the other leaves: there is nothing to follow"


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
        triton=front_end(TRITON).install(values["triton"]) if "triton" in values else None,
        options={name: int(value) for name, value in numbers.items()},
    )
