"""The documents of `--json` that have a JSON schema, in `schemas/`.

`python tests/documents.py` writes the schemas, from the types that the documents are made of.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from harness.binaries.binary_words import BinaryDocument, BuildsDocument
from harness.binaries.pin_words import PinsDocument
from harness.diff.diff_words import ChangesDocument
from harness.matrix.pull_request_forms import PullRequestDocument
from harness.values.row import Row

SCHEMAS = Path(__file__).parent.parent / "schemas"
DOCUMENTS: dict[str, Any] = {
    "binaries": BinaryDocument,
    "builds": BuildsDocument,
    "diff": ChangesDocument,
    "pins": PinsDocument,
    "pr": PullRequestDocument,
    "row": Row,
}


def schema_of(name: str) -> dict[str, Any]:
    """The schema of what is printed: every key is there, but for those that an option adds."""
    schema = msgspec.json.schema(DOCUMENTS[name])
    for entry in schema["$defs"].values():
        if keys := entry.get("properties"):
            # What has a default in the program is printed all the same.
            printed = [key for key, value in keys.items() if "default" in value]
            entry["required"] = [key for key in keys if key in (*entry["required"], *printed)]
            entry["additionalProperties"] = False
            for key in printed:
                del keys[key]["default"]
        if "description" in entry:
            entry["description"] = inspect.cleandoc(entry["description"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text(name: str) -> str:
    """The file of that name."""
    return json.dumps(schema_of(name), indent=2) + "\n"


def check_document(words: tuple[str, ...], text: str) -> None:
    """What a command printed with `--json` has the keys of its schema, and no others.

    Raises:
        AssertionError: it has not.
    """
    name = words[0] if "--json" in words else ""
    if name not in (*DOCUMENTS, "compile"):
        return
    document = json.loads(text)
    if set(document) == {"schema", "error", "exit_code"}:
        return
    if name == "compile":
        for row in document["cells"]:
            check("row", row)
        return
    check("builds" if name == "binaries" and "same" in document else name, document)


def check(name: str, document: object) -> None:
    """That a document is one of its type: read and written again, it is the same.

    Raises:
        AssertionError: a key is missing, unknown, or of another type.
    """
    try:
        value = msgspec.convert(document, DOCUMENTS[name])
    except msgspec.ValidationError as error:
        raise AssertionError(f"{name}: {error}") from error
    again = json.loads(msgspec.json.encode(value))
    assert again == document, f"{name}: keys that its schema has not, or that it lacks"


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (SCHEMAS / f"{name}.schema.json").write_text(schema_text(name))
