"""The tables of the DCN paper (Tomen, Pintea, van Gemert 2021) and of its slides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from continua.analysis import find_question
from continua.filters import ScheduledNJet
from continua.models import create_model, model_entry
from continua.report import Axis, Cell, Claim, Column, Figure, PlusMinus, Printed, Series, Table
from continua.studies.claims import claim_ahead, claim_behind, claim_that
from continua.studies.compare import comparison, every_seed, mean_series, over_seeds
from continua.studies.runs import Runs
from continua.studies.study import OF_FORMULAS, Finding, Row, Setting, Study, smoke

PAPER = "DCN"
NAMES = {
    "ResNet-blocks": "resnet_blocks",
    "ResNet-SRF-blocks": "resnet_srf_blocks",
    "ResNet-SRF-full": "resnet_srf_full",
    "ODE-Net": "odenet",
    "DCN-ODE": "dcn_ode",
    "DCN-full": "dcn_full",
    "DCN σ_ji": "dcn_sigma_ji",
    "DCN σ(t)": "dcn_sigma_t",
    "DCN σ(t²)": "dcn_sigma_t2",
    "DCN σ(t), α(t)": "dcn_sigma_alpha_t",
}
THREE = ("ResNet-blocks", "ODE-Net", "DCN-ODE")

# --- the scales ---------------------------------------------------------------------------------------------------------

HALF: Mapping[str, Any] = dict(channels=[16, 32, 64], norm_groups=16)  # as many channels in a group as at full width
# Fixed steps that are short where f is steep: in block 1 the norm makes it so while the state is small. How these and others compare with a
# fine solve of kept networks: scripts/step-lengths, results/checks/step-lengths.json.
SOLVER: Mapping[str, Any] = dict(
    solver=dict(method="bosh3", steps=[1, 1.5], gradient="direct"),
    block_solvers=[dict(steps=[1, 1.4, 2, 2.8, 4, 5.6, 8, 11.2]), {}, {}],
)


# The paper's own optimisation (SGD 0.1 with momentum 0.9, batches of 128 without the incomplete one, two drops of the rate at the same
# shares of the length, the last weights). Reduced are the length, to a quarter of the 4,000 updates that the paper gives to 52 images per
# class, the widths and the solver's freedom. `wide` reduces the solver's freedom alone.
_BY_MODEL: Mapping[str, Mapping[str, Any]] = {
    "odenet": dict(channels_last=True),  # a quarter quicker so; the others are not
    "dcn_full": dict(model_options=dict(norm_groups="channels")),  # the authors' own, which the shared setting must not override
}
_LENGTH: Mapping[str, Any] = dict(per_class=52, epochs=250)  # moves the two drops from 40 and 70 to 100 and 175
_LENGTHS: Mapping[int, float] = {8: 7.5, 16: 5.0, 32: 3.75, 52: 2.5}  # by images per class, times the recipe's 100 epochs
DCN_CPU = Setting(
    seeds=8,
    threads=1,
    change=dict(model_options=dict(**HALF, **SOLVER), **_LENGTH),
    by_model=_BY_MODEL,
)
# Little data: the recipe itself says how long to train on how many images.
LOOK: Mapping[str, Any] = dict(limit=1000, batch_size=250)
SMALL_CPU = replace(DCN_CPU, change=dict(model_options=DCN_CPU.change["model_options"], length_by_per_class=_LENGTHS), look=LOOK)
SMALL_WIDE = replace(SMALL_CPU, seeds=3, change=dict(model_options=SOLVER))
SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(model_options=dict(channels=[4, 4, 8], stem_padding=1, solver=dict(method="rk4", steps=1, gradient="direct"))),
    "cpu": replace(DCN_CPU, seeds=5),
    "paper": Setting(seeds=3),
}
ASKED: Mapping[str, Setting] = {**SETTINGS, "cpu": replace(DCN_CPU, seeds=4)}  # questions to the first networks of Table 2a

# --- rows ---------------------------------------------------------------------------------------------------------------


def rows_of(*labels: str, recipe: str = "dcn") -> list[Row]:
    """Models of the zoo by the names the paper gives them."""
    return [Row(label, recipe, dict(model=NAMES[label])) for label in labels]


def parameters(label: str) -> int:
    """Of the model at the paper's widths."""
    return model_entry(NAMES[label]).parameters


# --- Table 1 ----------------------------------------------------------------------------------------------------------

TABLE1: Mapping[str, PlusMinus] = {
    "ResNet-blocks": PlusMinus(89.01, 0.17),
    "ResNet-SRF-blocks": PlusMinus(88.26, 0.03),
    "ResNet-SRF-full": PlusMinus(89.32, 0.39),
    "ODE-Net": PlusMinus(89.60, 0.28),
    "DCN-ODE": PlusMinus(89.46, 0.16),
    "DCN-full": PlusMinus(89.18, 0.32),
    "DCN σ_ji": PlusMinus(89.74, 0.30),
}


def accuracies(runs: Runs, printed: Mapping[str, PlusMinus], name: str, title: str) -> Table:
    """Test accuracy of every row beside the printed one, with parameters."""
    counted: dict[str, Cell] = {label: int(row[0].outcome["parameters"]) for label, row in runs.by_label.items()}
    extra = {"parameters": counted}
    return comparison(name, title, runs.values("test_accuracy", 100), printed, label="accuracy", unit="%", digits=2, extra=extra)


def of_each_seed(accuracy: Mapping[str, Mapping[int, float]], rows: Iterable[str]) -> list[Figure]:
    """The accuracies of a table as a figure."""
    chosen = {label: accuracy.get(label, {}) for label in rows}
    return every_seed("seeds", "Test accuracy of each network", chosen, Axis("test accuracy", "%"))


ON_PAR = -1.0  # points of accuracy: behind by less is taken as on par


def _table1(runs: Runs) -> Finding:
    accuracy = runs.by_seed("test_accuracy", 100)
    rows = [[label, parameters(label), model_entry(NAMES[label]).printed] for label in TABLE1]
    counts = Table("counts", "Parameters at the paper's widths", ["model", "ours", "printed"], rows)
    on_par = [
        claim_ahead(f"{label} is on par with ODE-Net (at most a point behind)", accuracy.get(label, {}), _of(accuracy), margin=ON_PAR)
        for label in ("DCN-ODE", "DCN-full", "DCN σ_ji")
    ]
    fewer = claim_that("DCN-ODE has fewer parameters than ODE-Net", parameters("DCN-ODE") < parameters("ODE-Net"))
    table = accuracies(runs, TABLE1, "accuracy", "CIFAR-10 accuracy")
    return Finding([table, *of_each_seed(accuracy, TABLE1), counts, *resolution(runs, list(TABLE1))], [*on_par, fewer])


def _of(accuracy: Mapping[str, Mapping[int, float]], label: str = "ODE-Net") -> Mapping[int, float]:
    return accuracy.get(label, {})


# --- Table 2a ---------------------------------------------------------------------------------------------------------

SIZES: Mapping[str, Sequence[int]] = {
    "smoke": (2, 4),
    "cpu": (8, 16, 32, 52),
    "wide": (52,),
    "paper": (2, 4, 8, 16, 32, 52, 64, 103, 128, 512, 1024),
}
_ALL = SIZES["paper"]


def _by_size(sizes: Sequence[int], values: Sequence[float], errors: Sequence[float]) -> dict[int, PlusMinus]:
    return {size: PlusMinus(value, error) for size, value, error in zip(sizes, values, errors, strict=True)}


_ARORA = (2, 4, 8, 16, 32, 64, 128)
TABLE2A: Mapping[str, Mapping[int, PlusMinus]] = {
    "ResNet34 (Arora et al.)": _by_size(_ARORA, (17.5, 19.5, 23.3, 28.3, 33.2, 41.7, 49.1), (2.5, 1.4, 1.6, 1.4, 1.2, 1.1, 1.3)),
    "CNTK (Arora et al.)": _by_size(_ARORA, (18.8, 21.3, 25.5, 30.5, 36.6, 42.6, 48.9), (2.1, 1.9, 1.9, 1.2, 0.9, 0.7, 0.7)),
    "ResNet-blocks": _by_size(
        _ALL,
        (16.7, 19.6, 22.0, 28.1, 35.4, 39.8, 41.6, 49.0, 50.9, 70.4, 76.8),
        (0.8, 1.0, 1.3, 1.7, 0.9, 0.6, 1.5, 0.2, 0.6, 1.2, 0.7),
    ),
    "ODE-Net": _by_size(
        _ALL,
        (16.8, 20.5, 23.1, 29.8, 36.4, 41.7, 42.3, 48.6, 50.7, 71.7, 77.4),
        (2.8, 0.8, 2.5, 0.8, 1.0, 1.2, 0.2, 0.5, 0.7, 1.5, 0.5),
    ),
    "DCN-ODE": _by_size(
        _ALL,
        (16.4, 19.8, 26.5, 31.2, 37.7, 44.5, 48.0, 54.2, 58.2, 75.5, 79.7),
        (1.6, 0.7, 0.9, 0.6, 0.6, 0.8, 1.3, 0.8, 0.7, 0.8, 0.3),
    ),
}


def _label(model: str, size: int) -> str:
    return f"{model}, {size} per class"


def _rows2a(scale: str) -> list[Row]:
    return [Row(_label(label, size), "small_data", dict(model=NAMES[label], per_class=size)) for size in SIZES[scale] for label in THREE]


def _table2a(runs: Runs) -> Finding:
    accuracy, sizes = runs.values("test_accuracy", 100), SIZES[runs.scale]
    printed = {_label(model, size): values.get(size) for size in sizes for model, values in TABLE2A.items() if size in values}
    table = comparison("accuracy", "Accuracy by images per class", accuracy, printed, label="accuracy", unit="%", digits=1)
    series = []
    for place, model in enumerate(THREE):
        ours = [over_seeds(accuracy.get(_label(model, size), [])) for size in sizes]
        series.append(mean_series(model, sizes, ours, style="both", colour=place))
        series.append(mean_series(f"{model}, printed", sizes, [TABLE2A[model][size] for size in sizes], dashed=True, colour=place))
    x, y = Axis("training images per class", log=True, whole=True), Axis("test accuracy", "%")
    caption = "Solid: ours, ± standard deviation over seeds. Dashed: as printed."
    figure = Figure("by_size", "Accuracy on little data", x, y, series, caption)
    largest = [_label(model, max(sizes)) for model in THREE]
    return Finding(
        [table, figure, *training_reached(runs), *resolution(runs, largest)], _claims2a(runs.by_seed("test_accuracy", 100), sizes)
    )


def _claims2a(accuracy: Mapping[str, Mapping[int, float]], sizes: Sequence[int]) -> list[Claim]:
    """With 2 and 4 images the paper itself has no clear order."""
    return [
        claim_ahead(
            f"with {size} images per class DCN-ODE is ahead of {other}",
            _of(accuracy, _label("DCN-ODE", size)),
            _of(accuracy, _label(other, size)),
        )
        for size in sizes
        if size >= 8
        for other in ("ODE-Net", "ResNet-blocks")
    ]


def training_reached(runs: Runs) -> list[Table]:
    """A network that has not learnt its training images yet is behind for another reason than one that has."""
    learnt = runs.last_epoch("train_accuracy", 100)
    rows = [[label, over_seeds(values), len(values)] for label, values in learnt.items() if values]
    if not rows:
        return []
    caption = (
        "Accuracy on the augmented training images in the last epoch. Where it is far from 100 %, training has not come to its end: part "
        "of what separates such a network from the others is how fast it learns."
    )
    return [Table("learnt", "How far did training come?", ["model", Column("training accuracy", "%", 1), "seeds"], rows, caption)]


TOLERANCE = find_question("tolerance")
FINE = 1e-5  # of dopri5
RESOLVED = 0.5  # points of accuracy that finer steps may change
LOOKED_AT = 10_000  # test images, all of them: of 1,000, half a point would be five images


def resolution(runs: Runs, labels: Sequence[str]) -> list[Table]:
    """Whether networks trained with fixed steps are the flows they stand for: the same weights under a fine adaptive solve."""
    asked = [label for label in labels if label in runs.by_label and _in_time(runs.by_label[label][0].recipe.model)]
    if runs.scale not in ("cpu", "wide") or not asked:
        return []
    rows = []
    for label in asked:
        answers = runs.ask_each(TOLERANCE, label, tolerances=(FINE,), fixed=("own",), limit=LOOKED_AT, batch_size=LOOK["batch_size"])
        pairs = [answer.result.settings for answer in answers.values()]
        shift = [100 * (fine.accuracy - trained.accuracy) for fine, trained in pairs]
        rows.append([label, over_seeds(shift), len(shift), "yes" if max(map(abs, shift)) <= RESOLVED else "no"])
    columns = ["model", Column("dopri5 at 1e-5 minus as trained", "points", 2), "seeds", f"within {RESOLVED} points"]
    return [Table("resolved", "Are the fields resolved?", columns, rows, f"On {LOOKED_AT:,} test images.")]


def _in_time(model: str) -> bool:
    """Whether a model has a solver whose steps could be finer."""
    return "solver" in model_entry(model).options


# --- Tables 2b, 3, 4, 5 -------------------------------------------------------------------------------------------------

TABLE2B = {"ResNet-blocks": PlusMinus(0.0210, 0.0004), "ODE-Net": PlusMinus(0.0202, 0.0013), "DCN-ODE": PlusMinus(0.0171, 0.0003)}


def decoder_label(label: str) -> str:
    return f"{label} decoder"


def rows2b(scale: str) -> list[Row]:
    encoders = rows_of(*THREE)
    # At cpu half as long as the encoders: the text says "the same" (A.4), the authors' code 50 epochs beside 100.
    length: dict[str, Any] = {"smoke": dict(epochs=1), "cpu": dict(epochs=125)}.get(scale, {})
    decoders = []
    for row in encoders:
        layout = {} if scale != "cpu" else {"channels_last": _BY_MODEL.get(row.change["model"], {}).get("channels_last", False)}
        decoders.append(Row(decoder_label(row.label), "reconstruction", length | layout, encoder=row.label))
    return encoders + decoders


def _table2b(runs: Runs) -> Finding:
    errors = runs.values("test_loss")
    ours = {label: errors.get(decoder_label(label), []) for label in THREE}
    caption = "The printed percentages are read as hundredths of the mean squared error: 17.1 % as 0.0171."
    title = "Mean squared error per pixel of reconstructed images"
    table = comparison("error", title, ours, TABLE2B, label="error", unit="", digits=4, caption=caption)
    by_seed = runs.by_seed("test_loss")
    decoded = {label: by_seed.get(decoder_label(label), {}) for label in THREE}
    claims = [
        claim_behind(
            f"images decoded from DCN-ODE have a smaller error than those from {other}",
            decoded["DCN-ODE"],
            decoded[other],
            unit="of squared error",
        )
        for other in THREE[:2]
    ]
    return Finding([table, *every_seed("seeds", "Error of each decoder", decoded, Axis("mean squared error per pixel"))], claims)


def _table3(runs: Runs) -> Finding:
    formulas = {
        "DCN σ(t)": "σ = 2^(a t + b)",
        "DCN σ(t²)": "σ = 2^(a t² + b t + c)",
        "DCN σ(t), α(t)": "σ = 2^(a_s t + b_s), α = a_α t + b_α",
    }
    rows = [[label, formula, NAMES[label], parameters(label)] for label, formula in formulas.items()]
    table = Table("variants", "Filters that depend on depth", ["variant", "parametrisation", "model", "parameters"], rows)
    return Finding([table, _scales_over_time()])


def _scales_over_time() -> Figure:
    """σ(t) in new networks: what the parametrisations can do before anything is learnt."""
    import torch

    times, series = torch.linspace(0, 2, 21), []
    for place, label in enumerate(("DCN σ(t)", "DCN σ(t²)")):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            filters = [part for part in create_model(NAMES[label]).modules() if isinstance(part, ScheduledNJet)]
            for block, scheduled in enumerate(filters[::2]):  # two convolutions in a block: the first of each
                curve = scheduled.sigma_at(times)
                series.append(Series(f"{label}, block {block + 1}", times.numpy(), curve.numpy(), colour=place, dash=block))
    caption = "New networks, seed 0, the first convolution of each block. DCN σ(t), α(t) has the scales of DCN σ(t)."
    return Figure("scales", "Scales along depth, before training", Axis("t"), Axis("σ", "pixels"), series, caption)


TABLE4 = {"DCN σ(t)": PlusMinus(89.97, 0.30), "DCN σ(t²)": PlusMinus(89.93, 0.28), "DCN σ(t), α(t)": PlusMinus(89.88, 0.25)}


def _table4(runs: Runs) -> Finding:
    printed = {"DCN-ODE": TABLE1["DCN-ODE"], **TABLE4}
    accuracy = runs.by_seed("test_accuracy", 100)
    static = _of(accuracy, "DCN-ODE")
    claims = [claim_ahead(f"{label} is ahead of DCN-ODE with static filters", _of(accuracy, label), static) for label in TABLE4]
    table = accuracies(runs, printed, "accuracy", "Filters that depend on depth")
    return Finding([table, *of_each_seed(accuracy, printed), *resolution(runs, list(printed))], claims)


TABLE5 = {
    "DCN-ODE": PlusMinus(89.46, 0.16),
    "ODE-Net": PlusMinus(89.60, 0.28),
    "ODE-Net, T = 2": PlusMinus(89.50, 0.07),
    "ODE-Net, CELU": PlusMinus(89.33, 0.16),
    "ODE-Net, CELU, T = 2": PlusMinus(89.25, 0.30),
}
CONTROLS: Mapping[str, Mapping[str, Any]] = {
    "ODE-Net, T = 2": dict(t1=2.0),
    "ODE-Net, CELU": dict(activation="celu"),
    "ODE-Net, CELU, T = 2": dict(activation="celu", t1=2.0),
}


def _rows5(scale: str) -> list[Row]:
    controls = [Row(label, "dcn", dict(model="odenet", model_options=options)) for label, options in CONTROLS.items()]
    return rows_of("DCN-ODE", "ODE-Net") + controls


def _table5(runs: Runs) -> Finding:
    accuracy = runs.by_seed("test_accuracy", 100)
    claims = [
        claim_behind(f"{label} is less than a point ahead of ODE-Net", _of(accuracy, label), _of(accuracy), margin=-ON_PAR)
        for label in CONTROLS
    ]
    claims += [claim_ahead(f"DCN-ODE is ahead of {label}", _of(accuracy, "DCN-ODE"), _of(accuracy, label)) for label in CONTROLS]
    table = accuracies(runs, TABLE5, "accuracy", "Controls of ODE-Net's design")
    return Finding([table, *of_each_seed(accuracy, TABLE5), *resolution(runs, list(TABLE5))], claims)


def _printed(of: str, value: PlusMinus, digits: int = 2) -> Printed:
    """An accuracy of a table, beside ours in the row of the same name."""
    return Printed(value.value, of, "ours, accuracy", error=value.error, unit="%", digits=digits)


STUDIES = [
    Study("dcn/table1", f"{PAPER}, Table 1", "accuracy and parameters of the seven models", "Are DCNs as accurate with fewer parameters?",
          SETTINGS, _table1, lambda scale: rows_of(*TABLE1), claims=4, printed=_printed("DCN-ODE", TABLE1["DCN-ODE"])),
    Study("dcn/table2a", f"{PAPER}, Table 2a and slides", "small data", "Is DCN-ODE ahead of its baselines on little data?",
          {**SETTINGS, "cpu": SMALL_CPU, "wide": SMALL_WIDE}, _table2a, _rows2a, claims=8,
          printed=_printed(_label("DCN-ODE", 52), TABLE2A["DCN-ODE"][52], digits=1)),
    Study("dcn/table2b", f"{PAPER}, Table 2b", "reconstruction", "How well can images be reconstructed from the features of block 3?",
          SETTINGS, _table2b, rows2b, claims=2,
          printed=Printed(0.0171, "DCN-ODE", "ours, error", digits=4)),
    Study("dcn/table3", f"{PAPER}, Table 3", "meta-parametrised variants", "How do filters depend on depth?",
          OF_FORMULAS, _table3),
    Study("dcn/table4", f"{PAPER}, Table 4", "accuracy of meta-parametrised variants", "Do filters that depend on depth do better?",
          SETTINGS, _table4, lambda scale: rows_of("DCN-ODE", *TABLE4), claims=3, printed=_printed("DCN σ(t)", TABLE4["DCN σ(t)"])),
    Study("dcn/table5", f"{PAPER}, Table 5", "ODE-Net with T = 2, CELU, both", "Do DCN's design choices favour it unfairly?",
          SETTINGS, _table5, _rows5, claims=6, printed=_printed("ODE-Net", TABLE5["ODE-Net"])),
]  # fmt: skip
