"""Which of several compilers' results is trusted: that on which most of them agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.runs.judging import Trusted

__all__ = ["prevailing"]

_AGREEMENT = 2


def prevailing(own: Trusted | None, others: Sequence[Trusted]) -> Trusted | None:
    """What the plain config of a kernel leaves, by its own compiler or by others.

    `own` is of the compiler of the cell, `others` are of other compilers, the newest first. Its own
    counts, unless it stands alone against at least two that agree with one another bit for bit:
    then all its configs may be wrong alike. Without its own, the newest of the most that agree.
    """
    groups: dict[tuple[bytes | None, ...], list[Trusted]] = {}
    for each in others:
        groups.setdefault(each.buffers, []).append(each)
    most = max(groups.values(), key=len, default=[])
    if own and (own.buffers in groups or len(most) < _AGREEMENT):
        return own
    if not most:
        return None
    first, *more = most
    also = f", and bit for bit by {len(more)} more" if more else ""
    return Trusted(
        words=f"{first.words}{also}", buffers=first.buffers, is_emulated=first.is_emulated
    )
