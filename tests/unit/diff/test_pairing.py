"""Launches of base and head: one launch, whatever its number and the name of its kernel."""

from __future__ import annotations

from harness.diff.pairing import LaunchName, pair_launches, renaming


def launches(*texts: str, kernel: str = "a.py::k") -> dict[LaunchName, str]:
    """`main`, `main#2` ..., each with its arguments."""
    numbers = ("", *(f"#{number}" for number in range(2, len(texts) + 1)))
    return {
        LaunchName(kernel, f"main{number}"): text
        for number, text in zip(numbers, texts, strict=True)
    }


def paired(base: dict[LaunchName, str], head: dict[LaunchName, str]) -> dict[str, str]:
    """Labels of base by those of head."""
    return {old.launch: new.launch for old, new in pair_launches(base, head).items()}


def test_equal_sides_keep_their_names() -> None:
    same = launches("fp32 781", "fp16 1024", "fp16 1024")
    assert paired(same, same) == {"main": "main", "main#2": "main#2", "main#3": "main#3"}
    assert renaming(pair_launches(same, same)) == []


def test_a_launch_that_is_taken_out_or_put_before_others_does_not_move_them() -> None:
    base, head = launches("fp32", "fp16", "bf16"), launches("fp16", "bf16")
    named = pair_launches(base, head)
    assert paired(base, head) == {"main": "main of base", "main#2": "main", "main#3": "main#2"}
    assert renaming(named) == [
        "a.py::k · main is main#2 of base",
        "a.py::k · main#2 is main#3 of base",
    ]
    assert paired(head, base) == {"main": "main#2", "main#2": "main#3"}


def test_a_launch_with_other_arguments_is_compared_by_its_name() -> None:
    assert paired(launches("fp32", "fp16"), launches("fp32", "fp16, mask")) == {
        "main": "main",
        "main#2": "main#2",
    }


def test_a_kernel_that_is_renamed_or_moved_is_the_same_where_that_is_sure() -> None:
    base = launches("fp32", "fp16")
    for other in ("a.py::k2", "b/a.py::k"):
        named = pair_launches(base, launches("fp32", "fp16", kernel=other))
        assert {name.kernel for name in named.values()} == {other}
        assert renaming(named) == [f"{other} is a.py::k of base"]
    # Two may be it, or other arguments: nobody knows.
    two = launches("fp32", kernel="a.py::k2") | launches("fp32", kernel="a.py::k3")
    for head in (two, launches("int8", kernel="a.py::k2"), launches("fp32", kernel="b.py::k2")):
        assert {name.kernel for name in pair_launches(base, head).values()} == {"a.py::k"}
