"""Launches of Liger-Kernel's GEGLU through its autograd function."""

import torch


def default(*, rows=8192, columns=14336):
    """Forward and backward."""
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    gate, up = _normal(rows, columns), _normal(rows, columns)
    output = LigerGELUMulFunction.apply(gate, up)
    return output, torch.autograd.grad(output, (gate, up), torch.randn_like(output))


def _normal(*shape):
    return torch.randn(*shape, device="cuda").to(torch.bfloat16).requires_grad_()
