"""What a command loads before it knows that it needs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from conftest import Triage

# Each takes from 0.1 s to 2 s to import.
HEAVY = {"distributed", "libcst", "numpy", "requests", "torch", "triton"}
EXECUTES = {"run"}


def loaded(command: str) -> set[str]:
    program = (
        "import sys\n"
        "from harness.cli.main import cli\n"
        "assert cli.get_command(None, sys.argv[1]) is not None\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def commands() -> list[str]:
    from harness.cli.main import cli

    return cli.list_commands(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", sorted(set(commands()) - EXECUTES))
def test_a_command_loads_what_is_heavy_only_where_it_needs_it(command: str) -> None:
    found = loaded(command)
    assert "harness.cli.main" in found
    assert not found & HEAVY


def test_a_kernel_is_found_without_loading_each_front_end() -> None:
    program = (
        "import sys\n"
        "from harness.cells.repros.find import find_kernels\n"
        "find_kernels('mamba3_siso_bwd_dqkv')\n"
        "print(*(name for name in sys.modules if name.endswith('front_end')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "\n")


def test_what_executes_loads_numpy() -> None:
    assert "numpy" in loaded("run")


def groups(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that has commands, and needs one of them."""
    if not isinstance(command, click.Group):
        return
    if not command.invoke_without_command:
        yield path
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from groups(found, *path, name)


def every_group() -> list[tuple[str, ...]]:
    from harness.cli.main import cli

    return list(groups(cli))


@pytest.mark.parametrize("words", every_group(), ids=lambda words: " ".join(["triage", *words]))
def test_a_group_without_a_command_prints_its_help(triage: Triage, words: tuple[str, ...]) -> None:
    bare, asked = triage(*words), triage(*words, "--help")
    assert bare.returncode == 2
    assert bare.stdout == ""
    assert bare.stderr == asked.stdout


def test_the_command_itself_is_a_group() -> None:
    assert () in every_group()
    assert ("matrix",) in every_group()


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("compil",), "compile"), (("bisekt",), "bisect"), (("matrix", "rum"), "run")],
)
def test_a_mistyped_command_gets_a_suggestion(
    triage: Triage, words: tuple[str, ...], meant: str
) -> None:
    done = triage(*words)
    assert done.returncode == 2
    assert f"No such command '{words[-1]}'. Did you mean '{meant}'?" in done.stderr
