"""The package index that is asked: its address, its client, and what its errors are called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.values.errors import ConfigurationError

if TYPE_CHECKING:
    import pypi_simple
    import requests


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


def open_client() -> pypi_simple.PyPISimple:
    """A client of the index that the environment names, to be closed by the caller."""
    import pypi_simple  # noqa: PLC0415 - brings in requests: 0.3 s

    setting = endpoint_setting()
    return pypi_simple.PyPISimple(setting) if setting else pypi_simple.PyPISimple()


def is_refusal(error: requests.RequestException) -> bool:
    """Whether the index answered and refuses: asking again gives the same answer."""
    return error.response is not None and error.response.status_code < _SERVER_ERROR


def status(error: requests.RequestException) -> str:
    """The status of the answer, in words."""
    return "an error" if error.response is None else f"status {error.response.status_code}"


def reason(error: requests.RequestException) -> str:
    """A few words; never the address, which may hold a password."""
    import requests  # noqa: PLC0415 - takes 0.2 s

    if error.response is not None:
        return status(error)
    if isinstance(error, requests.Timeout):
        return "timed out"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not accepted"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__
