"""Choosing versions by a specification, and reading them from what CUDA's tools print. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from harness.values.errors import UsageError
from harness.values.toolchain import BUNDLED, TRITON

LATEST = "latest"
OLDEST_TRITON = Version("3.2")
"""Before that, Triton launches and compiles through other functions than the capture replaces."""
_RELEASE = re.compile(r"^Cuda compilation tools, release \S+, V(\S+)$", re.MULTILINE)
_BUILD = re.compile(r"^Build (\S+)$", re.MULTILINE)
_OF_DISTRIBUTION = re.compile(r"\s*([A-Za-z](?:[\w.-]*[A-Za-z0-9])?)\s*([<>=!~].*)")


def exact_version(spec: str) -> Version | None:
    """The one version that `13.1.115` or `==13.1.115` names; None for a range or `latest`."""
    return parse_version(spec.strip().removeprefix("=="))


# A Triton of another distribution than its own carries that one's name as the local label of its
# version: `tokenspeed-triton==3.9.10.post20261028` is 3.9.10.post20261028+tokenspeed.triton. So it
# sorts behind the release that it is built on, and before the next one.


def split_distribution(spec: str) -> tuple[str, str]:
    """The distribution that `NAME>=3.8` begins with, and the rest; no name for Triton's own."""
    match = _OF_DISTRIBUTION.fullmatch(spec)
    if match is None:
        return "", spec
    name, rest = canonicalize_name(match[1]), match[2].strip()
    return "" if name == TRITON else name, LATEST if rest == f"=={LATEST}" else rest


def label_version(version: Version, distribution: str) -> Version:
    """The version of a distribution, labelled with its name."""
    return Version(f"{version.public}+{distribution.replace('-', '.')}")


def exact_of_distribution(spec: str) -> Version | None:
    """As `exact_version`, of `NAME==VERSION` too, which is labelled."""
    name, rest = split_distribution(spec)
    exact = exact_version(rest)
    return label_version(exact, name) if exact and name else exact


def check_spec(spec: str, *, what: str) -> None:
    """Complain about what `select` would not understand, before anything is asked for it.

    Raises:
        UsageError: `spec` is malformed.
    """
    if spec.strip() != LATEST and exact_version(spec) is None:
        _specifiers(spec, what)


def require_supported_triton(spec: str) -> None:
    """Refuse a version that is too old; what is not a single version is not looked at.

    Raises:
        UsageError: it is older than `OLDEST_TRITON`.
    """
    exact = exact_version(spec)
    if exact is not None and exact < OLDEST_TRITON:
        raise UsageError(f"Triton {exact}: triage supports Triton {OLDEST_TRITON} and newer")


def select(
    available: Iterable[Version], spec: str, *, what: str, prereleases: bool = False
) -> list[Version]:
    """The versions that `spec` names, without duplicates, oldest first.

    `spec` is `latest`, one version, or a PEP 440 range such as `>=12.9,<13.2`. One version means
    that version: `13.1` does not stand for 13.1.115 (`==13.1.*` does). It may be a pre-release;
    the others name pre-releases only with `prereleases`. A range may match nothing: the answer is
    then empty, and what that means is the caller's to say. `what` is the name for messages.

    Raises:
        UsageError: `spec` is malformed, or names one version that is not there.
    """
    versions = sorted(set(available))
    if spec.strip() == LATEST:
        offered = [version for version in versions if prereleases or not version.is_prerelease]
        if not offered:
            raise UsageError(f"no {what} is available; check the index and the platform")
        return offered[-1:]
    exact = exact_version(spec)
    if exact is not None:
        if exact not in versions:
            raise UsageError(f"there is no {what} {exact}; {_nearest(versions, exact)}")
        return [exact]
    specifiers = _specifiers(spec, what)
    return [
        version for version in versions if specifiers.contains(version, prereleases=prereleases)
    ]


def _specifiers(spec: str, what: str) -> SpecifierSet:
    try:
        if not spec.strip():
            raise InvalidSpecifier(spec)  # packaging takes it for "any version"
        return SpecifierSet(spec)
    except ValueError as error:
        raise UsageError(
            f"{spec[:80]!r} is not a version of {what}; write 13.1.115, '>=12.9,<13.2' or {LATEST}"
        ) from error


def parse_banner(text: str) -> tuple[str, str] | None:
    """Version and Build line of what `ptxas --version` or `nvdisasm --version` prints.

    The Build line is empty where there is none. None if the text is not such a banner.
    """
    release = _RELEASE.search(text)
    if release is None:
        return None
    build = _BUILD.search(text)
    return release[1], build[1] if build else ""


def toolchain_order(
    triton: str | None, ptxas: str | None, origin: str | None
) -> tuple[object, ...]:
    """A key that sorts toolchains as versions: by Triton, then the bundled ptxas, then the others.

    What is not a version comes first, by its text; so does raw PTX, which has no Triton.
    """
    return version_order(triton), origin != BUNDLED, version_order(ptxas)


@lru_cache(maxsize=4096)
def parse_version(text: str | None) -> Version | None:
    """The version that a text names; None for what is not a version."""
    try:
        return Version(text or "")
    except ValueError:  # of a number with thousands of digits, too
        return None


def version_order(text: str | None) -> tuple[int, Version, str]:
    """A key that sorts versions as such; what is not a version comes first, by its text."""
    version = parse_version(text)
    return (1, version, "") if version else (0, Version("0"), text or "")


def newest_of_minor(
    versions: Iterable[Version], preferred: Iterable[Version] = ()
) -> list[Version]:
    """The last release of each minor version, oldest first.

    Where some of a minor version are `preferred` (installed, for instance), the last of those.
    """
    favourites = set(preferred)
    newest: dict[tuple[int, int], Version] = {}
    for version in sorted(versions, key=lambda version: (version in favourites, version)):
        newest[version.major, version.minor] = version
    return sorted(newest.values())


def _nearest(versions: Sequence[Version], exact: Version) -> str:
    below = [version for version in versions if version < exact]
    above = [version for version in versions if version > exact]
    near = [str(version) for version in (*below[-1:], *above[:1])]
    if not near:
        return "none is available at all; check the index and the platform"
    words = f"the nearest {'is' if len(near) == 1 else 'are'} {' and '.join(near)}"
    series = exact.release
    if any(version.release[: len(series)] == series for version in versions):
        words += f", and =={exact.base_version}.* takes the whole series"
    return words
