"""Carry out a study: train what is missing, ask, compare, write. Whatever is finished is found again by its configuration."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from continua.report import Entry, Maps, Page, entry_environment, to_plain, write_html, write_page, write_text
from continua.runs import Run, describe_environment, identity, write_yaml
from continua.studies.claims import claim_text, verdict
from continua.studies.runs import Places, Runs, Wanted, wanted_runs
from continua.studies.study import Claim, Finding, Study
from continua.studies.written import KEPT, study_folder
from continua.train import RunOptions

Train = Callable[[Sequence[Wanted], RunOptions], None]


@dataclass(frozen=True)
class Reproduction:
    """A study at a scale: where it is written, what it found."""

    study: Study
    scale: str
    folder: Path
    finding: Finding
    entry: Entry
    runs: Sequence[Wanted]

    @property
    def page(self) -> Page:
        return study_page(self.entry, self.finding.claims)


def reproduce(
    study: Study, scale: str, *, seeds: int | None = None, runs: Path | None = None, options: RunOptions, train: Train
) -> Reproduction:
    """The whole study. `train` brings runs to their end; it may be interrupted at any moment and called again."""
    setting = study.setting(scale)
    options = replace(options, threads=options.threads or setting.threads)
    numbers = range(seeds or setting.seeds)
    while True:
        wanted = list(wanted_runs(study, scale, numbers, Places(runs, [KEPT], options)))
        missing = [one for one in wanted if not one.finished]
        if not missing:
            break
        train(missing, options)
    out = study_folder(study, scale, runs)
    finding = study.ask(Runs(study, scale, wanted, options, out))
    entry = study_entry(study, scale, len(numbers), finding, wanted)
    found = Reproduction(study, scale, out, finding, entry, wanted)
    _write(found)
    return found


def train_here(missing: Sequence[Wanted], options: RunOptions) -> None:
    """One after the other in this process."""
    from continua.train import resume, train

    for place, one in enumerate(missing, 1):
        print(f"run {place} of {len(missing)} that are missing: {one.name} ({one.run.folder})")
        if one.run.exists:
            resume(one.run.folder, options)
        else:
            train(one.recipe, one.run.folder, options)


def study_entry(study: Study, scale: str, seeds: int, finding: Finding, wanted: Sequence[Wanted]) -> Entry:
    """What is published: the numbers, how they were made, what was reduced."""
    setting = study.setting(scale)
    environments = [json.loads(one.run.environment.read_text("utf-8")) for one in wanted if one.run.environment.is_file()]
    environment = entry_environment(environments[0] if environments else describe_environment(torch.device("cpu"), 1))
    if wanted:
        environment |= {"precision": ", ".join(sorted({one.recipe.precision for one in wanted}))}
    command = f"continua reproduce {study.id} --scale {scale}" + (f" --seeds {seeds}" if seeds != setting.seeds else "")
    if wanted and setting.threads is not None and environment.get("threads") != setting.threads:
        command += f" --threads {environment.get('threads')}"  # another number is equal to rounding only, not bit for bit
    return Entry(
        title=f"{study.id}: {study.title}",
        paper=study.paper,
        asked=study.question,
        commands=[command],
        reduced=list(setting.reduced),
        environment=environment,
        parts=list(finding.parts),
        notes=[claim_text(claim) for claim in finding.claims],
        runs=[{"row": one.row.label, "seed": one.recipe.seed, "folder": one.run.folder.name} for one in wanted],
    )


def study_page(entry: Entry, claims: Sequence[Claim]) -> Page:
    """A study as a page of the report."""
    reduced = "Reduced from the paper: " + "; ".join(entry.reduced) + "." if entry.reduced else "The paper's own setting."
    said = [claim_text(claim).replace("**", "") for claim in claims]
    on = f"Run on: {', '.join(f'{name} {value}' for name, value in entry.environment.items())}."
    return Page(entry.title, [f"{entry.paper}. {entry.asked}", *entry.parts, *said, reduced, on, f"Again: {entry.commands[0]}"])


def _write(found: Reproduction) -> None:
    """results.json last: where it is, the study is whole. What an earlier time left goes first: with more seeds the pictures change."""
    for stale in [found.folder / "results.json", *found.folder.glob("*.*")]:
        stale.unlink(missing_ok=True)
    write_page(found.page, found.folder, ("png", "svg"))
    write_html(found.page, found.folder / "page.html")
    runs = [
        {
            "row": one.row.label,
            "seed": one.recipe.seed,
            "identity": identity(one.recipe),
            "folder": one.run.folder.name,
            "result": one.run.result,
        }
        for one in found.runs
    ]
    written: dict[str, Any] = {
        "study": found.study.id,
        "scale": found.scale,
        "verdict": verdict(found.finding.claims, found.scale),
        "claims": [asdict(claim) for claim in found.finding.claims],
        "entry": to_plain(found.entry),
        "runs": runs,
    }
    write_text(found.folder / "results.json", json.dumps(written, indent=1, ensure_ascii=False) + "\n")


def keep(found: Reproduction, folder: Path = KEPT) -> list[Path]:
    """Put a study with the project: its entry without images of the data set, and of each run the weights and the small files."""
    paper, _, name = found.study.id.partition("/")
    parts = [part for part in found.entry.parts if not (found.study.shows_images and isinstance(part, Maps))]
    made = [replace(found.entry, parts=parts).write(folder / paper / f"{name}.json")]
    for one in found.runs:
        target = folder / paper / one.run.folder.name
        if one.run.folder.resolve() != target.resolve():
            made.append(_copy_run(one.run, target))
    return made


def _copy_run(run: Run, target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    for path in (run.config, run.metrics, run.result_file):
        shutil.copyfile(path, target / path.name)
    recipe = run.recipe
    if recipe.encoder is not None:  # kept beside it, so that is where it is named
        kept = replace(recipe, encoder=(target.parent / Path(recipe.encoder).name).as_posix())
        write_text(target / run.config.name, write_yaml(kept))
    environment = json.loads(run.environment.read_text("utf-8"))
    environment.pop("system", None)  # whose machine it was is nobody's business
    write_text(target / run.environment.name, json.dumps(environment, indent=2) + "\n")
    shutil.copytree(run.best, target / "best", dirs_exist_ok=True)
    return target
