"""What the stored results know of the pair of Triton and ptxas that a torch brings along."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from packaging.version import Version

from harness.binaries.pin_words import KnownBug, PairKnowledge
from harness.diff.between_runs import current_results
from harness.io.packages.versions import parse_version, version_order
from harness.io.toolchains.install import picked_ptxas
from harness.judging.answers import COULD_NOT_TELL, works
from harness.store.bugs import kept_bugs
from harness.store.store import Store
from harness.values.row import Facts
from harness.values.target import Target
from harness.values.toolchain import BUNDLED

_Pair = tuple[str, str]
_Place = tuple[str, str, str]


def know_pair(store: Store, triton: str, target: Target) -> PairKnowledge:
    """What is known of a Triton with the ptxas that it bundles, of cells that sources still have.

    Raises:
        StorageError: the results or the toolchains cannot be read.
    """
    pairs: dict[_Pair, dict[_Place, Facts]] = {}
    for kernel in store.kernels():
        for record in current_results(store, kernel):
            facts = msgspec.json.decode(record.row, type=Facts)
            is_asked = facts.target == str(target) and facts.ptxas_origin == BUNDLED
            is_told = facts.verdict not in COULD_NOT_TELL and not facts.is_executed
            if is_asked and is_told and facts.triton and facts.ptxas and not facts.flags:
                place = facts.kernel, facts.launch, facts.config_label
                pairs.setdefault((facts.triton, facts.ptxas), {})[place] = facts
    exact = parse_version(triton)
    mine = next((pair for pair in pairs if parse_version(pair[0]) == exact), None)
    if mine is None:
        picked = picked_ptxas(Version(triton), target.capability)
        version = picked.version if picked else None
        return PairKnowledge(triton=triton, ptxas=version, target=str(target))
    cells = pairs[mine]
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for (kernel, launch, _), facts in cells.items():
        counts[f"{kernel} · {launch}"][_works(facts)] += 1
    numbers = {
        key: record.number
        for record in kept_bugs(store.database)
        for key in (record.key, *record.other_keys)
    }
    safe = _safe(mine, pairs)
    return PairKnowledge(
        triton=triton,
        ptxas=mine[1],
        target=str(target),
        cells=len(cells),
        working=sum(map(_works, cells.values())),
        lost={name: (of[True], of.total()) for name, of in counts.items() if of[False]},
        bugs=_bugs(cells, numbers),
        safe=safe,
        safe_cells=len(cells.keys() & pairs[safe].keys()) if safe else 0,
        known=True,
    )


def _works(facts: Facts) -> bool:
    return works(facts.verdict, facts.stage)


def _bugs(cells: Mapping[_Place, Facts], numbers: Mapping[str, int]) -> tuple[KnownBug, ...]:
    failing: dict[str, list[Facts]] = {}
    for facts in cells.values():
        if facts.signature and not _works(facts):
            failing.setdefault(facts.signature, []).append(facts)
    ordered: Sequence[list[Facts]] = sorted(failing.values(), key=len, reverse=True)
    return tuple(
        KnownBug(
            signature=some[0].signature or "",
            number=numbers.get(some[0].signature or ""),
            reason=some[0].reason,
            cells=len(some),
            kernels=tuple(Counter(facts.kernel for facts in some)),
        )
        for some in ordered
    )


def _safe(mine: _Pair, pairs: Mapping[_Pair, Mapping[_Place, Facts]]) -> _Pair | None:
    """The nearest pair, newer ones first, in which each failure of this one works and none begins.

    Itself, where nothing fails.
    """
    cells = pairs[mine]
    failing = {place for place, facts in cells.items() if not _works(facts)}
    if not failing:
        return mine
    order = version_order(mine[0])
    newer = sorted((p for p in pairs if version_order(p[0]) > order), key=_order)
    older = sorted((p for p in pairs if version_order(p[0]) < order), key=_order, reverse=True)
    for pair in (*newer, *older):
        other = pairs[pair]
        shared = cells.keys() & other.keys()
        if failing <= shared and all(_works(other[place]) for place in shared):
            return pair
    return None


def _order(pair: _Pair) -> tuple[object, ...]:
    return version_order(pair[0]), version_order(pair[1])
