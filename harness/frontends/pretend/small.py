"""Values of small tensors that stand for those of a GPU, beside tensors without storage.

What launch code reads before a launch follows, most often, from little: labels, lengths, masks.
Torch computes that on the CPU, function by function, whatever large tensors lie beside it. Values
belong to storages: views, and what writes in place, need nothing more.
"""

# ruff: noqa: ANN401 - torch's functions take and give any value

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map

from harness.frontends.pretend import passed_over

MOST_BYTES = 1 << 20
"""Of a storage whose values are kept: to compute them takes a millisecond or so."""

_READS = frozenset(
    """
    __array__ __bool__ __contains__ __float__ __format__ __index__ __int__ __repr__ allclose equal
    is_nonzero item numpy tolist
    """.split()  # noqa: SIM905 - a list would be a page
)
_MOVES = frozenset({"to", "cuda", "cpu", "type"})
# They change what no value shows, or what a storage is.
_NO_VALUES = frozenset({"requires_grad_", "retain_grad", "register_hook", "set_", "resize_"})
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)  # noqa: SLF001 - no other name
# They update running statistics, and the versions of tensors on the meta device do not tell.
_WITH_STATISTICS = frozenset({"batch_norm", "instance_norm"})
_META = torch.device("meta")

plain_torch = torch._C.DisableTorchFunction  # noqa: SLF001 - there is no other way
"""Within it torch takes tensors as they are: no device is pretended to it."""


class Small:
    """The values of this process: by the address of a storage, which a weak reference keeps."""

    are_kept = False
    kept: ClassVar[dict[int, tuple[StorageWeakRef, torch.UntypedStorage]]] = {}
    most = 256


def forget(storages: set[int]) -> None:
    """A kernel may have written these storages, by their addresses."""
    for address in storages & Small.kept.keys():
        del Small.kept[address]


def follow(
    func: Any, args: Any, kwargs: dict[str, Any], written: Any, answer: Callable[[], Any]
) -> Any:
    """What `answer` gives for a call of torch; values are kept of what follows from values.

    `written` are arguments that it writes in place. A read gives what the values give. Where
    values decide the size of a result, it has that size.
    """
    name = getattr(func, "__name__", "")
    with plain_torch(), torch.no_grad():
        leaves = tree_leaves([args, kwargs])
        before = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_meta]
        values = {id(leaf): _values_of(leaf) for leaf in before}
        # Operators of the user's own would launch once more.
        is_known = not isinstance(func, _OPERATORS) and all(
            value is not None for value in values.values()
        )
        versions = [_version(leaf) for leaf in before]
        if before and is_known and name in _READS:
            return func(*_with(args, values), **_with(kwargs, values))
    needs = passed_over.needs()
    try:
        result = answer()
    except RuntimeError as error:
        # The error of what only values can say.
        if not (before and is_known and getattr(error, "ends_capture", False)):
            raise
        with plain_torch(), torch.no_grad():
            computed = _computed(func, args, kwargs, values)
            result = tree_map(_like, computed)
            _keep(result, computed)
        passed_over.got(needs)
        return result
    with plain_torch(), torch.no_grad():
        changed = [leaf for leaf in tree_leaves(written) if isinstance(leaf, torch.Tensor)]
        changed += [x for x, was in zip(before, versions, strict=True) if _version(x) != was]
        changed += before if name in _WITH_STATISTICS else []
        # A tensor of the CPU itself has been written by now.
        changed = [leaf for leaf in changed if leaf.is_meta]
        new = [leaf for leaf in tree_leaves(result) if _is_new(leaf)]
        if name in _NO_VALUES or not (new or changed):
            return result
        is_computed = False
        if is_known and all(leaf.untyped_storage().nbytes() <= MOST_BYTES for leaf in new):
            with contextlib.suppress(Exception):
                computed = _computed(func, args, kwargs, values, result)
                _keep(result, computed)
                is_computed = True
        if not is_computed:
            forget(set(map(address_of, changed)))
    return result


def _computed(
    func: Any, args: Any, kwargs: dict[str, Any], values: dict[int, Any], result: Any = None
) -> Any:
    name = getattr(func, "__name__", "")
    if name in _MOVES and result is not None:
        source = values.get(id(args[0]), args[0])
        return source.to(result.dtype)
    computed = func(*_with(args, values), **_with(kwargs, values))
    # What was only asked for holds the same in every run.
    return tree_map(torch.zeros_like, computed) if "empty" in name else computed


def _with(arguments: Any, values: dict[int, Any]) -> Any:
    """The arguments of a call with these values in their places, on the CPU."""

    def on_cpu(value: Any) -> Any:
        if isinstance(value, slice):
            return slice(*map(on_cpu, (value.start, value.stop, value.step)))
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, str) and value.partition(":")[0] in ("cuda", "meta"):
            return "cpu"
        return values.get(id(value), value)

    given = tree_map(on_cpu, arguments)
    if isinstance(given, dict):
        own = {"device": "cpu"} if given.get("device") is not None else {}
        given = {**given, **own}
        given.pop("generator", None)
        given.pop("pin_memory", None)
    return given


def address_of(tensor: torch.Tensor) -> int:
    """Of what stands for its storage, with memory or without; 0 of a sparse one, which has none."""
    with contextlib.suppress(NotImplementedError, RuntimeError):
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - there is no other way
    return 0


def _version(tensor: torch.Tensor) -> int:
    """It grows with each function that writes to the tensor; in inference mode there is none."""
    return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001


def _values_of(tensor: torch.Tensor) -> torch.Tensor | None:
    kept = Small.kept.get(address_of(tensor))
    if kept is None or tensor.dtype.is_complex:
        return None
    place = kept[1], tensor.storage_offset(), tensor.size(), tensor.stride()
    return torch.empty(0, dtype=tensor.dtype).set_(*place)


def _is_new(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return False
    address = address_of(value)
    return bool(address) and address not in Small.kept


def _like(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=_META)


def _keep(result: Any, computed: Any) -> None:
    """Keep the values of those results that have a storage of their own."""
    for tensor, value in zip(tree_leaves(result), tree_leaves(computed), strict=False):
        if not _is_new(tensor) or not isinstance(value, torch.Tensor):
            continue
        meta = tensor.untyped_storage()
        if value.shape != tensor.shape or value.dtype != tensor.dtype or tensor.dtype.is_complex:
            continue
        if meta.nbytes() <= MOST_BYTES:
            storage = torch.UntypedStorage(meta.nbytes())
            Small.kept[address_of(tensor)] = StorageWeakRef(meta), storage
            view = _values_of(tensor)
            assert view is not None
            view.copy_(value)
    if len(Small.kept) > Small.most:
        for address in [a for a, (alive, _) in Small.kept.items() if alive.expired()]:
            del Small.kept[address]
        Small.most = 2 * len(Small.kept) + 256
