"""The schemas of what `--json` prints. The fixture `triage` holds each document to its type."""

from __future__ import annotations

import json

import pytest
from documents import DOCUMENTS, SCHEMAS, check, schema_text

from harness.cli.output import json_text
from harness.matrix.pull_request_forms import pr_document
from harness.values.change import Changes, PullRequest


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_that_of_the_type_that_is_printed(name: str) -> None:
    """`python tests/documents.py` writes them."""
    assert (SCHEMAS / f"{name}.schema.json").read_text() == schema_text(name)


def test_there_is_no_other_schema() -> None:
    assert {path.name.partition(".")[0] for path in SCHEMAS.iterdir()} == set(DOCUMENTS)


def test_a_key_that_is_unknown_missing_or_of_another_type_is_refused() -> None:
    nothing = PullRequest(changes=Changes(older=None, newer=0), unreached=("a.py",))
    document = json.loads(json_text(pr_document(nothing)))
    check("pr", document)
    for changed in (
        {**document, "more": 1},
        {key: value for key, value in document.items() if key != "informational"},
        {key: value for key, value in document.items() if key != "same_code"},
        {**document, "alive": [{"place": "k", "base": [1], "head": [1, 1]}]},
    ):
        with pytest.raises(AssertionError, match="pr: "):
            check("pr", changed)
