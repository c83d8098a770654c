"""What two runs have in common that are nights of one kind: the options that choose cells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from harness.cells.spelling import purpose_of
from harness.cli.main import cli
from harness.cli.options import SilentOption

CHOOSING = {
    "matrix run": {"--matrix", "--kernel", "--sm", "--triton", "--compiler", "--ptxas",
                   "--assembler", "--launch", "--set", "--config", "--package-version",
                   "--shard", "--night", "--run", "--on", "--runner", "--gpu"},
    "compile": {"--kernel", "--sm", "--triton", "--compiler", "--ptxas", "--assembler", "--launch",
                "--set", "--config", "--freeze-ptx", "--pass-env"},
}  # fmt: skip


def options(name: str) -> Iterator[click.Option]:
    command: click.Command = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    yield from (each for each in command.params if isinstance(each, click.Option))


@pytest.mark.parametrize("name", CHOOSING)
def test_each_option_chooses_cells_or_is_silent(name: str) -> None:
    plain = f"triage {name}"
    choosing = set()
    for option in options(name):
        for word in option.opts:
            value = [] if option.is_flag else ["7"]
            forms = [shlex.join([word, *value])]
            if value and word.startswith("--"):
                forms.append(f"{word}=7")
            for form in forms:
                is_silent = purpose_of(f"{plain} {form}") == purpose_of(plain)
                assert is_silent is isinstance(option, SilentOption), form
                # What stands behind it is a word of its own.
                assert purpose_of(f"{plain} {form} --x")[-1] == "--x"
            if not isinstance(option, SilentOption):
                choosing.add(word)
    assert choosing <= CHOOSING[name]
