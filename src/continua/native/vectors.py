"""Sums of a solver over whole states, in one pass over memory: outside autograd, and where a state is large enough to be worth it.

PyTorch adds one term at a time, and so reads and writes the sum again for each; a step of dopri5 has twenty of them.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from continua.native.library import Absent, CombineArguments, ErrorArguments, Library, find_library
from continua.native.plain import is_transforming

FEWEST = 1 << 14
"""Below so many numbers the call costs more than it saves."""
MOST_TERMS = 32
PARTS = 64
"""An error is summed in so many stretches, whatever the number of threads."""


def native_combine(base: Tensor | None, weights: Sequence[float], terms: Sequence[Tensor]) -> Tensor | None:
    """base + Σ weights[i] terms[i], each addition rounded as PyTorch rounds it; None where the kernels cannot.

    Args:
        base: what is added to; None: nothing.
        weights: one for each term.
        terms: tensors of one shape.

    Returns:
        The sum, or None.

    Examples:
        >>> import torch
        >>> from continua.native import native_combine
        >>> total = native_combine(torch.ones(4), [0.5], [torch.ones(4)])
    """
    if torch.compiler.is_compiling() or terms[0].numel() < FEWEST or len(terms) > MOST_TERMS:
        return None
    library = _library_for(terms[0] if base is None else base, *terms)
    if library is None:
        return None
    out = torch.empty_like(terms[0])
    pointers = (ctypes.c_void_p * len(terms))(*(term.data_ptr() for term in terms))
    numbers = (ctypes.c_double * len(terms))(*weights)
    call = CombineArguments(
        dtype=8 * out.element_size(),
        terms=len(terms),
        threads=torch.get_num_threads(),
        count=out.numel(),
        out=out.data_ptr(),
        base=None if base is None else base.data_ptr(),
        of=ctypes.addressof(pointers),
        weights=ctypes.addressof(numbers),
    )
    library.combine(ctypes.byref(call))
    return out


def can_combine(x: Tensor) -> bool:
    """Whether sums of tensors like x are worth a call of the kernels, which can be made.

    Args:
        x: one of them.

    Returns:
        Whether it is.

    Examples:
        >>> import torch
        >>> from continua.native import can_combine
        >>> can_combine(torch.ones(4))
        False
    """
    return type(x) in _PLAIN and _library_for(x.detach()) is not None


def native_error_rms(error: Tensor, y0: Tensor, y1: Tensor, rtol: float, atol: float) -> Tensor | None:
    """RMS of error / (atol + rtol max(|y0|, |y1|)) in float64; None where the kernels cannot.

    Args:
        error: the error of a step.
        y0: the state before it.
        y1: the state after it.
        rtol: relative tolerance.
        atol: absolute tolerance.

    Returns:
        A 0-d tensor, or None.

    Examples:
        >>> import torch
        >>> from continua.native import native_error_rms
        >>> r = native_error_rms(torch.ones(4), torch.ones(4), torch.ones(4), 1e-3, 1e-3)
    """
    library = None if error.numel() < FEWEST else _library_for(error, y0, y1)
    if library is None:
        return None
    sums = torch.empty(PARTS, dtype=torch.float64)
    call = ErrorArguments(
        dtype=8 * error.element_size(),
        parts=PARTS,
        threads=torch.get_num_threads(),
        count=error.numel(),
        rtol=rtol,
        atol=atol,
        error=error.data_ptr(),
        y0=y0.data_ptr(),
        y1=y1.data_ptr(),
        sums=sums.data_ptr(),
    )
    library.error_sums(ctypes.byref(call))
    return (sums.sum() / error.numel()).sqrt()


def _library_for(first: Tensor, *others: Tensor) -> Library | None:
    """The kernels, if all tensors lie in the same order in a CPU's memory, without gaps, are large enough, and nobody differentiates."""
    if torch.compiler.is_compiling() or is_transforming():
        return None
    if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.float64):
        return None
    if first.numel() < FEWEST or (torch.is_grad_enabled() and any(value.requires_grad for value in (first, *others))):
        return None
    stride = first.stride()
    same = all(value.stride() == stride and value.dtype == first.dtype and type(value) in _PLAIN for value in others)
    if not same or type(first) not in _PLAIN or not torch.ops.aten.is_non_overlapping_and_dense(first):
        return None
    library = find_library()
    return None if isinstance(library, Absent) else library


_PLAIN = (Tensor, torch.nn.Parameter)  # a subclass may mean something else by its numbers
