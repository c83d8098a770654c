"""Records every Triton launch that running code makes, one record for each config.

Triton's own `Autotuner`, `Heuristics` and pruning functions run as they are; only two ends are
replaced: benchmarking (calls each config once) and `JITFunction.run` (notes the call). Launch code
that launches nothing may ask Triton's compiler itself: `triton.compile(source)` is noted, too. That
is how a reproducer is written that needs neither a GPU nor torch.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from json import dumps
from typing import Any

import torch
import triton
import triton.compiler
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from harness.frontends.pretend import gpu
from harness.frontends.pretend.passed_over import NeedsValuesError, UnknownNumber
from harness.frontends.pretend.recorded import (
    Injected,
    Record,
    Recorder,
    Replaced,
    asked_configs,
    hash_of,
    method,
)
from harness.frontends.pretend.small import plain_torch
from harness.frontends.triton.child.answers import COMPILE, RecordedKernel
from harness.io.children.launch_code import SEEN

Execute = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], str]
"""Gives tensors what a kernel leaves in them, by its arguments and its grid; why it could not."""

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What `triton.Config` takes by name; all else of a config is a meta-parameter."""

_OF_A_LAUNCH = (*OPTIONS, "ptx_options")
# What every config has unless it says otherwise: the same config has one name in all versions.
_DEFAULTS = {
    "num_ctas": 1,
    # Triton 3.2 only.
    "num_buffers_warp_spec": 0,
    "num_consumer_groups": 0,
    "reg_dec_producer": 0,
    "reg_inc_consumer": 0,
}


def first_stage(function: Any) -> str:
    """What a kernel's source becomes at first: Gluon has no TTIR."""
    is_gluon = getattr(function, "is_gluon", None)
    return "glir" if is_gluon is not None and is_gluon() else "ttir"


def by_name(names: list[str], args: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments by name, as far as they are given by position."""
    return dict(zip(names, args, strict=False))


def bind(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each of a kernel's parameters, in their order."""
    values = {**by_name(function.arg_names, args), **kwargs}
    return {
        parameter.name: values.get(parameter.name, getattr(parameter, "default", None))
        for parameter in function.params
    }


def constexprs_of(function: Any) -> set[str]:
    """The parameters that are constants of the compiled kernel."""
    return {parameter.name for parameter in function.params if parameter.is_constexpr}


def config_of(config: Any) -> dict[str, Any]:
    """A tuner's config by name, options among them; the same in all versions of Triton."""
    values = dict(config.all_kwargs())
    for option in OPTIONS:
        value = getattr(config, option, None)
        if value is not None:
            values.setdefault(option, value)
    return {
        name: _plain(value)
        for name, value in values.items()
        if value is not None and value != _DEFAULTS.get(name)
    }


def plain_config(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The config of a launch without a tuner: its meta-parameters, and the options it gives."""
    values = {**by_name(function.arg_names, args), **kwargs}
    options = {name: _plain(kwargs[name]) for name in OPTIONS if kwargs.get(name) is not None}
    return {**_plain_constants(function, values), **options}


def _plain_constants(function: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that are a kernel's meta-parameters and plain."""
    names = [parameter.name for parameter in function.params if parameter.is_constexpr]
    inner = {name: getattr(values.get(name), "value", values.get(name)) for name in names}
    return {n: v for n, v in inner.items() if isinstance(v, bool | int | float | str)}


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, bool | int | float | str) else repr(value)


def describe_arguments(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[dict[str, Any]]:
    """What Triton specialises on, argument by argument (never finer than needed to be safe)."""
    constexprs = constexprs_of(function)
    return [
        {"name": name, **_describe(value, constexpr=name in constexprs)}
        for name, value in bind(function, args, kwargs).items()
    ]


def _describe(value: Any, *, constexpr: bool) -> dict[str, Any]:
    if constexpr:
        inner = getattr(value, "value", value)
        key = getattr(inner, "cache_key", None)
        return {"constexpr": stable(inner) if key is None else f"{inner.fn.__name__}:{key}"}
    if value is None:
        return {"none": True}
    # One of another type that is read through, and what `warmup` makes of a type, say the same.
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return {
            "tensor": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "aligned": value.data_ptr() % 16 == 0,
        }
    if isinstance(value, bool | float):
        return {"scalar": type(value).__name__}
    if isinstance(value, int):
        width = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        return {"integer": width, "value": value, "one": value == 1, "divisible": value % 16 == 0}
    if isinstance(value, tuple):
        return {"tuple": [_describe(item, constexpr=False) for item in value]}
    if hasattr(value, "block_shape"):
        # Whatever a descriptor has beside a tensor's own is part of its type.
        names = [f.name for f in fields(value)] if is_dataclass(value) else ["layout"]
        of_a_tensor = {"base", "shape", "strides", "block_shape"}
        return {
            "descriptor": str(value.base.dtype).removeprefix("torch."),
            "block": list(value.block_shape),
            "rank": len(value.shape),
            **{n: stable(getattr(value, n, None)) for n in names if n not in of_a_tensor},
        }
    return {"object": stable(value)}


def _likeness(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What two launches of a tuner share that come to the same: finer than needed, and quick."""

    def of(value: Any) -> Any:
        kind = type(value)
        if kind is int:
            return value
        if kind in _EXACT:
            return kind, value
        if isinstance(value, torch.Tensor):
            place = value.data_ptr() % 16, value.storage_offset() * value.element_size() % 16
            return value.dtype, value.shape, *place
        if isinstance(value, list | tuple):
            return tuple(map(of, value))
        # Of a descriptor, and of a tensor that is read as another type.
        if hasattr(value, "block_shape") or hasattr(value, "data_ptr"):
            return kind, *map(of, vars(value).values())
        return dumps(_describe(value, constexpr=True))

    # A grid is a function, most often a new one each time.
    more = [(name, value) for name, value in kwargs.items() if name != "grid"]
    with plain_torch():
        return id(tuner), of(args), of(more)


_EXACT = frozenset({bool, float, str, type(None)})


def stable(value: Any) -> str:
    """A repr without memory addresses."""
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


def grid_dims(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> list[int]:
    """The sizes of the grid; a function is asked for it with what Triton binds: all parameters."""
    if callable(grid):
        names = {parameter.name for parameter in function.params}
        values = {**by_name(function.arg_names, args), **kwargs}
        signature = inspect.signature(function.fn).parameters.values()
        defaults = {p.name: p.default for p in signature if p.default is not p.empty}
        grid = grid({**defaults, **{n: v for n, v in values.items() if n in names}})
    grid = grid if isinstance(grid, tuple | list) else (grid,)
    return [operator.index(size) for size in grid]


def storages_of(values: Any) -> list[Any]:
    """The storages behind arguments, each once, in the order in which they first appear."""
    storages: dict[int, Any] = {}

    def visit(value: Any) -> None:
        tensor = _tensor(value)
        if tensor is not None:
            storage = tensor.untyped_storage()
            storages.setdefault(identity(storage), storage)
        elif hasattr(value, "block_shape"):
            visit(value.base)
        elif isinstance(value, tuple | list):
            for item in value:
                visit(item)

    with plain_torch():
        for value in values:
            visit(value)
    return list(storages.values())


def _tensor(value: Any) -> torch.Tensor | None:
    if not isinstance(value, torch.Tensor) and hasattr(value, "data_ptr"):
        value = getattr(value, "base", None)
    return value.detach() if isinstance(value, torch.Tensor) else None


def identity(storage: Any) -> int:
    """The address of a storage; of one that has none, where torch has it."""
    return int(storage.data_ptr()) or int(storage._cdata)  # noqa: SLF001 - there is no other way


def describe_values(
    arguments: Mapping[str, Any], constexprs: set[str], storages: list[Any]
) -> list[dict[str, Any]]:
    """Arguments by their parameters' names, as views of these storages."""
    with plain_torch():
        places = {identity(storage): number for number, storage in enumerate(storages)}
        return [
            _constexpr(name, value) if name in constexprs else _argument(name, value, places)
            for name, value in arguments.items()
        ]


def _constexpr(name: str, value: Any) -> dict[str, Any]:
    value = getattr(value, "value", value)
    plain = _argument(name, value, {}) if isinstance(value, bool | int | float) else {}
    if isinstance(value, str):
        plain = {"type": "str", "value": value}
    return {**plain, "name": name, "kind": "constexpr"}


def _argument(name: str, value: Any, places: Mapping[int, int]) -> dict[str, Any]:
    tensor = _tensor(value)
    if tensor is not None:
        wrapped = str(value.dtype) if not isinstance(value, torch.Tensor) else str(tensor.dtype)
        return {
            "name": name,
            "kind": "tensor",
            "dtype": wrapped.removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            **_place(tensor, places),
        }
    value = getattr(value, "value", value)
    if value is None:
        return {"name": name, "kind": "none"}
    if isinstance(value, bool | int):
        return {
            "name": name,
            "kind": "scalar",
            "type": type(value).__name__,
            "value": str(int(value)),
        }
    if isinstance(value, float):
        return {"name": name, "kind": "scalar", "type": "float", "value": value.hex()}
    if isinstance(value, tuple | list):
        items = [_argument(f"{name}.{n}", item, places) for n, item in enumerate(value)]
        return {"name": name, "kind": "tuple", "items": items}
    if not hasattr(value, "block_shape"):
        return {"name": name, "kind": "object", "type": type(value).__name__}
    base = _tensor(value.base)
    assert base is not None
    return {
        "name": name,
        "kind": "descriptor",
        "dtype": str(value.base.dtype).removeprefix("torch."),
        "shape": [int(size) for size in value.shape],
        "strides": [int(stride) for stride in value.strides],
        "block": [int(size) for size in value.block_shape],
        "nan_padding": getattr(value, "padding", "zero") == "nan",
        "round_to_tf32": bool(getattr(value, "round_f32_to_tf32", False)),
        **_place(base, places),
    }


def _place(tensor: torch.Tensor, places: Mapping[int, int]) -> dict[str, Any]:
    return {
        "buffer": places[identity(tensor.untyped_storage())],
        "offset": tensor.storage_offset() * tensor.element_size(),
    }


def injected_configs(tuner: Any, injected: Injected) -> list[Any] | None:
    """The configs that take the place of a tuner's own; None where its kernel keeps them.

    They get the hook of the tuner's first config, which prepares the arguments for any of them.
    """
    configs = asked_configs(injected, tuner.base_fn.__name__)
    hook = next((config.pre_hook for config in tuner.configs), None)
    return configs and [
        Config(
            {name: value for name, value in values.items() if name not in OPTIONS},
            **{name: value for name, value in values.items() if name in OPTIONS},
            pre_hook=hook,
        )
        for values in configs
    ]


def injected_options(kernel: str, injected: Injected) -> list[dict[str, Any]]:
    """Options for more launches of a kernel without a tuner; its other arguments stay."""
    return [
        {name: value for name, value in values.items() if name in _OF_A_LAUNCH}
        for values in asked_configs(injected, kernel, otherwise=())
    ]


def pruned_configs(
    tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], injected: Injected
) -> list[Any]:
    """Have a tuner look at a launch with its configs, or injected ones; those that it would try."""
    tuner.nargs = by_name(tuner.arg_names, args)
    tuner.configs = injected_configs(tuner, injected) or tuner.configs
    return list(tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs)


def suspicion(function: Any, values: Mapping[str, Any]) -> str:
    """Say in words what a config covers only partly; empty where nothing is suspect.

    `values` are the kernel's arguments by name, meta-parameters among them. A block size `P` is
    suspect if all of this holds, which leaves out whatever could be a loop or a grid over it:

    - the kernel takes `offsets = tl.arange(0, P)` as it is, and uses `P` for nothing else but
      shapes: in no product, quotient, sum, `range` or condition;
    - `offsets` is compared with a dimension (`offsets < D`), an argument whose value is known;
    - the value of `D` is larger than that of `P`.
    """
    sentences = []
    for block, limit in _compared(function):
        covered, whole = _integer(values.get(block)), _integer(values.get(limit))
        if covered is not None and whole is not None and covered < whole:
            sentences.append(
                f"{block}={covered} covers {covered} of {limit}={whole}, "
                "and the kernel does not loop over it"
            )
    return "; ".join(sentences)


def _tree_of(function: Any) -> ast.Module:
    """The source of a function, as it is parsed; an empty one where Python does not have it."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


@cache
def _compared(function: Any) -> tuple[tuple[str, str], ...]:
    """Each `P` and `D` of a kernel whose values decide, in the order of the source."""
    tree = _tree_of(function)
    offsets = _plain_offsets(tree)
    pairs = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Lt):
            continue
        block, limit = offsets.get(_base_name(node.left)), node.comparators[0]
        if block and isinstance(limit, ast.Name) and not _is_used_elsewhere(tree, block):
            pairs.append((block, limit.id))
    return tuple(dict.fromkeys(pairs))


def _integer(value: Any) -> int | None:
    value = getattr(value, "value", value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _base_name(node: ast.expr) -> str:
    """`offsets` of `offsets[:, None]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _plain_offsets(tree: ast.Module) -> dict[str, str]:
    """Names that are assigned `tl.arange(0, P)` and nothing else, each with its `P`."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(_base_name(target), []).append(node.value)
        elif isinstance(node, ast.AugAssign):
            assigned.setdefault(_base_name(node.target), []).append(node.value)
    blocks: dict[str, str] = {}
    for name, (node, *others) in assigned.items():
        # Also with a new axis behind it.
        while isinstance(node, ast.Subscript):
            node = node.value  # noqa: PLW2901
        match node:
            case ast.Call(
                func=ast.Attribute(attr="arange"), args=[ast.Constant(value=0), ast.Name(id=block)]
            ) if not others:
                blocks[name] = block
    return blocks


def _is_used_elsewhere(tree: ast.Module, block: str) -> bool:
    """Whether `block` appears where a loop or a grid over the dimension may come from it."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id != block:
            continue
        user = parents[node]
        while isinstance(user, ast.Tuple | ast.List):
            user = parents[user]
        function = user.func if isinstance(user, ast.Call) else None
        if not isinstance(function, ast.Attribute) or function.attr not in _SHAPES:
            return True
    return False


@cache
def _only_read(function: Any) -> frozenset[str]:
    """The parameters of a kernel that are written nowhere: all that is done with them is a load.

    `p` and what is assigned from it (`q = p + offset`) occur in the address of `tl.load`, in sums
    and in comparisons with None. Whatever else there is, a call above all, may write.
    """
    if not (tree := _tree_of(function)).body:
        return frozenset()
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    uses: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(node)

    def is_read(name: str, ways: frozenset[str]) -> bool:
        return name in ways or all(ends_in_load(use, ways | {name}) for use in uses.get(name, ()))

    def ends_in_load(node: ast.AST, ways: frozenset[str]) -> bool:
        user = parents[node]
        while isinstance(user, ast.BinOp | ast.UnaryOp | ast.Subscript | ast.IfExp):
            node, user = user, parents[user]
        match user:
            case ast.Call(func=ast.Attribute(attr="load"), args=[address, *_]):
                return address is node
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return True
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
                return is_read(name, ways)
        return False

    names = inspect.signature(function).parameters
    return frozenset(name for name in names if is_read(name, frozenset()))


# What `P` may be used for.
_SHAPES = ("arange", "broadcast_to", "full", "reshape", "view", "zeros")


# As they are while nothing is recorded.
_LAUNCH = JITFunction.run


@dataclass(kw_only=True)
class LaunchRecord(Record):
    """One launch of one kernel with one config, ready to be compiled."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    first_stage: str

    def compile(self) -> Any:
        grid = tuple(self.grid) if self.grid else (1,)
        return _LAUNCH(self.function, *self.args, grid=grid, warmup=True, **self.kwargs)


@dataclass
class _Tuning:
    """An autotuner at work: on one config, or (None) between them, `is_over` once it tried any.

    `call` is what it was called with, as in `Record`.
    """

    call: Any
    tuner: Any = None
    config: dict[str, Any] | None = None
    is_over: bool = False


class LaunchRecorder(Recorder):
    """Collects records while `active()`; equal launches of one config are kept once.

    Two configs that come to the same code (a heuristic overrides what they differ in) are both
    kept, with one key. `injected` configs take the place of those that a kernel's tuner lists; a
    kernel without one is recorded with them too.
    """

    silenced = ()

    def __init__(self, injected: Injected | None = None, execute: Execute | None = None) -> None:
        super().__init__(injected)
        self._execute = execute
        self._tunings: list[_Tuning] = []
        self._tuned: dict[tuple[Any, ...], tuple[Any, list[int]]] = {}

    def replaced(self) -> Replaced:
        return [
            (JITFunction, "run", method(self._launched)),
            (Autotuner, "run", method(self._tunes, Autotuner.run)),
            (Autotuner, "_bench", method(self._benched)),
            (Autotuner, "prune_configs", method(self._prunes, Autotuner.prune_configs)),
            (triton, "compile", self._compiled),
            (triton.compiler, "compile", self._compiled),
        ]

    def _tunes(self, tune: Any, tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
        # A loop that launches the same thousands of times gets what the first launch got.
        launch = _likeness(tuner, args, kwargs)
        if launch in self._tuned:
            result, numbers = self._tuned[launch]
            self.note(numbers)
            with self._counted():
                self._again(tuner, args, kwargs)
            return result
        tuner.cache.clear()
        # Timings of an earlier run, kept on disk, would hide every config but one.
        tuner.cache_results = False
        listed, begin = tuner.configs, len(self.noted)
        tuner.configs = injected_configs(tuner, self.injected) or listed
        with self._counted(), self._at(_Tuning(launch, tuner)):
            try:
                result = tune(tuner, *args, **kwargs)
            finally:
                tuner.configs = listed
        return self._tuned.setdefault(launch, (result, self.noted[begin:]))[0]

    def _prunes(self, prune: Any, tuner: Any, kwargs: dict[str, Any]) -> Any:
        configs = prune(tuner, kwargs)
        self.pruned[tuner.base_fn.__name__] = (len(configs), len(tuner.configs))
        return configs

    @contextlib.contextmanager
    def _at(self, tuning: _Tuning) -> Iterator[None]:
        self._tunings.append(tuning)
        try:
            yield
        finally:
            self._tunings.pop()

    @contextlib.contextmanager
    def tuned_to(self, config: dict[str, Any], call: object) -> Iterator[None]:
        with self._at(_Tuning(call, config=config)):
            yield

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """A launch of the test at work, and what keeps it from being recorded."""
        test = SEEN[-1] if SEEN and not self._tunings else None
        dropped = self.dropped
        if test:
            test["launches"] += 1
        try:
            yield
        except Exception as error:
            if test:
                why = f"{type(error).__name__}: {error}"[:300].partition("\n")[0]
                test["refused"][why] = test["refused"].get(why, 0) + 1
            raise
        if test and self.dropped > dropped:
            why = "more launches than are kept of one file"
            test["refused"][why] = test["refused"].get(why, 0) + 1

    def _compiled(self, src: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of a call of the compiler: note it. One with a file of IR is made as it is."""
        if not isinstance(src, triton.compiler.ASTSource):
            return COMPILE(src, *args, **kwargs)
        options = kwargs.get("options", args[1] if len(args) > 1 else None)
        with self._counted():
            record = SourceRecord.of(src, dict(options or {}))
            self.keep(record)
        return RecordedKernel(record)

    def _benched(self, tuner: Any, /, *args: Any, config: Any, **meta: Any) -> Any:
        clash = meta.keys() & config.kwargs.keys()
        if clash:
            message = f"conflicting meta-parameters: {', '.join(sorted(clash))}"
            raise ValueError(message)
        current = {**meta, **config.all_kwargs()}
        named = {**by_name(tuner.arg_names, args), **current}
        if config.pre_hook:
            config.pre_hook(named)
        tuner.pre_hook(named)
        self._tunings[-1].is_over = True
        with self._at(_Tuning(self._tunings[-1].call, tuner, config_of(config))):
            tuner.fn.run(*args, **current)
        tuner.post_hook(named, exception=None)
        return [0.0, 0.0, 0.0]

    def _launched(
        self, function: Any, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any
    ) -> RecordedKernel:
        """In place of a launch: note it."""
        del warmup  # what is launched later is noted by then
        with self._counted():
            tuning = self._tunings[-1] if self._tunings else None
            if tuning is None:
                for options in injected_options(function.fn.__name__, self.injected):
                    self._recorded(function, args, grid, {**kwargs, **options}, None)
            # The winner's launch, after every config has been recorded, is not recorded again.
            is_winner = tuning is not None and tuning.is_over and tuning.config is None
            record = self._recorded(function, args, grid, kwargs, tuning, keeps=not is_winner)
            if tuning is None or tuning.config is None or tuning.tuner is None:
                self._left(function, args, grid, kwargs)
            return RecordedKernel(record)

    def _again(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A launch that a tuner has tuned, on other tensors perhaps."""
        if not self._execute:
            gpu.wrote([args, kwargs])
            return
        with self._at(_Tuning(None, tuner, is_over=True)):
            tuner.fn.run(*args, **{**kwargs, **tuner.best_config.all_kwargs()})

    def _left(
        self, function: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> None:
        """Note what a launch may have written; give it its values, if that is asked."""
        if self._execute:
            self.unexecuted = self._execute(function, args, kwargs, grid)
            if self.unexecuted:
                self._execute = None
                gpu.compute(whether=False)
            else:
                self.values = "interpreted"
        read = _only_read(function.fn)
        gpu.wrote([v for name, v in bind(function, args, kwargs).items() if name not in read])

    def _recorded(
        self,
        function: Any,
        args: tuple[Any, ...],
        grid: Any,
        kwargs: dict[str, Any],
        tuning: _Tuning | None,
        *,
        keeps: bool = True,
    ) -> LaunchRecord:
        for value in (*args, *kwargs.values()):
            if isinstance(value, UnknownNumber):
                raise NeedsValuesError.of(value.action, value.needs)
        if tuning is None:
            config = plain_config(function, args, kwargs)
        elif tuning.config is None:
            config = config_of(tuning.tuner.best_config)
        else:
            config = tuning.config
        record = LaunchRecord(
            kernel=str(function.fn.__name__),
            file=function.fn.__code__.co_filename,
            function=function,
            args=_as_they_are(args),
            kwargs=_as_they_are(kwargs),
            first_stage=first_stage(function),
            config=config,
            autotuned=tuning is not None,
            arguments=describe_arguments(function, args, kwargs),
        )
        record.key = _key(record)
        record.call = tuning.call if tuning else _call(record)
        if keeps and self.keep(record):
            values = bind(function, args, kwargs)
            # Like Triton, which asks for the grid once the kernel is compiled: where it raises,
            # the launch does, and what was compiled until then stays.
            record.grid = grid_dims(function, args, kwargs, grid)
            # Nothing where torch does not tell them of these tensors.
            with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, AttributeError):
                storages = storages_of(values.values())
                record.views = {
                    "views": describe_values(values, constexprs_of(function), storages),
                    "storages": [int(storage.nbytes()) for storage in storages],
                }
            record.suspect = suspicion(function.fn, values)
        return record


def _as_they_are(value: Any) -> Any:
    """Arguments as they are at this launch: a later hook may write to what all launches share.

    Tensor descriptors, dataclasses and containers are copied, and what is in them. Tensors are not:
    the code depends on none of their values.
    """
    if isinstance(value, dict):
        return {name: _as_they_are(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        make = getattr(value, "_make", type(value))
        return make([_as_they_are(item) for item in value])
    is_value = is_dataclass(value) or hasattr(value, "block_shape")
    if not is_value or isinstance(value, type | torch.Tensor) or not hasattr(value, "__dict__"):
        return value
    copied = copy.copy(value)
    vars(copied).update(_as_they_are(vars(value)))
    return copied


def _source_key(function: Any) -> str:
    """Triton's own hash of the kernel, the helpers it calls and the globals it reads.

    Where Triton cannot even read the source (it uses a name that this version does not have), the
    failure belongs to the compilation, so the text alone has to do here.
    """
    try:
        return str(function.cache_key)
    except Exception:  # noqa: BLE001 - the same error comes back when the config is compiled
        return hashlib.sha256(inspect.getsource(function.fn).encode()).hexdigest()


def _key(record: LaunchRecord) -> str:
    # The exact shape or integer does not change the code.
    hidden = {"shape", "value"}
    body = {
        "source": _source_key(record.function),
        "arguments": [
            {name: fact for name, fact in argument.items() if name not in hidden}
            for argument in record.arguments
        ],
        "options": _options(record),
    }
    return hash_of(body)


def _call(record: LaunchRecord) -> str:
    """All that a launch without a tuner is called with, but for its config."""
    config = {*record.config, *_OF_A_LAUNCH}
    arguments = [given for given in record.arguments if given["name"] not in config]
    options = {n: v for n, v in _options(record).items() if n not in config}
    return dumps([_source_key(record.function), arguments, options])


def _options(record: LaunchRecord) -> dict[str, str]:
    names = {parameter.name for parameter in record.function.params}
    return {n: stable(v) for n, v in sorted(record.kwargs.items()) if n not in names}


@dataclass(kw_only=True)
class SourceRecord(Record):
    """A kernel with signature, constants, attributes and options, ready to be compiled.

    The target that the code names is not kept: it is compiled for the one that was asked for.
    """

    source: Any
    options: dict[str, Any]
    first_stage: str

    @classmethod
    def of(cls, source: Any, options: dict[str, Any]) -> SourceRecord:
        words = sorted((n, repr(v)) for n, v in options.items())
        try:
            # Triton's own hash has the kernel, its helpers, the signature, constants, attributes.
            key = hash_of(source.hash(), words)
        except Exception:  # noqa: BLE001 - as in `_source_key`
            parts = [source.fn.src, source.signature, source.constants, source.attrs]
            key = hash_of(repr(parts), words)
        function, signature = source.fn.fn, source.signature.items()
        names = source.fn.arg_names
        values = {
            names[name[0]] if isinstance(name, tuple) else name: value
            for name, value in source.constants.items()
        }
        own = {n: v for n in OPTIONS if (v := options.get(n)) != _DEFAULTS.get(n)}
        plain = {n: v for n, v in own.items() if isinstance(v, bool | int | float | str)}
        config = {**_plain_constants(source.fn, values), **plain}
        kinds = [(n, str(k)) for n, k in signature if n not in config]
        return cls(
            kernel=str(function.__name__),
            file=function.__code__.co_filename,
            key=key,
            call=str([_source_key(source.fn), kinds, source.attrs]),
            config=config,
            arguments=[{"name": name, "type": str(kind)} for name, kind in signature],
            source=source,
            options=options,
            first_stage=first_stage(source.fn),
        )

    def compile(self) -> Any:
        target = driver.active.get_current_target()
        return COMPILE(self.source, target=target, options=dict(self.options))
