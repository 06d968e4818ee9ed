"""How a solve is differentiated: one class in one file each. `base` says how to write another."""

from collections.abc import Mapping

from continua.errors import ConfigError, unknown_name
from continua.ode.gradients.adjoint import Adjoint
from continua.ode.gradients.base import ForwardPass, Gradient, connect
from continua.ode.gradients.checkpoint import Checkpoint
from continua.ode.gradients.direct import Direct
from continua.ode.gradients.reversible import Reversible
from continua.ode.plain import Options, build

__all__ = ["Adjoint", "Checkpoint", "Direct", "ForwardPass", "Gradient", "Reversible", "connect", "find_gradient"]

GRADIENTS: dict[str, type[Gradient]] = {kind.kind: kind for kind in (Checkpoint, Direct, Reversible, Adjoint)}


def find_gradient(given: "Gradient | str | Options") -> Gradient:
    """A gradient from its name, or from its options with the name as `kind`; an object is passed through."""
    if isinstance(given, Gradient):
        return given
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = options.pop("kind", None)
    if isinstance(given, type) or not isinstance(kind, str):
        raise ConfigError(f"gradient={given!r}; expected a name, a dict with its kind, or an object such as Checkpoint(segments='sqrt')")
    if kind not in GRADIENTS:
        raise unknown_name("gradient", kind, GRADIENTS)
    return build(GRADIENTS[kind], f"option of gradient {kind!r}:", options) if options else GRADIENTS[kind]()
