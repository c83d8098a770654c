"""TVM's tensor IR, whose module TileLang 0.1.10 and later name otherwise than 0.1.9 and older."""

from __future__ import annotations

from typing import Any

import tvm

TIR: Any = tvm.tirx if hasattr(tvm, "tirx") else tvm.tir
