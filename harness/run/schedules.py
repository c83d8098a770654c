"""The runs that a launch gets: schedules as they are written, and what each run looks for. Pure.

No one schedule shows every missing wait: what an asynchronous operation overwrites too early shows
when it takes effect at its issue, what is read too early when it takes effect as late as its wait
allows; and a missing barrier shows when one warp runs ahead of the others, in either order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from gpu_emulator.values import Checks, Schedule
from harness.run.emulator_jobs import RunTrial
from harness.values.errors import UsageError

DEFAULT = "first/early,first/late,last/early,last/late"
"""The least that finds the known bugs (#13): first and last warp first, early and late."""

INSTRUCTIONS = 300_000_000
"""Thread-instructions of one run. A block of a kernel of the corpus has at most 1.4 million (#13),
a small launch a few dozen blocks; the emulator executes 10 million or more a second."""

PROGRAMS = 1024
"""Programs of a grid that are executed. Small launches of the corpus have a few dozen (#13)."""

_WARPS, _COMPLETIONS = "lockstep|first|last|random", "early|late|random"
_SCHEDULE = re.compile(
    rf"(?P<warps>{_WARPS})/(?P<completion>{_COMPLETIONS})(?::(?P<seed>\d{{1,9}}))?"
    r"(?:@(?P<resident>[1-9]\d{0,8}))?"
)


def read_schedules(text: str) -> tuple[Schedule, ...]:
    """Read `WARPS/COMPLETION[:SEED][@BLOCKS]`, several with commas between.

    Raises:
        UsageError: one of them is none.
    """
    schedules = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        match = _SCHEDULE.fullmatch(word)
        if not match:
            names = [names.replace("|", ", ") for names in (_WARPS, _COMPLETIONS)]
            raise UsageError(
                f"--schedules {word}: write WARPS/COMPLETION[:SEED][@BLOCKS], with WARPS one of "
                f"{names[0]}, COMPLETION one of {names[1]} and BLOCKS as many as run at once"
            )
        schedules.append(msgspec.convert(match.groupdict("0"), Schedule, strict=False))
    if not schedules:
        raise UsageError(f"--schedules {text!r}: name at least one, for example {DEFAULT}")
    return tuple(dict.fromkeys(schedules))


def trials_of(schedules: Sequence[Schedule], *, races: bool) -> tuple[RunTrial, ...]:
    """A run for each schedule, and the first once more with other garbage.

    Accesses are followed in the first run alone: what is ordered does not depend on the schedule,
    and following them costs time. What has been written has to be known in both that are compared.
    """
    checks = Checks(races=races, validity=True)
    runs = [
        RunTrial(schedule=schedule, checks=checks if n == 0 else Checks())
        for n, schedule in enumerate(schedules)
    ]
    repeated = replace(schedules[0], garbage=1)
    return (*runs, RunTrial(schedule=repeated, checks=Checks(validity=True)))


def default_trials() -> tuple[RunTrial, ...]:
    """The schedules that find the known bugs, with a look for races."""
    return trials_of(read_schedules(DEFAULT), races=True)
