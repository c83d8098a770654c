"""Which launches of an entry a driver takes: limits of all GPUs, and what the entry declares.

CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; PTX ISA,
"Performance-Tuning Directives: .maxntid, .reqntid", "Cluster Dimension Directives".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from gpu_emulator.refusal import NotExecutable
from gpu_emulator.values import LARGEST_SIZES, MOST_THREADS, Launch

_Sizes = tuple[int, int, int]
_MOST_CLUSTER = 16


def as_declared(launch: Launch, directives: Sequence[str]) -> Launch:
    """The launch with the cluster that its entry declares; NotExecutable if a driver refuses it."""
    cluster = _cluster(launch, directives)
    for name, sizes in (("block", launch.block), ("grid", launch.grid)):
        most = LARGEST_SIZES[name]
        if any(not 1 <= size <= limit for size, limit in zip(sizes, most, strict=True)):
            raise NotExecutable(
                f"the driver refuses a {name} of {_words(sizes)}: each size is from 1 to "
                f"{_words(most)}"
            )
    threads = math.prod(launch.block)
    if threads > MOST_THREADS:
        raise NotExecutable(
            f"the driver refuses a block of {_words(launch.block)}: {threads:,} threads, and a "
            f"block has at most {MOST_THREADS:,}"
        )
    wanted, most_threads = _sizes(directives, "reqntid"), _sizes(directives, "maxntid")
    if wanted and wanted != launch.block:
        raise NotExecutable(
            f"the driver refuses a block of {_words(launch.block)}: the entry declares .reqntid "
            f"{_words(wanted)}"
        )
    if most_threads and threads > math.prod(most_threads):
        raise NotExecutable(
            f"the driver refuses a block of {_words(launch.block)}: {threads:,} threads, and the "
            f"entry declares .maxntid {_words(most_threads)}"
        )
    if any(count % size for count, size in zip(launch.grid, cluster, strict=True)):
        raise NotExecutable(
            f"the driver refuses a grid of {_words(launch.grid)}: each size has to be a multiple "
            f"of the cluster's, {_words(cluster)}"
        )
    return replace(launch, cluster=cluster)


def _cluster(launch: Launch, directives: Sequence[str]) -> _Sizes:
    """The cluster that is launched: the entry's, or the launch's own."""
    declared = _sizes(directives, "reqnctapercluster")
    is_given = launch.cluster != (1, 1, 1)
    if declared and is_given and declared != launch.cluster:
        raise NotExecutable(
            f"the driver refuses a cluster of {_words(launch.cluster)}: the entry declares "
            f".reqnctapercluster {_words(declared)}"
        )
    if not declared and not is_given and any(one == ".explicitcluster" for one in directives):
        raise NotExecutable(
            "the entry declares .explicitcluster: its launch has to say how large a cluster is, "
            "and this one does not; a .reqnctapercluster in the PTX says it too"
        )
    cluster = declared or launch.cluster
    count = math.prod(cluster)
    if count < 1:
        raise NotExecutable(f"the driver refuses a cluster of {_words(cluster)}")
    rank = _sizes(directives, "maxclusterrank")
    most = min(rank[0], _MOST_CLUSTER) if rank else _MOST_CLUSTER
    if count > most:
        raise NotExecutable(
            f"the driver refuses a cluster of {_words(cluster)}: {count} blocks, and it may have "
            f"at most {most}{' (.maxclusterrank)' if rank else ''}"
        )
    return cluster


def _sizes(directives: Sequence[str], name: str) -> _Sizes | None:
    """The numbers of a directive, 1 for those that it leaves out; None if it is not there."""
    for one in directives:
        word, *numbers = re.split(r"[\s,]+", one.strip())
        if word == f".{name}":
            if not 1 <= len(numbers) <= 3 or not all(each.isdecimal() for each in numbers):
                raise NotExecutable(f"the directive {one!r} cannot be read")
            x, y, z = (*map(int, numbers), 1, 1)[:3]
            return x, y, z
    return None


def _words(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))
