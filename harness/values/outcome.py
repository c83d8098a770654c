"""Raw evidence: how a process ended and what it left behind. Meaning is `harness.logic.judge`'s."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Assembly", "LaunchFacts", "Lowering", "ProcessEnd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How one child ended.

    Exactly one of `exit_code` and `signal` is set. `timed_out`, `over_memory` and `flooded` say
    that *we* killed it, for the wall clock, resident memory or the size of what it wrote.
    Times are in seconds, `peak_rss` in bytes.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    over_memory: bool = False
    flooded: bool = False
    wall: float = 0.0
    cpu: float = 0.0
    peak_rss: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def killed_by_us(self) -> bool:
        return self.timed_out or self.over_memory or self.flooded

    @property
    def words(self) -> str:
        """How it ended, as a shell user would say it."""
        import signal as signals

        if self.timed_out:
            return f"killed after {self.wall:.0f} s"
        if self.over_memory:
            return f"killed at {self.peak_rss / 2**30:.1f} GiB"
        if self.flooded:
            return "killed for flooding its output"
        if self.signal is not None:
            try:
                return f"died by {signals.Signals(self.signal).name}"
            except ValueError:
                return f"died by signal {self.signal}"
        return f"exit code {self.exit_code}"
