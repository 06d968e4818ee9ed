"""The Hugging Face hub: `push_to_hub(net, "user/name")`, `from_pretrained("user/name")`; needs `huggingface_hub`.

The same verbs are methods of every network (`net.push_to_hub("user/name")`) and a function of the package (`continua.from_pretrained`).
They take what `huggingface_hub.PyTorchModelHubMixin` takes. No code of a repository is run: see `continua.models.hub`.
"""

from continua.models import from_pretrained, hub_card, push_to_hub

__all__ = ["from_pretrained", "hub_card", "push_to_hub"]
