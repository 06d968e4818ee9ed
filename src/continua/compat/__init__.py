"""Other libraries' interfaces over Continua's own parts, so that a program moves here by changing one import.

torchdiffeq/    odeint, odeint_adjoint, odeint_event: `import continua.compat.torchdiffeq as torchdiffeq`
sklearn/        ContinuaClassifier: fit, predict, predict_proba, score
huggingface/    push_to_hub, from_pretrained: networks on the Hugging Face hub; also methods of every network
brainscore/     ContinuousBrain, Brain-Score's `BrainModel` whose time bins are answered by h(t)
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from continua.compat import brainscore, huggingface, torchdiffeq

if TYPE_CHECKING:
    from continua.compat import sklearn

__all__ = ["brainscore", "huggingface", "sklearn", "torchdiffeq"]


def __getattr__(name: str) -> object:
    if name == "sklearn":  # imports scikit-learn, which takes a second
        return _import_module("continua.compat.sklearn")
    raise AttributeError(f"module 'continua.compat' has no attribute {name!r}; it has {', '.join(__all__)}")
