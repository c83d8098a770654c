"""What one version of the compiler came to at a stage, lowered on by another version."""

from __future__ import annotations

from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.registry import form_of, front_end
from harness.frontends.texts.config_source import OPTIONS
from harness.frontends.texts.ir_text import read_triton_ir
from harness.values.outcome import Lowering

# Which arguments the entry takes is decided where the source is read, and stays from there on.
_OF_THE_SOURCE = ("signature", "constants", "tensordesc_meta")


async def cross(
    bench: Workbench, maker: PlannedCell, taker: PlannedCell, stage: str
) -> Kept[Lowering] | str:
    """The PTX that the compiler of `taker` generates from the IR of `maker` at this stage.

    Where there is none, the reason: one version cannot always read what another wrote.

    Raises:
        InfrastructureError: the child could not be kept alive.
    """
    if maker.launch is None or maker.record is None or taker.launch is None:
        return "it was never IR"
    own = await front_end(maker.compiler.kind).lower(
        bench, maker.launch, maker.record, ptxas=maker.ptxas
    )
    artifact = own.artifacts.get(stage)
    if artifact is None:
        return f"it has no {stage}"
    text = bench.store.artifacts.get(artifact).decode(errors="replace")
    facts = read_triton_ir(text)
    known = {**maker.record.config, **own.value.metadata}
    options = {
        name: known[name]
        for name in OPTIONS
        if known.get(name) is not None and getattr(facts, name, None) is None
    }
    lowered = await form_of(taker.launch.compiler.kind).compile(
        bench,
        taker.launch,
        text,
        ptxas=taker.ptxas,
        limits=bench.limits,
        suffix=f".{stage}",
        options=options,
    )
    if lowered is None or lowered.program is None:
        error = lowered.lowering.error if lowered else None
        said = error.message if error else "it comes to no PTX"
        return next(iter(said.strip().splitlines()), "")[:200]
    source = {name: own.value.metadata.get(name) for name in _OF_THE_SOURCE}
    lowered.lowering.metadata.update(source)
    ptx = bench.store.artifacts.put(lowered.program)
    return Kept(value=lowered.lowering, key="", artifacts={"ptx": ptx}, cached=False)
