"""What is known of the pair of Triton and ptxas that a project pins, and its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from harness.tables.said import Block, Counted, SaidFacts, SaidLine, Tone, say
from harness.values.row import SCHEMA


class KnownBug(msgspec.Struct, frozen=True, kw_only=True):
    """A failure by its signature: how many cells of the pair have it, of which kernels."""

    signature: str
    number: int | None
    reason: str
    cells: int
    kernels: tuple[str, ...]


class PairKnowledge(msgspec.Struct, frozen=True, kw_only=True):
    """A Triton with its ptxas on a target, as far as it is known.

    `known` is false where no stored result is of it. `lost` has, for each kernel and launch that
    loses configs, those that work and all. `safe` is the pair to go to, and `safe_cells` how many
    of the pair's cells are known of it.
    """

    triton: str
    ptxas: str | None
    target: str
    cells: int = 0
    working: int = 0
    lost: Mapping[str, tuple[int, int]] = {}
    bugs: tuple[KnownBug, ...] = ()
    safe: tuple[str, str] | None = None
    safe_cells: int = 0
    known: bool = False


_NOT_KNOWN = "not known"
_MOST_LOST = 20


class PinsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `triage pins --json` prints; `torch` and `triton` are what an installer takes."""

    schema: Literal[1]
    file: str
    torch: str | None
    triton: str | None
    targets: Sequence[PairKnowledge]


def pins_document(
    file: str, taken: Mapping[str, str], known: Sequence[PairKnowledge]
) -> PinsDocument:
    """The document; `taken` are the versions of torch and Triton that are installed."""
    return PinsDocument(
        schema=SCHEMA,
        file=file,
        torch=taken.get("torch"),
        triton=taken.get("triton"),
        targets=known,
    )


def pins_said(
    file: str, pinned: Sequence[str], taken: Mapping[str, str], known: Sequence[PairKnowledge]
) -> list[Block]:
    """The pair, then for each target what the nights know of it."""
    blocks: list[Block] = [
        SaidFacts(
            (
                (file, say(", ".join(pinned))),
                *((name, say(taken.get(name, "none"))) for name in ("torch", "triton")),
            )
        )
    ]
    for pair in known:
        blocks += [say(pair.target, Tone.HEAD), SaidFacts(tuple(_facts(pair)))]
        for bug in pair.bugs:
            name = f"bug {bug.number}" if bug.number else "no number"
            words = f"{name}: {bug.reason} ({', '.join(bug.kernels)})"
            blocks.append(Counted(bug.cells, say(words, Tone.BAD)))
    return blocks


def _facts(pair: PairKnowledge) -> list[tuple[str, SaidLine]]:
    install = f"{_NOT_KNOWN}: `triage toolchain install triton-{pair.triton}` fetches it"
    facts = [("ptxas", say(f"{pair.ptxas} (bundled)" if pair.ptxas else install))]
    if not pair.cells:
        return [*facts, ("nights", say(f"{_NOT_KNOWN}: none has looked at this pair there"))]
    facts.append(("configs", say(f"{pair.working:,} of {pair.cells:,} work")))
    lost = [f"{name} {alive} of {every}" for name, (alive, every) in pair.lost.items()]
    if lost:
        more = f", and {len(lost) - _MOST_LOST:,} more" if len(lost) > _MOST_LOST else ""
        facts.append(("lose configs", say("; ".join(lost[:_MOST_LOST]) + more, Tone.POOR)))
    if pair.safe is None:
        words = f"{_NOT_KNOWN}: with no pair that was looked at does each of these work"
    elif pair.safe[0] == pair.triton:
        words = "this one: nothing that was looked at fails"
    else:
        words = f"Triton {pair.safe[0]} with ptxas {pair.safe[1]} ({pair.safe_cells:,} of these "
        words += "configs are known there, and work)"
    return [*facts, ("safe pair", say(words))]
