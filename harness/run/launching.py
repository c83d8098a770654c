"""From a kernel that Triton lowered, and what it was given, to what the emulator executes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpu_emulator.ptx.text.facts import PtxError, read_ptx
from gpu_emulator.values import Budget
from harness.frontends.bench.bench import Kept, Workbench
from harness.judging.judge import CellEvidence, judge_fit
from harness.judging.ptxas.log import PtxasLog
from harness.judging.ptxas.resources import combine
from harness.run.binding import BindingError, bind, cluster_of
from harness.run.emulating import Emulation
from harness.run.entry import EntryError, read_entry
from harness.run.jobs import JobBuffer, Passed, RunTrial
from harness.run.matching import named_buffers
from harness.values.execution import LaunchVariant
from harness.values.limits import Limits
from harness.values.outcome import Lowering
from harness.values.target import Target

_LANES = 32
_LARGEST_BLOCK = 1024


class NotRunError(Exception):
    """A launch that cannot be executed, and why: a sentence for the user."""


class EmptyGridError(NotRunError):
    """A launch of no programs: Triton launches nothing, and nothing can go wrong."""


def emulation_of(
    bench: Workbench,
    lowering: Kept[Lowering],
    variant: LaunchVariant,
    trials: Sequence[RunTrial],
    budget: Budget,
) -> Emulation:
    """What the emulator needs to execute a lowered kernel on these inputs.

    Raises:
        NotRunError: arguments and entry do not fit, or the launch is none.
    """
    ptx = lowering.artifacts.get("ptx")
    if ptx is None:
        raise NotRunError("Triton generated no PTX for it")
    text = bench.store.artifacts.get(ptx).decode(errors="replace")
    found = emulation_of_text(text, lowering.value.metadata, variant, trials, budget)
    return replace(found, ptx=ptx)


def emulation_of_text(
    text: str,
    metadata: Mapping[str, object],
    variant: LaunchVariant,
    trials: Sequence[RunTrial],
    budget: Budget,
) -> Emulation:
    """The same for PTX that is in no store, with what Triton says of it.

    Raises:
        NotRunError: arguments and entry do not fit, or the launch is none.
    """
    name = metadata.get("name")
    try:
        entry = read_entry(text, name if isinstance(name, str) else None)
        bound = bind(variant, metadata, entry)
    except (EntryError, BindingError) as error:
        raise NotRunError(f"arguments and PTX do not fit: {error}") from error
    x, y, z = (*variant.grid, 1, 1, 1)[:3]
    if min(x, y, z) < 0:
        raise NotRunError(f"the grid ({x}, {y}, {z}) cannot be launched")
    if min(x, y, z) == 0:
        raise EmptyGridError(f"the grid ({x}, {y}, {z}) has no programs: nothing is launched")
    cluster = cluster_of(metadata)
    names = named_buffers(variant.arguments, len(variant.buffers))
    scratch = (f"scratch memory {n}" for n in range(1, len(bound.scratch) + 1))
    return Emulation(
        ptx="",
        entry=entry.name,
        grid=(x * cluster[0], y * cluster[1], z * cluster[2]),
        block=_block(metadata.get("num_warps"), entry.block),
        cluster=cluster,
        dynamic_shared=_integer(metadata.get("shared")),
        buffers=(
            *(
                JobBuffer(name=name, file=each.sha256, size=each.size, unwritten=each.unwritten)
                for name, each in zip(names, variant.buffers, strict=True)
            ),
            *(
                JobBuffer(name=name, size=size)
                for name, size in zip(scratch, bound.scratch, strict=True)
            ),
        ),
        arguments=tuple(Passed.of(given) for given in bound.arguments),
        trials=tuple(trials),
        budget=budget,
    )


def why_refused(text: str, lowering: Lowering, target: Target, limits: Limits | None) -> str | None:
    """Why the target would refuse this launch; None where it would not, as far as the PTX tells.

    A kernel that was lowered to a trap is executed: that it traps is what there is to say of it.
    """
    try:
        facts = read_ptx(text)
    except PtxError:
        return None
    if facts.is_trap_stub:
        return None
    needs = combine(
        entry=facts.entry,
        log=PtxasLog(functions=(), messages=()),
        cubin=None,
        metadata=lowering.metadata,
        ptx=facts,
    )
    evidence = CellEvidence(target=target, lowering=lowering, resources=needs, limits=limits)
    verdict = judge_fit(evidence)
    return f"{verdict.kind.value}: it {verdict.reason}" if verdict else None


def effort_words(emulation: Emulation, ptx: str) -> str:
    """What is about to be executed: a loop makes it more, a branch less."""
    every, threads = math.prod(emulation.grid), math.prod(emulation.block)
    blocks = min(every, emulation.budget.max_ctas)
    try:
        once = read_ptx(ptx, emulation.entry).instructions * threads * blocks
    except PtxError:
        once = 0
    of = f" of {every:,}" if blocks < every else ""
    return (
        f"{blocks:,}{of} blocks of {threads:,} threads, {len(emulation.trials)} runs of about "
        f"{once:,} instructions each, loops counted once"
    )


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _block(num_warps: object, required: tuple[int, int, int] | None) -> tuple[int, int, int]:
    """As Triton launches it: all threads in one row; the entry may say how many (`.reqntid`)."""
    threads = _integer(num_warps) * _LANES
    if required and math.prod(required) != threads:
        raise NotRunError(
            f"Triton launches blocks of {threads} threads, the entry wants {math.prod(required)}"
        )
    if not 0 < threads <= _LARGEST_BLOCK:
        raise NotRunError(f"a block of {threads} threads cannot be launched")
    return threads, 1, 1
