"""`triage run --trace`: which element of which two runs, and the way of the difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_emulator.values import Element, TraceLink
from harness.frontends.bench.bench import Workbench
from harness.run.emulating import Emulation, trace_once
from harness.run.evidence import RunEvidence
from harness.run.executing import Beside
from harness.run.faults import source_line
from harness.run.jobs import Ran
from harness.run.judging import schedule_words
from harness.run.numbers.comparing import as_tensor
from harness.run.numbers.scalars import ELEMENTS
from harness.values.errors import UsageError
from harness.values.execution import Argument, TraceFacts, TraceStep

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
    bench: Workbench,
    wanted: Emulation,
    ptx: str,
    evidence: RunEvidence,
    beside: Beside | None,
    *,
    element: str,
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
    twice = replace(wanted, trials=(chosen.runs[0].trial, chosen.runs[1].trial))
    found = await trace_once(bench, twice, ptx, evidence.contents, target)
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
