"""The user's f(t, y), called the way the solver needs it: counted, checked, in the right dtype, the same in backward as in forward."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch._C._functorch import TransformType, get_interpreter_stack  # pyright: ignore[reportMissingModuleSource]
from torch.autograd.graph import Node, saved_tensors_hooks

from continua.errors import ConfigError
from continua.native import is_transforming
from continua.ode.solution import State, Time

Field = Callable[..., "Tensor | tuple[Tensor, ...]"]  # f(t, y): a tensor for a tensor, a tuple for a tuple


def broadcast_time(t: Tensor, h: Tensor) -> Tensor:
    """t shaped to multiply or add to h: a 0-d t stays, a (batch,) t becomes (batch, 1, ..., 1).

    Args:
        t: the time as f receives it: 0-d, or one for each sample.
        h: the state, batch first.

    Returns:
        t as a tensor that broadcasts against h.

    Examples:
        >>> import torch
        >>> from continua import broadcast_time
        >>> h = torch.rand(4, 3, 8, 8)
        >>> broadcast_time(torch.arange(4.0), h).shape
        torch.Size([4, 1, 1, 1])
    """
    return t if t.ndim == 0 else t.reshape(-1, *(1,) * (h.ndim - 1))


def time_dtype(y: Tensor) -> torch.dtype:
    """The type in which f is given its time.

    Args:
        y: The state.

    Returns:
        float64 for a state in float64, else float32.

    Example:
        >>> import torch
        >>> from continua.ode import time_dtype
        >>> time_dtype(torch.zeros(1))
        torch.float32
    """
    return torch.float64 if y.dtype == torch.float64 else torch.float32


def sees_no_numbers() -> bool:
    """Whether the numbers in tensors cannot be looked at: while a graph is recorded, and under `vmap`."""
    if torch.compiler.is_compiling():
        return True
    return is_transforming() and any(layer.key() == TransformType.Vmap for layer in get_interpreter_stack() or ())


_replaying = False


def replaying() -> bool:
    """Whether f is being evaluated for the backward pass of a single step: its graph is used at once and may hold more than usual.

    Returns:
        Whether it is.

    Examples:
        >>> from continua.ode import replaying
        >>> replaying()
        False
    """
    return _replaying


@contextmanager
def replay() -> Iterator[None]:
    """Evaluations inside are those of one step's backward pass."""
    global _replaying
    before, _replaying = _replaying, True
    try:
        yield
    finally:
        _replaying = before


class Rate:
    """f as a function from tuples to tuples. `calls` counts evaluations."""

    def __init__(self, f: Field, y0: State, single: bool) -> None:
        self.f = f
        self.single = single
        self.width = len(y0)  # how many components f takes and returns
        self.calls = 0
        self.dtypes = tuple(part.dtype for part in y0)
        self.device = y0[0].device
        self.time_dtype = time_dtype(y0[0])
        self._on_step = getattr(f, "on_step", None)
        kind = self.device.type
        self._autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    def __call__(self, t: Time, y: State) -> State:
        self.calls += 1
        return self.evaluate(t, y)

    def evaluate(self, t: Time, y: State) -> State:
        """f(t, y), not counted."""
        if isinstance(t, Tensor):
            time = t.to(self.time_dtype)
        else:
            # Not scalar_tensor, which is quicker and no constant of an exported graph.
            time = torch.tensor(t, dtype=self.time_dtype, device=self.device)
        if self._autocast is None and not torch.is_autocast_enabled(self.device.type):
            out = self.f(time, y[0] if self.single else y)
        else:
            # The weight cache of an enclosing autocast region would hand graph-less casts made here to code outside.
            on = self._autocast is not None  # as it was when the solve began, whatever surrounds its backward pass
            with torch.autocast(self.device.type, dtype=self._autocast, enabled=on, cache_enabled=False):
                out = self.f(time, y[0] if self.single else y)
        return self._checked(out, y)

    @property
    def resolution(self) -> float:
        """The relative rounding error of f: of the state's arithmetic, or of autocast's where that is coarser."""
        dtypes = self.dtypes if self._autocast is None else (*self.dtypes, self._autocast)
        return max(torch.finfo(dtype).eps for dtype in dtypes)

    def on_step(self, index: int, recomputing: bool) -> None:
        """Tell a field that asks (BatchNorm per step) which step the next evaluations belong to."""
        if self._on_step is not None:
            self._on_step(index, recomputing)

    def _checked(self, out: object, y: State) -> State:
        parts = (out,) if self.single else out
        if not are_tensors(parts) or len(parts) != len(y):
            state = y[0] if self.single else y
            expected = "one tensor" if self.single else f"a tuple of {len(y)} tensors"
            raise ConfigError(f"f(t, y) returned {_describe(out)}; expected {expected}, shaped like y0, which is {_describe(state)}")
        checked = []
        for part, like in zip(parts, y, strict=True):
            if part.shape != like.shape:
                text = f"f(t, y) returned shape {tuple(part.shape)} for a state of shape {tuple(like.shape)}; they must be equal"
                twice = part.shape == (like.shape[0], *like.shape)
                hint = " (values per sample at a time per sample? a Forcing is asked for them by u(t, sample))" if twice else ""
                raise ConfigError(text + hint)
            if part.dtype != like.dtype:
                if self._autocast is None or not part.is_floating_point():
                    raise ConfigError(f"f(t, y) returned {part.dtype} for a state of {like.dtype}; cast inside f, or use torch.autocast")
                part = part.to(like.dtype)
            checked.append(part)
        return tuple(checked)


class UncountedRate(Rate):
    """For a loop that is part of a graph, and may change nothing outside it."""

    def __call__(self, t: Time, y: State) -> State:
        return self.evaluate(t, y)


def are_tensors(parts: object) -> "TypeGuard[Sequence[Tensor]]":
    """Whether this is a tuple or list of tensors."""
    return isinstance(parts, tuple | list) and all(isinstance(part, Tensor) for part in parts)


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} ({', '.join(_describe(part) for part in value)})"
    return f"a {type(value).__name__}"


def _unasked(index: int, recomputing: bool) -> None:
    """For a field that does not ask which step it is in."""


class RelativeTime:
    """f on the common clock s ∈ [0, 1] of samples with different intervals: dy/ds = (t1 − t0) f(t0 + s (t1 − t0), y)."""

    def __init__(self, f: Field, t0: Tensor, t1: Tensor) -> None:
        self.f, self.t0, self.length = f, t0, t1 - t0
        self.on_step = getattr(f, "on_step", _unasked)

    def __call__(self, s: Tensor, y: "Tensor | State") -> "Tensor | State":
        t = (self.t0 + s.to(self.t0.dtype) * self.length).to(s.dtype)
        out = self.f(t, y)
        if isinstance(out, Tensor):
            return out * broadcast_time(self.length.to(out.dtype), out)
        if not are_tensors(out):
            return out  # is refused by `Rate`, which says what was expected
        return tuple(part * broadcast_time(self.length.to(part.dtype), part) for part in out)


def parameters_of(f: Field, params: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """The tensors besides y0 that a solve differentiates: the module's parameters and those the caller names."""
    owner = f if isinstance(f, nn.Module) else getattr(f, "__self__", None)
    own = list(owner.parameters()) if isinstance(owner, nn.Module) else []
    named = list(params) if isinstance(params, Iterable) else [] if params is None else [params]
    if not are_tensors(named):
        raise ConfigError(f"params={params!r}; expected the tensors that f depends on, in a list")
    unique = {id(p): p for p in (*own, *named) if p.requires_grad}
    return tuple(unique.values())


def why_not_called(f: Field) -> str | None:
    """What keeps f from being called as f(t, y), in a sentence; None if nothing does, as far as its signature tells."""
    module = isinstance(f, nn.Module)
    try:
        signature = inspect.signature(f.forward if module else f)
    except (TypeError, ValueError):  # without a signature, as some functions in C
        return None
    try:
        signature.bind(0.0, None)
    except TypeError:
        name = f"{type(f).__name__}.forward" if module else getattr(f, "__name__", type(f).__name__)
        one = f"class Field(nn.Module) with forward(self, t, y) that calls it{', and owns it' if module else ''}"
        more = "lambda t, y: f(t, y, args) for one with more arguments, its parameters in params=[...]"
        return f"f is called as f(t, y), and {name} takes {signature}; write a {one}, or {more}"
    return None


def probe(rate: Rate, t: Time, y: State, params: tuple[Tensor, ...], gradient: str) -> tuple[State, int]:
    """One evaluation, three questions: does f draw random numbers, does it hide tensors that need gradients, how large is its graph?

    The first two would give wrong gradients silently: backward evaluates f again, and returns gradients only for the parameters it knows.
    `gradient` names the one in use. Returns f(t, y) with its graph, and the bytes which that holds.
    """
    before = _random_state(rate.device)
    k, held = with_graph_size(rate, t, y, params)
    if not torch.equal(before, _random_state(rate.device)):
        raise ConfigError(
            "f draws random numbers (dropout?), so dy/dt is another function at every evaluation; put the dropout outside the field, "
            "or use fixed steps with gradient='direct'"
        )
    refuse_hidden(hidden_leaves(k, (*y, *params)), gradient)
    return k, held


def refuse_hidden(hidden: list[Tensor], gradient: str) -> None:
    """An error where f depends on tensors that require gradients and that are not known."""
    if hidden:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in hidden[:4])
        raise ConfigError(
            f"f depends on {len(hidden)} tensor(s) that require gradients and that solve was not told about (shapes {shapes}); "
            f"pass them as params=[...], make f an nn.Module that owns them, or use gradient='direct' (now {gradient}); where no gradient "
            "is wanted, solve under torch.no_grad()"
        )


def with_graph_size(rate: Rate, t: Time, y: State, params: State) -> tuple[State, int]:
    """f(t, y) with its graph, and how much memory the graph takes.

    Args:
        rate: f(t, y), of a state that is a tuple.
        t: the time.
        y: the state.
        params: the parameters of f, which are not counted.

    Returns:
        f(t, y), and the bytes of the tensors that are held for backward.

    Examples:
        >>> import torch
        >>> from continua.ode import with_graph_size
        >>> y = torch.ones(100, requires_grad=True)
        >>> with_graph_size(lambda t, y: (y[0].exp(),), 0.0, (y,), ())[1]  # exp keeps its result
        400
    """
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that its own graph held would never be freed; autograd knows where the numbers came from

    with torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
        k = rate(t, y)
    known = {param.untyped_storage().data_ptr() for param in params}
    return k, sum(size for place, size in sizes.items() if place not in known)


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def hidden_leaves(k: State, given: State) -> list[Tensor]:
    """Leaves of k's graph that are neither the state nor parameters, nor reached only through those.

    Args:
        k: what f returned, with its graph.
        given: the state and the parameters that f was given.

    Returns:
        The other tensors that would get a gradient.

    Examples:
        >>> import torch
        >>> from continua.ode import hidden_leaves
        >>> y, rate = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        >>> hidden_leaves((rate * y,), (y,))[0] is rate
        True
    """
    known = {id(tensor) for tensor in given}
    leaves = (getattr(node, "variable", None) for node in graph_nodes(k, stop_at=given))
    return [leaf for leaf in leaves if leaf is not None and id(leaf) not in known]


def graph_nodes(outputs: State, stop_at: State = ()) -> Iterator[Node]:
    """Every node of a graph once, without what only leads to the tensors `stop_at`.

    Args:
        outputs: tensors at the end of the graph.
        stop_at: tensors behind which nothing is looked at.

    Yields:
        Autograd's nodes.

    Examples:
        >>> import torch
        >>> from continua.ode import graph_nodes
        >>> y = torch.ones(2, requires_grad=True)
        >>> len(list(graph_nodes(((2 * y).exp(),))))  # exp, multiplication, and the leaf
        3
    """
    seen = {part.grad_fn for part in stop_at}
    queue = [part.grad_fn for part in outputs]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        queue.extend(parent for parent, _ in node.next_functions)
