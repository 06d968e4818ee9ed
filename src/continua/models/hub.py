"""Networks on the Hugging Face hub: `net.push_to_hub("user/name")`, `from_pretrained("user/name")`.

A repository there holds the two files that `save_pretrained` writes and a README.md, the model card. Reading one takes config.json and
model.safetensors and nothing else: a configuration that is checked and builds a registered model, and plain tensors. No code of a
repository is run, no pickle is opened, and a file that is larger than its network could need is refused before it is fetched.

The verbs take what `huggingface_hub.PyTorchModelHubMixin` takes. The extra `hub` installs the package.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.limits import DOWNLOAD, JSON_BYTES, Limit

if TYPE_CHECKING:
    from continua.models.network import Network

WEIGHTS_FILE = "model.safetensors"
"""The file of a saved network's weights."""
CONFIG_FILE = "config.json"
"""The file of a saved network's configuration."""
README_FILE = "README.md"
PREFIX = re.compile(r"^(?:hf[-_]hub:|https://huggingface\.co/)")  # as timm spells it, and as a browser does
NAME = re.compile(r"[\w.-]+/[\w.-]+")
SLACK = 10_000_000  # bytes of a file of weights besides its numbers: names and shapes
CARD_KEYS = ("license", "datasets", "language", "base_model", "tags", "text")


def hub_name(name: "str | Path") -> str | None:
    """The name on the hub that is meant, or None: "user/name" where there is no such folder, "hf-hub:user/name" in any case."""
    if not isinstance(name, str):
        return None
    plain = PREFIX.sub("", name)
    if plain == name and (Path(name).exists() or not NAME.fullmatch(name)):
        return None
    if not NAME.fullmatch(plain):
        raise ConfigError(f"{name!r} is no name on the hub; expected hf-hub:USER/NAME")
    return plain


def hub_files(
    repo_id: str,
    *,
    revision: str | None = None,
    token: "str | bool | None" = None,
    cache_dir: "str | Path | None" = None,
    force_download: bool = False,
    local_files_only: bool = False,
    weights_bytes: int | None = None,
) -> Path:
    """Bring config.json, or with `weights_bytes` (at most so many) the weights, into the hub's own cache; the folder they are in."""
    hub = _package(f"to load {repo_id} from the Hugging Face hub")
    name, most = (CONFIG_FILE, JSON_BYTES.value) if weights_bytes is None else (WEIGHTS_FILE, min(weights_bytes, DOWNLOAD.value))
    how = dict(revision=revision, token=token)
    try:
        if not local_files_only and not hub.constants.HF_HUB_OFFLINE:
            url = hub.hf_hub_url(repo_id, name, revision=revision)
            _check_size(
                f"{repo_id}: {name}", hub.get_hf_file_metadata(url, token=token).size, most, JSON_BYTES if weights_bytes is None else None
            )
        path = hub.hf_hub_download(
            repo_id, name, **how, cache_dir=cache_dir, force_download=force_download, local_files_only=local_files_only
        )
    except _refusals(hub) as error:
        raise ConfigError(
            f"{repo_id} is no folder here, and the hub gave no {name} of it ({_first_line(error)}); for a folder give its path, "
            "for a private repository log in (hf auth login) or give token=..."
        ) from None
    _check_size(path, Path(path).stat().st_size, most, None)
    return Path(path).parent


def push_to_hub(
    net: "Network",
    repo_id: str,
    *,
    config: Mapping[str, Any] | None = None,
    commit_message: str = "Upload a network with continua",
    private: bool | None = None,
    token: "str | None" = None,
    branch: str | None = None,
    create_pr: bool | None = None,
    allow_patterns: "list[str] | str | None" = None,
    ignore_patterns: "list[str] | str | None" = None,
    delete_patterns: "list[str] | str | None" = None,
    model_card_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """Upload a network to the Hugging Face hub; the repository is made where there is none.

    Args:
        net: The network.
        repo_id: "user/name"; "name" alone for the user whose token it is.
        config: Only None: the configuration is the network's own, so that it builds the network again.
        commit_message: Of the upload.
        private: Whether a repository that is made is private; None: as the account has it.
        token: Of the user; None: as `hf auth login` left it.
        branch: To upload to; None: the main one.
        create_pr: Propose the upload instead of making it.
        allow_patterns: Upload only files like these.
        ignore_patterns: Leave out files like these.
        delete_patterns: Remove files like these from the repository in the same commit.
        model_card_kwargs: For the model card: `license`, `datasets`, `language`, `base_model`, `tags`, and `text` for its end. A card that
            the repository has is kept unless this is given.

    Returns:
        The address of the commit.

    Raises:
        ConfigError: The network cannot be saved, the package is missing, or the hub refuses.

    Examples:
        >>> import continua as ct
        >>> net = ct.create_model("odenet", num_classes=10)
        >>> net.push_to_hub("ann/digits", private=True, model_card_kwargs={"license": "apache-2.0"})  # doctest: +SKIP
    """
    hub = _package("to push to the Hugging Face hub")
    if config is not None:
        raise ConfigError("config: only None; the configuration is the network's own, and building with other options changes it")
    api = hub.HfApi(token=token)
    with TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        try:
            repo_id = api.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
            if model_card_kwargs is not None or not api.file_exists(repo_id, README_FILE, revision=branch):
                (Path(folder) / README_FILE).write_text(hub_card(net, repo_id, **(model_card_kwargs or {})), "utf-8")
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
                allow_patterns=allow_patterns,
                ignore_patterns=ignore_patterns,
                delete_patterns=delete_patterns,
            )
        except _refusals(hub) as error:
            raise ConfigError(f"the hub did not take {repo_id} ({_first_line(error)}); log in (hf auth login) or give token=...") from None
    return str(done)


def hub_card(net: "Network", repo_id: str, **given: Any) -> str:
    """The model card: what is known of the network itself, how to load it, and what its owner says. Nothing is made up.

    Args:
        net: The network.
        repo_id: Its name on the hub.
        given: `license`, `datasets`, `language`, `base_model`, `tags`, and `text` for the end of the card.

    Returns:
        The card as Markdown, with the hub's front matter.

    Raises:
        ConfigError: an unknown key of `model_card_kwargs`.

    Examples:
        >>> import continua as ct
        >>> from continua.models import hub_card
        >>> "license: mit" in hub_card(ct.create_model("resnet4"), "ann/small", license="mit")
        True
    """
    from continua.models.registry import model_entry

    if wrong := [key for key in given if key not in CARD_KEYS]:
        raise ConfigError(f"model_card_kwargs: {wrong[0]!r} is not known; known are {', '.join(CARD_KEYS)}")
    entry = model_entry(net.name) if net.name else None
    size = entry.image_size if entry is not None else 32
    head: dict[str, Any] = {"library_name": "continua", "pipeline_tag": "image-classification"}
    head |= {key: given[key] for key in CARD_KEYS if key in given and key not in ("text", "tags")}
    kinds = ["continua", *(["neural-ode"] if any(isinstance(part, ODEBlock) for part in net.modules()) else []), "image-classification"]
    head["tags"] = list(dict.fromkeys([*given.get("tags", ()), *kinds]))
    text = given.get("text", "Its owner has not yet written down which images it was trained on, how, and how well it does.")
    options = "\n".join(f"| `{name}` | `{value}` |" for name, value in net.config["options"].items())
    return f"""---
{_front_matter(head)}---
# {repo_id.rpartition("/")[2]}

A network of the Continua library{f", {entry.paper}: {entry.row}" if entry is not None else ""}.

```python
import continua as ct, torch

net = ct.from_pretrained("{repo_id}")            # needs huggingface_hub
logits = net(torch.rand(1, {net.in_channels or 3}, {size}, {size}))  # images as they were in training: size, channels, scaling
```

| | |
|---|---|
| model | `{net.name}` |
| parameters | {sum(value.numel() for value in net.parameters()):,} |
| classes | {net.num_classes or "none: it gives features"} |
{options}

{text}
"""


def _front_matter(head: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(head), sort_keys=False, allow_unicode=True)


def _check_size(what: object, size: int | None, most: int, limit: Limit | None) -> None:
    if size is not None and size > most:
        advice = limit.advice() if limit is not None else f"a network of that configuration needs at most {most:,}"
        raise ConfigError(f"{what} has {size:,} bytes; {advice}")


def _package(why: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError:
        raise ConfigError(f"{why}, install its package: pip install huggingface_hub") from None
    return huggingface_hub


def _refusals(hub: Any) -> tuple[type[Exception], ...]:
    """What the package raises where the hub says no, cannot be reached or was asked nonsense; its HTTP library is that of its version."""
    return (OSError, *hub.errors.HfHubHTTPError.__bases__, hub.errors.HFValidationError)


def _first_line(error: Exception) -> str:
    """What the package says, without its pages of advice."""
    lines: Sequence[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300] or type(error).__name__
