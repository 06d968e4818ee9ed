"""The demo: train its networks, or continue with them, ask the analyses, and write a page of what came out and what happens inside."""

import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from continua.analysis import Answer, Subject, answer, find_question, subject_of
from continua.blocks import ODEBlock
from continua.demo.kept import RATES
from continua.demo.page import Agreement, demo_page
from continua.errors import ConfigError
from continua.models import model_entry, options_in_common
from continua.report import Table, show_table, write_html
from continua.runs import Recipe, Run, chosen_device, identity, load_recipe, merged, resolve
from continua.train import RunOptions, resume, train

Plain = Mapping[str, object]

# What each network has of its own, all else being the recipe's: the learning rate that a search on held-out images chose for it.
MODELS: dict[str, Plain] = {name: {"optimiser": {"lr": rate}} for name, rate in RATES.items()}
MASKS: Plain = dict(sizes=(0, 2, 4, 6, 8), mask=6, trajectories=100, times=11)
CONTRASTS: Plain = dict(contrasts=7, low=1 / 16, high=4.0)  # powers of two
TIGHTER = 100  # times: how the resolution of a solve is checked
BEAT = 4.0  # seconds between lines while nothing else is said


def demo(
    out: Path,
    *,
    changes: Plain | None = None,
    options: RunOptions | None = None,
    masks: Plain = MASKS,
    contrasts: Plain = CONTRASTS,
) -> Path:
    """Train three small networks on the bundled digits, look into them, and write what was found as one page.

    What is finished in `out` already is used; what was interrupted is continued.

    Args:
        out: folder for the three runs and the page.
        changes: changes to the recipe `demo`, for all three networks; such as `{"epochs": 2}`.
        options: how to train: device, threads, progress.
        masks: options of the analysis `pattern_completion`.
        contrasts: options of the analysis `contrast`.

    Returns:
        The page, `out/report.html`.

    Raises:
        ConfigError: `out` holds runs by another recipe.

    Example:
        >>> from pathlib import Path
        >>> from continua.demo import demo
        >>> demo(Path("runs/demo"))  # doctest: +SKIP
        PosixPath('runs/demo/report.html')
    """
    options = _unhurried(options or RunOptions())
    recipes = {name: _recipe(name, changes or {}, options) for name in MODELS}
    _check(out, recipes)
    runs = {name: _trained(recipe, out / name, options) for name, recipe in recipes.items()}
    subjects = {model_entry(name).row: subject_of(run.folder, device=options.device) for name, run in runs.items()}
    masked, dimmed, agreements = {}, {}, {}
    for name, subject in subjects.items():
        solved = any(subject.run.epochs[-1]["nfe"])
        with _saying(f"{name}: hiding parts of the test images"):
            masked[name] = _asked("pattern_completion", subject, masks)
        with _saying(f"{name}: dimming and brightening them"):  # time follows contrast only where there is time
            dimmed[name] = _asked("contrast", subject, {**contrasts, "modes": ("naive", "scaled") if solved else ("naive",)})
        if solved:
            with _saying(f"{name}: solving again, {TIGHTER} times as exactly"):
                agreements[name] = _agreement(subject)
    with _saying("drawing the page"):
        page = demo_page(subjects, masked, dimmed, agreements)
        target = write_html(page, out / "report.html")
    results = page.every(Table)[0]
    show_table(results.title, [head.text for head in results.heads], results.texts)
    print(f"made {target}: open it in a browser")
    print(f"look into these networks yourself: {_next_line(out)}")
    return target


def _unhurried(options: RunOptions) -> RunOptions:
    """One thread where other programs keep the cores busy: threads that wait for each other would take many times as long."""
    cores = os.cpu_count() or 1
    if options.threads is not None or cores < 2 or (busy := busy_cores()) < 0.25 * cores:
        return options
    print(f"this machine is busy ({busy:.1f} of {cores} cores): one thread is used; --threads {cores} uses all cores", flush=True)
    return replace(options, threads=1)


def busy_cores(seconds: float = 0.4, stat: Path = Path("/proc/stat")) -> float:
    """How many cores other programs keep busy just now: a load average would count the installation that came before.

    Linux counts idle time in `stat`; elsewhere there is only the load average.
    """
    if not stat.is_file():
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    before = _core_times(stat)
    time.sleep(seconds)
    idle, total = (after - earlier for after, earlier in zip(_core_times(stat), before, strict=True))
    return (os.cpu_count() or 1) * (1 - idle / total) if total > 0 else 0.0


def _core_times(stat: Path) -> tuple[int, int]:
    """Idle time (waiting for a disk included) and all time of all cores since they started."""
    times = [int(word) for word in stat.read_text().splitlines()[0].split()[1:9]]
    return times[3] + times[4], sum(times)


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """Say what is being done, and again while it takes long: also into a pipe, where there is no bar."""
    ended, start = threading.Event(), time.monotonic()

    def beat() -> None:
        while not ended.wait(BEAT):
            print(f"{what}: {time.monotonic() - start:.0f} s", flush=True)

    print(f"{what} ...", flush=True)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _agreement(subject: Subject) -> Agreement:
    """Whether a far more exact solve gives the same answers: on the test images, by the same method."""
    block = next(block for block in subject.model.blocks if isinstance(block, ODEBlock))
    tolerance = float(torch.as_tensor(block.solver.rtol).max())
    tight = subject.model.with_solver(rtol=tolerance / TIGHTER, atol=tolerance / TIGHTER).eval()
    same = count = 0
    for images, _ in subject.images():
        with torch.no_grad():
            same += int((subject.model(images).argmax(1) == tight(images).argmax(1)).sum())
        count += len(images)
    return Agreement(tolerance, tolerance / TIGHTER, same, count)


def _next_line(out: Path) -> str:
    """What to type next: in a clone where `make demo` put the networks, its own target, which also installs what is needed."""
    if Path("Makefile").is_file() and out == Path("runs/demo"):
        return "make explore"
    return f"continua explore {' '.join(shlex.quote(str(out / name)) for name in MODELS)}"


def _recipe(name: str, changes: Plain, options: RunOptions) -> Recipe:
    shared = merged({}, changes)
    if common := options_in_common(name, shared.pop("model_options", {})):
        shared["model_options"] = common
    return resolve(load_recipe("demo", merged(shared, {"model": name, **MODELS[name]})), chosen_device(options.device))


def _check(out: Path, recipes: Mapping[str, Recipe]) -> None:
    """Before anything is trained: what lies in the folder must be of this demo."""
    for name, recipe in recipes.items():
        run = Run(out / name)
        if run.exists and identity(run.recipe) != identity(recipe):
            raise ConfigError(f"{run.folder} holds a run by another recipe than this demo's; remove {out}, or choose another --out")


def _trained(recipe: Recipe, folder: Path, options: RunOptions) -> Run:
    run = Run(folder)
    if run.result is not None:
        print(f"{recipe.model}: trained already, in {folder}", flush=True)
        return run
    print(f"{recipe.model}: {'continuing' if run.exists else 'training'} for {recipe.epochs} epochs in {folder}", flush=True)
    return resume(folder, options) if run.exists else train(recipe, folder, options)


def _asked(name: str, subject: Subject, options: Plain) -> Answer:
    question = find_question(name)
    return answer(question, [subject], replace(question.Options(), **options), pictures=())
