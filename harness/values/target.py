"""GPU targets as ptxas spells them: `sm_80`, `sm_90a`, `sm_100f`.

A type of its own, because `packaging.Version("90a")` is a pre-release of 90.
Suffixes: none = portable within the major version, `a` = exactly this chip, `f` = its family
(PTX ISA manual, directive `.target`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from harness.values.errors import UsageError

SOLD_AS: Mapping[int, str] = {
    70: "V100",
    75: r"T4|RTX 20[678]0",
    80: "A100|A800|A30",
    86: r"A10G?|A16|A40|RTX A\d000|RTX 30[5-9]0",
    89: r"L4|L20|L40S?|RTX 40[5-9]0|RTX \d000 Ada",
    90: "H100|H200|H800|H20|GH200",
    100: "B200|GB200",
    103: "B300|GB300",
    120: r"RTX 50[5-9]0|RTX PRO \d000",
    121: "GB10",
}
"""Names under which GPUs of a compute capability are sold: NVIDIA's page "CUDA GPU Compute
Capability"."""

EXAMPLES = "A100 (sm_80), H100 (sm_90a), B200 (sm_100a), RTX 5090 (sm_120a)"
"""GPUs that people have, with their targets."""

# Since then a GPU has instructions that only its own target with an `a` has.
_EXACT_SINCE = 90
_SPELLING = re.compile(r"(?:(?:sm|compute)_?)?([1-9][0-9]{1,2})([af]?)", re.IGNORECASE)


class Target(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One GPU target; `capability` is ten times the compute capability (100 is 10.0)."""

    capability: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `90a`, `sm_90a` or `compute_90a`; or the name of a GPU, as in `SOLD_AS`.

        >>> str(Target.parse("H100")), str(Target.parse("rtx5090")), str(Target.parse("90"))
        ('sm_90a', 'sm_120a', 'sm_90')

        Raises:
            UsageError: the text is not a target.
        """
        match = _SPELLING.fullmatch(text.strip())
        if not match:
            name = re.sub(r"[\s_-]", "", text)
            for capability, names in SOLD_AS.items():
                if re.fullmatch(names.replace(" ", ""), name, re.IGNORECASE):
                    return exact_target(capability)
            raise UsageError(
                f"{text[:40]!r} is not a GPU target; write it as ptxas does, for example sm_90a or "
                f"100f, or name a GPU: {EXAMPLES}"
            )
        return cls(capability=int(match[1]), suffix=match[2].lower())

    def __str__(self) -> str:
        return f"sm_{self.capability}{self.suffix}"


def exact_target(capability: int) -> Target:
    """What Triton compiles for on a GPU of this compute capability."""
    return Target(capability=capability, suffix="a" if capability >= _EXACT_SINCE else "")
