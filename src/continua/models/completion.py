"""`zoo.dcn_ode(num_classes=4)`: the registered models as functions, so that a prompt completes their names and options.

The same as `create_model("dcn_ode", num_classes=4)`. Signatures and help come from the configuration dataclasses.
"""

import inspect
from collections.abc import Callable
from typing import Any

from continua.errors import ContinuaError
from continua.models.network import Network
from continua.models.registry import create_model, list_models, model_entry, model_options


class Zoo:
    """Every registered model as an attribute: a function that takes the model's options."""

    def __dir__(self) -> list[str]:
        return list_models()

    def __getattr__(self, name: str) -> Callable[..., Network]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return _maker(name)
        except ContinuaError as error:
            raise AttributeError(str(error)) from None

    def __repr__(self) -> str:
        return f"zoo of {len(list_models())} models: zoo.dcn_ode(num_classes=4); list_models() names all"


def _maker(name: str) -> Callable[..., Network]:
    entry, options = model_entry(name), model_options(name)

    def make(pretrained: bool = False, **chosen: Any) -> Network:
        return create_model(name, pretrained, **chosen)

    kind = inspect.Parameter
    parameters = [kind("pretrained", kind.POSITIONAL_OR_KEYWORD, default=False, annotation=bool)]
    parameters += [kind(item.name, kind.KEYWORD_ONLY, default=item.default) for item in options]
    make.__name__ = make.__qualname__ = name
    make.__doc__ = "\n".join(
        [entry.build.__doc__ or name, "", "Args:", "    pretrained: Load trained weights that come with the package."]
        + [f"    {item.name} ({item.type}): {item.help}" for item in options]
    )
    make.__dict__["__signature__"] = inspect.Signature(parameters, return_annotation=Network)
    return make


zoo = Zoo()
"""The registered models as functions."""
