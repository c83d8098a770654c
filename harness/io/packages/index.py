"""What the package index has: listings, cached for ten minutes, and downloads checked by sha256.

Speaks the simple repository API (PEP 503 HTML or PEP 691 JSON). The index is the one that
`UV_DEFAULT_INDEX`, `UV_INDEX_URL` or `PIP_INDEX_URL` names, else the default of `pypi_simple`.
A listing is used however old it is when the index does not answer or `TRIAGE_OFFLINE` is set.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from harness.io.files.locations import cache_dir, offline, storage_error
from harness.io.files.writing import write_atomically
from harness.io.packages.versions import select
from harness.values.errors import (
    ConfigurationError,
    InfrastructureError,
    IntegrityError,
    OfflineError,
    StorageError,
    UsageError,
)

if TYPE_CHECKING:
    import pypi_simple
    import requests


# The package index that is asked: its address, its client, and what its errors are called.

T = TypeVar("T")

VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
TIMEOUTS = (10.0, 30.0)
"""Seconds to connect, and between two reads."""
ATTEMPTS = 2
_SERVER_ERROR = 500


def endpoint_setting() -> str | None:
    """The index that the environment names, as it is written there; None for the default.

    Raises:
        ConfigurationError: it is not an http or https address.
    """
    for variable in VARIABLES:
        # uv also accepts NAME=URL.
        value = os.environ.get(variable, "").strip()
        if value and not value.startswith(("http://", "https://")):
            value = value.partition("=")[2]
            if not value.startswith(("http://", "https://")):
                raise ConfigurationError(
                    f"{variable} does not name a package index; set it to an http(s) address"
                )
        if value:
            return value
    return None


def _open_client() -> pypi_simple.PyPISimple:
    """A client of the index that the environment names, to be closed by the caller."""
    import pypi_simple  # noqa: PLC0415 - brings in requests: 0.3 s

    setting = endpoint_setting()
    return pypi_simple.PyPISimple(setting) if setting else pypi_simple.PyPISimple()


def _reason(error: requests.RequestException) -> str:
    """A few words; never the address, which may hold a password."""
    import requests  # noqa: PLC0415 - takes 0.2 s

    if error.response is not None:
        return f"status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "timed out"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not accepted"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__


# Files of the package index are fetched here, and kept only with the sha256 that it gave.


def download(release: Release, path: Path, *, limit: int) -> None:
    """Fetch `release` into the file `path`; at most `limit` bytes, and only with its sha256.

    Raises:
        OfflineError: the network is forbidden or does not answer.
        IntegrityError: the bytes have another sha256.
        InfrastructureError: the index refuses the file, breaks off, or sends too much.
        StorageError: the file cannot be written.
    """
    import requests  # noqa: PLC0415 - takes 0.2 s, and a warm start needs no network

    if offline():
        raise OfflineError(
            f"{release.filename} is not in the cache and TRIAGE_OFFLINE forbids fetching it; "
            "unset TRIAGE_OFFLINE once"
        )
    try:
        digest = _asked(lambda client: _fetch(client, release, path, limit))
    except requests.HTTPError as error:
        raise InfrastructureError(
            f"the package index refuses {release.filename} with {_reason(error)}; try later"
        ) from error
    except requests.RequestException as error:
        raise OfflineError(
            f"cannot download {release.filename}: {_reason(error)}; check the network and try again"
        ) from error
    except OSError as error:
        raise storage_error(error, path, "write") from error
    if digest != release.sha256:
        raise IntegrityError(
            f"{release.filename} was downloaded with sha256 {digest}, not {release.sha256}; "
            "the index or a proxy changed it: do not use it"
        )


def _asked(ask: Callable[[pypi_simple.PyPISimple], T]) -> T:
    """What the index answers, which is asked again where it does not.

    Raises:
        requests.RequestException: it does not answer, or refuses: asking again gives the same.
    """
    import requests  # noqa: PLC0415 - takes 0.2 s

    failure: requests.RequestException
    for _ in range(ATTEMPTS):
        try:
            with _open_client() as client:
                return ask(client)
        except requests.RequestException as error:
            failure = error
            if error.response is not None and error.response.status_code < _SERVER_ERROR:
                break
    raise failure


def _fetch(client: pypi_simple.PyPISimple, release: Release, path: Path, limit: int) -> str:
    digest = hashlib.sha256()
    received = 0
    index, file = urlsplit(endpoint_setting() or ""), urlsplit(release.url)
    is_there = (index.hostname, index.port) == (file.hostname, file.port)
    login = (
        (index.username, index.password or "") if index.username is not None and is_there else None
    )
    # Some servers else send a .tar.gz as compressed text, which is unpacked on the way.
    headers = {"Accept-Encoding": "identity"}
    with (
        client.s.get(
            release.url, stream=True, timeout=TIMEOUTS, auth=login, headers=headers
        ) as answer,
        path.open("wb") as stream,
    ):
        answer.raise_for_status()
        for block in answer.iter_content(1 << 16):
            received += len(block)
            if received > limit:
                raise InfrastructureError(
                    f"{release.filename} is over the limit of {limit >> 20} MiB: not downloaded"
                )
            digest.update(block)
            stream.write(block)
    return digest.hexdigest()


_LOG = logging.getLogger(__name__)
_TTL = 600.0

_silent: set[str] = set()
_CACHED_ONLY: ContextVar[bool] = ContextVar("cached_only", default=False)
"""Endpoints that did not answer this process: a stale listing is then used without asking again."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a project; `size` is in bytes, `uploaded` a day in ISO 8601.

    Both are None where the index does not say.
    """

    name: str
    version: Version
    filename: str
    url: str
    sha256: str
    requires_python: str | None = None
    yanked: bool = False
    size: int | None = None
    uploaded: str | None = None

    @property
    def is_wheel(self) -> bool:
        """Whether it is a wheel; otherwise it is an sdist."""
        return self.filename.endswith(".whl")

    @property
    def tags(self) -> frozenset[Tag]:
        """The wheel's tags; an sdist has none."""
        return parse_wheel_filename(self.filename)[3] if self.is_wheel else frozenset()

    @property
    def is_binary(self) -> bool:
        """Whether it is a wheel for particular platforms."""
        return self.is_wheel and all(tag.platform != "any" for tag in self.tags)

    @property
    def is_pure(self) -> bool:
        """Whether it is a wheel of Python code that fits every platform."""
        return any(tag.platform == "any" and tag.abi == "none" for tag in self.tags)


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A cached listing; `fetched` is in seconds since the epoch."""

    fetched: float
    files: list[Release]


@contextlib.contextmanager
def as_cached() -> Iterator[None]:
    """Within it the index is not asked, however old its last answer is."""
    token = _CACHED_ONLY.set(True)
    try:
        yield
    finally:
        _CACHED_ONLY.reset(token)


def files(project: str) -> list[Release]:
    """Every wheel and sdist of `project` that has a sha256, yanked ones included.

    Raises:
        UsageError: the index has no such project.
        OfflineError: the index does not answer, and no listing is cached.
        InfrastructureError: its answer makes no sense.
    """
    name = canonicalize_name(project)
    listing = _listing(name)
    if not listing.files:
        raise UsageError(
            f"the package index has no project {name}, or no file of it with a sha256; "
            f"check the name and {VARIABLES[0]}"
        )
    return listing.files


def wheels(
    project: str, *, exact: Version | None = None, prereleases: bool = False
) -> list[Release]:
    """The best wheel of each version for this interpreter and platform, oldest first.

    Yanked versions and pre-releases are left out, unless `exact` names that very version.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `files`.
    """
    ranks = _tag_ranks()
    best: dict[Version, tuple[int, Release]] = {}
    for release in files(project):
        is_usual = not release.yanked and (prereleases or not release.version.is_prerelease)
        if not (is_usual if exact is None else release.version == exact):
            continue
        fitting = [ranks[tag] for tag in release.tags if tag in ranks]
        if not fitting or not _python_fits(release.requires_python):
            continue
        previous = best.get(release.version)
        if previous is None or min(fitting) < previous[0]:
            best[release.version] = (min(fitting), release)
    return [best[version][1] for version in sorted(best)]


def sdist(project: str, version: Version) -> Release:
    """The source distribution of exactly that version.

    Raises:
        UsageError: the index has none.
        OfflineError, InfrastructureError: as `files`.
    """
    sources = [release for release in files(project) if not release.is_wheel]
    select((source.version for source in sources), str(version), what=f"sdist of {project}")
    return next(source for source in sources if source.version == version)


def pick_file(project: str, version: Version, sha256: str, *, wheel: bool) -> Release:
    """The sdist, or the pure-Python wheel, of that version with that sha256.

    Raises:
        UsageError: the index has no such version.
        IntegrityError: it has, with another sha256.
        OfflineError, InfrastructureError: as `files`.
    """
    form = "pure-Python wheel" if wheel else "sdist"
    kind = [release for release in files(project) if release.is_wheel == wheel]
    kind = [release for release in kind if release.is_pure or not wheel]
    select((release.version for release in kind), str(version), what=f"{form} of {project}")
    offered = {release.sha256: release for release in kind if release.version == version}
    if sha256.lower() in offered:
        return offered[sha256.lower()]
    offers = ", ".join(offered)
    raise IntegrityError(
        f"the {form} of {project} {version} has sha256 {offers} on the index, not {sha256}; "
        "check the version and the hash that the repro gives"
    )


def _listing(name: str) -> _Listing:
    setting = endpoint_setting() or "default"
    key = hashlib.sha256(setting.encode()).hexdigest()[:8]
    path = cache_dir() / "index" / f"{name}-{key}.json"
    cached: _Listing | None = None
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        data = path.read_bytes()
        cached = msgspec.json.decode(data, type=_Listing, dec_hook=lambda kind, text: kind(text))
    if cached is not None:
        fresh = 0 <= time.time() - cached.fetched < _TTL
        if fresh or offline() or setting in _silent or _CACHED_ONLY.get():
            return cached
    elif offline() or _CACHED_ONLY.get():
        raise OfflineError(
            f"no listing of {name} is cached and TRIAGE_OFFLINE forbids asking the package index; "
            "unset TRIAGE_OFFLINE once"
        )
    try:
        listing = _ask(name)
    except OfflineError as error:
        if cached is None:
            raise
        _silent.add(setting)
        _LOG.warning("%s; using a cached listing", error)
        return cached
    _silent.discard(setting)
    # A read-only cache costs a request each time, and nothing else.
    with contextlib.suppress(StorageError):
        write_atomically(path, msgspec.json.encode(listing, enc_hook=str))
    return listing


def _ask(name: str) -> _Listing:
    import pypi_simple  # noqa: PLC0415 - brings in requests: 0.3 s
    import requests  # noqa: PLC0415

    try:
        page = _asked(lambda client: client.get_project_page(name, timeout=TIMEOUTS))
    except pypi_simple.NoSuchProjectError:
        # Remembered like any other answer: ptxas is looked for in several projects.
        return _Listing(fetched=time.time(), files=[])
    except (
        pypi_simple.UnsupportedContentTypeError,
        pypi_simple.UnsupportedRepoVersionError,
        ValueError,
    ) as error:
        raise InfrastructureError(
            f"the package index answers for {name} in no known format; check {VARIABLES[0]}"
        ) from error
    except requests.RequestException as error:
        raise OfflineError(
            f"the package index does not answer for {name}: {_reason(error)}; "
            f"check the network and {VARIABLES[0]}"
        ) from error
    releases = [
        Release(
            name=name,
            version=version,
            filename=package.filename,
            url=package.url,
            sha256=package.digests["sha256"].lower(),
            requires_python=package.requires_python,
            yanked=package.is_yanked,
            size=package.size,
            uploaded=str(package.upload_time)[:10] if package.upload_time else None,
        )
        for package in page.packages
        if package.package_type in {"sdist", "wheel"} and "sha256" in package.digests
        if (version := _version_in(package.filename))
    ]
    return _Listing(fetched=time.time(), files=releases)


def _version_in(filename: str) -> Version | None:
    """That of a wheel or an sdist; None for another file, and for a name that follows no standard.

    Old indexes are full of such names.
    """
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


@lru_cache(maxsize=1)
def _tag_ranks() -> dict[Tag, int]:
    return {tag: rank for rank, tag in reversed(list(enumerate(sys_tags())))}


def _python_fits(requires_python: str | None) -> bool:
    if not requires_python:
        return True
    running = Version(".".join(map(str, sys.version_info[:3])))
    try:
        return SpecifierSet(requires_python).contains(running, prereleases=True)
    except InvalidSpecifier:
        return True
