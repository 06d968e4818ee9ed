"""The tables and the figure of RKNet (Zhu, Chang, Fu 2019)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import floor

from continua.models import DenseNet, describe_model, model_entry
from continua.report import Axis, Cell, Claim, Column, Figure, Part, Printed, Series, Table
from continua.runs import Recipe, evaluate_run
from continua.studies.claims import claim_ahead, claim_that
from continua.studies.compare import mean_series, over_seeds
from continua.studies.runs import Runs
from continua.studies.study import Finding, Row, Setting, Study, smoke

PAPER = "RKNet"
# model: printed FLOPs (G), parameters (M), error (%) on CIFAR-10 without augmentation
TABLE1 = {
    "erknet_k36_6x1_6x1_6x1": (0.66, 0.74, 7.08),
    "erknet_k36_7x1_6x1_6x1": (0.83, 0.83, 7.02),
    "erknet_k36_7x1_7x1_6x1": (0.87, 0.91, 6.67),
    "erknet_k36_7x1_7x1_7x1": (0.88, 0.99, 6.61),
    "irknet_k36_3x1_3x1_3x1": (0.38, 0.32, 7.18),
    "irknet_k36_4x1_3x1_3x1": (0.62, 0.40, 6.89),
    "irknet_k36_4x1_4x1_3x1": (0.68, 0.49, 6.63),
    "irknet_k36_4x1_4x1_4x1": (0.69, 0.57, 6.50),
}
# model: FLOPs, parameters, error on CIFAR-10 and on CIFAR-100; the competitors as printed
TABLE2 = {"irknet_k150_5x1_5x1_5x1_ab": (7.62, 4.87, 4.60, 21.63), "irknet_k180_5x1_5x1_5x1_ab": (10.98, 6.99, 4.56, 21.09)}
PEERS2 = {
    "DenseNet-BC (depth 250, k = 24)": (10.83, 15.3, 5.19, 19.64),
    "CliqueNet (T = 18, k = 80)": (9.45, 10.14, 5.06, 23.14),
    "CliqueNet-ABC (T = 30, k = 150)": (10.56, 10.48, 5.06, 21.83),
}
BATCH2 = 32  # "All the RKNets are run with batchsize 32"
# single-crop top-1 error on ImageNet of the DenseNets in Figure 4, from their authors' page; the figure itself prints no numbers
DENSENET_ERRORS = {"densenet121": 25.0, "densenet169": 23.6, "densenet201": 22.5, "densenet161": 22.2}
# model: FLOPs, parameters, top-1 and top-5 error on ImageNet
TABLE3 = {
    "erknet_imagenet_3x1_3x1_3x1_1x1_b": (5.20, 6.95, 25.47, 7.81),
    "erknet_imagenet_3x1_3x1_4x1_2x1_b": (6.35, 14.49, 24.12, 7.17),
    "erknet_imagenet_3x1_3x1_6x1_2x1_b": (8.50, 25.51, 23.14, 6.66),
}
# name: the model, and its stages where these are an option. Networks of one kind cost the same: an explicit period has r·s(s + 1)/2
# convolutions of k by k channels, an implicit one r·(s(s + 1)/2 + s(s − 1)). Steps of one stage are Euler's: a residual network (§1).
EQUAL: Mapping[str, tuple[str, str | None]] = {
    "ERKNet-6×1_6×1_6×1": ("erknet_k36_6x1_6x1_6x1", None),  # so named in Table 1, whose runs these are
    "ERKNet-2×7_2×7_2×7": ("erknet", "2x7_2x7_2x7"),
    "ERKNet-1×21_1×21_1×21": ("erknet", "1x21_1x21_1x21"),
    "IRKNet-5×1_5×1_5×1": ("irknet", "5x1_5x1_5x1"),
    "IRKNet-2×7_2×7_2×7": ("irknet", "2x7_2x7_2x7"),
}
SAME_COST = 0.01  # share by which costs that count as equal may differ

# Growth 12 instead of 36 makes a step nine times as cheap.
SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(model_options=dict(growth=4)),
    "cpu": Setting(
        seeds=5,
        threads=1,
        change=dict(model_options=dict(growth=12), per_class=150, epochs=8, batch_size=32, optimiser=dict(lr=0.05)),
    ),
    "paper": Setting(seeds=1),
}
_UNTRAINED = Setting(seeds=0, reduced=["nothing is trained at this scale: sizes are counted, errors are the printed ones"])


@cache
def sizes(name: str) -> tuple[float, float]:
    """GFLOPs of one image and millions of parameters, counted on the network at its published size."""
    return describe_model(name).flops / 1e9, model_entry(name).parameters / 1e6


def trained_flops(recipe: Recipe) -> float:
    """GFLOPs of one image of 32 × 32 pixels, counted on a network as it was trained."""
    return _flops(recipe.model, tuple(sorted(recipe.model_options.items())))


@cache
def _flops(model: str, options: tuple[tuple[str, object], ...]) -> float:
    return describe_model(model, **dict(options)).flops / 1e9


@cache
def densenet_sizes(name: str) -> tuple[float, float]:
    """The same of a DenseNet on ImageNet."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), torch.no_grad():
        net = DenseNet(name).eval()
        with FlopCounterMode(display=False) as counted:
            net(torch.zeros(1, 3, 224, 224))
    return counted.get_total_flops() / 1e9, sum(p.numel() for p in net.parameters()) / 1e6


def _rows(printed: Iterable[str], recipe: str = "rknet_cifar", **change: object) -> list[Row]:
    return [Row(name, recipe, dict(model=name, **change)) for name in printed]


def _rows1(scale: str) -> list[Row]:
    """At cpu scale the rows that the claims are about."""
    rows = _rows(TABLE1)
    return rows if scale != "cpu" else [row for row in rows if row.label in (*_ends("erknet"), *_ends("irknet"))]


def _table1(runs: Runs) -> Finding:
    errors, accuracy = runs.errors(), runs.by_seed("test_accuracy", 100)
    trained = {label: int(row[0].outcome["parameters"]) / 1e6 for label, row in runs.by_label.items()}
    rows = []
    for name, (flops, parameters, error) in TABLE1.items():
        ours = over_seeds(errors.get(name, []))
        rows.append([name, sizes(name)[0], flops, sizes(name)[1], parameters, trained.get(name), ours, error])
    head, (flops, printed_flops, size, printed_size, ours, printed) = "model", _columns()
    columns = [head, flops, printed_flops, size, printed_size, Column("parameters, as trained here", "M", 3), ours, printed]
    caption = (
        "FLOPs and parameters are those of the networks at the paper's width; the errors of ours belong to the networks as trained here."
    )
    table = Table("error", "Error by stages", columns, rows, caption)
    least = "IRKNet-4×1_4×1_4×1 has a lower error than ERKNet-7×1_7×1_7×1 with fewer parameters"
    claims = [
        _lower("more stages give a lower error (first and last ERKNet)", accuracy, *_ends("erknet")),
        _lower("more stages give a lower error (first and last IRKNet)", accuracy, *_ends("irknet")),
        _lower(least, accuracy, "irknet_k36_4x1_4x1_4x1", "erknet_k36_7x1_7x1_7x1"),
    ]
    return Finding([table, *_against_parameters(errors, trained)], [*claims, *_counted(TABLE1)])


def _columns() -> list[Column]:
    who = ("ours", "printed")
    return [
        *(Column(f"FLOPs, {whose}", "G", 2) for whose in who),
        *(Column(f"parameters, {whose}", "M", 2) for whose in who),
        *(Column(f"error, {whose}", "%", 2) for whose in who),
    ]


def _ends(kind: str) -> tuple[str, str]:
    names = [name for name in TABLE1 if name.startswith(kind)]
    return names[-1], names[0]


def _lower(hypothesis: str, accuracy: Mapping[str, Mapping[int, float]], first: str, second: str) -> Claim:
    """That the first has the lower error."""
    return claim_ahead(hypothesis, accuracy.get(first, {}), accuracy.get(second, {}))


def _against_parameters(errors: Mapping[str, list[float]], trained: Mapping[str, float]) -> list[Figure]:
    """Ours over the parameters of the networks that were trained, the printed ones over theirs: in figures of their own, as both differ."""
    figures = []
    for name, title in (
        ("against_parameters", "Error against parameters, as trained here"),
        ("printed", "Error against parameters, as printed"),
    ):
        series = []
        for place, kind in enumerate(("erknet", "irknet")):
            label, names = {"erknet": "ERKNet", "irknet": "IRKNet"}[kind], [name for name in TABLE1 if name.startswith(kind)]
            if name == "printed":
                x, y = [TABLE1[model][1] for model in names], [TABLE1[model][2] for model in names]
                series.append(Series(label, x, y, style="both", colour=place))
            else:
                here = [model for model in names if model in trained]
                means = [over_seeds(errors.get(model, [])) for model in here]
                series.append(mean_series(label, [trained[model] for model in here], means, style="both", colour=place))
        figures.append(Figure(name, title, Axis("parameters", "M"), Axis("test error", "%"), series))
    return figures


def _table2(runs: Runs) -> Finding:
    errors = runs.errors()
    rows: list[list[Cell]] = [
        [name, None, flops, None, size, None, ten, None, hundred] for name, (flops, size, ten, hundred) in PEERS2.items()
    ]
    for name, (flops, size, ten, hundred) in TABLE2.items():
        ours = [over_seeds(errors.get(label, [])) for label in (name, _hundred(name))]
        rows.append([name, sizes(name)[0], flops, sizes(name)[1], size, ours[0], ten, ours[1], hundred])
    both = [Column("CIFAR-100 error, ours", "%", 2), Column("CIFAR-100 error, printed", "%", 2)]
    caption = "An error of ours is empty where nothing was trained; FLOPs and parameters of ours are counted on our networks."
    table = Table("error", "Error on CIFAR-10 and CIFAR-100, with printed competitors", ["model", *_columns(), *both], rows, caption)
    return Finding([table, *(_cifar(classes, "parameters") for classes in CIFAR)], _counted(TABLE2))


CIFAR = {10: 2, 100: 3}  # classes: the place of their error in a row of Table 2
COSTS = {"parameters": ("M", 1), "FLOPs": ("G", 0)}  # unit, and place in a row of the tables


def _cifar(classes: int, cost: str) -> Figure:
    """Errors as printed in Table 2, over the cost of our own networks as counted, and of the others as printed."""
    unit, place = COSTS[cost]
    series = [Series("IRKNet", [sizes(name)[place] for name in TABLE2], [row[CIFAR[classes]] for row in TABLE2.values()], style="both")]
    for kind in ("CliqueNet", "DenseNet"):  # no line: their variants differ in more than size
        rows = [row for name, row in PEERS2.items() if kind in name]
        series.append(Series(kind, [row[place] for row in rows], [row[CIFAR[classes]] for row in rows], style="points"))
    title = f"CIFAR-{classes}: printed error against {cost}"
    return Figure(f"{cost.lower()}_cifar{classes}", title, Axis(cost, unit), Axis("test error", "%"), series)


def _hundred(name: str) -> str:
    return f"{name}, CIFAR-100"


def _rows2(scale: str) -> list[Row]:
    if scale != "paper":
        return _rows(TABLE2)
    hundred = [Row(_hundred(name), "rknet_cifar", dict(model=name, data="cifar100", batch_size=BATCH2)) for name in TABLE2]
    return _rows(TABLE2, batch_size=BATCH2) + hundred


def _table3(runs: Runs) -> Finding:
    errors, worse = runs.errors(), top5_errors(runs)
    rows = []
    for name, (flops, size, top1, top5) in TABLE3.items():
        ours = [over_seeds(each.get(name, [])) for each in (errors, worse)]
        rows.append([name, sizes(name)[0], flops, sizes(name)[1], size, ours[0], top1, ours[1], top5])
    columns = ["model", *_columns(), Column("top-5 error, ours", "%", 2), Column("top-5 error, printed", "%", 2)]
    caption = "" if runs.by_label else UNTRAINED3
    table = Table("error", "ImageNet, single crop", columns, rows, caption)
    figures = []
    for which, place in (("top-1", 2), ("top-5", 3)):
        curve = Series("ERKNet", [sizes(name)[1] for name in TABLE3], [row[place] for row in TABLE3.values()], style="both")
        title, over = f"ImageNet: printed {which} error against parameters", Axis("parameters, counted", "M")
        figures.append(Figure(which.replace("-", ""), title, over, Axis(f"{which} error", "%"), [curve]))
    return Finding([table, *figures], _counted(TABLE3))


UNTRAINED3 = (
    "Error and top-5 error of ours are empty: not trained, since ImageNet's 1.28 million images must be brought along and 90 epochs of the "
    "smallest network are 2 × 10¹⁸ operations. `--scale paper` trains, and fills in both."
)


def top5_errors(runs: Runs) -> dict[str, list[float]]:
    """The top-5 error of each row in per cent, one per seed: not kept by a training, so the finished networks are evaluated."""
    how = runs.options
    errors: dict[str, list[float]] = {}
    for label, row in runs.by_label.items():
        seen = [evaluate_run(each.run.folder, device=how.device, data_dir=how.data_dir) for each in row]
        errors[label] = [100 - 100 * numbers["top5"] for numbers in seen]
    return errors


def _counted(printed: Mapping[str, Sequence[float]]) -> list[Claim]:
    """To the printed digit. The paper rounds some FLOPs and cuts others, so a figure counts as equal where either gives it."""
    same = {place: all(_prints(sizes(name)[place], row[place]) for name, row in printed.items()) for place in (0, 1)}
    return [
        claim_that("the networks have the printed FLOPs, rounded or cut to the printed digit", same[0]),
        claim_that("the networks have the printed parameters, rounded or cut to the printed digit", same[1]),
    ]


def _prints(ours: float, printed: float) -> bool:
    return f"{printed:.2f}" in (f"{ours:.2f}", f"{floor(100 * ours) / 100:.2f}")


def _fig4(runs: Runs) -> Finding:
    """ImageNet as in the paper; CIFAR, whose competitors are printed with all their numbers; and apart from them what we measured."""
    dense = {model: densenet_sizes(model) for model in DENSENET_ERRORS}
    ordered = sorted(DENSENET_ERRORS, key=lambda model: dense[model][1])
    figures = []
    for cost, (unit, place) in COSTS.items():
        rk = Series("ERKNet", [sizes(model)[place] for model in TABLE3], [row[2] for row in TABLE3.values()], style="both")
        others = Series("DenseNet", [dense[m][place] for m in ordered], [DENSENET_ERRORS[m] for m in ordered], style="both", dash=1)
        title = f"ImageNet: printed error against {cost}"
        figures.append(Figure(cost.lower(), title, Axis(cost, unit), Axis("top-1 error", "%"), [rk, others]))
    note = (
        "ImageNet is not trained here: errors are the printed ones, parameters and FLOPs are counted on our networks. The paper's figure "
        "prints no numbers; the DenseNets' errors are those that their authors publish, and its CliqueNets on ImageNet are left out. On "
        "CIFAR all errors are the printed ones of Table 2, CliqueNets included. What we measured stands in figures of its own."
    )
    printed = [_cifar(classes, cost) for classes in CIFAR for cost in COSTS]
    return Finding([note, *figures, *_measured(runs), *printed])


def _measured(runs: Runs) -> list[Part]:
    """The networks of Table 1 as trained here, over what they cost as trained here."""
    first = {label: row[0] for label, row in runs.by_label.items()}
    trained = {label: (trained_flops(run.recipe), int(run.outcome["parameters"]) / 1e6) for label, run in first.items()}
    errors, figures = runs.errors(), []
    caption = (
        "The runs of rknet/table1 at this scale, mean and standard deviation over seeds: other widths, images and epochs than the paper's, "
        "so that no axis is shared with printed errors."
    )
    for cost, (unit, place) in COSTS.items() if trained else ():
        series = []
        for colour, kind in enumerate(("ERKNet", "IRKNet")):
            here = [label for label in TABLE1 if label in trained and label.startswith(kind.lower())]
            means = [over_seeds(errors[label]) for label in here]
            series.append(mean_series(kind, [trained[label][place] for label in here], means, style="both", colour=colour))
        title = f"CIFAR-10, measured: error against {cost}"
        figures.append(Figure(f"measured_{cost.lower()}", title, Axis(cost, unit), Axis("test error", "%"), series, caption))
    return figures


def _rows_equal(scale: str) -> list[Row]:
    changes = {label: dict(model=model) | _stages(stages) for label, (model, stages) in EQUAL.items()}
    return [Row(label, "rknet_cifar", change) for label, change in changes.items()]


def _stages(stages: str | None) -> dict[str, object]:
    return {} if stages is None else dict(model_options=dict(stages=stages))


def _steps(runs: Runs) -> Finding:
    """§3.2 has it that more stages and more time-steps both help; every network that it evaluates has one step. Here a budget is spent on
    the one or on the other."""
    errors, accuracy = runs.errors(), runs.by_seed("test_accuracy", 100)
    flops = {label: trained_flops(row[0].recipe) for label, row in runs.by_label.items()}
    rows: list[list[Cell]] = []
    points: dict[str, list[tuple[int, list[float]]]] = {"ERKNet": [], "IRKNet": []}
    for label in EQUAL:
        kind, (stages, steps) = label[:6], (int(number) for number in label.partition("-")[2].partition("_")[0].split("×"))
        here = errors.get(label, [])
        points[kind].append((steps, here))
        size = int(runs.by_label[label][0].outcome["parameters"]) / 1e6 if here else None
        rows.append([label, stages, steps, flops.get(label), size, over_seeds(here), len(here)])
    counted = [Column("FLOPs, as trained", "G", 4), Column("parameters, as trained", "M", 3)]
    columns = ["model", "stages of a step", "time-steps of a period", *counted, Column("error, ours", "%", 2), "seeds"]
    table = Table("error", "Error at equal cost", columns, rows, "Time-steps have weights of their own, as in the author's later code.")
    series = [
        mean_series(kind, [steps for steps, _ in known], [over_seeds(values) for _, values in known], style="both", colour=place)
        for place, (kind, known) in enumerate(points.items())
    ]
    axis = Axis("time-steps of a period", log=True, whole=True)
    figure = Figure("by_steps", "The same cost in fewer or more time-steps", axis, Axis("test error", "%"), series)
    explicit, halves, euler, implicit, several = EQUAL
    claims = [
        _lower("at equal cost one step of six stages has a lower error than seven of two (ERKNet)", accuracy, explicit, halves),
        _lower("at equal cost one step of six stages has a lower error than 21 Euler steps (ERKNet)", accuracy, explicit, euler),
        _lower("at equal cost one step of five stages has a lower error than seven of two (IRKNet)", accuracy, implicit, several),
        claim_that("the networks of a kind have the same FLOPs, within 1 %", _cost_the_same(flops)),
    ]
    return Finding([figure, table], claims)


def _cost_the_same(flops: Mapping[str, float]) -> bool | None:
    """None where a kind has no two networks to compare."""
    kinds = [[value for label, value in flops.items() if label.startswith(kind)] for kind in ("ERKNet", "IRKNet")]
    if min(map(len, kinds)) < 2:
        return None
    return all(max(kind) <= (1 + SAME_COST) * min(kind) for kind in kinds)


def _printed(error: float, of: str, model: str, note: str = "") -> Printed:
    """An error of a table, beside ours in the row of the model."""
    return Printed(error, of, "error, ours", row=(model,), unit="%", note=note)


STUDIES = [
    Study("rknet/table1", f"{PAPER}, Table 1", "error by stages", "Do more stages, and implicit ones, give a lower error?",
          SETTINGS, _table1, _rows1, claims=5, printed=_printed(6.50, "IRKNet-4×1_4×1_4×1", "irknet_k36_4x1_4x1_4x1")),
    Study("rknet/table2", f"{PAPER}, Table 2", "IRKNets with attention and bottleneck", "How do they compare with their sources?",
          {**SETTINGS, "cpu": _UNTRAINED}, _table2, lambda scale: [] if scale == "cpu" else _rows2(scale), claims=2,
          printed=_printed(4.56, "IRKNet-5×1_5×1_5×1-AB, k = 180", "irknet_k180_5x1_5x1_5x1_ab")),
    Study("rknet/table3", f"{PAPER}, Table 3", "ERKNets on ImageNet", "How large are they, and how good?",
          {"smoke": _UNTRAINED, "cpu": _UNTRAINED, "paper": Setting(seeds=1)}, _table3,
          lambda scale: _rows(TABLE3, "rknet_imagenet") if scale == "paper" else [], claims=2,
          printed=_printed(23.14, "3×1_3×1_6×1_2×1-B", "erknet_imagenet_3x1_3x1_6x1_2x1_b", note="top-1")),
    Study("rknet/fig4", f"{PAPER}, Figure 4", "error against parameters and FLOPs", "What does an error rate cost?",
          SETTINGS, _fig4, _rows1),
    Study("rknet/steps", f"{PAPER}, §3.2", "stages or time-steps at equal cost",
          "At the same cost, does one step of many stages beat several steps of few?",
          SETTINGS, _steps, _rows_equal, claims=4, printed="more stages and more time-steps both help; only single steps are evaluated"),
]  # fmt: skip
