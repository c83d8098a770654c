"""PTX that goes wrong, with all that came of executing it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.runs.emulating import Emulation
from harness.runs.evidence import RunEvidence, Trusted
from harness.runs.judging import Judgement


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
