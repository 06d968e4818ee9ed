"""Reading numbers outside a graph that is being recorded. Imported only then, since it imports the compiler."""

from collections.abc import Callable

import torch
from torch import Tensor

from continua.filters.host import REASON

numbers_outside: Callable[[Tensor], list[float]] = torch.compiler.disable(Tensor.tolist, reason=REASON)  # pyright: ignore[reportAssignmentType]
