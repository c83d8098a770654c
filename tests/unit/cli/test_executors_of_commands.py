"""Which executors each command takes: one that it does not declare never runs as another."""

from __future__ import annotations

import click
import pytest

from harness.cli.main import cli
from harness.values.toolchain import EMULATOR, GPU, SASS

DECLARED = {
    "run": [EMULATOR, SASS, GPU],
    "bisect": [EMULATOR, SASS, GPU],
    "blame": [EMULATOR, SASS, GPU],
    "minimize": [EMULATOR, SASS, GPU],
    "report": [EMULATOR, SASS, GPU],
    "matrix run": [EMULATOR, SASS, GPU],
    "pr": [EMULATOR, SASS, GPU],
    "hunt ptxas": [EMULATOR, SASS, GPU],
    "hunt triton": [EMULATOR, SASS, GPU],
    "workaround": [SASS, GPU],
    "rank": [GPU],
}


def _named(path: str) -> list[str]:
    command: click.Command = cli
    for word in path.split():
        assert isinstance(command, click.Group)
        [command] = filter(None, [command.get_command(click.Context(command), word)])
    [kind] = [option.type for option in command.params if "--on" in option.opts]
    assert isinstance(kind, click.Choice)
    return list(kind.choices)


@pytest.mark.parametrize("path", DECLARED)
def test_a_command_takes_the_executors_that_it_declares(path: str) -> None:
    assert _named(path) == DECLARED[path]
