"""Run by `asking.ask_child` in a process of its own, never imported: computes in a number type and compares with a wider one.

It may die, hang or answer nonsense, which is what it is for. It imports PyTorch and nothing of ours, and answers on stdout in lines of
JSON, each behind the word MARK: first {"ready": true} once PyTorch is imported, then a sign of life before each computation, last what came
of it.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv2d

MARK = "continua-probe"
FLAGS = {"bfloat16": "bf16", "float16": "fp16"}  # PyTorch's short names of what oneDNN says it has
# The error of a result, relative to its norm, that rounding explains: some units of the type's last place. What is wrong is wrong by far.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.03, "float16": 0.004}


def say(**facts: object) -> None:
    print(MARK, json.dumps(facts), flush=True)


def error(result: Tensor, exact: Tensor) -> float:
    """The distance relative to the norm; infinite where a number is not finite."""
    distance = (result.double() - exact).norm() / exact.norm()
    return float(distance) if bool(torch.isfinite(distance)) else float("inf")


def results(function: Callable[..., Tensor], inputs: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """What a function of tensors answers, and the gradients of that answer; all that comes from outside is rounded to `dtype`."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    answer = function(*leaves)
    torch.manual_seed(1)
    answer.backward(torch.randn(answer.shape).to(dtype).to(answer.dtype))
    return [answer.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def cases() -> dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]]:
    """What networks do, in few shapes: a unit that fails may do so for small products only, or for large ones."""

    def last(x: Tensor, w: Tensor) -> Tensor:
        return conv2d(x.contiguous(memory_format=torch.channels_last), w, padding=1)

    return {
        "a product of 64×64 by 64×64": (torch.mm, [(64, 64), (64, 64)]),
        "a product of 9×9 by 9×162": (torch.mm, [(9, 9), (9, 162)]),
        "a product of 256×192 by 192×320": (torch.mm, [(256, 192), (192, 320)]),
        "a batch of products of 16×32 by 32×24": (torch.bmm, [(4, 16, 32), (4, 32, 24)]),
        "a convolution of 3×3": (lambda x, w: conv2d(x, w, padding=1), [(2, 8, 12, 12), (16, 8, 3, 3)]),
        "a convolution of 7×7": (lambda x, w: conv2d(x, w, padding=3), [(2, 32, 16, 16), (32, 32, 7, 7)]),
        "a convolution of 1×1": (conv2d, [(2, 24, 9, 9), (40, 24, 1, 1)]),
        "a convolution of 3×3, channels last": (last, [(2, 16, 12, 12), (16, 16, 3, 3)]),
        "a convolution of 3×3 in groups": (lambda x, w: conv2d(x, w, padding=1, groups=8), [(2, 8, 12, 12), (8, 1, 3, 3)]),
    }


def first_fault(name: str) -> str | None:
    """The first case that is wrong in this number type, in words; None if none is."""
    dtype = getattr(torch, name)
    for title, (function, shapes) in cases().items():
        say(trying=title)
        torch.manual_seed(0)
        inputs = [torch.randn(shape).to(dtype) for shape in shapes]
        try:
            narrow = results(function, inputs, dtype)
        except Exception as failure:
            said = (str(failure).splitlines() or [type(failure).__name__])[0]
            return f"{title} in {name} failed ({said[:120]})"
        wide = results(function, [tensor.double() for tensor in inputs], dtype)
        worst = max(map(error, narrow, wide))
        if worst > TOLERANCES[name]:
            return f"{title} in {name} was wrong by {worst:.0%}"
    return None


def probe_number_type(name: str) -> None:
    """A failed product can spoil every later float32 convolution of its process: so float32 is tried last, and again."""
    torch.set_num_threads(1)
    results(torch.mm, [torch.ones(2, 2).double()] * 2, torch.float64)  # without oneDNN: what PyTorch imports when first used is not timed
    say(ready=True)
    no = bool  # a PyTorch without oneDNN has no such question, and the answer is False
    flags = {kind: bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{short}_supported", no)()) for kind, short in FLAGS.items()}
    if name in FLAGS and not flags[name]:
        return say(flags=flags, supported=False, fault=None)
    fault = first_fault(name)
    if fault is None and name != "float32" and (spoilt := first_fault("float32")):
        fault = f"after computing in {name}, {spoilt}"
    return say(flags=flags, supported=True, fault=fault)


def probe_inductor() -> None:
    """Whether `torch.compile` builds and runs a small function and its gradient."""
    torch.set_num_threads(1)
    say(ready=True)
    with tempfile.TemporaryDirectory() as folder:
        # What an earlier build left behind proves nothing; one thread: a pool of workers would cost more than it saves.
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        x = torch.linspace(-1, 1, 64).reshape(4, 16)

        def function(x: Tensor) -> Tensor:
            return (x.sin() * 2 + x).relu().sum(1)

        try:
            narrow = results(torch.compile(function, fullgraph=True), [x], x.dtype)
        except Exception as failure:
            lines = [line for line in str(failure).splitlines() if line.strip()] or [type(failure).__name__]
            return say(fault=f"a small function could not be built ({lines[0][:160]})")
        worst = max(map(error, narrow, results(function, [x.double()], x.dtype)))
    return say(fault=f"a small function was wrong by {worst:.0%}" if worst > TOLERANCES["float32"] else None)


def without_core_file() -> None:
    """A process that dies by intent leaves no file in the user's folder."""
    try:
        import resource
    except ImportError:  # Windows has none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    without_core_file()
    if sys.argv[1] == "inductor":
        probe_inductor()
    else:
        probe_number_type(sys.argv[1])
