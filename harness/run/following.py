"""`triage run --trace`: which element of which two runs, and the way of the difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_emulator.values import Element, Schedule, Trace, TraceInput, TraceLink
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.run.comparing import ELEMENTS, as_tensor, near
from harness.run.emulating import emulate, trace_once
from harness.run.executing import Beside
from harness.run.jobs import Ran, RunTrial
from harness.run.judging import schedule_words, source_line
from harness.run.launch import RunEvidence
from harness.run.launching import NotRunError
from harness.run.references import Another
from harness.values.errors import UsageError
from harness.values.execution import Argument, TraceFacts, TraceStep
from harness.values.target import Target
from harness.values.toolchain import TRITON

_ELEMENT = re.compile(r"(?P<name>[\w.$%]+)(?:\[(?P<index>[\d,\s]+)\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """An element, and two runs that leave other bytes there."""

    tensor: Argument
    where: tuple[int, ...]
    offset: int
    size: int
    runs: tuple[Ran, Ran]
    values: tuple[str, str]


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
    bench: Workbench, evidence: RunEvidence, beside: Beside | None, *, element: str
) -> TraceFacts:
    """Follow an element back to where two of the runs first differ.

    Of the runs the first is taken, and the first that leaves something else there; with other
    garbage only where schedules agree. No other PTX has a part in it.

    Raises:
        UsageError: there is no such element.
        InfrastructureError: the emulator cannot be started.
    """
    del beside
    chosen = _choose(evidence, element)
    if isinstance(chosen, str):
        return TraceFacts(element=element, reason=chosen)
    target = Element(allocation=chosen.tensor.buffer, offset=chosen.offset, size=chosen.size)
    one, other = (ran.trial for ran in chosen.runs)
    twice = replace(evidence.launch.emulation, trials=(one, other))
    found = await trace_once(bench, twice, target)
    place = ", ".join(map(str, chosen.where))
    return TraceFacts(
        element=f"{chosen.tensor.name}[{place}]",
        runs=(_words(chosen.runs[0]), _words(chosen.runs[1])),
        values=chosen.values,
        program=found.program,
        begins=found.why,
        steps=steps_of(found.links),
        reason=found.not_run or "",
    )


def steps_of(links: Sequence[TraceLink]) -> tuple[TraceStep, ...]:
    """The way of a value as a row has it."""
    return tuple(
        TraceStep(
            ptx_line=link.place.ptx_line,
            instruction=link.place.instruction,
            source_line=source_line(link.place),
            thread=link.thread,
            warp=link.warp,
            values=link.values,
        )
        for link in links
    )


def tensor_of(evidence: RunEvidence, element: str) -> tuple[Argument, tuple[int, ...] | None]:
    """The tensor that is named, and the index, if there is one.

    Raises:
        UsageError: there is no such tensor.
    """
    name, index = read_element(element)
    tensors = {each.name: each for each in evidence.tensors}
    if name not in tensors:
        known = ", ".join(tensors) or "none"
        raise UsageError(f"--trace {element}: no tensor {name}; there are: {known}")
    return tensors[name], index


def check_index(element: str, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Whether a tensor has it.

    Raises:
        UsageError: it has not.
    """
    if len(index) != len(shape) or any(n >= size for n, size in zip(index, shape, strict=True)):
        name, _ = read_element(element)
        raise UsageError(f"--trace {element}: {name} has the shape {list(shape)}")


def offset_of(tensor: Argument, where: tuple[int, ...]) -> int:
    """The first byte of an element in its buffer."""
    step = sum(n * stride for n, stride in zip(where, tensor.strides, strict=False))
    return tensor.offset + ELEMENTS[tensor.dtype].itemsize * step


def _words(ran: Ran) -> str:
    garbage = ", other garbage" if ran.trial.schedule.garbage else ""
    return schedule_words(ran.trial.schedule) + garbage


def _choose(evidence: RunEvidence, element: str) -> _Chosen | str:
    tensor, index = tensor_of(evidence, element)
    ran = [each for each in (*evidence.runs, *evidence.garbage) if each.buffers]
    if len(ran) < 2:
        return "fewer than two runs came to their end"
    after = [as_tensor(tensor, evidence.contents[each.buffers[tensor.buffer]]) for each in ran]
    shape = after[0].shape
    if index is not None:
        check_index(element, index, shape)
    for other in range(1, len(ran)):
        pair = (after[0], after[other])
        one, two = (np.ascontiguousarray(each).view(f"u{each.itemsize}") for each in pair)
        differ = one != two
        if not differ.any() or (index is not None and not differ[index]):
            continue
        where = index or tuple(
            int(n) for n in np.unravel_index(int(np.argmax(differ)), differ.shape)
        )
        return _Chosen(
            tensor=tensor,
            where=where,
            offset=offset_of(tensor, where),
            size=after[0].itemsize,
            runs=(ran[0], ran[other]),
            values=(str(after[0][where]), str(after[other][where])),
        )
    return f"all runs leave the same in {element}: there is nothing to follow"


# `triage run --trace NAME --beside CHANGES`: what an element is made of in one PTX of two.

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
        other = replace(await beside(another), trials=(_TRIAL,))
        runs = (await emulate(bench, other)).value.runs
    except NotRunError as error:
        return TraceFacts(element=element, reason=str(error))
    if not runs or not runs[0].buffers:
        why = (runs[0].not_run if runs else None) or "it does not come to its end"
        return TraceFacts(element=element, reason=f"{another.words}: {why}")
    right = bench.store.artifacts.get
    chosen = _choose_apart(evidence, element, lambda tensor: right(runs[0].buffers[tensor.buffer]))
    if isinstance(chosen, str):
        return TraceFacts(element=element, reason=chosen)
    tensor, where, ran, values = chosen
    target = Element(
        allocation=tensor.buffer,
        offset=offset_of(tensor, where),
        size=ELEMENTS[tensor.dtype].itemsize,
    )
    twice = replace(evidence.launch.emulation, trials=(ran.trial, _TRIAL))
    found = await trace_once(bench, twice, target, other)
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


def _choose_apart(
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
