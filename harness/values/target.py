"""GPU targets as ptxas spells them: `sm_80`, `sm_90a`, `sm_100f`.

A type of its own, because `packaging.Version("90a")` is a pre-release of 90.
Suffixes: none = portable within the major version, `a` = exactly this chip, `f` = its family
(PTX ISA manual, directive `.target`).
"""

from __future__ import annotations

import re

import msgspec

from harness.values.errors import UsageError

_SPELLING = re.compile(r"(?:(?:sm|compute)_?)?([1-9][0-9]{1,2})([af]?)", re.IGNORECASE)


class Target(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One GPU target; `capability` is ten times the compute capability (100 is 10.0)."""

    capability: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `90a`, `sm_90a` or `compute_90a`.

        Raises:
            UsageError: the text is not a target.
        """
        match = _SPELLING.fullmatch(text.strip())
        if not match:
            raise UsageError(
                f"{text[:40]!r} is not a GPU target; "
                "write it as ptxas does, for example sm_90a or 100f"
            )
        return cls(capability=int(match[1]), suffix=match[2].lower())

    def __str__(self) -> str:
        return f"sm_{self.capability}{self.suffix}"
