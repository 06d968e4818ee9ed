"""Where the run of a recipe is: finished, begun or not yet begun. Sweeps and studies share runs through this."""

from collections.abc import Iterator
from pathlib import Path

from continua.errors import ContinuaError
from continua.train.recipe import Recipe
from continua.train.resolution import identity, resolve
from continua.train.run import Run, runs_folder


def run_folder(recipe: Recipe, runs: "str | Path | None" = None) -> Path:
    """The folder that the run of a resolved recipe gets where none is asked for."""
    return runs_folder(runs) / f"{recipe.model}-{recipe.data}-seed{recipe.seed}-{identity(recipe)[:8]}"


def find_run(recipe: Recipe, runs: "str | Path | None" = None, device: str = "cpu", data_dir: "str | Path | None" = None) -> Run | None:
    """The run of this recipe, resolved or not, under the folder of all runs, whatever its own folder is called; a finished one first."""
    recipe = resolve(recipe, device, data_dir)
    return RunIndex(runs).find(recipe)


class RunIndex:
    """Every run in the folder of all runs and in its folders, by identity. Made once, it answers for many recipes."""

    def __init__(self, runs: "str | Path | None" = None) -> None:
        self.runs = runs_folder(runs)
        self.known: dict[str, Run] = {}
        for run in _runs_in(self.runs):
            name = _identity_of(run)
            if name is not None and (name not in self.known or run.result is not None):
                self.known[name] = run

    def find(self, recipe: Recipe) -> Run | None:
        """The run of a resolved recipe."""
        return self.known.get(identity(recipe))


def _runs_in(folder: Path) -> Iterator[Run]:
    for pattern in ("*/config.yaml", "*/*/config.yaml"):
        yield from (Run(path.parent) for path in sorted(folder.glob(pattern)))


def _identity_of(run: Run) -> str | None:
    """What the run says it is; None where its files are not a run's, or are damaged."""
    try:
        result = run.result  # reading it is far quicker than reading the recipe again
        return result["identity"] if result is not None else identity(run.recipe)
    except (ContinuaError, ValueError, KeyError, OSError):
        return None
