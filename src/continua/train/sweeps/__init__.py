"""Sweeps: a grid of trainings from one YAML file, each an independent run, carried out by submitit here or on a Slurm cluster."""

from continua.train.sweeps.driver import Outcome, run_sweep
from continua.train.sweeps.file import Cell, Sweep, load_sweep
from continua.train.sweeps.table import summarise

__all__ = ["Cell", "Outcome", "Sweep", "load_sweep", "run_sweep", "summarise"]
