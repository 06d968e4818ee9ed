"""What the command line makes and prints: a resumed training, studies, the kept runs, listings and recipes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file

from golden_parts.book import Book
from golden_parts.networks import pictures
from golden_parts.spellings import first_names, load_network, run_identity, solver_options

ROOT = Path(__file__).resolve().parents[2]
CPU = ("--device", "cpu")
ONE_THREAD = (*CPU, "--threads", "1")
QUIET = (*ONE_THREAD, "--progress", "off")
PAPERS = ("dcn", "anodev2", "features", "rknet")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "continua", *words]


def environment(folder: Path) -> dict[str, str]:
    """One thread, this tree's source, no data or runs but those made here."""
    own = dict(PYTHONPATH=str(ROOT / "src"), OMP_NUM_THREADS="1", COLUMNS="200", NO_COLOR="1", CONTINUA_DATA=str(folder / "data"))
    return {name: value for name, value in os.environ.items() if not name.startswith("CONTINUA_")} | own


def output_of(folder: Path, *words: str) -> str:
    """What a command prints when run in a folder."""
    done = subprocess.run(command(*words), cwd=folder, env=environment(folder), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"continua {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def record_run(book: Book, label: str, run: Path) -> None:
    """A run made here, without what the clock decides: configuration, metrics, result, weights, logits."""
    config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    book.add(f"{label}/config", without_folders(config))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    lines = [line | {"sigma": first_names(line["sigma"])} if "sigma" in line else line for line in lines]
    book.add(f"{label}/metrics", {f"line {place}": line for place, line in enumerate(lines, 1)})
    book.add(f"{label}/result", json.loads((run / "result.json").read_text("utf-8")))
    weights = first_names(load_file(run / "best" / "model.safetensors"))
    book.add(f"{label}/weights", torch.cat([weights[name].reshape(-1).double() for name in sorted(weights)]))
    record_answer(book, label, run, 1)


def record_answer(book: Book, label: str, run: Path, channels: int) -> None:
    """What the network of a finished run answers to a fixed batch."""
    net = load_network(run)
    with torch.no_grad():
        book.add(f"{label}/names", ", ".join(first_names(net.state_dict())))
        book.add(f"{label}/output", net(pictures(channels, 16)))


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """A recipe whose encoder is named by its run alone: where it lies is the machine's business."""
    return config | {"encoder": config.get("encoder") and Path(config["encoder"]).name}


TINY = {
    "model_options": dict(
        channels=[4, 8], stem_padding=1, norm_groups=4, solver=solver_options(method="dopri5", rtol=0.05, atol=0.05, first_step=0.5)
    ),
    **dict(data="digits", per_class=8, epochs=8, batch_size=16, holdout=0.25, selection="holdout", ema=0.9, label_smoothing=0.1),
    **{"augmentation.crop_padding": 1, "precision": "float32"},
}


def write_training(book: Book) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with book.attempt("resumed"):
            fields = [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in TINY.items()]
            run = train_with_a_stop(folder, "--recipe", "demo", "--model", "dcn_ode", *fields)
            book.add("resumed/folder", run.name)
            record_run(book, "resumed", run)
            record_evaluation(book, "resumed", run)
        with book.attempt("decoder"):
            (encoder,) = folder.glob("runs/*")
            fields = ["--data=digits", "--per_class=4", "--epochs=2", "--batch_size=16", "--precision=float32", "--out=decoder"]
            output_of(folder, "train", "--recipe", "reconstruction", "--encoder", str(encoder), *fields, *QUIET)
            record_run(book, "decoder", folder / "decoder")
            record_evaluation(book, "decoder", folder / "decoder")


def record_evaluation(book: Book, label: str, run: Path) -> None:
    """What `continua evaluate` finds."""
    target = run / "evaluation.json"
    output_of(run.parent, "evaluate", run.name, "--out", str(target), *CPU)
    book.add(f"{label}/evaluation", json.loads(target.read_text("utf-8")))


def train_with_a_stop(folder: Path, *words: str) -> Path:
    """Stopped after its second epoch, wherever in a later one SIGTERM arrives: a resumed training does not depend on that."""
    words = ("train", *words, "--runs", "runs", "--checkpoint_minutes", "1e-9", *QUIET)
    with subprocess.Popen(command(*words), cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and sum(path.read_bytes().count(b"\n") for path in folder.glob("runs/*/metrics.jsonl")) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.wait()
    if process.returncode != 128 + signal.SIGTERM:
        raise RuntimeError(f"the training was to stop on SIGTERM with exit code {128 + signal.SIGTERM}; it ended with {process.returncode}")
    (config,) = folder.glob("runs/*/config.yaml")
    output_of(folder, "train", "--resume", str(config.parent), *QUIET)
    return config.parent


def write_studies(book: Book) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for paper in PAPERS:
            with book.attempt(paper):
                output_of(folder, "reproduce", paper, "--scale", "smoke", "--runs", "runs", *ONE_THREAD)
        for path in sorted(folder.glob("runs/studies/*/smoke/results.json")):
            study, written = path.parents[1].name, json.loads(path.read_text("utf-8"))
            with book.attempt(study):
                runs = written.pop("runs")
                written["entry"].pop("runs", None)  # the same once more
                book.add(study, written)
                for run in runs:
                    label = f"{study}/runs/{run['row']}, seed {run['seed']}"
                    book.add(f"{label}/identity", run["identity"])
                    record_run(book, label, folder / "runs" / run["folder"])


def write_runs(book: Book) -> None:
    for path in sorted((ROOT / "results").rglob("config.yaml")):
        label = path.parent.relative_to(ROOT / "results").as_posix().replace("/", "-")
        with book.attempt(label):
            book.add(f"{label}/identity", run_identity(path.parent))
            record_answer(book, label, path.parent, 3)
    with tempfile.TemporaryDirectory() as name, book.attempt("recognised"):
        folder = Path(name)  # the runs without the studies' entries: the list then says how many runs of each it recognises
        for paper in PAPERS:
            (folder / "results" / paper).mkdir(parents=True)
            for run in (path for path in (ROOT / "results" / paper).iterdir() if path.is_dir()):
                shutil.copytree(run, folder / "results" / paper / run.name)
        listed = output_of(folder, "reproduce", "--list", "--scale", "cpu", "--runs", "none", *CPU)
        for line in listed.splitlines():
            if match := re.match(r"(\w+/\w+) .*?(\d+ of \d+ runs|not run)", line):
                book.add(f"recognised/{match[1]}", match[2])


NEEDED = {  # what a recipe leaves to whoever uses it: a finished run; ImageNet, which is counted where it lies
    "reconstruction": ("--encoder", str(ROOT / "results/dcn/dcn_ode-cifar10-seed0-f0e00ef1")),
    "rknet_imagenet": ("--drop_last", "true"),
}


def write_texts(book: Book) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with book.attempt("models"):
            book.add("models", {line.split()[0]: line.rstrip() for line in output_of(folder, "models").splitlines() if line.strip()})
            book.add("models as JSON", {entry["name"]: entry for entry in json.loads(output_of(folder, "models", "--json"))})
        for path in sorted(Path(str(files("continua") / "recipes")).glob("*.yaml")):
            with book.attempt(f"recipe {path.stem}"):
                printed = output_of(folder, "train", "--recipe", path.stem, "--print-config", *CPU, *NEEDED.get(path.stem, ()))
                book.add(f"recipe {path.stem}", without_folders(yaml.safe_load(printed)))
