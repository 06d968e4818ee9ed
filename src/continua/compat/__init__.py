"""Other libraries' interfaces over Continua's own parts, so that a program moves here by changing one import.

torchdiffeq/    odeint, odeint_adjoint, odeint_event: `import continua.compat.torchdiffeq as torchdiffeq`
"""

from continua.compat import torchdiffeq

__all__ = ["torchdiffeq"]
