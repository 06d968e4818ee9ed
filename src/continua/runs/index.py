"""Where the run of a recipe is: finished, begun or not yet begun. Sweeps and studies share runs through this."""

from collections.abc import Iterator
from pathlib import Path

from continua.errors import ContinuaError
from continua.runs.folder import Run, runs_folder
from continua.runs.loading import FORMAT, stored_recipe
from continua.runs.recipe import Recipe
from continua.runs.resolution import identity, resolve


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
        for run in map(Run, run_folders(self.runs)):
            name = _identity_of(run)
            if name is not None and (name not in self.known or run.result is not None):
                self.known[name] = run

    def find(self, recipe: Recipe) -> Run | None:
        """The run of a resolved recipe."""
        return self.known.get(identity(recipe))


def stored_identity(run: Run) -> str:
    """What the run was called by the version that began it; later ones may spell its options otherwise."""
    return identity(stored_recipe(run.config, upgrade=False))


def run_folders(folder: Path) -> Iterator[Path]:
    """Every run in a folder and in its folders."""
    for pattern in ("*/config.yaml", "*/*/config.yaml"):
        yield from (path.parent for path in sorted(folder.glob(pattern)))


def _identity_of(run: Run) -> str | None:
    """What the run says it is; None where its files are not a run's, or are damaged."""
    try:
        # What it came to is far quicker to read than the recipe, and as good where this format wrote both.
        current = run.config.read_text("utf-8").startswith(f"format: {FORMAT}\n")
        result = run.result if current else None
        return result["identity"] if result is not None else identity(run.recipe)
    except (ContinuaError, ValueError, KeyError, OSError):
        return None
