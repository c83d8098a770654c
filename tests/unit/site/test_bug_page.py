"""The grid of a bug's page says what differs between what fails and what works, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from nights import record, row

from harness.site.pages import BlameView, blame_view, upstream_links
from harness.values.bug import Bug, Seen
from harness.values.row import BugFacts, Row


def facts(made: Row) -> BugFacts:
    return msgspec.json.decode(msgspec.json.encode(made), type=BugFacts)


def bug(example: BugFacts, **values: Any) -> Bug:
    record = SimpleNamespace(url=values.pop("url", None))
    return cast("Bug", SimpleNamespace(example=example, record=record, **values))


def view(*cells: tuple[str, str, str | None, Seen]) -> BlameView:
    beside = [
        (facts(row(triton=triton, ptxas=ptxas, ptx_body_sha256=body)), "cell.html", seen)
        for triton, ptxas, body, seen in cells
    ]
    found = blame_view(beside)
    assert found is not None
    return found


def test_one_program_that_fails_here_and_works_there_is_the_assembler_s_doing() -> None:
    found = view(
        ("3.6.0", "13.1.80", "a" * 64, Seen.HERE),
        ("3.6.0", "13.0.88", "a" * 64, Seen.CLEAN),
        ("3.7.0", "13.1.80", "a" * 64, Seen.HERE),
    )
    assert found.grid.columns == ("ptxas 13.0.88", "ptxas 13.1.80")
    [line] = found.grid.lines
    assert line.label == "Triton 3.6.0, Triton 3.7.0, program aaaaaaaa"
    assert [square and square.text for square in line.squares] == ["✓ works", "✗ has it"]
    [said] = found.says
    assert said.endswith("works with ptxas 13.0.88: it depends on the assembler.")
    assert "--triton 3.6.0" in found.command
    example = facts(row(launch="default:chunk_size=32", ptx_body_sha256="a" * 64))
    more = blame_view([(example, "", Seen.HERE)])
    assert more is not None
    for words in ("--launch default ", "--set chunk_size=32", "--config"):
        assert words in more.command
    # Where the kernel has other launches, it is the first of them alone.
    first = blame_view([(example, "", Seen.HERE)], [record(row(launch="default#2"))])
    assert first is not None
    assert "--launch 'default#1' " in first.command


def test_two_programs_on_one_assembler_and_what_cannot_be_told() -> None:
    found = view(
        ("3.6.0", "13.1.80", "a" * 64, Seen.HERE), ("3.7.0", "13.1.80", "b" * 64, Seen.CLEAN)
    )
    [said] = found.says
    assert said.endswith("it depends on the program.")
    found = view(
        ("3.6.0", "13.1.80", "a" * 64, Seen.HERE),
        ("3.7.0", "13.3.33", "b" * 64, Seen.CLEAN),
        ("3.5.0", "13.1.80", None, Seen.UNTOLD),
    )
    assert found.says == (
        "No two of these cells differ in one thing alone and in whether they fail.",
    )
    assert found.grid.lines[0].label == "Triton 3.5.0"
    assert found.grid.lines[0].squares[1] is None


def test_a_compiler_that_came_to_no_program_proves_nothing_of_an_assembler() -> None:
    found = view(("3.6.0", "13.1.80", None, Seen.HERE), ("3.6.0", "13.3.33", None, Seen.CLEAN))
    assert found.says[0].startswith("No two")


def test_issues_are_links_and_what_is_no_address_is_words() -> None:
    example = facts(row())
    found = upstream_links(bug(example, url="javascript:x", issues=("a/b#12", "see there")))
    assert found == [
        ("javascript:x", ""),
        ("a/b#12", "https://github.com/a/b/issues/12"),
        ("see there", ""),
    ]
    assert blame_view([]) is None


def test_options_that_make_it_come_and_go_are_neither_program_nor_assembler() -> None:
    one = facts(row(ptx_body_sha256="a" * 64))
    other = replace(one, cell=f"{one.cell},-O1")
    assert other.flags == "-O1"
    found = blame_view([(one, "", Seen.HERE), (other, "", Seen.CLEAN)])
    assert found is not None
    [said] = found.says
    assert said.endswith(
        "fails with the options none and works with -O1: it depends on the options."
    )
