"""What a command loads before it knows that it needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def test_what_executes_loads_numpy() -> None:
    assert "numpy" in loaded("run")
