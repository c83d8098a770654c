"""PTX that goes wrong, with all that came of executing it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.run.emulating import Emulation
from harness.run.evidence import RunEvidence, Trusted
from harness.run.judging import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedCase:
    """PTX that goes wrong: what it was executed with, and what came of it."""

    text: str
    emulation: Emulation
    evidence: RunEvidence
    judgement: Judgement

    @property
    def trusted(self) -> tuple[Trusted, ...]:
        """What says what is right, where something does."""
        return self.evidence.trusted
