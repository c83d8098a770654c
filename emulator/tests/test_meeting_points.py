"""Where threads meet again, against a search for blocks that no way to the end can avoid."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_emulator.ptx.program.decoding import meeting_points

GRAPHS = st.integers(1, 8).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(0, count - 1), max_size=2), min_size=count, max_size=count
    )
)


def reaches_the_end(graph: list[list[int]], start: int, without: int | None) -> bool:
    seen: set[int] = set()
    pile = [start]
    while pile:
        block = pile.pop()
        if block in seen or block == without:
            continue
        seen.add(block)
        if not graph[block]:
            return True
        pile += graph[block]
    return False


def test_an_if_a_loop_and_an_early_end() -> None:
    assert meeting_points([[1, 2], [3], [3], []]) == [3, 3, 3, None]
    assert meeting_points([[1], [1, 2], []]) == [1, 2, None]
    assert meeting_points([[1, 2], [], [3], []]) == [None, None, 3, None]


@given(GRAPHS)
def test_no_way_to_the_end_avoids_a_meeting_point(graph: list[list[int]]) -> None:
    for block, point in enumerate(meeting_points(graph)):
        if not reaches_the_end(graph, block, None):
            continue
        unavoidable = [
            each
            for each in range(len(graph))
            if each != block and not reaches_the_end(graph, block, each)
        ]
        # The nearest one: it comes before all others that cannot be avoided.
        assert (point is None) == (not unavoidable)
        if point is not None:
            assert point in unavoidable
            others = set(unavoidable) - {point}
            assert all(not reaches_the_end(graph, point, each) for each in others)
