"""The scales of each paper's studies: what is changed from the published setting, in fields of the recipe and in words."""

from collections.abc import Mapping
from typing import Any

from continua.studies.study import Setting

SMOKE_WORDS = "one epoch on a few embedded digits with tiny widths: this shows that the machinery works, and nothing else"
FIXED_STEPS: Mapping[str, Any] = dict(method="rk4", steps=2, gradient="direct")


def smoke(*, look: Mapping[str, Any] | None = None, **change: Any) -> Setting:
    """Seconds: embedded digits, tiny widths, one seed."""
    base: dict[str, Any] = dict(data="digits", per_class=6, epochs=1, batch_size=30, evaluation_batch_size=60, length_by_per_class={})
    base["augmentation"] = dict(mean=None, std=None, hue=0.0, saturation=0.0)  # the digits are grey
    options = {"limit": 30, "batch_size": 30, **(look or {})}
    return Setting(seeds=1, threads=1, change={**base, **change}, look=options, reduced=[SMOKE_WORDS])


# How long DCNs train at cpu, by images per class: long enough that DCN-ODE and ResNet-blocks fit their training images.
CPU_EPOCHS = {8: 240, 16: 160, 32: 120, 52: 120}

# DCN. Half the widths with as many channels in a group as at full width, steps of length 1 and hybrid N-jets: about ten times as fast.
# Small batches, because on so few images what counts is the number of updates; the learning rate is smaller in proportion.
DCN_CPU = Setting(
    seeds=3,
    threads=1,
    change=dict(
        model_options=dict(channels=[16, 32, 64], norm_groups=16, solver=FIXED_STEPS),
        per_class=52,
        epochs=CPU_EPOCHS[52],
        batch_size=16,
        optimiser=dict(lr=0.0125),
        schedule=dict(kind="cosine", milestones=[]),
        length_by_per_class={},
    ),
    by_model={
        "odenet": dict(model_options=dict(solver=dict(steps=1))),
        **{name: dict(model_options=dict(conv_options=dict(discretisation="hybrid"))) for name in ("dcn_ode", "dcn_full")},
    },
    look=dict(limit=1000, batch_size=250),
    reduced=[
        "widths 16, 32, 64 instead of 32, 64, 128, in groups of as many channels",
        "steps of rk4 of length 1 (two for T = 2, one for T = 1) with the direct gradient instead of dopri5 at tolerance 1e-3",
        "N-jets with one σ per layer discretised in the hybrid way instead of sampled",
        "batches of 16 at learning rate 0.0125 instead of 128 at 0.1, falling by a cosine instead of two drops",
        "float32, one thread per run",
    ],
)
DCN_SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(model_options=dict(channels=[4, 4, 8], stem_padding=1, solver=dict(method="rk4", steps=1, gradient="direct"))),
    "cpu": DCN_CPU,
    "paper": Setting(seeds=3),
}

# ANODEV2. ResNet-4 on a twentieth of the images for a twentieth of the epochs.
ANODEV2_SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(),
    "cpu": Setting(
        seeds=3,
        threads=1,
        change=dict(per_class=250, epochs=15, batch_size=64),
        look=dict(limit=1000),
        reduced=[
            "ResNet-4 only",
            "250 training images per class instead of 5,000",
            "15 epochs instead of 350, the learning rate's drops at the same fractions",
            "batches of 64 instead of 256",
            "three seeds instead of five",
            "float32, one thread per run",
        ],
    ),
    "paper": Setting(seeds=5),
}

# RKNet. Growth 12 instead of 36 makes a step nine times as cheap.
RKNET_SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(model_options=dict(growth=4)),
    "cpu": Setting(
        seeds=3,
        threads=1,
        change=dict(model_options=dict(growth=12), per_class=150, epochs=8, batch_size=32, optimiser=dict(lr=0.05)),
        look=dict(limit=1000),
        reduced=[
            "growth rate 12 instead of 36",
            "150 training images per class instead of 5,000",
            "8 epochs instead of 300",
            "batches of 32 at learning rate 0.05 instead of 64 at 0.1",
            "the first and the last row of each kind only",
            "float32, one thread per run",
        ],
    ),
    "paper": Setting(seeds=1),
}

# ODE-Net features. A quarter of the width, a tenth of the images.
FEATURES_SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(
        model_options=dict(width=8, norm_groups=4),
        holdout=0.2,
        look=dict(data="digits", times=3, folds=2, cs=(0.1, 1.0), jobs=1, limit=60),
    ),
    "cpu": Setting(
        seeds=1,
        threads=1,
        change=dict(
            model_options=dict(width=64),
            per_class=250,
            epochs=12,
            batch_size=32,
            optimiser=dict(lr=0.025),
            schedule=dict(kind="cosine"),
        ),
        look=dict(limit=2000, jobs=1),
        reduced=[
            "width 64 instead of 256",
            "250 training images per class instead of 5,000",
            "12 epochs instead of 200",
            "batches of 32 at learning rate 0.025 instead of 128 at 0.1, falling by a cosine instead of on a plateau",
            "two steps of rk4 with the direct gradient in training instead of dopri5 with the adjoint",
            "2,000 images instead of 10,000 for steps and transfer",
            "one seed, float32, one thread per run",
        ],
    ),
    "paper": Setting(seeds=1),
}
