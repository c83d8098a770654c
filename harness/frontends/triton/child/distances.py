"""How far results are apart, and what configs that agree have in common."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    import torch

# Each of a few intermediate results may be rounded the other way when a tile has another size.
_ROUNDINGS = 4
# Sums of thousands of terms, in another order.
_TERMS = 1000
_NARROW_BITS = 16


class Distance(NamedTuple):
    """Three measures of one tensor against another; zero where they are equal.

    rel_err: `||a - b|| / ||b||`, Euclidean norms over all elements: the error as a whole.
    stable_max_rel: `max |a - b| / (|b| + rms(b))`, where `rms` is the root of the mean square: the
        worst element, judged against the tensor's own scale so that values near zero do not count
        for more than they are.
    bad_frac: the share of elements with `|a - b| > tolerance * (|b| + rms(b))`.

    A NaN or an infinity agrees with the same one at the same place, and with nothing else: it makes
    its element bad and the other two infinite.
    """

    rel_err: float
    stable_max_rel: float
    bad_frac: float


def tolerance(dtypes: list[torch.dtype]) -> float:
    """How large `stable_max_rel` may be where these dtypes meet in one computation.

    In units of the coarsest one's `torch.finfo(dtype).eps`: 4 for types of 16 bits and fewer, whose
    intermediate roundings show; 1000 for wider ones, in which only the order of sums differs.
    Integers have to be equal: 0 where there is nothing else.
    """
    floating = [dtype for dtype in dtypes if dtype.is_floating_point]
    if not floating:
        return 0.0
    return max(_allowed(dtype) for dtype in floating)


def _allowed(dtype: torch.dtype) -> float:
    facts = torch.finfo(dtype)
    return float(facts.eps) * (_ROUNDINGS if facts.bits <= _NARROW_BITS else _TERMS)


def distance(a: torch.Tensor, b: torch.Tensor, allowed: float) -> Distance:
    """How far `a` is from `b`, any shape; tensors of another shape or dtype are wholly apart."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return Distance(float("inf"), float("inf"), 1.0)
    if not a.numel():
        return Distance(0.0, 0.0, 0.0)
    if not a.dtype.is_floating_point:
        unequal = float((a != b).double().mean())
        apart = float("inf") if unequal else 0.0
        return Distance(apart, apart, unequal)
    # In double precision: nothing is lost of the narrower ones, and squares do not overflow.
    left, right = a.detach().double(), b.detach().double()
    same = (left == right) | (left.isnan() & right.isnan())
    finite = left.isfinite() & right.isfinite()
    error = torch.where(same, 0.0, torch.where(finite, (left - right).abs(), float("inf")))
    size = torch.where(finite, right.abs(), 0.0)
    rms = float(size.square().mean().sqrt())
    # A result of zeros has no scale of its own: any other value is wholly wrong.
    scale = (size + rms).clamp_min(torch.finfo(torch.float64).tiny)
    relative = error / scale
    norm = float(size.square().sum().sqrt())
    whole = float(error.square().sum().sqrt())
    return Distance(
        whole / norm if norm else (float("inf") if whole else 0.0),
        float(relative.max()),
        float((relative > allowed).double().mean()),
    )


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
