"""What is documented exists, and what exists is documented."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import click
import pytest

from harness.cli.main import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [path.relative_to(ROOT / "docs").as_posix() for path in DOCS]
DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    ".github/SECURITY.md",
    "emulator/README.md",
    *(f"docs/{name}" for name in PAGES),
]

# Their scripts wrap them, or do not.
WRITTEN_BY_SCRIPTS = {
    "front-door.md",
    "instructions.md",
    "night.md",
    "ranking.md",
    "run-corpus.md",
    "sass-opcodes.md",
    "tutorials.md",
    "wrong-code.md",
}


def commands(group: click.Group, prefix: str = "triage") -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((f"{prefix} {name}", command))
        if isinstance(command, click.Group):
            found += commands(command, f"{prefix} {name}")
    return found


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_has_help(name: str) -> None:
    assert any(name in path.read_text() for path in DOCS)
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.count(" ") == 1])
def test_every_verb_is_in_the_readme(name: str) -> None:
    assert f"`{name}" in README


def test_the_readme_leads_to_every_document() -> None:
    assert [name for name in PAGES if f"docs/{name}" not in README] == []
    assert README.count("\n") < 150


def test_the_site_leads_to_every_document() -> None:
    """`make docs-site` checks its links."""
    text = (ROOT / "packaging/mkdocs.yml").read_text()
    named = re.findall(r"(?:- |: )([\w/.-]+\.md)$", text, re.MULTILINE)
    assert sorted(set(named)) == sorted(named)
    assert set(PAGES) <= set(named)


def test_no_link_of_the_readme_is_dead_on_an_index_page() -> None:
    """A wheel's own page is elsewhere: what links to a file there is the name of the file."""
    tomllib = pytest.importorskip("tomllib")
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"][
        "hooks"
    ]
    page = README
    for each in hooks["fancy-pypi-readme"]["substitutions"]:
        page = re.sub(each["pattern"], each["replacement"], page)
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page) if "://" not in link]
    assert links == []
    assert "Verdicts (docs/verdicts.md)" in page
    assert "https://github.com/" in page


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.count(" ") == 1])
def test_every_verb_shows_an_example(name: str) -> None:
    assert "Example:" in (COMMANDS[name].epilog or "")


def commands_shown(text: str) -> list[str]:
    """The commands of all blocks of code, and those of tables."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += re.findall(r"\| `(triage [^`]*)` \|$", text, flags=re.MULTILINE)
    return [line for line in lines if line.startswith("triage ")]


SHOWN = [
    (name, line)
    for name in DOCUMENTS
    if name != "CHANGELOG.md"
    for line in commands_shown((ROOT / name).read_text())
]


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_a_command_that_is_shown_can_be_given(
    document: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options exist and take these values; nothing is run."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, parameter, context: Path(value))
    words = list(itertools.takewhile(lambda word: word not in "|>&&", shlex.split(line, True)))
    name = next((" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in COMMANDS), None)
    assert name, f"{document} shows {line!r}"
    given = words[name.count(" ") + 1 :]
    command = COMMANDS[name]
    with command.make_context(name, given) as context:
        assert {"help", "version"}.isdisjoint(context.params)


def test_commands_are_shown() -> None:
    assert {name for name, _ in SHOWN} >= {"README.md", "docs/compile.md", "docs/run.md"}
    shown = {" ".join(line.split()[:2]) for _, line in SHOWN}
    assert shown >= {name for name in COMMANDS if name.count(" ") == 1}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_documents_name_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # code has no links
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
        assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"
    for name in re.findall(
        r"`((?:harness|emulator|tests|benchmarks|checks|repros|templates|\.ci)/[\w./-]*)`", text
    ):
        assert "NAME" in name or (ROOT / name).exists(), f"{document} names {name}"


def test_every_verdict_is_documented() -> None:
    from harness.values.verdict import VerdictKind

    text = (ROOT / "docs" / "verdicts.md").read_text()
    for kind in VerdictKind:
        assert f"| `{kind.value}` |" in text


@pytest.mark.parametrize("document", DOCUMENTS)
def test_prose_is_wrapped(document: str) -> None:
    """A diff of a paragraph shows the sentence that changed; tables and output are as they are."""
    if (ROOT / document).name in WRITTEN_BY_SCRIPTS:
        return
    prose = re.sub(
        r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE
    )
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "!["))]
    assert [line for line in lines if len(line) > 140] == []


def test_the_guide_can_be_read_in_an_hour() -> None:
    """Records lie in docs/measured; how triage is built is for those who change it."""
    apart = {"adding-a-compiler.md", "design.md"}
    guide = [path for path in (ROOT / "docs").glob("*.md") if path.name not in apart]
    assert sum(len(path.read_text().split()) for path in guide) <= 25_000
