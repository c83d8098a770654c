"""What is being tried, as one line on a terminal; elsewhere nothing until the answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

__all__ = ["show_steps"]


@contextlib.contextmanager
def show_steps(console: Console) -> Iterator[Callable[[str, str], None]]:
    """What to hand to a search: it is called with a name and its result.

    An empty result says that the work on it begins.
    """
    done = 0

    with console.status("capturing") as status:

        def tell(name: str, said: str) -> None:
            nonlocal done
            if not said:
                status.update(f"{done} tried; {name}: compiling")
                return
            done += 1
            status.update(f"{done} tried; {name}: {said[:100]}")

        yield tell
