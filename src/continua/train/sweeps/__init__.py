"""Sweeps: a grid of trainings from one YAML file, each an independent run, carried out by submitit here or on a Slurm cluster."""
