"""The training loop. Data order, augmentation, dropout and learning rate are functions of (seed, epoch, batch), so that a training that was
stopped anywhere goes on exactly as if it had not been."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from continua.data import Batch, Loader
from continua.errors import ContinuaError
from continua.files import Json, refuse_links
from continua.machine import enough_memory
from continua.runs import Evaluation, Recipe, Run, costs, evaluate, identity, readable_errors, stored_identities
from continua.train.checkpoint import checkpoint_path, fitting_state, load_last_checkpoint, plain_number, save_checkpoint
from continua.train.metrics import EpochSums, Journal, Progress, remarks
from continua.train.optimiser import AveragedWeights, Plateau, lr_factor, set_lr, sigmas
from continua.train.step import Parts, StopSignal, TrainingStep, laid_out
from continua.train.trackers import Tracker


@dataclass(frozen=True)
class RunOptions:
    """How to run, not what: nothing here changes the result or the identity of a run.

    `track`: where the numbers of each epoch go besides metrics.jsonl: "tensorboard", "wandb", "mlflow", "trackio", several separated by
    commas; or a sequence of such names and of objects of one's own with `start`, `log` and `finish` (`Tracker`).
    """

    data_dir: Path | None = None
    device: str = "auto"
    threads: int | None = None
    progress: str = "auto"
    tensorboard: bool = False  # the same as track="tensorboard"
    track: "str | tuple[str | Tracker, ...]" = ()
    checkpoint_minutes: float = 5.0
    rank_timeout: float = 600.0

    @property
    def tracked(self) -> "tuple[str | Tracker, ...]":
        """All that is asked to follow the training."""
        asked = self.track.split(",") if isinstance(self.track, str) else self.track
        words = [word.strip() if isinstance(word, str) else word for word in asked]
        return (*(["tensorboard"] if self.tensorboard else []), *(word for word in words if word != ""))


class TrainingStopped(ContinuaError):
    """The failure policy or the divergence guard ended a training."""


class Interrupted(Exception):
    """A signal asked for an end; everything up to here is saved."""

    def __init__(self, where: str, folder: Path, signal: int) -> None:
        super().__init__(where)
        self.folder, self.signal = folder, signal


class Training:
    """One run: its state, and the steps that change it."""

    def __init__(self, run: Run, recipe: Recipe, parts: Parts, options: RunOptions, stop: StopSignal | None = None) -> None:
        """`stop`: whoever owns the process's signals says there when to stop; without it the loop owns them."""
        self.run, self.recipe, self.identity, self.options = run, recipe, identity(recipe), options
        self.parts, self.fabric, self.net, self.optimiser = parts, parts.fabric, parts.net, parts.optimiser
        self.stop = stop or StopSignal()
        self.take_step = TrainingStep(parts, recipe, self.stop)
        self.journal = Journal(run, parts.fabric.is_global_zero, options.tracked)
        self.average = AveragedWeights(self.net, recipe.ema) if recipe.ema else None
        self.plateau, self.sums = Plateau(), EpochSums()
        self.best: Json | None = None
        self.epoch = self.batch = self.step = self.high_losses = 0
        self.good_step: int | None = None  # of the last checkpoint that was not written amid high losses
        self.first_loss: float | None = None
        self.seconds, self.lr = 0.0, recipe.optimiser.lr
        self._saved_at = self._clock = time.monotonic()

    def fit(self) -> Json:
        """Train to the end and report. Raises Interrupted or TrainingStopped once all there is to save is saved."""
        batches, shown = len(self.parts.train), self.options.progress if self.fabric.is_global_zero else "off"
        done, notes = self.epoch * batches + self.batch, remarks(self.net)
        with self.stop.listening(), Progress(shown, self.recipe.epochs, batches, done, notes) as progress:
            result: Json | None = None
            try:
                while self.epoch < self.recipe.epochs:
                    speed = self._train_epoch(progress)
                    progress.epoch(self._end_epoch(speed))
                result = self._finish()
                return result
            finally:
                self.journal.close(result)

    # --- an epoch -----------------------------------------------------------------------------------------------------

    def _train_epoch(self, progress: Progress) -> float:
        """The batches that are left of this epoch; images per second."""
        self.parts.module.train()
        self._agree_on_batches()
        start, before, has_accuracy = time.monotonic(), self.sums.images, self.parts.task.has_accuracy
        for batch in self.parts.train.epoch(self.epoch, self.batch):
            stop = self._train_batch(batch)
            self.batch, self.step = self.batch + 1, self.step + 1
            accuracy = self.sums.mean(self.sums.correct) if has_accuracy else None
            progress.step(self.epoch, self.sums.mean(self.sums.loss) or 0.0, accuracy, costs(self.net.stats, "nfe"))
            if stop:
                self._save()
                raise Interrupted(
                    f"epoch {self.epoch + 1}, batch {self.batch} of {len(self.parts.train)}", self.run.folder, self.stop.number
                )
            late = time.monotonic() - self._saved_at > 60 * self.options.checkpoint_minutes
            if late and self.batch < len(self.parts.train):
                self._save()
        return (self.sums.images - before) / max(1e-9, time.monotonic() - start)

    def _agree_on_batches(self) -> None:
        """Ranks that see different data would take different numbers of steps, and the last ones wait for ever: said before an epoch."""
        ranks, own = self.fabric.world_size, len(self.parts.train)
        if ranks == 1:
            return
        total, squares = self.take_step.sum_over_ranks([own, own * own])
        if ranks * squares != total * total:  # only equal numbers make both sums agree
            raise ContinuaError(
                f"rank {self.fabric.global_rank} has {own} batches in an epoch, and all {ranks} ranks together have {total:.0f}: "
                "they do not see the same data. Give each the same --data-dir, then --resume"
            )

    def _end_epoch(self, speed: float) -> Json:
        """Look at held-out images, choose, write the epoch's line, save."""
        recipe, sums, done = self.recipe, self.sums, self.epoch + 1
        held = self._watch(self.parts.holdout) if self.parts.holdout is not None else None
        look = recipe.selection == "paper" or (recipe.test_every > 0 and done % recipe.test_every == 0)
        tested = self._watch(self.parts.test) if look else None
        line = {
            "event": "epoch",
            "epoch": done,
            "step": self.step,
            "lr": self.lr,
            "loss": sums.mean(sums.loss),
            "train_accuracy": sums.mean(sums.correct) if self.parts.task.has_accuracy else None,
            **_shown("holdout", held),
            **_shown("test", tested),
            **({"penalty": sums.mean(sums.penalty)} if sums.penalty else {}),
            "nfe": sums.per_batch(sums.nfe),
            "nfe_backward": sums.per_batch(sums.nfe_backward),
            "rejected": sums.per_batch(sums.rejected),
            "sigma": sigmas(self.net),
            "gradient_norm": sums.gradient_norm / max(1, sums.batches),
            "images": sums.images,
            "skipped": sums.skipped,
            "images_per_second": round(speed, 1),
            "seconds": round(self._seconds(), 3),
        }
        watched = tested if recipe.selection == "paper" else held
        if watched is not None:
            self.plateau.see(watched.score, recipe.schedule)
        if recipe.selection != "last" and watched is not None and (self.best is None or watched.score > self.best["score"]):
            self.best = {"score": watched.score, "epoch": done, "net": self._weights()}
        self.journal.line(line)
        self.epoch, self.batch, self.sums = done, 0, EpochSums()
        self._save()
        return line

    def _watch(self, loader: Loader) -> Evaluation:
        """Held-out images, with the weights that would be saved now."""
        with nullcontext() if self.average is None else self.average.applied():
            return self._evaluate(loader)

    def _evaluate(self, loader: Loader) -> Evaluation:
        """The network as it is on all ranks' images."""

        def forward(images: Tensor) -> Tensor:
            with self.fabric.autocast():
                return self.net(laid_out(images, self.recipe.channels_last))

        with enough_memory(f"{self.recipe.model} on {loader.batch_size} images at a time", "a smaller evaluation_batch_size needs less"):
            own = evaluate(self.net, loader, task=self.parts.task, forward=forward)
        return own.over_ranks(self.take_step.sum_over_ranks)

    # --- a batch ------------------------------------------------------------------------------------------------------

    def _train_batch(self, batch: Batch) -> bool:
        """One step, or none where the batch fails; whether some rank was asked to stop."""
        recipe, each = self.recipe, 1 / len(self.parts.train)
        progress = self.epoch + self.batch * each
        self.lr = recipe.optimiser.lr * lr_factor(recipe.schedule, progress, recipe.epochs, each, self.plateau.drops)
        set_lr(self.optimiser, self.lr)
        with self._enough_memory(batch):
            result = self.take_step(batch, self.step, progress)
        if result.retried is not None:
            factor, problem = result.retried
            self.journal.event("retried", self.epoch + 1, self.batch, tolerances_times=factor, diagnosis=problem)
        if result.failure is not None:
            self._skip(result.failure)
            return result.stop
        self.sums.add(result)
        if self.average is not None:
            self.average.update()
        self._guard(result.total / max(1, result.images))
        return result.stop

    def _enough_memory(self, batch: Batch) -> AbstractContextManager[None]:
        count, *shape = batch.images.shape
        images = f"a step of {self.recipe.model} with {count} images of {'×'.join(map(str, shape))}"
        return enough_memory(
            images,
            "what is saved stays: a smaller batch_size needs less, as do narrower channels, smaller images, "
            "and solver.gradient checkpoint in place of direct",
        )

    def _skip(self, problem: str) -> None:
        policy = self.recipe.failure
        self.sums.skipped += 1
        self.journal.event("skipped", self.epoch + 1, self.batch, diagnosis=problem)
        if policy.policy == "stop":
            self._give_up(f"a batch failed and failure.policy is 'stop': {problem}")
        if self.sums.skipped > policy.max_skipped:
            self._give_up(f"{self.sums.skipped} batches of one epoch failed, more than failure.max_skipped; the last: {problem}")

    def _guard(self, loss: float) -> None:
        """Stop a training whose loss has run away."""
        policy = self.recipe.failure
        self.first_loss = loss if self.first_loss is None else self.first_loss
        self.high_losses = self.high_losses + 1 if policy.divergence and loss > policy.divergence * self.first_loss else 0
        if self.high_losses >= policy.divergence_batches:
            limit = f"above {policy.divergence:g} times the first batch's {self.first_loss:.4g} for {self.high_losses} batches"
            self._give_up(f"the training diverges: loss {loss:.4g}, {limit}; lower optimiser.lr or add schedule.warmup")

    def _give_up(self, reason: str) -> NoReturn:
        last = None if self.good_step is None else checkpoint_path(self.run.checkpoints, self.good_step)
        good = f"the last good checkpoint is {last}" if last else "no checkpoint had been written yet"
        self.journal.event("stopped", self.epoch + 1, self.batch, diagnosis=reason)
        raise TrainingStopped(f"stopped in epoch {self.epoch + 1}, batch {self.batch + 1}: {reason}. In {self.run.folder}, {good}")

    # --- saving, going on, ending -------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Only the first rank writes; all sums are over all ranks, so its state is everyone's."""
        self.good_step = self.good_step if self.high_losses else self.step
        if self.fabric.is_global_zero:
            self.run.check_held()
            self._seconds()
            save_checkpoint(self.run.checkpoints, self.step, self.state(), spare=self.good_step)
        self._saved_at = time.monotonic()

    def state(self) -> Json:
        """Everything the rest of the training depends on, as tensors and plain data."""
        plain, metrics = {name: getattr(self, name) for name in _PLAIN}, self.run.metrics_bytes()
        return plain | {
            "identity": self.identity,
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": None if self.average is None else self.average.state,
            "plateau": asdict(self.plateau),
            "sums": asdict(self.sums),
            "best": self.best,
            "metrics_length": len(metrics),
            "metrics": torch.frombuffer(bytearray(metrics), dtype=torch.uint8) if metrics else torch.empty(0, dtype=torch.uint8),
            "random": torch.get_rng_state(),
        }

    def restore(self) -> str:
        """Go back to the last whole checkpoint; where that is, for people."""
        path, state = load_last_checkpoint(self.run.checkpoints)
        if state.get("identity") not in (self.identity, *stored_identities(self.run)):
            raise ContinuaError(f"{path} belongs to another recipe than {self.run.config}, which was changed since; start a new run")
        with fitting_state(path):
            self._take_over(state)
        self._clock = time.monotonic()
        return f"{path.name}: epoch {self.epoch + 1}, batch {self.batch}"

    def _take_over(self, state: Json) -> None:
        for name in _PLAIN:
            setattr(self, name, plain_number(name, state.get(name, getattr(self, name))))  # one that is new since keeps its default
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.average is not None:
            self.average.state = {name: value.to(self.fabric.device) for name, value in state["average"].items()}
        self.plateau, self.sums, self.best = Plateau(**state["plateau"]), EpochSums(**state["sums"]), state["best"]
        torch.set_rng_state(state["random"])
        if self.fabric.is_global_zero and "metrics" in state:
            self.run.restore_metrics(state["metrics"].numpy().tobytes())
        elif self.fabric.is_global_zero:  # of a version that kept no copy of them
            self.run.truncate_metrics(state["metrics_length"])

    def _seconds(self) -> float:
        now = time.monotonic()
        self.seconds, self._clock = self.seconds + now - self._clock, now
        return self.seconds

    def _weights(self) -> dict[str, Tensor]:
        """A copy of the weights that are evaluated and saved."""
        state = self.net.state_dict() if self.average is None else self.average.state
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def _finish(self) -> Json:
        """Report on the test images with the weights that the recipe selects, and save these."""
        chosen = self.best if self.best is not None else {"epoch": self.epoch, "net": self._weights()}
        self.net.load_state_dict(chosen["net"])
        tested = self._evaluate(self.parts.test)
        result = {
            "identity": self.identity,
            "model": self.recipe.model,
            "data": self.recipe.data,
            "parameters": sum(p.numel() for p in self.net.parameters() if p.requires_grad),
            "selection": _SELECTIONS[self.recipe.selection],
            "epoch": chosen["epoch"],
            **({} if self.parts.reported == "test" else {"split": self.parts.reported}),
            "test_images": tested.images,
            **_shown("test", tested),
            "seconds": round(self._seconds(), 1),
        }
        if self.fabric.is_global_zero:
            self.run.check_held()
            with readable_errors(self.run.best):
                self.net.save_pretrained(refuse_links(self.run.folder, self.run.best))
            self.run.write_json(self.run.result_file, result)
        return result


_PLAIN = ("epoch", "batch", "step", "lr", "high_losses", "good_step", "first_loss", "seconds")
_SELECTIONS = {
    "last": "last epoch",
    "holdout": "best epoch on images held out from the training images",
    "paper": "best epoch on the test images, as the papers do: optimistic",
}


def _shown(name: str, evaluation: Evaluation | None) -> Json:
    if evaluation is None:
        return {}
    accuracy = {} if evaluation.accuracy is None else {f"{name}_accuracy": evaluation.accuracy}
    return {f"{name}_loss": evaluation.loss, **accuracy, **({f"{name}_failed": evaluation.failed} if evaluation.failed else {})}
