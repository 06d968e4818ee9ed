"""`ContinuaClassifier`: any classifier of the zoo behind scikit-learn's fit, predict, predict_proba and score."""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from continua.errors import ConfigError
from continua.models import create_model, options_in_common
from continua.runs import load_recipe, merged
from continua.train import fit_tensors

SOLVER: Mapping[str, Any] = dict(method="midpoint", steps=1, gradient="direct")
SMALL: Mapping[str, Any] = dict(channels=[8, 24], stem_padding=1, norm_groups=4, solver=SOLVER)
SMALLEST = 8  # pixels of a side: what networks that halve a map twice can read
AT_ONCE = 256  # images of a prediction


class ContinuaClassifier(ClassifierMixin, BaseEstimator):
    """A network as a scikit-learn classifier of images.

    `X` holds images, (n, height, width) or (n, channels, height, width); or rows of numbers, (n, features), which are read as square grey
    images, filled up with zeros to the next square of at least 8 × 8. For rows that are images of another shape give `image_shape`.
    Numbers are standardised by the mean and the standard deviation of the training images, channel by channel.

    Args:
        model: A name that `continua.list_models()` shows.
        model_options: Its options; None: a small network, channels 8 and 24, one midpoint step. `num_classes` and `in_channels`
            follow the data.
        recipe: Name or YAML file of the recipe whose optimiser and schedule are used; its images, model and augmentation are not.
        recipe_options: Changes to it, as `continua train` takes them: `{"optimiser.lr": 0.01}`.
        epochs: How often every image is seen.
        batch_size: Images of one step.
        image_shape: Of a row of `X`: (height, width) or (channels, height, width); None: as above.
        device: "cpu", "cuda", "mps", ...
        random_state: First weights and order of images: a number, a generator, or None for another one each time.

    Attributes:
        network_: The trained network.
        classes_: The labels, sorted; columns of `predict_proba`.
        losses_: Mean loss of each epoch.
        n_features_in_: Numbers of a row, or channels of images: the second axis of `X`.

    Example:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import cross_val_score

        cross_val_score(ContinuaClassifier(epochs=10, random_state=0), *load_digits(return_X_y=True), cv=3)
    """

    def __init__(
        self,
        model: str = "odenet",
        model_options: Mapping[str, Any] | None = None,
        recipe: str = "demo",
        recipe_options: Mapping[str, Any] | None = None,
        epochs: int = 20,
        batch_size: int = 32,
        image_shape: tuple[int, ...] | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.model_options = model_options
        self.recipe = recipe
        self.recipe_options = recipe_options
        self.epochs = epochs
        self.batch_size = batch_size
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new network.

        Args:
            X: Images, or rows of numbers.
            y: Their labels: numbers or strings.
            sample_weight: How much each counts; None: all the same.

        Returns:
            The estimator.
        """
        X, y = validate_data(self, X, y, dtype="numeric", allow_nd=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}: a classifier can't train when only one class is present")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        images = self._images(X)
        self.mean_ = images.mean((0, 2, 3), keepdim=True)
        self.std_ = images.std((0, 2, 3), keepdim=True, correction=0).clamp_min(1e-6)
        changes: dict[str, Any] = dict(epochs=self.epochs, batch_size=min(self.batch_size, len(images)), seed=seed, model_options={})
        recipe = load_recipe(self.recipe, merged(changes | {"augmentation": {}}, self.recipe_options or {}))
        given = options_in_common(self.model, SMALL) if self.model_options is None else dict(self.model_options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            follows = options_in_common(self.model, dict(num_classes=len(self.classes_), in_channels=images.shape[1]))
            net = create_model(self.model, **{**given, **follows}).to(self.device)
            self.losses_ = fit_tensors(net, self._scaled(images), torch.from_numpy(labels), recipe, weights=_weights(sample_weight, X))
        self.network_ = net.eval()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The share that the network gives to each class, (n, classes); each row sums to 1."""
        check_is_fitted(self)
        checked: Any = validate_data(self, X, dtype="numeric", allow_nd=True, reset=False)
        images = self._images(checked)
        with torch.no_grad():
            logits = [self.network_(part.to(self.device)).double().cpu() for part in self._scaled(images).split(AT_ONCE)]
        return torch.cat(logits).softmax(1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each image."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(1)]

    def _images(self, X: np.ndarray) -> torch.Tensor:
        """Images (n, channels, height, width) from what `X` may be."""
        numbers = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
        if numbers.ndim == 2:
            numbers = _unrolled(numbers, self.image_shape)
        elif self.image_shape is not None:
            raise ConfigError(f"image_shape={self.image_shape} is for rows of numbers, and X has shape {tuple(X.shape)}; leave it out")
        if numbers.ndim == 3:
            numbers = numbers[:, None]
        if numbers.ndim != 4:
            raise ConfigError(f"X has shape {X.shape}; expected (n, features), (n, height, width) or (n, channels, height, width)")
        if numbers.shape[-1] in (1, 3, 4) and min(numbers.shape[1:3]) >= SMALLEST:
            raise ConfigError(
                f"X has shape {X.shape}, which looks like channels last; expected (n, channels, height, width): X.transpose(0, 3, 1, 2)"
            )
        return numbers

    def _scaled(self, images: torch.Tensor) -> torch.Tensor:
        return (images - self.mean_) / self.std_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _unrolled(rows: torch.Tensor, shape: tuple[int, ...] | None) -> torch.Tensor:
    """Rows of numbers as images: of `shape`, else squares filled up with zeros."""
    count, features = rows.shape
    if shape is not None:
        if math.prod(shape) != features:
            raise ConfigError(f"image_shape={tuple(shape)} holds {math.prod(shape)} numbers, and a row of X {features}")
        return rows.reshape(count, *shape)
    side = max(SMALLEST, math.ceil(math.sqrt(features)))
    return torch.nn.functional.pad(rows, (0, side * side - features)).reshape(count, side, side)


def _weights(sample_weight: Any, X: np.ndarray) -> torch.Tensor | None:
    if sample_weight is None:
        return None
    from sklearn.utils.validation import _check_sample_weight

    return torch.from_numpy(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
