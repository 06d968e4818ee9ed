"""The demo networks: small ones on the bundled digits, trained when somebody asks for it and kept in the user's cache folder.

A process of its own trains, by `continua train` like any other run. So a page that is closed stops nothing, and a training that was
stopped goes on where it was.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from continua.errors import ConfigError
from continua.runs import Optimiser, Recipe, Run, Schedule, identity, load_recipe, resolve, write_yaml


@dataclass(frozen=True)
class Demo:
    """A demo network: what it is called, what it shows, and the folder of its run, there or to be made."""

    name: str
    text: str
    recipe: Recipe
    folder: Path

    @property
    def ready(self) -> bool:
        return Run(self.folder).result is not None


def demos_folder() -> Path:
    """Where demo networks are kept."""
    from platformdirs import user_cache_path

    return user_cache_path("continua", appauthor=False) / "explore"


def demos(cache: Path | None = None, changes: Mapping[str, Any] | None = None) -> list[Demo]:
    """The networks that the explorer can train by itself; `changes` to their recipes are for tests."""
    coupled = Recipe(
        model="resnet4_anodev2_c1",
        model_options={"channels": [8]},
        data="digits16",
        epochs=6,
        batch_size=32,
        optimiser=Optimiser(kind="adamw", lr=0.02, evolution_lr_factor=5.0),
        schedule=Schedule(kind="cosine", warmup=0.5),
        selection="last",
    )
    shorter = load_recipe("demo", {"epochs": 6, "test_every": 0})
    made = {
        "demo: DCN-ODE": ("continuous in space and depth (the network of `continua demo`, trained for 6 epochs instead of 10)", shorter),
        "demo: ANODEV2": ("its kernels evolve with depth, by reaction, diffusion and advection", coupled),
    }
    networks = []
    for name, (text, recipe) in made.items():
        recipe = resolve(replace(recipe, **(changes or {})), "cpu")
        # Named by its recipe: another version of this file does not take an old network for the new one.
        networks.append(Demo(name, text, recipe, (cache or demos_folder()) / f"{recipe.model}-{identity(recipe)[:8]}"))
    return networks


class DemoTraining:
    """A demo network on its way."""

    def __init__(self, demo: Demo) -> None:
        self.demo, self.run = demo, Run(demo.folder)
        self._log = demo.folder.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin or go on; nothing where another process trains it already, or it is finished."""
        if self.demo.ready or self.run.owner() is not None:
            return
        self.demo.folder.parent.mkdir(parents=True, exist_ok=True)
        recipe = self.demo.folder.with_suffix(".yaml")
        recipe.write_text(write_yaml(self.demo.recipe), "utf-8")
        begun = self.run.exists
        what = ["--resume", str(self.demo.folder)] if begun else ["--recipe", str(recipe), "--out", str(self.demo.folder)]
        with self._log.open("wb") as log:
            words = [sys.executable, "-m", "continua", "train", *what, "--progress", "off", "--device", "cpu"]
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def progress(self) -> tuple[float, str]:
        """The share that is done, and words for it."""
        try:
            lines = [line for line in self.run.lines() if line.get("event") == "epoch"]
        except ValueError:  # the last line is being written
            lines = []
        if not lines:
            return 0.0, f"epoch 1 of {self.demo.recipe.epochs}"
        epochs, done = self.demo.recipe.epochs, len(lines)
        return done / epochs, f"epoch {min(done + 1, epochs)} of {epochs}, loss {lines[-1]['loss']:.3f}"

    def finished(self) -> bool:
        """Whether the network is ready; a `ConfigError` where its training ended without it."""
        if self.demo.ready:
            return True
        if self._process is not None and self._process.poll() is not None:
            log = self._log.read_text("utf-8", errors="replace").strip().splitlines()
            self._process = None
            if not self.demo.ready:
                raise ConfigError(f"the demo network could not be trained: {log[-1] if log else 'its process ended'} (see {self._log})")
            return True
        return False

    @property
    def ours(self) -> bool:
        """Whether this page trains it, and may stop it."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the training after the step at hand, saved."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    @property
    def running(self) -> bool:
        return self.ours or self.run.owner() is not None
