"""Training tricks for ODE blocks: processor time until a network reaches an accuracy, with and without each of them.

Every trick of `regularise` and `refine` (docs/training.md) is one option on top of a plain recipe; all trainings of a seed go through their
epochs in turn, so a busy moment of the machine slows all of them alike. Time is that of this process's processor in training steps alone;
after every epoch the network is looked at on test images with its own solver. The accuracy to reach is that of the plain trainings: the
lowest, over seeds, of their best accuracies, less two points. CIFAR-10 is read from --data-dir, else its rows are left out.
"""

import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from _common import machine, options, show_all
from continua.data import Loader, load
from continua.errors import DataError
from continua.report import Claim
from continua.runs import evaluate
from continua.runs.folder import Run
from continua.runs.loading import merged
from continua.studies.claims import claim_above, decided
from continua.train import RunOptions, load_recipe, resolve
from continua.train.loop import Training
from continua.train.metrics import Progress
from continua.train.start import assemble, launch_fabric

ADAPTIVE: dict[str, Any] = dict(method="bosh3", rtol=1e-2, atol=1e-2, gradient="direct")
FIXED: dict[str, Any] = dict(method="rk4", steps=4, gradient="direct")
PLAIN = {"adaptive": ADAPTIVE, "fixed": FIXED}
TRICKS: dict[str, tuple[str, dict[str, Any]]] = {  # name: what it is compared with, and what it adds
    "plain, bosh3 at 0.01": ("adaptive", {}),
    "tolerance 0.3, then 0.1, then 0.01": ("adaptive", dict(refine=dict(tolerances=[0.3, 0.1]))),
    "random end times, ± 25 % (STEER)": ("adaptive", dict(regularise=dict(end_time=0.25))),
    "error estimates weighed (Pal et al.)": ("adaptive", dict(regularise=dict(error=1.0))),
    "plain, RK4 in 4 steps": ("fixed", {}),
    "1 step, then 2, then 4": ("fixed", dict(refine=dict(steps=[1, 2]))),
}
SETS: dict[str, dict[str, Any]] = {
    "digits": dict(data="digits", per_class=50, epochs=10, batch_size=32),
    "CIFAR-10, 40 images of each class": dict(data="cifar10", per_class=40, epochs=10, batch_size=32),
}
LOOKED_AT = 300  # test images after each epoch
NETWORK: dict[str, Any] = dict(width=12, dropout=0.0, norm_groups=4)


@dataclass
class Course:
    """One training, epoch by epoch: seconds of the processor and evaluations of f (forward) per batch so far, and the accuracy then."""

    seconds: list[float] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    def epoch(self, training: Training, test: Loader) -> None:
        """One more epoch, timed, and a look at test images."""
        start = time.process_time()
        training._train_epoch(Progress("off", 1, 1))
        spent = time.process_time() - start
        evaluations = sum(training.sums.nfe) / max(1, training.sums.batches) * len(training.parts.train)
        training._end_epoch(0.0)
        self.seconds.append(spent + (self.seconds[-1] if self.seconds else 0.0))
        self.evaluations.append(evaluations + (self.evaluations[-1] if self.evaluations else 0.0))
        self.accuracy.append(evaluate(training.net.eval(), test).accuracy or 0.0)

    def until(self, target: float, spent: str) -> float:
        """What was spent when the accuracy was first reached; infinite if it never was."""
        return next((value for value, got in zip(getattr(self, spent), self.accuracy, strict=True) if got >= target), math.inf)


Courses = dict[str, list[Course]]  # by the name of the trick, one for each seed


def training_of(
    chosen: dict[str, Any], solver: dict[str, Any], trick: dict[str, Any], seed: int, how: RunOptions, folder: Path
) -> Training:
    """A training that has not begun."""
    plain = dict(model="ode_only_net", model_options=NETWORK | dict(solver=solver), optimiser=dict(kind="adamw", lr=0.02), test_every=0)
    recipe = merged(plain | dict(seed=seed) | chosen, trick)
    if "refine" in trick:  # a third of the training each
        recipe["refine"]["epochs"] = [round(chosen["epochs"] * share, 2) for share in (1 / 3, 2 / 3)]
    resolved = resolve(load_recipe("demo", recipe), data_dir=how.data_dir)
    folder.mkdir()
    return Training(Run(folder), resolved, assemble(resolved, how, launch_fabric("cpu", "float32", 600.0)), how)


def measure(chosen: dict[str, Any], seed: int, courses: Courses, data_dir: Path | None) -> None:
    """Every variant with one seed, epoch by epoch in turn, added to `courses`."""
    how = RunOptions(progress="off", device="cpu", threads=1, data_dir=data_dir)
    split = load(chosen["data"], data_dir)["test"]
    test = split.select(torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:LOOKED_AT])
    with tempfile.TemporaryDirectory() as folder:
        trainings = {
            name: training_of(chosen, PLAIN[plain], trick, seed, how, Path(folder) / str(place))
            for place, (name, (plain, trick)) in enumerate(TRICKS.items())
        }
        made = {name: Course() for name in TRICKS}
        for epoch in range(chosen["epochs"]):
            for name, training in trainings.items():
                made[name].epoch(training, Loader(test, 256, augmentation=training.recipe.augmentation.evaluation()))
            print(f"{chosen['data']}, seed {seed}, epoch {epoch + 1} of {chosen['epochs']}", file=sys.stderr, flush=True)
    for name, course in made.items():
        courses.setdefault(name, []).append(course)


def rows_of(courses: Courses) -> list[dict[str, Any]]:
    """One row per variant. The verdict is that of a t test over seeds of the logarithm of the ratio, corrected for all rows (Holm)."""
    plains = {kind: next(name for name, (of, trick) in TRICKS.items() if of == kind and not trick) for kind in PLAIN}
    target = math.floor(100 * min(max(course.accuracy) for name in plains.values() for course in courses[name]) - 2) / 100
    rows: list[dict[str, Any]] = []
    claims: dict[str, Claim] = {}
    for name, made in courses.items():
        kind, trick = TRICKS[name]
        pairs = list(zip(courses[plains[kind]], made, strict=True))
        seconds = [course.until(target, "seconds") for course in made]
        reached = [math.isfinite(value) for value in seconds]
        faster, fewer = (
            [plain.until(target, of) / course.until(target, of) for plain, course in pairs] for of in ("seconds", "evaluations")
        )
        if trick:
            logs = [math.log(ratio) for ratio in faster] if all(reached) else []
            claims[name] = claim_above(f"{name} is faster", logs, of="logarithm of the ratio of times")
        row = {"training": name, "seconds": fmean(seconds), "times faster": fmean(faster), "evaluations, times fewer": fmean(fewer)}
        row |= {"reached": f"{sum(reached)} of {len(made)}", "last accuracy": 100 * fmean(course.accuracy[-1] for course in made)}
        if not all(reached):
            row |= dict.fromkeys(("seconds", "times faster", "evaluations, times fewer"), "—")
        rows.append(row)
    verdicts = dict(zip(claims, decided(list(claims.values())), strict=True))
    for row in rows:
        claim = verdicts.get(row["training"])
        row["verdict"] = f"reference, to {100 * target:.0f} %" if claim is None else WORDS[claim.verdict]
    return rows


WORDS = {"holds": "faster", "fails": "slower", "undecided": "no difference shown", "not run": "not always reached"}


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--data-dir", type=Path, default=None, help="where CIFAR-10 is")
    parser.add_argument("--curves", type=Path, default=Path("tricks-curves.json"), help="every epoch of every training; goes on from there")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    kept = json.loads(chosen.curves.read_text("utf-8")) if chosen.curves.exists() else {}
    curves = {title: {name: [Course(**course) for course in made] for name, made in of.items()} for title, of in kept.items()}
    for seed in range(chosen.seeds):
        for title, data in SETS.items():
            courses = curves.setdefault(title, {})
            if any(len(made) > seed for made in courses.values()):
                continue
            try:
                measure(data, seed, courses, chosen.data_dir)
            except DataError as error:
                print(f"{title} is left out: {error}", file=sys.stderr)
                continue
            chosen.curves.write_text(
                json.dumps({title: {name: [vars(course) for course in made] for name, made in of.items()} for title, of in curves.items()}),
                "utf-8",
            )
    show_all({title: rows_of(courses) for title, courses in curves.items() if courses}, machine(), chosen.json)


if __name__ == "__main__":
    main()
