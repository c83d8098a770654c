"""Each defect that the gate must catch is planted, one at a time, in a report that has none."""

from __future__ import annotations

import pytest

from harness.report.gate import GITHUB_LIMIT, Private, inspect_report, without_folders

REQUIRED = ["Describe the bug", "Environment details"]
PRIVATE = Private(
    words={"user name": ["jdoe"], "host name": ["build-17"], "environment value": ["s3cr3t-value"]}
)
GOOD = """\
# Kernel turns into a trap

## Describe the bug

It traps; see [the input](min.ptx) and <https://github.com/triton-lang/triton/issues/1>.

```sh
sh repro.sh   # {{ not a hole: code }}
```

| ptxas | verdict |
|---|---|
| 13.1 \\| 13.2 | ok |
| 13.3 | st.global.v2.b32 \\[%rd1], {%r1, %r2} |

<details><summary>Log</summary>

long

</details>

## Environment details

Triton 3.6.0
"""
FILES = {"min.ptx": b'.version 8.0\n.file 1 "kernel.py"\n', "repro.sh": b"#!/bin/sh\n"}


def kinds(issue: str = GOOD, **files: bytes) -> list[tuple[str, str]]:
    more = {name.replace("_", "."): data for name, data in files.items()}
    found = inspect_report(issue, {**FILES, **more}, required=REQUIRED, private=PRIVATE)
    return [(defect.kind, defect.file) for defect in found]


def test_a_good_report_has_no_defect() -> None:
    assert kinds() == []


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("field", "# Kernel turns into a trap", "Kernel turns into a trap"),
        ("size", "# Kernel turns", "# Kernel " + "x" * 300),
        ("field", "## Environment details", "## Something else"),
        ("field", "Triton 3.6.0\n", ""),
        ("field", "Triton 3.6.0", "Triton None"),
        ("field", "It traps;", "It {{ verb }};"),
        ("field", "It traps;", "It {% if verb %}traps;"),
        ("markdown", "sh repro.sh   # {{ not a hole: code }}\n```", "sh repro.sh"),
        ("markdown", "(min.ptx)", "(missing.ptx)"),
        ("markdown", "(min.ptx)", "(http://)"),
        ("markdown", "</details>", ""),
        ("markdown", "<details><summary>Log</summary>", ""),
        ("markdown", "| ok |", "| ok | more |"),
        ("privacy", "It traps;", "jdoe says that it traps;"),
        ("privacy", "It traps;", "It traps on build-17;"),
        ("privacy", "It traps;", "It traps in /home/somebody/x.py;"),
        ("privacy", "It traps;", "It traps with s3cr3t-value;"),
        ("privacy", "It traps;", "It traps with ghp_" + "a1" * 18 + ";"),
    ],
)
def test_every_planted_defect_is_found(kind: str, old: str, new: str) -> None:
    assert GOOD.count(old) == 1
    assert kind in {found for found, _ in kinds(GOOD.replace(old, new))}


def test_a_long_report_is_refused() -> None:
    assert kinds(GOOD + "x" * GITHUB_LIMIT) == [("size", "issue.md")]


def test_private_words_in_artifacts_too() -> None:
    spelled = ",".join(str(byte) for byte in b"/home/somebody/kernel.py") + ",0"
    section = f".section .debug_str {{\n.b8 {spelled}\n}}\n".encode()
    assert kinds(min_ptx=section) == [("privacy", "min.ptx")]
    assert kinds(kernel_cubin=b"\x7fELF\0/root/x/kernel.py\0") == [("privacy", "kernel.cubin")]
    assert kinds(log_txt=b"built by jdoe on Friday") == [("privacy", "log.txt")]
    # Not as a part of another word.
    assert kinds(log_txt=b"xjdoex rebuild-171") == []


def test_what_is_said_of_a_token_does_not_hold_it() -> None:
    token = "hf_" + "A" * 30
    [defect] = inspect_report(GOOD + token, FILES, required=REQUIRED, private=PRIVATE)
    assert defect.kind == "privacy"
    assert token not in str(defect)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/srv/ci/repros/x/launch.py:95: raised", "launch.py:95: raised"),
        ('File "/opt/site/triton/a.py", line 1', 'File "a.py", line 1'),
        ("see https://github.com/a/b/issues/1", "see https://github.com/a/b/issues/1"),
        ("$HOME/a/b and ./a/b and a/b/c", "$HOME/a/b and ./a/b and a/b/c"),
        ("one half: 1/2/3", "one half: 1/2/3"),
    ],
)
def test_absolute_paths_are_cut_to_the_name(text: str, expected: str) -> None:
    assert without_folders(text) == expected
