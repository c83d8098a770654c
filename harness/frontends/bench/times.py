"""What GPUs measured before, by cubin: of packs and `--on gpu`, and of `triage run --on gpu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.store.store import Store
from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.values.toolchain import GPU

_KIND = "times"
_Times = dict[str, dict[str, TimeMs]]
"""By the name of the GPU, and by the sha256 of the cubin."""


def keep_times(store: Store, device: str, timed: Sequence[tuple[Row, TimeMs]]) -> None:
    """Keep what a GPU measured of these cubins, beside what is kept of other cubins and GPUs.

    Raises:
        StorageError: the store cannot be read or written.
    """
    places: dict[str, dict[str, TimeMs]] = {}
    for row, time in timed:
        if row.cubin_sha256:
            places.setdefault(_key(row), {})[row.cubin_sha256] = time
    for key, times in places.items():
        known = _read(store, key)
        known[device] = {**known.get(device, {}), **times}
        store.put_evidence(_KIND, key, msgspec.json.encode(known), {})


def kept_times(store: Store, like: Row) -> Mapping[str, Mapping[str, TimeMs]]:
    """By GPU and cubin, what was measured of the kernel, launch and target of a row.

    Raises:
        StorageError: the store cannot be read.
    """
    found = _read(store, _key(like))
    for cell in store.cells_from(f"{like.kernel}/{like.launch}/"):
        if f"@{like.target}/" not in cell or f"/{GPU}:" not in cell:
            continue
        for run in store.executions(cell):
            cubin = run.compiled.cubin_sha256 if run.compiled else None
            if run.device and run.time_ms and cubin:
                found.setdefault(run.device, {}).setdefault(cubin, run.time_ms)
    return found


def _key(row: Row) -> str:
    return f"{row.kernel}\n{row.launch}\n{row.target}"


def _read(store: Store, key: str) -> _Times:
    evidence = store.get_evidence(_KIND, key)
    if evidence is None:
        return {}
    try:
        return msgspec.json.decode(evidence.body, type=_Times)
    except msgspec.MsgspecError:
        return {}  # written by another version of this program
