"""What is shown while toolchains and sources are brought here; always on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console

from harness.packages.downloads import telling

__all__ = ["preparing"]

_WORDS = "preparing toolchains and sources"
_PLAIN_SECONDS = 15.0


@contextlib.contextmanager
def preparing(console: Console) -> Iterator[None]:
    """A spinner with the downloads on a terminal, a line now and then elsewhere."""
    began = last = time.monotonic()
    with console.status(_WORDS) as status:

        def tell(words: str) -> None:
            nonlocal last
            now = time.monotonic()
            if console.is_terminal:
                status.update(f"{_WORDS}: {words}, {now - began:.0f} s")
            elif now - last > _PLAIN_SECONDS:
                last = now
                console.print(f"{_WORDS}: {words}", soft_wrap=True)

        with telling(tell):
            yield
