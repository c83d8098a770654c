"""What is shown while toolchains and sources are brought here; always on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console

from harness.cli.progress.steps import working
from harness.io.packages.wheels import telling

_WORDS = "preparing toolchains and sources"


@contextlib.contextmanager
def preparing(console: Console) -> Iterator[None]:
    """The downloads that are under way."""
    with working(console, _WORDS) as tell, telling(lambda words: tell(f"{_WORDS}: {words}")):
        yield
