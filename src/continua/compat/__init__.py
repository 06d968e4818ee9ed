"""Other libraries' interfaces over Continua's own parts, so that a program moves here by changing one import.

torchdiffeq/    odeint, odeint_adjoint, odeint_event: `import continua.compat.torchdiffeq as torchdiffeq`
huggingface/    push_to_hub, from_pretrained: networks on the Hugging Face hub; also methods of every network
"""

from continua.compat import huggingface, torchdiffeq

__all__ = ["huggingface", "torchdiffeq"]
