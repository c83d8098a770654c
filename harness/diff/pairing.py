"""Which launch of base is which of head: by what it is launched with, and not by its name alone.

Launches are numbered in their script (`main#2`): one that is taken out renames all after it.
Kernels are renamed, and their files are moved. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple, TypeAlias


class LaunchName(NamedTuple):
    """A kernel and the label of one of its launches, as cells have them."""

    kernel: str
    launch: str


Launches: TypeAlias = Mapping[LaunchName, str]
"""The launches of one side in their order; each with its arguments, spelled out."""


def pair_launches(base: Launches, head: Launches) -> dict[LaunchName, LaunchName]:
    """What each launch of base is named in head.

    Two are one launch that have one name and the same arguments; of the others, those of a kernel
    with the same arguments, in their order; of what is left, those of one name. A launch that head
    does not have keeps its name, unless another one has it there: then it is called one of base.

        >>> first, second = LaunchName("k", "main"), LaunchName("k", "main#2")
        >>> pair_launches({first: "fp32", second: "fp16"}, {first: "fp16"})[second].launch
        'main'
    """
    kernels = dict(_renamed(base, head))
    there = {name: name._replace(kernel=kernels.get(name.kernel, name.kernel)) for name in base}
    pairs = {name: own for name, own in there.items() if head.get(own) == base[name]}
    for kernel in dict.fromkeys(name.kernel for name in there.values()):
        left = [name for name in base if there[name].kernel == kernel and name not in pairs]
        right = [own for own in head if own.kernel == kernel and own not in pairs.values()]
        texts = [base[name] for name in left], [head[own] for own in right]
        for one, two, size in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
            pairs |= zip(left[one : one + size], right[two : two + size], strict=True)
    for name, own in there.items():
        if name in pairs:
            continue
        if own in pairs.values():
            own = own._replace(launch=f"{own.launch} of base")  # noqa: PLW2901
        pairs[name] = own
    return pairs


def renaming(named: Mapping[LaunchName, LaunchName]) -> list[str]:
    """What is reported of launches that have another name, kernels first."""
    kernels = {old.kernel: new.kernel for old, new in named.items() if old.kernel != new.kernel}
    said = [f"{new} is {old} of base" for old, new in kernels.items()]
    return said + [
        f"{new.kernel} · {new.launch} is {old.launch} of base"
        for old, new in named.items()
        if new.launch not in (old.launch, f"{old.launch} of base")
    ]


def _renamed(base: Launches, head: Launches) -> Iterator[tuple[str, str]]:
    """Kernels with another name, in the same file, or with another file; only where it is sure."""
    gone, new = (
        dict.fromkeys(
            name.kernel for name in one if name.kernel not in {own.kernel for own in other}
        )
        for one, other in ((base, head), (head, base))
    )
    same = {
        kernel: [other for other in new if _alike(kernel, other, base, head)] for kernel in gone
    }
    for kernel, others in same.items():
        if len(others) == 1 and sum(others[0] in each for each in same.values()) == 1:
            yield kernel, others[0]


def _alike(kernel: str, other: str, base: Launches, head: Launches) -> bool:
    (file, _, name), (moved, _, own) = kernel.partition("::"), other.partition("::")
    texts = {text for at, text in base.items() if at.kernel == kernel}
    return (file == moved or (bool(name) and name == own)) and not texts.isdisjoint(
        text for at, text in head.items() if at.kernel == other
    )
