"""Where the run of a recipe is: finished, begun or not yet begun. Sweeps and studies share runs through the index."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from continua.errors import ContinuaError, ContinuaWarning
from continua.limits import YAML_BYTES
from continua.reading import read_utf8
from continua.runs.folder import Run
from continua.runs.loading import FORMAT, stored_recipe
from continua.runs.recipe import Recipe
from continua.runs.resolving import identities, identity, resolve


def runs_folder(given: "str | Path | None" = None) -> Path:
    """The folder of all runs: the one asked for, else `CONTINUA_RUNS`, else ./runs.

    Args:
        given: the folder asked for.

    Returns:
        The folder.

    Examples:
        >>> from continua.runs import runs_folder
        >>> runs_folder("here").name
        'here'
    """
    return Path(given or os.environ.get("CONTINUA_RUNS") or "runs").expanduser()


def run_folder(recipe: Recipe, runs: "str | Path | None" = None) -> Path:
    """The folder that the run of a resolved recipe gets where none is asked for.

    Args:
        recipe: resolved.
        runs: folder of all runs.

    Returns:
        The folder; it need not exist.

    Examples:
        >>> from continua.runs import load_recipe, resolve, run_folder
        >>> folder = run_folder(resolve(load_recipe("demo")))
    """
    return runs_folder(runs) / f"{recipe.model}-{recipe.data}-seed{recipe.seed}-{identity(recipe)[:8]}"


def find_run(recipe: Recipe, runs: "str | Path | None" = None, device: str = "cpu", data_dir: "str | Path | None" = None) -> Run | None:
    """The run of this recipe, resolved or not, under the folder of all runs, whatever its own folder is called; a finished one first.

    Args:
        recipe: resolved or not.
        runs: folder of all runs.
        device: decides "auto".
        data_dir: folder of all data sets.

    Returns:
        The run, or None.

    Examples:
        >>> from continua.runs import find_run, load_recipe
        >>> find_run(load_recipe("demo"), "nowhere") is None
        True
    """
    recipe = resolve(recipe, device, data_dir)
    return RunIndex(runs).find(recipe)


class RunIndex:
    """Every run in the folder of all runs and in its folders, by identity. Made once, it answers for many recipes."""

    def __init__(self, runs: "str | Path | None" = None) -> None:
        self.runs = runs_folder(runs)
        self.known: dict[str, Run] = {}
        self.skipped: dict[Path, str] = {}  # folders that look like runs and cannot be read, with the reason
        for run in map(Run, run_folders(self.runs)):
            try:
                name = _identity_of(run)
            except ContinuaError as error:  # one bad folder must not hide the others
                self.skipped[run.folder] = str(error)
                warnings.warn(f"{run.folder} is passed over: {error}", ContinuaWarning, stacklevel=2)
                continue
            if name not in self.known or run.result is not None:
                self.known[name] = run

    def find(self, recipe: Recipe) -> Run | None:
        """The run of a resolved recipe."""
        return next((self.known[name] for name in identities(recipe) if name in self.known), None)


def stored_identities(run: Run) -> tuple[str, ...]:
    """What the run is called, and was called by the version that began it: later ones may spell its options otherwise.

    Args:
        run: any run.

    Returns:
        Identities.

    Examples:
        >>> from continua.runs import Run, stored_identities
        >>> stored_identities(Run("runs/demo/dcn_ode"))  # doctest: +SKIP
    """
    return *identities(run.recipe), *identities(stored_recipe(run.config, upgrade=False))


def run_folders(folder: Path) -> Iterator[Path]:
    """Every run in a folder and in its folders.

    Args:
        folder: where to look.

    Returns:
        Their paths.

    Examples:
        >>> from pathlib import Path
        >>> from continua.runs import run_folders
        >>> list(run_folders(Path("nowhere")))
        []
    """
    for pattern in ("*/config.yaml", "*/*/config.yaml"):
        yield from (path.parent for path in sorted(folder.glob(pattern)))


def _identity_of(run: Run) -> str:
    """What the run says it is; an error where its files are not a run's, or are damaged."""
    # What it came to is far quicker to read than the recipe, and as good where this format wrote both.
    current = read_utf8(run.config, YAML_BYTES, run.folder).startswith(f"format: {FORMAT}\n")
    result = run.result if current else None
    return result["identity"] if result is not None and "identity" in result else identity(run.recipe)
