"""What a run is: its recipe, its folder, and everything that can be read from it. Nothing here trains.

recipe = load_recipe("dcn", {"per_class": 52})      a YAML file and changes to it
resolve(recipe)                                     plain numbers only: what config.yaml of a run holds
identity(resolve(recipe))                           sixteen digits that name it; find_run(recipe) is the run, where there is one
view = RunView("runs/x")                            recipe, metrics, result, environment, network, images of a run
evaluate(view.network, view.images(split="test"))   one loop for whoever wants to know how good a network is
"""

from continua.runs.environment import chosen_device, describe_environment
from continua.runs.evaluation import Batches, Evaluation, Task, costs, evaluate, evaluate_run, task_of
from continua.runs.folder import Run, readable_errors
from continua.runs.index import RunIndex, find_run, run_folder, run_folders, runs_folder, stored_identities
from continua.runs.loading import (
    FREE,
    load_recipe,
    merged,
    parse_recipe,
    parse_value,
    plain_recipe,
    read_yaml,
    recipe_fields,
    recipe_names,
    write_yaml,
)
from continua.runs.recipe import Failure, Optimiser, Recipe, Refine, Regularise, Schedule
from continua.runs.resolving import LATER_OPTIONS, identities, identity, resolve, run_id
from continua.runs.view import Images, RunView, load_reconstructor, reported_split

__all__ = [
    "FREE",
    "LATER_OPTIONS",
    "Batches",
    "Evaluation",
    "Failure",
    "Images",
    "Optimiser",
    "Recipe",
    "Refine",
    "Regularise",
    "Run",
    "RunIndex",
    "RunView",
    "Schedule",
    "Task",
    "chosen_device",
    "costs",
    "describe_environment",
    "evaluate",
    "evaluate_run",
    "find_run",
    "identities",
    "identity",
    "load_recipe",
    "load_reconstructor",
    "merged",
    "parse_recipe",
    "parse_value",
    "plain_recipe",
    "read_yaml",
    "readable_errors",
    "recipe_fields",
    "recipe_names",
    "reported_split",
    "resolve",
    "run_folder",
    "run_folders",
    "run_id",
    "runs_folder",
    "stored_identities",
    "task_of",
    "write_yaml",
]
