r"""Text from outside, as it is shown: nothing in it steers a terminal or hides what it says.

Kernels, file names, summaries and compiler logs are written by others. A control character among
them could rename the window, colour what follows, or overwrite the line (`\r`); a bidirectional
one could reorder it; half of a surrogate pair cannot be encoded at all. Each is shown as Python
spells it: `\x1b`, `\u202e`, `\udce9`.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n\u2028\u2029]")


def shown(text: str) -> str:
    """`text` with its control characters spelled out; line breaks and tabs stay."""
    return _HIDDEN.sub(_spelled, text)


def shown_in_a_line(text: str) -> str:
    """As `shown`, and line breaks and tabs are spelled out, too."""
    return _BREAKS.sub(_spelled, shown(text))


def _spelled(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
