"""Runs in the environment of an NVRTC: compiles one file of CUDA C++ as far as PTX.

In `request.json`: `file`, `options`. In `answer.json`: `code` (0: `kernel.ptx` is there) and `log`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path


def _folders(name: str) -> list[Path]:
    """The folders of that name in the packages of NVIDIA, in their order."""
    sites = (Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    return [folder for site in sites for folder in sorted(site.glob(f"nvidia/*/{name}"))]


def _library() -> ctypes.CDLL:
    for folder in _folders("lib"):
        libraries = sorted(folder.glob("libnvrtc.so.*"))
        if libraries:
            # NVRTC opens it by its name alone, and finds what is loaded already.
            for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(libraries[0]))
    message = "the environment holds no libnvrtc"
    raise FileNotFoundError(message)


def _text(nvrtc: ctypes.CDLL, name: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{name}")(program, buffer)
    return buffer.raw.rstrip(b"\0")


def main() -> None:
    """Compile what `request.json` asks for."""
    request = json.loads(Path("request.json").read_text())
    file = Path(request["file"])
    nvrtc = _library()
    includes = [file.parent, *_folders("include")]
    # From 13 on the headers of CCCL lie one folder further down.
    includes += [folder / "cccl" for folder in includes if (folder / "cccl").is_dir()]
    options = [*request["options"], *(f"-I{folder}" for folder in includes)]
    words = (ctypes.c_char_p * len(options))(*(word.encode() for word in options))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), file.read_bytes(), file.name.encode(), 0, None, None
    )
    code = nvrtc.nvrtcCompileProgram(program, len(options), words)
    log = _text(nvrtc, "ProgramLog", program).decode(errors="replace")
    if code == 0:
        Path("kernel.ptx").write_bytes(_text(nvrtc, "PTX", program))
    Path("answer.json").write_text(json.dumps({"code": code, "log": log}))


if __name__ == "__main__":
    main()
