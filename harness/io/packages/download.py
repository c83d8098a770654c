"""Files of the package index are fetched here, and kept only with the sha256 that it gave."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.io.files.locations import offline, storage_error
from harness.io.packages.endpoint import (
    ATTEMPTS,
    TIMEOUTS,
    endpoint_setting,
    open_client,
    reason,
    status,
)
from harness.values.errors import InfrastructureError, IntegrityError, OfflineError

if TYPE_CHECKING:
    import requests

    from harness.io.packages.index import Release


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
    failure: requests.RequestException | None = None
    for _ in range(ATTEMPTS):
        try:
            digest = _fetch(release, path, limit)
        except requests.HTTPError as error:
            raise InfrastructureError(
                f"the package index refuses {release.filename} with {status(error)}; try later"
            ) from error
        except requests.RequestException as error:
            failure = error
            continue
        except OSError as error:
            raise storage_error(error, path, "write") from error
        if digest != release.sha256:
            raise IntegrityError(
                f"{release.filename} was downloaded with sha256 {digest}, not {release.sha256}; "
                "the index or a proxy changed it: do not use it"
            )
        return
    assert failure is not None
    raise OfflineError(
        f"cannot download {release.filename}: {reason(failure)}; check the network and try again"
    ) from failure


def _fetch(release: Release, path: Path, limit: int) -> str:
    digest = hashlib.sha256()
    received = 0
    with (
        open_client() as client,
        client.s.get(
            release.url,
            stream=True,
            timeout=TIMEOUTS,
            auth=_login(release),
            # Some servers else send a .tar.gz as compressed text, which is unpacked on the way.
            headers={"Accept-Encoding": "identity"},
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


def _login(release: Release) -> tuple[str, str] | None:
    """The user and password of the index, for files on the index's own host only."""
    index, file = urlsplit(endpoint_setting() or ""), urlsplit(release.url)
    if index.username is None or (index.hostname, index.port) != (file.hostname, file.port):
        return None
    return index.username, index.password or ""
