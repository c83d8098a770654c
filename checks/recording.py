"""A recording of one command for the README: writes docs/recording.svg.

    python checks/recording.py

Runs the command in a copy of docs/examples in a terminal of its own, as a user would, and draws
what it prints at its end. Nothing in the picture is typed in.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "recording.svg"
COMMAND = "triage compile softmax.py --sm h100 --triton 3.5.0 --triton 3.9.0"
COLUMNS = 120
# No font is fetched from elsewhere when somebody looks at it.
_FONTS = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
# What a bar redraws: lines that it goes back to and erases.
_MOVES = re.compile(r"(\n|\r|\x1b\[1A|\x1b\[2K)")


def printed(command: str, folder: str) -> str:
    """What a command prints to a terminal, with its colours, after all that it erased."""
    os.environ |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    parts: list[bytes] = []

    def read(terminal: int) -> bytes:
        parts.append(os.read(terminal, 1 << 16))
        return parts[-1]

    here = Path.cwd()
    os.chdir(folder)
    try:
        pty.spawn(command.split(), read)
    finally:
        os.chdir(here)
    lines = [""]
    for word in _MOVES.split(b"".join(parts).decode(errors="replace").replace("\r\n", "\n")):
        if word == "\n":
            lines.append("")
        elif word == "\x1b[1A":
            lines.pop()
        elif word in ("\r", "\x1b[2K"):
            lines[-1] = ""
        else:
            lines[-1] += word
    return "\n".join(lines)


def main() -> None:
    """Run the command, and draw it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = shutil.copytree(ROOT / "docs" / "examples", f"{scratch}/examples")
        os.environ["TRIAGE_HOME"] = f"{scratch}/results"
        text = Text.from_ansi(printed(COMMAND, folder))
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(text, soft_wrap=False)
    form = _FONTS.sub("", CONSOLE_SVG_FORMAT)
    console.save_svg(str(PICTURE), title="triage", code_format=form, unique_id="recording")


if __name__ == "__main__":
    main()
