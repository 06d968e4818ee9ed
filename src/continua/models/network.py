"""What every model of the zoo has in common: stem → block → transition → block → … → head."""

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from continua.blocks import ODEBlock, Period
from continua.errors import ConfigError, ContinuaWarning
from continua.files import Json
from continua.filters import Filter
from continua.models.classifier import Classifier, find_classifier, replace_classifier, what_the_classifier_reads
from continua.models.config import ClassifierConfig, ModelConfig
from continua.models.stopping import Stop, bound_event, check_stop
from continua.ode import SolverConfig, Stats, broadcast_time

EndTimes = Mapping[int, "float | Tensor"]
TOO_SMALL = ("Kernel size can't be greater than actual input size", "Output size is too small")  # of PyTorch's errors


class Network(nn.Module):
    """A stem, blocks that carry the state with transitions between them, and a head.

    A subclass sets `stem`, `blocks`, `transitions` (one fewer) and `head`; `create_model` sets `name` and `options`, which build it again.
    """

    name: str = ""
    options: ModelConfig | None = None
    solver: SolverConfig | None = None
    stem: nn.Module
    blocks: nn.ModuleList
    transitions: nn.ModuleList
    head: nn.Module
    stop: tuple[int, Stop] | None = None  # in which block images may stop, and when
    multiscale: bool = False  # True: the head reads the states after all blocks, not the last alone

    @property
    def config(self) -> Json:
        """Name and options as plain data, enough for `create_model` to build the same network."""
        return {"model": self.name, "options": {} if self.options is None else self.options.plain()}

    @property
    def in_channels(self) -> int | None:
        """Channels of the images it reads, where its configuration says so."""
        return self.options.in_channels if isinstance(self.options, ClassifierConfig) else None

    @property
    def num_classes(self) -> int:
        """Length of the logits; 0 where there are none: `forward` then gives pooled features, or whatever else the head makes."""
        place = find_classifier(self)
        return place[1].out_features if place is not None and isinstance(place[1], nn.Linear) else 0

    @property
    def num_features(self) -> int:
        """Channels of what `forward_features` gives."""
        return self.feature_info[-1]["num_chs"]

    @property
    def head_hidden_size(self) -> int:
        """Length of what the classifier reads: of `forward_head(h, pre_logits=True)`, and of the output for `num_classes=0`."""
        place = find_classifier(self)
        return self.num_features if place is None else place[1].in_features

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Of the state after each block: its channels (`num_chs`), how many times smaller than the image it is, and the block's name."""
        from continua.models.describe import block_shapes

        size = 128  # far larger than borders without padding, so that they do not count
        shapes = block_shapes(self, (self.in_channels or 3, size, size))
        return [
            {"num_chs": shape[0], "reduction": max(1, round(size / shape[-1])), "module": f"blocks.{index}"}
            for index, shape in enumerate(shapes)
        ]

    def get_classifier(self) -> Classifier:
        """The linear layer that makes logits; for `num_classes=0`, what stands in its place."""
        place = find_classifier(self)
        if place is None:
            raise ConfigError(f"the head of {self.title} has no linear layer, so {self.title} has no classifier")
        return place[1]

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier by a new one, with weights of the family's own initialisation; 0 leaves it out.

        Args:
            num_classes: Length of the logits. The configuration follows, so the network is saved and loaded like any other.
            global_pool: Only None. Pooling belongs to the head; `forward_features` gives what is not pooled.
        """
        if global_pool is not None:
            raise ConfigError(
                f"global_pool={global_pool!r}; the heads of Continua pool in their own way: leave it out, and take "
                "forward_features(images) for maps that are not pooled"
            )
        self.start_classifier(replace_classifier(self, num_classes))
        if isinstance(self.options, ClassifierConfig):
            self.options = self.options.vary(num_classes=num_classes)

    def start_classifier(self, layer: nn.Module) -> None:
        """Initialise a new classifier as this family does; PyTorch's own initialisation unless a family says otherwise."""

    @property
    def title(self) -> str:
        """What messages call it: its name, or that of its class."""
        return self.name or type(self).__name__

    def forward(self, images: Tensor, *, t1: EndTimes | None = None, input_scale: "float | Tensor | None" = None) -> Tensor:
        """Logits. `t1`: end times of some blocks by index, one number or one per sample; `input_scale`: factor of all block inputs."""
        walk = self.forward_scales if self.multiscale else self.forward_features
        return self.forward_head(walk(images, t1=t1, input_scale=input_scale))

    def forward_features(self, images: Tensor, *, t1: EndTimes | None = None, input_scale: "float | Tensor | None" = None) -> Tensor:
        """The state after the last block."""
        return self._walk(images, len(self.blocks), t1, input_scale)

    def forward_scales(self, images: Tensor, *, t1: EndTimes | None = None, input_scale: "float | Tensor | None" = None) -> list[Tensor]:
        """The states after each block, first to last."""
        states: list[Tensor] = []
        self._walk(images, len(self.blocks), t1, input_scale, states)
        return states

    def forward_head(self, h: "Tensor | Sequence[Tensor]", pre_logits: bool = False) -> Tensor:
        """Logits from the state after the last block; a multiscale network needs those after every block, `forward_scales(images)`.

        With `pre_logits`, what the classifier would read: pooled features, (batch, `head_hidden_size`).
        """
        if self.multiscale == isinstance(h, Tensor):
            wanted = "the states after all blocks, forward_scales(images)" if self.multiscale else "the state after the last block"
            raise ConfigError(f"the head of {self.title} reads {wanted}")
        return what_the_classifier_reads(self, h) if pre_logits else self.head(h)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: "int | Sequence[int] | None" = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: Literal["NCHW"] = "NCHW",
        intermediates_only: bool = False,
    ) -> "list[Tensor] | tuple[Tensor, list[Tensor]]":
        """What timm calls so: the state after the last block, and the states after the blocks of `indices`.

        Args:
            x: Images.
            indices: Blocks by index, the last n for a number, all for None.
            norm: Norms belong to blocks, transitions and head, so there is none to apply to a state: only False is possible.
            stop_early: Stop after the last block that is asked for; the first of the pair is then the state there.
            output_fmt: "NCHW", the only layout.
            intermediates_only: Return the list alone.
        """
        if norm or output_fmt != "NCHW":
            raise ConfigError(
                f"forward_intermediates(norm={norm!r}, output_fmt={output_fmt!r}): {self.title} has no norm of its own between blocks, and "
                "its states are (batch, channels, height, width); leave out both"
            )
        chosen = self.block_indices(indices)
        states: list[Tensor] = []
        last = self._walk(x, max(chosen, default=-1) + 1 if stop_early else len(self.blocks), None, None, states)
        intermediates = [states[index] for index in chosen]
        return intermediates if intermediates_only else (last, intermediates)

    def states(
        self,
        images: Tensor,
        block: int = 0,
        times: "float | Sequence[float] | Tensor | None" = None,
        *,
        t1: EndTimes | None = None,
        input_scale: "float | Tensor | None" = None,
    ) -> Tensor:
        """States inside the network, (time, batch, channels, height, width).

        Of an ODE block: h at `times` (default: its start and end). Of a block without time: the state before and after it; of a
        period of a Runge–Kutta network, the state before it and after each of its time-steps.
        """
        index = self._index(block)
        h = self._enter(self._walk(images, index, t1, input_scale), index, input_scale)
        here = self.blocks[index]
        if not isinstance(here, ODEBlock):
            if times is not None:
                raise ConfigError(f"block {index} of {self.title} has no time; leave out `times` for its input and output")
            return torch.stack(here.states(h) if isinstance(here, Period) else [h, here(h)])
        end = self._end_times(t1).get(index)
        if times is None:
            last = torch.as_tensor(here.t1 if end is None else end, dtype=torch.float64)
            times = torch.stack([torch.full_like(last, here.t0), last])
        return here.trajectory(h, times, end)

    @property
    def stats(self) -> list[Stats | None]:
        """What the last solve of each block cost; None for blocks without a solver."""
        return [block.stats if isinstance(block, ODEBlock) else None for block in self.blocks]

    def with_solver(self, solver: "SolverConfig | Mapping[str, Any] | None" = None, **changes: object) -> "Network":
        """The same network, sharing its weights, with another solver in every ODE block: `net.with_solver(method="rk4", steps=2)`."""
        shared = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        twin = copy.deepcopy(self, shared)
        blocks = [module for module in twin.modules() if isinstance(module, ODEBlock)]
        if not blocks:
            raise ConfigError(f"{self.title} has no ODE block, so it has no solver to change")
        for module in blocks:
            module.solver = (module.solver if solver is None else SolverConfig.of(solver)).replace(**changes)
            module.stats = None
        own = self.solver or blocks[0].solver
        twin.solver = (own if solver is None else SolverConfig.of(solver)).replace(**changes)
        if twin.solver.steps is not None and twin.solver.control.per == "sample" and "control" in changes and "steps" not in changes:
            warnings.warn(
                f"{self.title} has steps={twin.solver.steps}, which control='sample' does not change: every image takes the same number. "
                "For steps of its own: with_solver(control='sample', method='dopri5', steps=None)",
                ContinuaWarning,
                stacklevel=2,
            )
        if self.options is not None:  # else it was not made from a configuration
            twin.options = self.options.with_solver(twin.solver, changes if solver is None else None)
        return twin

    def with_stop(self, stop: Stop | None, block: int = -1) -> "Network":
        """The same network, sharing its weights, whose images may stop before the end of a block, each for itself.

        The steps of all blocks become those of single images (`control="sample"`); `net.stats[block].t_end` says when each image stopped.
        It concerns calls of the network, not `states`, and is no part of what `save_pretrained` writes.

        Args:
            stop: `Confident(0.9)`, when the network's own head is sure; an `Event`; or None, for none.
            block: Which block; the last, unless the stop is an `Event`.

        Example:
            >>> net.eval().with_solver(method="dopri5", steps=None).with_stop(Confident(0.9))(images)
        """
        index = self._index(block)
        if stop is None:
            twin = self.with_solver()
            twin.stop = None
            return twin
        check_stop(self, stop, index)
        solver = next(module.solver for module in self.modules() if isinstance(module, ODEBlock))
        twin = self.with_solver(control=solver.control.replace(per="sample"))
        twin.stop = (index, stop)
        return twin

    def _repr_html_(self) -> str:
        """For notebooks: what the network is made of, part by part."""
        from continua.models.describe import html_description

        return html_description(self)

    def save_pretrained(self, folder: "str | Path", *, push_to_hub: bool = False, repo_id: str | None = None, **how: Any) -> None:
        """Write weights (safetensors) and configuration (JSON), for `from_pretrained`.

        Args:
            folder: Made where there is none.
            push_to_hub: Upload the network to the Hugging Face hub too, as `net.push_to_hub` does.
            repo_id: Its name there; None: that of the folder.
            how: Further arguments of `push_to_hub`.
        """
        from continua.models.pretrained import save_pretrained

        if not push_to_hub and (repo_id is not None or how):
            raise ConfigError(f"save_pretrained: {', '.join(['repo_id'] * (repo_id is not None) + [*how])} belong to push_to_hub=True")
        save_pretrained(self, folder)
        if push_to_hub:
            self.push_to_hub(repo_id or Path(folder).name, **how)

    def push_to_hub(self, repo_id: str, **how: Any) -> str:
        """Upload the network to the Hugging Face hub, with a model card; needs `huggingface_hub`. Returns the commit's address.

        Args:
            repo_id: "user/name".
            how: `private`, `token`, `commit_message`, `branch`, `create_pr`, `model_card_kwargs` and the other arguments of
                `continua.compat.huggingface.push_to_hub`.

        Example:
            net.push_to_hub("ann/digits", private=True, model_card_kwargs={"license": "apache-2.0"})
        """
        from continua.models.hub import push_to_hub

        return push_to_hub(self, repo_id, **how)

    @classmethod
    def from_pretrained(cls, folder: "str | Path", **options: Any) -> "Network":
        """The network saved in a folder, or as "user/name" on the Hugging Face hub: `continua.from_pretrained`."""
        from continua.models.pretrained import from_pretrained

        return from_pretrained(folder, **options)

    def _walk(
        self, images: Tensor, blocks: int, t1: EndTimes | None, input_scale: "float | Tensor | None", states: list[Tensor] | None = None
    ) -> Tensor:
        """The output of the first `blocks` blocks (of the stem for 0); `states` collects those of all."""
        end = self._end_times(t1)
        if torch.compiler.is_compiling():
            return self._walked(images, blocks, end, input_scale, states)
        with self._large_enough(images):
            return self._walked(images, blocks, end, input_scale, states)

    def _walked(
        self, images: Tensor, blocks: int, end: EndTimes, input_scale: "float | Tensor | None", states: list[Tensor] | None
    ) -> Tensor:
        h = self.stem(self._fitting(images))
        for index in range(blocks):
            h = self._enter(h, index, input_scale)
            block = self.blocks[index]
            if self.stop is not None and self.stop[0] == index:
                h = block(h, end.get(index), bound_event(self, self.stop[1]))
            else:
                h = block(h, end[index]) if index in end else block(h)
            if states is not None:
                states.append(h)
        return h

    @contextmanager
    def _large_enough(self, images: Tensor) -> Iterator[None]:
        """PyTorch's words for a map that has shrunk below a kernel, as an error that says how large images must be."""
        try:
            yield
        except RuntimeError as error:
            if not any(words in str(error) for words in TOO_SMALL):
                raise
            height, width = images.shape[-2:]
            raise ConfigError(
                f"images of {height}×{width} are too small for {self.title}: a map inside it is smaller than the kernel that reads it; "
                "resize them, or build it with padding where it has that option (stem_padding=1)"
            ) from None

    def _fitting(self, images: Tensor) -> Tensor:
        """The images, if they have the axes and channels the stem reads."""
        channels = self.in_channels
        if not isinstance(images, Tensor):
            raise ConfigError(f"{self.title} reads a tensor of images; got {type(images).__name__}. torch.as_tensor makes one of an array")
        if images.ndim != 4 or channels not in (None, images.shape[1]):
            raise ConfigError(
                f"{self.title} reads images (batch, {channels or 'channels'}, height, width); got "
                f"{tuple(images.shape)}. For another number of channels build it with in_channels=..."
            )
        if not images.is_floating_point():
            raise ConfigError(
                f"images are {images.dtype}, and a network reads floats: images.float() / 255, or a Loader with an Augmentation"
            )
        if not images.shape[0] and any(isinstance(block, ODEBlock) for block in self.blocks):
            raise ConfigError(f"{self.title} reads at least one image; got a batch of none, {tuple(images.shape)}")
        own = next((value.dtype for value in self.parameters() if value.is_floating_point()), images.dtype)
        if images.dtype != own and torch.float64 in (images.dtype, own):
            raise ConfigError(f"images are {images.dtype} and the network is {own}: images.to({own}), or net.to({images.dtype})")
        return images

    def _enter(self, h: Tensor, index: int, input_scale: "float | Tensor | None") -> Tensor:
        """The input of a block: after its transition, scaled if asked."""
        if index:
            h = self.transitions[index - 1](h)
        if input_scale is None:
            return h
        return h * broadcast_time(torch.as_tensor(input_scale, dtype=h.dtype, device=h.device), h)

    def _end_times(self, t1: EndTimes | None) -> "dict[int, float | Tensor]":
        end = {self._index(index): value for index, value in (t1 or {}).items()}
        for index in end:
            if not isinstance(self.blocks[index], ODEBlock):
                raise ConfigError(f"t1 names block {index}, which has no time: {type(self.blocks[index]).__name__}")
        return end

    def block_indices(self, indices: "int | Sequence[int] | None") -> list[int]:
        """Blocks by index, as timm reads them: a number is the last so many, in order of the walk."""
        count = len(self.blocks)
        if indices is None:
            return list(range(count))
        if isinstance(indices, int):
            if not 0 < indices <= count:
                raise ConfigError(f"indices={indices}: the last so many blocks; {self.title} has {count}")
            return list(range(count - indices, count))
        return sorted({self._index(index) for index in indices})

    def _index(self, block: int) -> int:
        if not -len(self.blocks) <= block < len(self.blocks):
            raise ConfigError(f"there is no block {block}; the network has blocks 0 … {len(self.blocks) - 1}")
        return block % len(self.blocks)


def label_filters(net: nn.Module) -> None:
    """Warnings call a filter by its place in the network."""
    for name, module in net.named_modules():
        if isinstance(module, Filter):
            module.label = name.removesuffix(".inner").removesuffix(".filter")
