"""What goes into an assertion of launch code is followed by the memory of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from harness.frontends.triton.child.launching import Following

_CODE = """
def check(tensor):
    assert tensor.sum().item() == 0
"""


def test_a_tensor_at_the_address_of_a_freed_one_does_not_come_from_its_launch(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sums.py"
    file.write_text(_CODE)
    names: dict[str, object] = {}
    exec(compile(_CODE, file, "exec"), names)
    following = Following(str(file))
    memory = np.ones(1000)
    with following:
        first, second = torch.from_numpy(memory), torch.ones(1000)
        following.wrote(1, [first.untyped_storage()], [0])
        following.wrote(2, [second.untyped_storage()], [0])
        del first
        # An allocator gives the same address again, to the result of a function of the second.
        result = following.__torch_function__(lambda _: torch.from_numpy(memory), (), (second,))
        try:
            names["check"](result)  # type: ignore[operator]
        except AssertionError as error:
            (failed,) = following.assertions(error)
    assert failed["where"] == "sums.py:3"
    assert failed["places"] == {(2, 0)}
