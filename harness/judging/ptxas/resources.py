"""Puts together what ptxas' log, the cubin, Triton's metadata and the PTX each know.

Where the numbers are: spill bytes only in the log; static shared memory in log and cubin; dynamic
shared memory, and threads where neither PTX nor cubin fixes them, only in the compiler's metadata;
tensor memory in the metadata of Triton, else in the operand of `tcgen05.alloc`.

Functions that are not inlined count: spills are those of the entry and of every function that it
calls, each counted once; the stack is the deepest one along the calls, where a tool says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_emulator.ptx.text.facts import PtxFacts
from harness.judging.ptxas.cubin import Cubin, CubinEntry
from harness.judging.ptxas.ptxas_log import FunctionUsage, PtxasLog
from harness.values.outcome import Resources


def combine(
    *,
    entry: str,
    log: PtxasLog,
    cubin: Cubin | None,
    metadata: Mapping[str, object],
    ptx: PtxFacts | None,
) -> Resources:
    """The needs of `entry`; `metadata` is empty for raw PTX."""
    usage = log.function(entry)
    called = log.called_by(entry)
    image = cubin.entry(entry) if cubin else None
    static = _first(usage and usage.static_shared, image and image.static_shared)
    stacks = (
        *((usage.stack, usage.cumulative_stack) if usage else ()),
        *((image.stack, image.max_stack) if image else ()),
    )
    dynamic = _integer(metadata.get("shared"))
    tmem = _integer(metadata.get("tmem_size"))
    return Resources(
        n_regs=_first(usage and usage.n_regs, image and image.n_regs),
        spill_stores=_total([function.spill_stores for function in (usage, *called) if function]),
        spill_loads=_total([function.spill_loads for function in (usage, *called) if function]),
        spilling_callees=tuple(function.name for function in called if function.spill_stores),
        # The largest one that is known: a frame alone leaves out what is called.
        stack=max((stack for stack in stacks if isinstance(stack, int)), default=None),
        static_shared=static,
        shared=static if dynamic is None else dynamic + (static or 0),
        # From sm_90 on the log has none: silence is not 0, the cubin knows.
        constant=_first(usage and _constant_of(usage), image and _constant_of(image)),
        barriers=_first(usage and usage.barriers, image and image.barriers),
        tmem_columns=tmem if tmem is not None else ptx.tmem_columns if ptx else None,
        threads=_first(
            ptx.threads if ptx else None, _integer(metadata.get("threads")), image and image.threads
        ),
        disagreements=_disagreements(usage, image),
    )


def _first(*values: object) -> int | None:
    return next((value for value in values if isinstance(value, int)), None)


def _total(numbers: Sequence[int | None]) -> int | None:
    counts = [number for number in numbers if number is not None]
    return sum(counts) if numbers and len(counts) == len(numbers) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _disagreements(usage: FunctionUsage | None, image: CubinEntry | None) -> tuple[str, ...]:
    if not usage or not image:
        return ()
    pairs = (
        ("registers", usage.n_regs, image.n_regs),
        ("stack", usage.stack, image.stack),
        ("static shared memory", usage.static_shared, image.static_shared),
        ("barriers", usage.barriers, image.barriers),
        ("constant memory", _constant_of(usage), _constant_of(image)),
    )
    return tuple(
        f"{name}: the log says {logged}, the cubin {stored}"
        for name, logged, stored in pairs
        if logged is not None and stored is not None and logged != stored
    )


def _constant_of(source: FunctionUsage | CubinEntry) -> int | None:
    """Bytes over all banks; None where a source names none (the log does so from sm_90 on)."""
    return sum(size for _, size in source.constants) if source.constants else None
