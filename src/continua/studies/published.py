"""What differs between a study's trainings and the paper's, computed by comparing two recipes: the run's own and the published one.

The recipes that come with Continua are nearly the papers'. `PUBLISHED` holds what the papers, or their authors' scripts, did otherwise, so
that a study at the scale `paper` says what it reduces too. `UNSAID` names fields that a paper is silent about, and where ours come from.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from continua.errors import DataError
from continua.models import options_in_common
from continua.runs import LATER_OPTIONS, Recipe, load_recipe, merged, plain_recipe, resolve
from continua.studies.study import Study

_ADJOINT: Mapping[str, Any] = dict(model_options=dict(solver=dict(gradient="adjoint")))
_BEST: Mapping[str, Any] = dict(selection="paper")  # the authors' scripts keep the weights that do best on the test images
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "dcn": {**_ADJOINT, **_BEST},
    "small_data": {**_ADJOINT, **_BEST},
    "reconstruction": dict(epochs=100, schedule=dict(milestones=[40, 70]), drop_last=True),  # A.4: "the same as the classification"
    "features": {**_ADJOINT, **_BEST, "holdout": None},
    "anodev2_alexnet": dict(optimiser=dict(clip_norm=0.0)),
    "anodev2_resnet": dict(optimiser=dict(clip_norm=0.0)),
    "rknet_cifar": _BEST,
    "rknet_imagenet": _BEST,
}
UNSAID: Mapping[str, Mapping[str, str]] = {
    "anodev2_alexnet": {"optimiser.weight_decay": "the authors' earlier code", "optimiser.momentum": "the authors' earlier code"},
    "anodev2_resnet": {"optimiser.weight_decay": "the authors' earlier code", "optimiser.momentum": "the authors' earlier code"},
    "rknet_cifar": {
        "model_options.dropout": "CliqueNet's and the author's later code",
        "model_options.norm_momentum": "the author's later code",
    },
    "rknet_imagenet": {"model_options.norm_momentum": "the author's later code"},
}
# Images per class for which the DCN paper gives no length of training: those of the recipe are ours, so they are held against nothing.
OUR_LENGTHS: Mapping[str, Sequence[int]] = {"small_data": (4, 8, 16, 32, 64, 128)}
OF_LENGTH = ("epochs", "schedule.milestones")
# What a solver is where a recipe does not say; a test holds it to SolverConfig.
SOLVER: Mapping[str, Any] = dict(method="dopri5", rtol=1e-3, atol=1e-3, steps=None, gradient="checkpoint")
# What a field is called in a sentence; the others by their own names.
WORDS = {
    "per_class": "training images per class",
    "model_options.channels": "widths",
    "model_options.width": "width",
    "model_options.growth": "growth rate",
    "model_options.norm_groups": "groups of a norm",
    "model_options.solver.method": "solver",
    "model_options.solver.steps": "fixed steps",
    "model_options.solver.rtol": "relative tolerance",
    "model_options.solver.atol": "absolute tolerance",
    "model_options.solver.gradient": "gradient",
    "model_options.norm_momentum": "momentum of the norms' statistics",
    "model_options.dropout": "dropout",
    "batch_size": "batches of",
    "optimiser.lr": "learning rate",
    "optimiser.clip_norm": "gradient clipped at",
    "optimiser.weight_decay": "weight decay",
    "optimiser.momentum": "momentum",
    "optimiser.evolution_lr_factor": "learning rate of τ, v, ρ times",
    "optimiser.evolution_weight_decay": "weight decay of τ, v, ρ",
    "model_options.last_activation": "rates that end with an activation:",
    "model_options.evolution_options.start": "spread of τ, v, ρ at the start",
    "schedule.kind": "schedule",
    "schedule.milestones": "drops of the rate at epochs",
    "holdout": "share held out",
    "drop_last": "incomplete last batch dropped",
    "selection": "weights",
}
VALUES: Mapping[str, Mapping[Any, str]] = {
    "per_class": {None: "all"},
    "holdout": {None: "none"},
    "selection": {
        "last": "from the last epoch",
        "paper": "from the epoch best on test images",
        "holdout": "from the epoch best on the hold-out",
    },
    "model_options.solver.steps": {None: "adaptive ones"},
    "optimiser.clip_norm": {0.0: "nothing"},
}
# Of no weight for a result, or of another field's making.
IGNORED = ("seed", "evaluation_batch_size", "test_every", "encoder", "model", "precision", "channels_last")
IGNORED_GROUPS = ("failure.", "length_by_per_class", "augmentation.pca_")


@dataclass(frozen=True)
class Trained:
    """A run to be compared: its row's label and its resolved recipe."""

    label: str
    recipe: Recipe


def flat(recipe: Recipe) -> dict[str, Any]:
    """Every field by its dotted name, options of the model and of its solver included, the solver's defaults filled in."""
    plain = plain_recipe(recipe)
    options = plain.get("model_options") or {}
    if "solver" in options:
        options["solver"] = {**SOLVER, **(options["solver"] or {})}
        if options["solver"]["steps"]:
            options["solver"] |= dict(rtol=None, atol=None)  # mean nothing where steps are fixed
    if "block_solvers" in options:
        options["block_solvers"] = {str(block): own for block, own in enumerate(options["block_solvers"] or (), 1)}
    return dict(_leaves(plain))


def _of(values: Mapping[str, Any], name: str) -> Any:
    """A field's value; where there is none, that of all blocks, or what a network was before there was such an option."""
    return values.get(name, values.get(_of_all_blocks(name), LATER_OPTIONS.get(name.removeprefix("model_options."))))


def _of_all_blocks(name: str) -> str:
    """The field that holds for a block which has none of its own: model_options.solver.steps for model_options.block_solvers.1.steps."""
    start, found, own = name.partition("block_solvers.")
    return f"{start}solver.{own.partition('.')[2]}" if found else name


def words_of(name: str) -> str:
    """What a field is called in a sentence."""
    shared = _of_all_blocks(name)
    block = name.partition("block_solvers.")[2].partition(".")[0]
    said = WORDS.get(shared, shared.rpartition(".")[2] if block else name.removeprefix("model_options."))
    return f"in block {block} {said}" if block else said


def _leaves(data: Mapping[str, Any], prefix: str = "") -> "list[tuple[str, Any]]":
    pairs: list[tuple[str, Any]] = []
    for key, value in data.items():
        pairs += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return pairs


def published_recipes(study: Study) -> dict[str, Recipe]:
    """The paper's recipe of every row, by its label. A row whose data set is not here has none: its network cannot be built."""
    recipes: dict[str, Recipe] = {}
    for row in study.rows("paper") if "paper" in study.settings else ():
        changes = merged(PUBLISHED.get(row.recipe, {}), row.change)
        model = changes.get("model")
        if model and "model_options" in changes:
            changes["model_options"] = options_in_common(model, changes["model_options"])
        try:
            recipe = load_recipe(row.recipe, {**changes, **(dict(encoder=".") if row.encoder else {})})
            recipes[row.label] = recipe if row.encoder else resolve(recipe)
        except DataError:
            continue  # `reduced` says which
    return recipes


def differences(trained: Sequence[Trained], published: Mapping[str, Recipe], ours_alone: Collection[str] = ()) -> list[str]:
    """Every field in which a run's recipe differs from the published one of the same row, as sentences; which rows, where not all.

    `ours_alone` are the labels of rows for which the paper gives no length of training.
    """
    known = [run for run in trained if run.label in published]
    groups: dict[tuple[str, str, str], list[Trained]] = defaultdict(list)
    for run in known:
        ours, theirs = flat(run.recipe), flat(published[run.label])
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            if name in IGNORED or name.startswith(IGNORED_GROUPS) or (name in OF_LENGTH and run.label in ours_alone):
                continue
            mine, other = (_of(values, name) for values in (ours, theirs))
            if mine == other or (name.endswith("tol") and mine is None):
                continue
            if name.startswith("schedule.") and name != "schedule.kind" and ours["schedule.kind"] != theirs["schedule.kind"]:
                continue  # another schedule has other numbers
            groups[name, _value(name, mine), _value(name, other)].append(run)
    sentences = []
    for (name, ours, theirs), runs in groups.items():
        if ours != theirs:
            sentences.append(f"{words_of(name)} {ours} instead of {theirs}{_which(runs, known)}")
    return sentences


def _value(name: str, value: Any) -> str:
    known = VALUES.get(_of_all_blocks(name), {})
    if isinstance(value, Hashable) and value in known:
        return known[value]
    if name.endswith(".steps") and isinstance(value, list | tuple):
        return _lengths(value)
    if isinstance(value, list | tuple):
        return ", ".join(f"{item:,.4g}" if isinstance(item, float) else str(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _lengths(steps: Sequence[float]) -> str:
    """Fixed steps of these relative lengths: (1, 2, 4) are three, each twice as long as the one before."""
    ratios = [second / first for first, second in pairwise(steps)]
    if not ratios or max(ratios) - min(ratios) > 0.05 * max(ratios):
        return f"{len(steps)} (lengths in proportion {' : '.join(f'{length:g}' for length in steps)})"
    ratio = (steps[-1] / steps[0]) ** (1 / len(ratios))
    about = "" if max(ratios) - min(ratios) < 1e-6 else "about "
    return f"{len(steps)}, each {about}{ratio:.2g} times as long as the one before," if ratio != 1 else str(len(steps))


def _which(runs: Sequence[Trained], known: Sequence[Trained]) -> str:
    """Nothing where it is all of them; else by the model, by the number of images, or by the rows' names."""
    if len(runs) == len(known):
        return ""
    models, sizes = {run.recipe.model for run in runs}, {run.recipe.per_class for run in runs}
    if all((run.recipe.model in models) == (run in runs) for run in known):
        return f" ({', '.join(sorted(models))})"
    if all((run.recipe.per_class in sizes) == (run in runs) for run in known):
        return f" (with {', '.join(map(str, sorted(size or 0 for size in sizes)))} per class)"
    if all((run.recipe.model in models and run.recipe.per_class in sizes) == (run in runs) for run in known):
        return f" ({', '.join(sorted(models))} with {', '.join(map(str, sorted(size or 0 for size in sizes)))} per class)"
    return f" ({'; '.join(dict.fromkeys(run.label for run in runs))})"


def reduced(study: Study, scale: str, seeds: int, trained: Sequence[Trained]) -> list[str]:
    """All that differs from the paper: what the setting says, rows left out, recipes, seeds, what the analyses looked at.

    What the setting says by hand is all there is at `smoke`, and of a study without trainings: there are no recipes to compare.
    """
    setting = study.setting(scale)
    said = list(setting.reduced)
    if scale == "smoke" or "paper" not in study.settings or not study.rows("paper"):
        return said
    paper, rows = study.setting("paper"), {run.label for run in trained}
    missing = [row.label for row in study.rows("paper") if row.label not in rows]
    if missing and rows:
        said.append(f"{len(missing)} of {len(study.rows('paper'))} rows left out")
    published, own = published_recipes(study), _own_lengths(study)
    said += differences(trained, published, own)
    unknown = sorted(rows - published.keys())
    if unknown:
        said.append(f"not compared with the paper's recipe, as there is none to compare with here: {'; '.join(unknown)}")
    if seeds != paper.seeds and rows:
        said.append(f"{seeds} seed{'s' * (seeds != 1)} instead of {paper.seeds}")
    look = {name: value for name, value in setting.look.items() if name in LOOKED and value is not None}
    return said + [LOOKED[name].format(value) for name, value in look.items()] + (_unsaid(study, trained, own) if rows else [])


LOOKED = {
    "limit": "analyses look at {:,} test images instead of all",
    "per_class": "analyses look at {:,} images per class instead of all",
    "contrasts": "{} values of contrast instead of 30",
}


def _own_lengths(study: Study) -> set[str]:
    """The labels of rows for which the paper gives no length of training."""
    return {row.label for row in study.rows("paper") if row.change.get("per_class") in OUR_LENGTHS.get(row.recipe, ())}


def _unsaid(study: Study, trained: Sequence[Trained], own_lengths: Collection[str]) -> list[str]:
    """Fields that the paper does not give, with ours and where it comes from."""
    said: dict[str, None] = {}
    for recipe in dict.fromkeys(row.recipe for row in study.rows("paper") if row.recipe in UNSAID):
        values = flat(load_recipe(recipe))
        for name, source in UNSAID[recipe].items():
            said[f"{words_of(name)} {_value(name, values.get(name))}, about which the paper says nothing (as in {source})"] = None
    lengths = {run.recipe.per_class or 0: run.recipe.epochs for run in trained if run.label in own_lengths}
    if lengths:
        each = ", ".join(f"{epochs:,} with {size}" for size, epochs in sorted(lengths.items()))
        said[f"epochs {each} images per class, about which the paper says nothing (lengths of our own)"] = None
    return list(said)
