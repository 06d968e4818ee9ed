"""How a run is made: train by a recipe, go on after an interruption exactly as if there had been none; sweeps of many trainings.

To follow one training step, read `loop.py` (an epoch, and what is kept), `step.py` (a batch: forward, agreement, backward, update) and
`optimiser.py` (how parameters follow gradients). What a run is, and reading one, is the module `continua.runs`.
"""

from continua.runs import (
    Failure,
    Optimiser,
    Recipe,
    Refine,
    Regularise,
    Run,
    Schedule,
    find_run,
    identity,
    load_recipe,
    recipe_names,
    resolve,
    run_id,
    runs_folder,
)
from continua.runs import evaluate_run as evaluate
from continua.train.loop import Interrupted, RunOptions, TrainingStopped
from continua.train.start import resume, train
from continua.train.sweeps.cells import Cell, Sweep, jobs_folder, load_sweep, read_statuses
from continua.train.sweeps.driver import SweepOutcome, cancel, run_sweep
from continua.train.sweeps.jobs import Executor, Local, Slurm
from continua.train.sweeps.table import View, show_results, show_status, summary, write_results
from continua.train.tensors import fit_tensors
from continua.train.trackers import TRACKERS, Tracker

__all__ = [
    "TRACKERS",
    "Cell",
    "Executor",
    "Failure",
    "Interrupted",
    "Local",
    "Optimiser",
    "Recipe",
    "Refine",
    "Regularise",
    "Run",
    "RunOptions",
    "Schedule",
    "Slurm",
    "Sweep",
    "SweepOutcome",
    "Tracker",
    "TrainingStopped",
    "View",
    "cancel",
    "evaluate",
    "find_run",
    "fit_tensors",
    "identity",
    "jobs_folder",
    "load_recipe",
    "load_sweep",
    "read_statuses",
    "recipe_names",
    "resolve",
    "resume",
    "run_id",
    "run_sweep",
    "runs_folder",
    "show_results",
    "show_status",
    "summary",
    "train",
    "write_results",
]
