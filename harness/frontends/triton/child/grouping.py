"""Which configs came to the same result."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from harness.frontends.triton.child.distances import Distance, distance, tolerance

if TYPE_CHECKING:
    import torch


_NOT_AT_ALL = Distance(0.0, 0.0, 0.0)


class ConfigTrial(NamedTuple):
    """What one config left in each tensor, by name; `error` says why there is nothing."""

    tensors: dict[str, torch.Tensor] | None = None
    error: str = ""


class Apart(NamedTuple):
    """The tensor in which two trials are farthest apart, how far, and how far they may be."""

    tensor: str
    distance: Distance
    allowed: float

    @property
    def differs(self) -> bool:
        """Whether rounding does not explain it."""
        return self.distance.stable_max_rel > self.allowed


def compare(trial: ConfigTrial, reference: ConfigTrial) -> Apart:
    """The worst of all tensors of two trials that both came to their end."""
    assert trial.tensors is not None
    assert reference.tensors is not None
    allowed = tolerance([tensor.dtype for tensor in reference.tensors.values()])
    worst = Apart("", _NOT_AT_ALL, allowed)
    for name in {**reference.tensors, **trial.tensors}:
        left, right = trial.tensors.get(name), reference.tensors.get(name)
        if left is None or right is None:
            return Apart(name, Distance(float("inf"), float("inf"), 1.0), allowed)
        found = Apart(name, distance(left, right, allowed), allowed)
        worst = max(worst, found, key=lambda apart: apart.distance.stable_max_rel)
    return worst


def group(trials: Sequence[ConfigTrial], doubtful: Container[int] = ()) -> list[list[int]]:
    """Indices of trials that agree with the first of their group; the one to trust comes first.

    That is the largest of those that do not begin with a `doubtful` trial. Trials that ended in an
    error belong to none.
    """
    groups: list[list[int]] = []
    for index, trial in enumerate(trials):
        if trial.tensors is None:
            continue
        for members in groups:
            if not compare(trial, trials[members[0]]).differs:
                members.append(index)
                break
        else:
            groups.append([index])
    return sorted(groups, key=lambda members: (members[0] in doubtful, -len(members), members[0]))
