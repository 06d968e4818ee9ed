"""From a recipe to a run directory: train, go on after an interruption exactly as if there had been none, evaluate."""

from continua.train.devices import chosen_device
from continua.train.environment import describe_environment
from continua.train.evaluation import evaluate
from continua.train.facts import facts, run_folders
from continua.train.find import RunIndex, find_run, run_folder
from continua.train.loop import Interrupted, TrainingStopped
from continua.train.parse import FREE, load_recipe, merged, parse_value, recipe_fields, recipe_names, unknown_option, write_yaml
from continua.train.parser_words import parser_words
from continua.train.recipe import Failure, Optimiser, Recipe, Regularise, Schedule
from continua.train.resolution import identity, resolve, run_id
from continua.train.run import Run, runs_folder
from continua.train.setup import RunOptions
from continua.train.start import resume, train
from continua.train.subject import subject_of
from continua.train.sweeps.cell import Cell
from continua.train.sweeps.driver import Outcome, cancel, run_sweep
from continua.train.sweeps.executors import Executor, Local, Slurm
from continua.train.sweeps.file import Sweep, load_sweep
from continua.train.sweeps.results import show_results, write_results
from continua.train.sweeps.status import jobs_folder, read_statuses
from continua.train.sweeps.table import View, show_status, summary

__all__ = [
    "FREE",
    "Cell",
    "Executor",
    "Failure",
    "Interrupted",
    "Local",
    "Optimiser",
    "Outcome",
    "Recipe",
    "Regularise",
    "Run",
    "RunIndex",
    "RunOptions",
    "Schedule",
    "Slurm",
    "Sweep",
    "TrainingStopped",
    "View",
    "cancel",
    "chosen_device",
    "describe_environment",
    "evaluate",
    "facts",
    "find_run",
    "identity",
    "jobs_folder",
    "load_recipe",
    "load_sweep",
    "merged",
    "parse_value",
    "parser_words",
    "read_statuses",
    "recipe_fields",
    "recipe_names",
    "resolve",
    "resume",
    "run_folder",
    "run_folders",
    "run_id",
    "run_sweep",
    "runs_folder",
    "show_results",
    "show_status",
    "subject_of",
    "summary",
    "train",
    "unknown_option",
    "write_results",
    "write_yaml",
]
