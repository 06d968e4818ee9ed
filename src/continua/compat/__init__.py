"""Other libraries' interfaces over Continua's own parts, so that a program moves here by changing one import.

torchdiffeq/    odeint, odeint_adjoint, odeint_event: `import continua.compat.torchdiffeq as torchdiffeq`
huggingface/    push_to_hub, from_pretrained: networks on the Hugging Face hub; also methods of every network
brainscore/     ContinuousBrain, Brain-Score's `BrainModel` whose time bins are answered by h(t)
"""

from continua.compat import brainscore, huggingface, torchdiffeq

__all__ = ["brainscore", "huggingface", "torchdiffeq"]
