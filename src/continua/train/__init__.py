"""From a recipe to a run directory: train, go on after an interruption exactly as if there had been none, evaluate."""

from continua.train.evaluation import evaluate
from continua.train.find import find_run
from continua.train.loop import Interrupted, TrainingStopped
from continua.train.parse import load_recipe, recipe_names
from continua.train.recipe import Failure, Optimiser, Recipe, Regularise, Schedule
from continua.train.resolution import identity, resolve, run_id
from continua.train.run import Run, runs_folder
from continua.train.setup import RunOptions
from continua.train.start import resume, train

__all__ = [
    "Failure",
    "Interrupted",
    "Optimiser",
    "Recipe",
    "Regularise",
    "Run",
    "RunOptions",
    "Schedule",
    "TrainingStopped",
    "evaluate",
    "find_run",
    "identity",
    "load_recipe",
    "recipe_names",
    "resolve",
    "resume",
    "run_id",
    "runs_folder",
    "train",
]
