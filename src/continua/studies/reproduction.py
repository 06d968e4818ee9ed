"""Carry out a study: train what is missing, ask, compare, write; and what is on disk of those that were carried out, one's own or kept."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from continua.errors import ConfigError, unknown_name
from continua.files import write_text
from continua.reading import read_json_object
from continua.report import (
    EARLIER,
    VERSION,
    Entry,
    Figure,
    Maps,
    Page,
    Part,
    RunOfEntry,
    entry_environment,
    from_plain,
    read_entry,
    to_plain,
    write_html,
    write_page,
)
from continua.runs import Run, describe_environment, identity, run_folders, runs_folder, write_yaml
from continua.studies.claims import decided, verdict_text
from continua.studies.plain import PLAIN_WORDS
from continua.studies.published import Trained, reduced
from continua.studies.runs import Places, Runs, Train, Wanted, wanted_runs
from continua.studies.study import SCALES, STUDIES, Finding, Row, Study
from continua.train import RunOptions

KEPT = Path("results")  # runs that are kept with the project, in folders one or two levels down
MOST_BYTES = 2_000_000  # runs with weights from this size on are not kept


@dataclass(frozen=True)
class Reproduction:
    """A study at a scale: where it is written, and its finding."""

    study: Study
    scale: str
    folder: Path
    finding: Finding
    entry: Entry
    runs: Sequence[Wanted]

    @property
    def page(self) -> Page:
        return study_page(self.entry)


def reproduce(
    study: Study, scale: str, *, seeds: int | None = None, runs: Path | None = None, options: RunOptions, train: Train | None
) -> Reproduction:
    """The whole study. `train` brings runs to their end; it may be interrupted at any moment and called again. None: as far as it is.

    Args:
        study: as `find_study` gives it.
        scale: "smoke", "cpu", "wide" or "paper": how much is reduced from the paper.
        seeds: runs of each row; None: the scale's own number.
        runs: folder of all runs.
        options: device, threads and data folder of the runs.
        train: brings missing runs to their end, such as `train_here`; it may be interrupted at any moment and called again. None: nothing
            is trained, and what is finished is compared.

    Returns:
        The study as carried out: `study`, `scale`, `folder` (page.html, results.json and pictures), `finding` (parts and claims), `entry`
        (what is published), `runs` and `page`.

    Raises:
        ConfigError: the study has no such scale, or needs data that are not here.

    Examples:
        >>> from continua.studies import find_study, reproduce, train_here
        >>> from continua.train import RunOptions
        >>> made = reproduce(find_study("dcn/table2a"), "smoke", options=RunOptions(), train=train_here)  # doctest: +SKIP
    """
    setting = study.setting(scale)
    options = replace(options, threads=options.threads or setting.threads)
    numbers = range(seeds or setting.seeds)
    planned = max(len(numbers), setting.seeds)  # fewer seeds, asked for or finished, judge nothing
    while True:
        wanted = list(wanted_runs(study, scale, numbers, Places(runs, [KEPT], options)))
        missing = [run for run in wanted if not run.finished]
        if not missing:
            break
        if train is None:
            wanted = [run for run in wanted if run.finished]
            break
        train(missing, options)
    out = study_folder(study, scale, runs)
    finding = study.ask(Runs(study, scale, wanted, options, answers_folder(runs)))
    finding = replace(finding, claims=decided(finding.claims, planned))
    entry = study_entry(study, scale, len(numbers), finding, wanted)
    made = Reproduction(study, scale, out, finding, entry, wanted)
    _write(made)
    return made


def train_row(study: Study, scale: str, row: str, seed: int, *, runs: Path | None, options: RunOptions, train: Train) -> Wanted:
    """One run of a study, and the one that it decodes: begun, gone on with where it was stopped, or left alone where it is finished.

    Args:
        study: the study.
        scale: how much is reduced from the paper.
        row: name of the row.
        seed: of the run.
        runs: folder of all runs.
        options: device, threads and data folder.
        train: brings the run to its end.

    Returns:
        The run.

    Raises:
        ConfigError: the study has no such row.

    Examples:
        >>> from continua.studies import train_row
        >>> train_row(study, "cpu", "DCN-ODE, 52 per class", 0, runs=None, options=options, train=train_here)  # doctest: +SKIP
    """
    setting = study.setting(scale)
    options = replace(options, threads=options.threads or setting.threads)
    known = {item.label: item for item in study.rows(scale)}
    if row not in known:
        raise unknown_name(f"row of {study.id} at {scale}", row, known)
    names = {row, known[row].encoder}
    while True:
        wanted = [run for run in wanted_runs(study, scale, [seed], Places(runs, [KEPT], options)) if run.row.label in names]
        missing = [run for run in wanted if not run.finished]
        if not missing:
            return wanted[-1]
        train(missing, options)


def ask_kept(study: Study, *, options: RunOptions, kept: Path = KEPT, out: Path | None = None) -> Reproduction:
    """The study asked anew of the runs that its kept entry names, by whichever recipe they were made: claims of today, numbers of then.

    Args:
        study: the study.
        options: device, threads and data folder.
        kept: folder of kept entries and runs.
        out: folder for what is written; None: that of the study.

    Returns:
        The study, as `reproduce` gives it.

    Raises:
        ConfigError: the study has no kept entry, or runs of it are missing.

    Examples:
        >>> from continua.studies import ask_kept, find_study
        >>> from continua.train import RunOptions
        >>> ask_kept(find_study("dcn/table2a"), options=RunOptions())  # doctest: +SKIP
    """
    path = kept / f"{study.id}.json"
    if not path.is_file():
        raise ConfigError(f"{study.id} has no kept entry ({path}); `continua reproduce {study.id}` makes one")
    entry = read_entry(path)
    names = {folder.name: Run(folder) for folder in run_folders(kept)}
    missing = [run.folder for run in entry.runs if run.folder not in names]
    if missing:
        raise ConfigError(f"{path} names runs that are not under {kept}: {', '.join(missing)}")
    wanted = [Wanted(Row(run.row, ""), names[run.folder].recipe, names[run.folder]) for run in entry.runs]
    folder = out or study_folder(study, entry.scale)
    seeds = len({run.seed for run in entry.runs})
    today = {identity(run.recipe) for run in wanted_runs(study, entry.scale, range(seeds), Places(None, [kept], options))}
    earlier = not {(run.run.result or {}).get("identity") for run in wanted} <= today
    planned = 0 if earlier else study.setting(entry.scale).seeds  # the plan of earlier recipes is gone: the seeds that are there
    finding = study.ask(Runs(study, entry.scale, wanted, options, answers_folder()))
    finding = replace(finding, claims=decided(finding.claims, planned))
    made = study_entry(study, entry.scale, seeds, finding, wanted)
    command = f"continua reproduce {study.id} --kept"
    made = replace(made, earlier=earlier, commands=[command] if earlier else made.commands, environment=entry.environment)
    return Reproduction(study, entry.scale, folder, finding, made, wanted)


def study_entry(study: Study, scale: str, seeds: int, finding: Finding, wanted: Sequence[Wanted]) -> Entry:
    """What is published: the numbers, how they were made, what was reduced."""
    setting = study.setting(scale)
    environments = [machine for run in wanted if (machine := run.run.machine)]
    environment = entry_environment(environments[0] if environments else describe_environment(torch.device("cpu"), 1))
    if wanted:
        environment |= {"precision": ", ".join(sorted({run.recipe.precision for run in wanted}))}
    command = f"continua reproduce {study.id} --scale {scale}" + (f" --seeds {seeds}" if seeds != setting.seeds else "")
    if wanted and setting.threads is not None and environment.get("threads") != setting.threads:
        command += f" --threads {environment.get('threads')}"  # another number is equal to rounding only, not bit for bit
    return Entry(
        title=f"{study.id}: {study.title}",
        paper=study.paper,
        asked=study.question,
        plain=PLAIN_WORDS.get(study.id, ""),
        commands=[command],
        reduced=reduced(study, scale, seeds, [Trained(run.row.label, run.recipe) for run in wanted]),
        environment=environment,
        parts=[without_printed(part) for part in finding.parts] if scale == "smoke" else list(finding.parts),
        study=study.id,
        scale=scale,
        printed=study.printed,
        claims=list(finding.claims),
        runs=[RunOfEntry(run.row.label, run.recipe.seed, run.run.folder.name) for run in wanted],
    )


def without_printed(part: Part) -> Part:
    """A figure without the printed curves: a smoke run trains for seconds, and a curve of it beside a printed one compares nothing."""
    if not isinstance(part, Figure) or all(series.name.endswith("printed") for series in part.series):
        return part
    ours = [series for series in part.series if not series.name.endswith("printed")]
    note = "Printed curves are not drawn beside a smoke run."
    return part if len(ours) == len(part.series) else replace(part, series=ours, caption=note)


def study_page(entry: Entry) -> Page:
    """A study as a page of the report."""
    differs = f"{EARLIER} {entry.differs}" if entry.earlier else entry.differs
    said = [f"Claim: {claim.sentence}." for claim in entry.claims]
    on = f"Run on: {', '.join(f'{name} {value}' for name, value in entry.environment.items())}."
    return Page(entry.title, [f"{entry.paper}. {entry.asked}", *entry.parts, *said, differs, on, f"Again: {entry.commands[0]}"])


def _write(made: Reproduction) -> None:
    """results.json last: where it is, the study is whole. What an earlier time left goes first: with more seeds the pictures change."""
    for stale in [made.folder / "results.json", *made.folder.glob("*.*")]:
        stale.unlink(missing_ok=True)
    write_page(made.page, made.folder, ("png", "svg"))
    write_html(made.page, made.folder / "page.html")
    runs = []
    for run in made.runs:
        who = {"row": run.row.label, "seed": run.recipe.seed, "identity": identity(run.recipe)}
        runs.append({**who, "folder": run.run.folder.name, "result": run.run.result})
    written = {
        "version": VERSION,
        "study": made.study.id,
        "scale": made.scale,
        "verdict": verdict_text(made.finding.claims, made.scale),
        "entry": to_plain(made.entry),
        "runs": runs,
    }
    write_text(made.folder / "results.json", json.dumps(written, indent=1, ensure_ascii=False) + "\n")


def keep(made: Reproduction, folder: Path = KEPT) -> list[Path]:
    """Put a study with the project: its entry without images of the data set, and of each run the small files and the weights.

    Runs whose weights have 2 MB or more are left out.

    Args:
        made: what `reproduce` gave.
        folder: of kept entries.

    Returns:
        The files.

    Examples:
        >>> from continua.studies import keep
        >>> keep(made)  # doctest: +SKIP
    """
    paper, _, name = made.study.id.partition("/")
    parts = [part for part in made.entry.parts if not (made.study.shows_images and isinstance(part, Maps))]
    kept = [replace(made.entry, parts=parts).write(folder / paper / f"{name}.json")]
    elsewhere = {path.name for path in run_folders(folder) if path.parent != folder / paper}
    for run in made.runs:
        target = folder / paper / run.run.folder.name
        there = target.name in elsewhere or folder.resolve() in run.run.folder.resolve().parents  # studies share runs, which are kept once
        if not there and all(path.stat().st_size < MOST_BYTES for path in run.run.best.iterdir()):
            kept.append(_copy_run(run.run, target))
    return kept


def _copy_run(run: Run, target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    for path in (run.config, run.metrics, run.result_file):
        shutil.copyfile(path, target / path.name)
    recipe = run.recipe
    if recipe.encoder is not None:  # kept beside it, so that is where it is named
        kept = replace(recipe, encoder=(target.parent / Path(recipe.encoder).name).as_posix())
        write_text(target / run.config.name, write_yaml(kept))
    environment = run.machine
    environment.pop("system", None)  # whose machine it was is nobody's business
    write_text(target / run.environment.name, json.dumps(environment, indent=2) + "\n")
    shutil.copytree(run.best, target / "best", dirs_exist_ok=True)
    return target


# --- on disk --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A study as it was carried out and written."""

    study: Study
    entry: Entry

    @property
    def scale(self) -> str:
        return self.entry.scale


def study_folder(study: Study, scale: str, runs: "Path | None" = None) -> Path:
    """Where a study is written: under the folder of all runs."""
    return runs_folder(runs) / "studies" / study.id.replace("/", "-") / scale


def answers_folder(runs: "Path | None" = None) -> Path:
    """Where the answers lie that studies ask for: one folder for all, since several ask the same of the same networks."""
    return runs_folder(runs) / "studies" / "analysis"


def written_studies(runs: "Path | None" = None, kept: Path = KEPT) -> dict[str, dict[str, Written]]:
    """Every study that was carried out, by id and scale. One's own is taken before the kept one of the same scale."""
    by_id: dict[str, dict[str, Written]] = {}
    for study in STUDIES.values():
        path = kept / f"{study.id}.json"
        scales: dict[str, Written] = {}
        if path.is_file() and (entry := read_entry(path)).study == study.id and entry.scale in SCALES:
            scales[entry.scale] = Written(study, entry)
        for scale in SCALES:
            path = study_folder(study, scale, runs) / "results.json"
            if path.is_file():
                scales[scale] = Written(study, _read(path, study, scale))
        if scales:
            by_id[study.id] = scales
    return by_id


def largest(scales: Mapping[str, Written]) -> Written:
    """The one at the largest scale: nearest to the paper."""
    return scales[max(scales, key=SCALES.index)]


def _read(path: Path, study: Study, scale: str) -> Entry:
    try:
        data = read_json_object(path)
        return from_plain(Entry, data["entry"] if data.get("version") == VERSION else _upgraded(data, study, scale))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); `continua reproduce {study.id} --scale {scale}` writes it again") from None


def _upgraded(data: Mapping[str, Any], study: Study, scale: str) -> dict[str, Any]:
    """The entry that format 1 of results.json held: its claims were sentences among the notes, and stood beside it as data."""
    words = {True: "holds", False: "fails", None: "undecided"}
    claims = [{"hypothesis": claim["text"], "verdict": words[claim["holds"]]} for claim in data.get("claims", [])]
    return {**data["entry"], "notes": [], "study": study.id, "scale": scale, "claims": claims}
