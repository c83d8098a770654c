"""The page of hunts: what each found, over time."""

from __future__ import annotations

from typing import Any

from harness.hunt.hunt_words import spread
from harness.hunt.plan import KeptHunt
from harness.hunt.voting import Vote
from harness.tables.charts import Frame, ticks

_FRAME = Frame(width=420, height=200, left=52, right=22, top=14, bottom=48)
_TIMES = 5


def hunt_view(kept: KeptHunt) -> dict[str, Any]:
    """How one hunt is shown, for its template.

    `points` are corners of the line of causes over seconds of CPU. Each cause has the ptxas, or
    Triton, in which it was first and in which it is. `heights` and `times` are what stands at the
    axes, each with its place; `rate` is programs a second, `refused` a share.
    """
    state = kept.state
    causes = state.new
    most, end = max(1, len(causes)), max(state.cpu, 1.0)

    def x(seconds: float) -> float:
        width = _FRAME.width - _FRAME.left - _FRAME.right
        return round(_FRAME.left + min(1.0, seconds / end) * width, 1)

    corners, before = [(x(0.0), _FRAME.y(0, most))], 0
    for _, _, count, cpu in state.curve:
        corners += [(x(cpu), _FRAME.y(min(most, n), most)) for n in (before, count)]
        before = count
    corners.append((x(end), _FRAME.y(min(most, before), most)))
    return {
        "kept": kept,
        "rate": state.tried / state.seconds if state.seconds else None,
        "refused": state.votes.get(Vote.REFUSED.value, 0) / max(1, state.tried),
        "hits": sum(cause.hits for cause in causes),
        "causes": tuple((cause, *spread(cause.least, kept.version)) for cause in causes),
        "points": corners,
        "heights": [(n, _FRAME.y(n, most)) for n in ticks(most) if n == int(n)],
        "times": [(end * n / _TIMES, x(end * n / _TIMES)) for n in range(_TIMES + 1)],
        "frame": _FRAME,
    }
