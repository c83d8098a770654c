"""What a fetched source distribution says of itself (core metadata, `PKG-INFO`)."""

from __future__ import annotations

from email.parser import Parser

from harness.io.packages.sdists import fetch_sdist

_CLASSIFIER = "License :: "


def package_license(package: str, version: str, sha256: str) -> str | None:
    """The licence in a few words: the SPDX expression, else the classifier; None if it has neither.

    Raises:
        TriageError: the source cannot be fetched.
    """
    file = fetch_sdist(package, version, sha256) / "PKG-INFO"
    if not file.is_file():
        return None
    headers = Parser().parsestr(file.read_text(errors="replace"), headersonly=True)
    if expression := headers.get("License-Expression"):
        return str(expression)
    for classifier in headers.get_all("Classifier", ()):
        if str(classifier).startswith(_CLASSIFIER):
            return str(classifier).rpartition(" :: ")[2]
    return None
