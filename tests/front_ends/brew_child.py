"""Runs in the virtual environment of a Brew: writes the steps of one cup."""

import json
from pathlib import Path

import beans  # type: ignore[import-not-found]
import brewc  # type: ignore[import-not-found]

asked = json.loads(Path("request.json").read_text())
error = None
try:
    Path("steps").write_text(brewc.steps(asked["name"], asked["size"], asked["foam"]))
except brewc.BrewError as refused:
    error = str(refused)
answer = {"error": error, "partners": f"beans {beans.__version__}"}
Path("answer.json").write_text(json.dumps(answer))
