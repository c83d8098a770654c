"""Orders of configs as they are kept, for the page of their kernel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.store.store import Store
from harness.values.kernel import Config
from harness.workaround.rank.result import KeptConfig, KeptRank, RankedLaunch, RankReport

_KIND = "rank"
"""The kind of evidence: it may be trimmed, and `triage rank` makes it again."""


def keep_ranks(store: Store, report: RankReport) -> None:
    """Keep the order of each launch in place of an older one, unless only that one was measured.

    Raises:
        StorageError: the store cannot be read or written.
    """
    keys = {_key(each.kernel, each.launch, each.target): each for each in report.launches}
    known = _read(store, list(keys))
    for key, launch in keys.items():
        kept = _kept(launch, report.device)
        if key in known and known[key].is_measured and not kept.is_measured:
            continue
        store.put_evidence(_KIND, key, msgspec.json.encode(kept), {})


def ranks_of(
    store: Store, kernel: str, target: str, launches: Sequence[str]
) -> dict[str, KeptRank]:
    """What is kept of these launches of a kernel, by launch.

    Raises:
        StorageError: the store cannot be read.
    """
    keys = {_key(kernel, launch, target): launch for launch in launches}
    return {keys[key]: kept for key, kept in _read(store, list(keys)).items()}


def _key(kernel: str, launch: str, target: str) -> str:
    return f"{kernel}\n{launch}\n{target}"


def _read(store: Store, keys: Sequence[str]) -> dict[str, KeptRank]:
    found = {}
    for key, evidence in store.get_many(_KIND, keys).items():
        try:
            found[key] = msgspec.json.decode(evidence.body, type=KeptRank)
        except msgspec.MsgspecError:
            continue  # written by another version of this program
    return found


def _kept(launch: RankedLaunch, device: str | None) -> KeptRank:
    quality = launch.quality
    rows = [each.row for each in launch.configs]
    return KeptRank(
        toolchains=tuple(dict.fromkeys(f"{row.compiler_name}, {row.tool}" for row in rows)),
        device=device,
        doubt=launch.doubt,
        configs=tuple(
            KeptConfig(
                label=Config.of(dict(each.row.config)).label,
                verdict=each.row.verdict,
                cost=each.cost,
                time=each.time.median if each.time else None,
            )
            for each in launch.configs
        ),
        spearman=quality.spearman if quality else None,
        first=quality.first if quality else None,
        top_three=quality.top_three if quality else None,
    )
