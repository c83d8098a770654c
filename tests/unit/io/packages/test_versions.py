from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness.io.packages.versions import (
    exact_of_distribution,
    exact_version,
    label_version,
    newest_of_minor,
    parse_banner,
    parse_version,
    select,
    split_distribution,
    version_order,
)
from harness.values.errors import UsageError

AVAILABLE = [
    Version(text)
    for text in ("13.1.115", "12.9.86", "13.0.88", "13.1.80", "13.2.51", "13.3.0rc1", "12.9.86")
]


def chosen(spec: str, **options: bool) -> list[str]:
    return [str(version) for version in select(AVAILABLE, spec, what="ptxas", **options)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("13.1.115", ["13.1.115"]),
        ("==13.1.115", ["13.1.115"]),
        (" 13.1.115 ", ["13.1.115"]),
        ("13.3.0rc1", ["13.3.0rc1"]),
        ("==13.1.*", ["13.1.80", "13.1.115"]),
        (">=12.9,<13.1", ["12.9.86", "13.0.88"]),
        (">=13.1", ["13.1.80", "13.1.115", "13.2.51"]),
        ("latest", ["13.2.51"]),
        (">=99", []),
    ],
)
def test_select(spec: str, expected: list[str]) -> None:
    assert chosen(spec) == expected


def test_prereleases_only_when_asked() -> None:
    assert chosen(">=13.2", prereleases=True) == ["13.2.51", "13.3.0rc1"]
    assert chosen("latest", prereleases=True) == ["13.3.0rc1"]


def test_exact_is_equality_of_versions_not_of_text() -> None:
    assert select([Version("3.6.0")], "3.6", what="Triton") == [Version("3.6.0")]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("13.1.100", "there is no ptxas 13.1.100; the nearest are 13.1.80 and 13.1.115"),
        ("1.0", "there is no ptxas 1.0; the nearest is 12.9.86"),
        ("99", "there is no ptxas 99; the nearest is 13.3.0rc1"),
        (
            "13.1",
            (
                "there is no ptxas 13.1; the nearest are 13.0.88 and 13.1.80, "
                "and ==13.1.* takes the whole series"
            ),
        ),
        ("newest", "'newest' is not a version of ptxas; write 13.1.115, '>=12.9,<13.2' or latest"),
        ("", "'' is not a version of ptxas; write 13.1.115, '>=12.9,<13.2' or latest"),
    ],
)
def test_what_is_not_there_names_what_is(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(spec)
    assert str(caught.value) == words


@pytest.mark.parametrize("spec", ["latest", "1.0"])
def test_nothing_available(spec: str) -> None:
    with pytest.raises(UsageError, match="check the index and the platform"):
        select([], spec, what="ptxas")


RELEASES = st.lists(st.integers(0, 20), min_size=1, max_size=3)


@given(st.lists(RELEASES, max_size=20), RELEASES)
def test_answers_are_available_sorted_and_within(
    releases: list[list[int]], bound: list[int]
) -> None:
    available = [Version(".".join(map(str, release))) for release in releases]
    limit = Version(".".join(map(str, bound)))
    answer = select(available, f">={limit}", what="ptxas")
    assert answer == sorted({version for version in available if version >= limit})


def test_exact_version() -> None:
    assert exact_version("==13.1.115") == Version("13.1.115")
    for spec in ("latest", ">=3", "==3.*", "3.*", "==3,<4"):
        assert exact_version(spec) is None


BANNER = """\
ptxas: NVIDIA (R) Ptx optimizing assembler
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Tue_Dec_16_07:22:11_PM_PST_2025
Cuda compilation tools, release 13.1, V13.1.115
Build cuda_13.1.r13.1/compiler.37061995_0
"""


def test_banner() -> None:
    assert parse_banner(BANNER) == ("13.1.115", "cuda_13.1.r13.1/compiler.37061995_0")
    assert parse_banner("Cuda compilation tools, release 9.0, V9.0.176\n") == ("9.0.176", "")
    assert parse_banner("gcc 12") is None


def test_newest_of_each_minor() -> None:
    versions = [Version(text) for text in ("3.7.0", "3.6.0", "3.7.1", "4.0.0")]
    assert [str(each) for each in newest_of_minor(versions)] == ["3.6.0", "3.7.1", "4.0.0"]


def test_what_is_preferred_stands_for_its_minor() -> None:
    versions = [Version(text) for text in ("3.5.0", "3.5.1", "3.6.0", "3.10.0", "3.10.1")]
    found = newest_of_minor(versions, [Version("3.10.0"), Version("3.2.0")])
    assert [str(each) for each in found] == ["3.5.1", "3.6.0", "3.10.0"]


def test_what_is_no_version_comes_first() -> None:
    texts = ["13.10", "13.9", "unknown", None, "13.9rc1", "bundled"]
    ordered = sorted(texts, key=version_order)
    assert ordered == [None, "bundled", "unknown", "13.9rc1", "13.9", "13.10"]
    assert parse_version("3.6.0") == Version("3.6")
    assert parse_version("unknown") is parse_version(None) is parse_version("") is None


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("some-triton==3.9.10.post20261028", ("some-triton", "==3.9.10.post20261028")),
        ("Some_Triton >=3.8,<4", ("some-triton", ">=3.8,<4")),
        ("some-triton==latest", ("some-triton", "latest")),
        ("triton==3.9.0", ("", "==3.9.0")),
        ("3.9.0", ("", "3.9.0")),
        (">=3.8", ("", ">=3.8")),
        ("latest", ("", "latest")),
        ("v3.9", ("", "v3.9")),
    ],
)
def test_a_distribution_is_named_before_its_versions(spec: str, parts: tuple[str, str]) -> None:
    assert split_distribution(spec) == parts


def test_a_build_lies_behind_the_release_that_it_is_built_on() -> None:
    named = ["some-triton==3.8.10.post20260920", "some-triton==3.9.10.post20261008", "fork==3.9.0"]
    builds = [exact_of_distribution(name) for name in named]
    releases = [Version(text) for text in ("3.9.1", "3.8.0", "3.9.0", "3.10.0")]
    assert list(map(str, sorted([*releases, *filter(None, builds)]))) == [
        "3.8.0",
        "3.8.10.post20260920+some.triton",
        "3.9.0",
        "3.9.0+fork",
        "3.9.1",
        "3.9.10.post20261008+some.triton",
        "3.10.0",
    ]


def test_the_label_of_a_build_is_its_distribution() -> None:
    labelled = label_version(Version("3.9.10.post20261028"), "some-triton")
    # What is printed can be given back.
    assert exact_of_distribution(str(labelled)) == labelled
    assert exact_of_distribution("some-triton>=3.8") is None
    assert exact_of_distribution("triton==3.9.0") == Version("3.9.0")
