"""Small experiments beside a blame's grid: one pair of PTX and ptxas again, with something varied.

What must not matter (the entry's name, line information), the flags, and the level of optimisation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpu_emulator.ptx.text.facts import PtxError, body_sha256, harmless_variants, read_ptx
from harness.blame.grid import PairTrial, Varied
from harness.cells.evaluate import cell_evidence
from harness.frontends.base import PlannedCell
from harness.frontends.bench.assemble import PtxInput, assemble
from harness.frontends.bench.bench import Workbench
from harness.frontends.readings import PtxReading
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import Followed
from harness.judging.judge import judge
from harness.judging.ptxas.flags import single_changes
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.oracles import reaction_of
from harness.values.row import Row
from harness.values.toolchain import Assembler
from harness.values.verdict import VerdictKind

_AGAIN = "again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A PTX on a ptxas, and its result; `flags` are others worth a try, with their name."""

    cell: PlannedCell
    row: Row
    ptxas: Assembler
    outcome: VerdictAnswer
    flags: tuple[tuple[tuple[str, ...], str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    what: str
    varied: Varied
    text: str
    entry: str | None
    flags: tuple[str, ...]


async def run_trials(
    bench: Workbench, failing: Pair | None, working: Pair | None, focus: Followed
) -> tuple[PairTrial, ...]:
    """Vary the failing pair and a working neighbour; nothing where PTX or ptxas has no part."""
    if failing is None or failing.row.ptx_sha256 is None:
        return ()
    if focus.stage != "cubin" or focus.kind is VerdictKind.UNSUPPORTED:
        return ()
    trials: list[PairTrial] = []
    for pair in filter(None, (failing, working)):
        trials += await _trials(bench, pair, focus, is_failing=pair is failing)
    return tuple(trials)


async def _trials(
    bench: Workbench, pair: Pair, focus: Followed, *, is_failing: bool
) -> Sequence[PairTrial]:
    assert pair.row.ptx_sha256 is not None
    text = bench.store.artifacts.get(pair.row.ptx_sha256).decode(errors="replace")
    variants = list(_variants(text, pair, is_failing=is_failing))
    reactions = await asyncio.gather(*(_react(bench, pair, variant) for variant in variants))
    # Judged as the others are: without what Triton said of its launch.
    baseline = next(
        reaction
        for variant, reaction in zip(variants, reactions, strict=True)
        if variant.varied is Varied.NOTHING
    )
    if baseline is None:
        return []
    is_alike = baseline.verdict is focus.kind and baseline.key is not None
    mine = replace(focus, signature=baseline.key if is_alike else focus.signature)
    before = _outcome(mine, baseline)
    return [
        PairTrial(
            what=variant.what,
            varied=variant.varied,
            triton=pair.row.compiler_version,
            ptxas=pair.ptxas.version,
            before=pair.outcome if variant.varied is Varied.NOTHING else before,
            after=_outcome(mine, reaction),
            verdict=reaction.verdict.value,
            reason=reaction.reason,
        )
        for variant, reaction in zip(variants, reactions, strict=True)
        if reaction is not None
    ]


def _outcome(focus: Followed, reaction: Reaction) -> VerdictAnswer:
    stage = reaction.stage.value if reaction.stage else None
    return focus.outcome(reaction.verdict, stage, reaction.key, reaction.fields, reaction.reason)


def _variants(text: str, pair: Pair, *, is_failing: bool) -> Iterator[_Variant]:
    flags = pair.row.ptxas_flags
    entry = read_ptx(text, pair.cell.entry).entry
    yield _Variant(what=_AGAIN, varied=Varied.NOTHING, text=text, entry=entry, flags=flags)
    for what, varied_text, name in harmless_variants(text, entry):
        yield _Variant(
            what=what, varied=Varied.NAME_OR_LINES, text=varied_text, entry=name, flags=flags
        )
    if not is_failing:
        return
    for change in single_changes(flags):
        is_level = change.label.startswith("-O")
        if is_level or not change.added:
            yield _Variant(
                what=change.label,
                varied=Varied.LEVEL if is_level else Varied.FLAGS,
                text=text,
                entry=entry,
                flags=change.apply(flags),
            )
    for others, what in pair.flags:
        yield _Variant(what=what, varied=Varied.FLAGS, text=text, entry=entry, flags=others)


async def _react(bench: Workbench, pair: Pair, variant: _Variant) -> Reaction | None:
    """The result of a variant; None where it is no longer PTX."""
    try:
        facts = read_ptx(variant.text, variant.entry)
    except PtxError:
        return None
    sha256 = bench.store.artifacts.put(variant.text.encode())
    target = pair.cell.cell.target
    other = target.suffix and facts.target != str(target) and pair.cell.launch
    # By its bytes, not by its program: line information is what is varied.
    source = PtxInput(
        sha256=sha256,
        body_sha256=f"bytes {sha256}",
        version=facts.version,
        target=str(target) if other else None,
    )
    kept = await assemble(bench, source, ptxas=pair.ptxas, flags=variant.flags)
    reading = PtxReading(facts=facts, body_sha256=body_sha256(variant.text))
    evidence = cell_evidence(
        target=target, limits=pair.cell.limits, reading=reading, assembly=kept.value
    )
    return reaction_of(judge(evidence), evidence)
