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
    86: r"A10|A10G|A16|A40|RTX A\d000|RTX 30[5-9]0",
    89: r"L40S|L4|L20|L40|RTX 40[5-9]0|RTX \d000 Ada",
    90: "H100|H200|H800|H20|GH200",
    100: "B200|GB200",
    103: "B300|GB300",
    120: r"RTX 5090|RTX 50[5-8]0|RTX PRO \d000",
    121: "GB10",
}
"""Names under which GPUs of a compute capability are sold, the best known first: NVIDIA's page
"CUDA GPU Compute Capability"."""

# Since then a GPU has instructions that only its own target with an `a` has.
_EXACT_SINCE = 90
_ARCHITECTURES = {"volta": 70, "turing": 75, "ada": 89, "hopper": 90}
_SPELLING = re.compile(r"(?:(?:sm|compute)_?)?([1-9][0-9]{1,2})([af]?)", re.IGNORECASE)
# As `SOLD_AS`, without spaces; and what drivers and users write around a name, or leave out of it.
_NAMES = "|".join(rf"(?P<sm{sm}>{names})" for sm, names in SOLD_AS.items())
_SOLD = re.compile(
    rf"(?:NVIDIA)?(?:GeForce|Tesla)?(?:{_NAMES.replace('RTX ', '(?:RTX)?').replace(' ', '')})"
    r"(?:SUPER|Ti|D|Generation|LaptopGPU|Blackwell\w*|\d+GB\w*|PCIe\w*|SXM\w*)*",
    re.IGNORECASE,
)


class Target(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One GPU target; `capability` is ten times the compute capability (100 is 10.0)."""

    capability: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `90a`, `sm_90a` or `compute_90a`; or the name of a GPU, as in `SOLD_AS`.

        Case, spaces and dashes of a name do not matter. An architecture is taken for a name where
        all its GPUs have one compute capability.

        >>> str(Target.parse("H100")), str(Target.parse("rtx-5090")), str(Target.parse("90"))
        ('sm_90a', 'sm_120a', 'sm_90')
        >>> str(Target.parse("NVIDIA GeForce RTX 4090")), str(Target.parse("hopper"))
        ('sm_89', 'sm_90a')

        Raises:
            UsageError: the text is not a target.
        """
        match = _SPELLING.fullmatch(text.strip())
        if match:
            return cls(capability=int(match[1]), suffix=match[2].lower())
        name = re.sub(r"[\s_-]", "", text)
        sold = _SOLD.fullmatch(name)
        if capability := sold and sold.lastgroup and int(sold.lastgroup[2:]):
            return exact_target(capability)
        if name.lower() in _ARCHITECTURES:
            return exact_target(_ARCHITECTURES[name.lower()])
        raise UsageError(
            f"{text[:40]!r} is not a GPU target; write it as ptxas does, for example sm_90a or "
            f"100f, or name a GPU: {EXAMPLES}"
        )

    def __str__(self) -> str:
        return f"sm_{self.capability}{self.suffix}"


def exact_target(capability: int) -> Target:
    """What Triton compiles for on a GPU of this compute capability."""
    return Target(capability=capability, suffix="a" if capability >= _EXACT_SINCE else "")


EXAMPLES = ", ".join(
    f"{names.partition('|')[0]} ({exact_target(sm)})" for sm, names in SOLD_AS.items()
)
"""The best known GPU of each compute capability, with its target."""
