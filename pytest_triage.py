"""pytest's door: with `--triage`, kernels that a suite launches are compiled, without a GPU.

Nothing of triage is imported until it is asked for.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of our own name alone, unless `--triage` is there: other plugins have theirs."""
    group = parser.getgroup("triage", "what compilers make of the kernels that tests launch")
    option = group.addoption
    option(
        "--triage",
        action="store_true",
        help="Capture what the tests launch, without a GPU, and compile it for each --sm.",
    )
    option(
        "--triage-sm",
        *(["--sm"] if "--triage" in sys.argv else []),
        action="append",
        default=[],
        metavar="SM",
        help="GPU target: 90a, sm_100a, 100f ... Repeatable; with --triage also: --sm.",
    )
    option(
        "--triage-run",
        action="store_true",
        help="Execute what is small enough, too, under the emulator, and compare.",
    )
    option(
        "--triage-fail",
        action="store_true",
        help="A test fails where a config that it launches does not work.",
    )
    option(
        "--triage-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="For the tests of one file, and for one compiler run. Default: 300.",
    )
    option("--triage-json", metavar="FILE", help="Write all that was found to this file.")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Leave the suite's own code to the child that pretends to have a GPU."""
    if early_config.known_args_namespace.triage:
        early_config.known_args_namespace.noconftest = True


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: Any) -> None:  # noqa: ANN401 - its options are attributes
    """Begin to work, if that is asked."""
    if config.option.triage:
        from harness.cli.pytest_suite import SuitePlugin  # noqa: PLC0415 - only where it is wanted

        config.pluginmanager.register(SuitePlugin(config), "triage-suite")
