"""A traceback as the compiler's user would see it: without frames of this program. Pure."""

from __future__ import annotations

import re

# Frames of what runs inside a foreign Triton, wherever this program is installed.
_OURS = re.compile(
    r'  File "[^"\n]*harness/(?:child|children|frontends/\w+/child)/[\w.]+", line \d+, in [^\n]*\n'
    r"(?:    [^\n]*\n)*"
)
# What lies before the package in the path of an installed module.
_SITE = re.compile(r'(  File ")[^"\n]*/(?:site-packages|dist-packages|site)/')


def as_the_user_sees_it(traceback: str) -> str:
    """The traceback without our frames, its paths beginning with the name of the package."""
    return _SITE.sub(r"\1", _OURS.sub("", traceback))
