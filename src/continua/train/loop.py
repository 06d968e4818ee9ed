"""The training loop. Data order, augmentation, dropout and learning rate are functions of (seed, epoch, batch), so that a training that was
stopped anywhere goes on exactly as if it had not been."""

import time
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from continua.data import Batch
from continua.errors import ContinuaError, SolverError
from continua.train.average import AveragedWeights
from continua.train.checkpoint import checkpoint_path, load_last_checkpoint, save_checkpoint
from continua.train.devices import StopSignal
from continua.train.forward import Forward, ForwardPass
from continua.train.journal import Journal
from continua.train.measure import Measured, measure
from continua.train.optimiser import gradient_norm, set_lr, sigmas
from continua.train.progress import Progress
from continua.train.recipe import Recipe
from continua.train.run import Run, readable_errors
from continua.train.schedule import Plateau, lr_factor
from continua.train.setup import Parts, RunOptions
from continua.train.sums import EpochSums, costs


class TrainingStopped(ContinuaError):
    """The failure policy or the divergence guard ended a training."""


class Interrupted(Exception):
    """A signal asked for an end; everything up to here is saved."""

    def __init__(self, where: str, folder: Path, signal: int) -> None:
        super().__init__(where)
        self.folder, self.signal = folder, signal


class Training:
    """One run: its state, and the steps that change it."""

    def __init__(self, run: Run, recipe: Recipe, identity: str, parts: Parts, options: RunOptions) -> None:
        self.run, self.recipe, self.identity, self.options = run, recipe, identity, options
        self.parts, self.fabric, self.net, self.optimiser = parts, parts.fabric, parts.net, parts.optimiser
        self.stop = options.stop or StopSignal()
        self.forward = ForwardPass(parts, recipe, self.stop)
        self.journal = Journal(run, parts.fabric.is_global_zero, options.tensorboard)
        self.average = AveragedWeights(self.net, recipe.ema) if recipe.ema else None
        self.plateau, self.sums = Plateau(), EpochSums()
        self.best: dict[str, Any] | None = None
        self.epoch = self.batch = self.step = self.high_losses = 0
        self.good_step: int | None = None  # of the last checkpoint that was not written amid high losses
        self.first_loss: float | None = None
        self.seconds, self.lr = 0.0, recipe.optimiser.lr
        self._saved_at = self._clock = time.monotonic()

    def go(self) -> dict[str, Any]:
        """Train to the end and report. Raises Interrupted or TrainingStopped once all there is to save is saved."""
        batches, shown = len(self.parts.train), self.options.progress if self.fabric.is_global_zero else "off"
        with self.stop.listening(), Progress(shown, self.recipe.epochs, batches, self.epoch * batches + self.batch) as progress:
            while self.epoch < self.recipe.epochs:
                speed = self._train_epoch(progress)
                progress.epoch(self._end_epoch(speed))
        return self._finish()

    # --- an epoch -----------------------------------------------------------------------------------------------------

    def _train_epoch(self, progress: Progress) -> float:
        """The batches that are left of this epoch; images per second."""
        self.parts.module.train()
        start, before, has_accuracy = time.monotonic(), self.sums.images, self.parts.task.has_accuracy
        for batch in self.parts.train.epoch(self.epoch, self.batch):
            stop = self._train_batch(batch)
            self.batch, self.step = self.batch + 1, self.step + 1
            accuracy = self.sums.mean("correct") if has_accuracy else None
            progress.step(self.epoch, self.sums.mean("loss") or 0.0, accuracy, costs(self.net.stats, "nfe"))
            if stop:
                self._save()
                raise Interrupted(
                    f"epoch {self.epoch + 1}, batch {self.batch} of {len(self.parts.train)}", self.run.folder, self.stop.number
                )
            late = time.monotonic() - self._saved_at > 60 * self.options.checkpoint_minutes
            if late and self.batch < len(self.parts.train):
                self._save()
        return (self.sums.images - before) / max(1e-9, time.monotonic() - start)

    def _end_epoch(self, speed: float) -> dict[str, Any]:
        """Look at held-out images, choose, write the epoch's line, save."""
        recipe, sums, done = self.recipe, self.sums, self.epoch + 1
        held = self._measure(self.parts.holdout) if self.parts.holdout is not None else None
        look = recipe.selection == "paper" or (recipe.test_every > 0 and done % recipe.test_every == 0)
        tested = self._measure(self.parts.test) if look else None
        line = {
            "event": "epoch",
            "epoch": done,
            "step": self.step,
            "lr": self.lr,
            "loss": sums.mean("loss"),
            "train_accuracy": sums.mean("correct") if self.parts.task.has_accuracy else None,
            **_shown("holdout", held),
            **_shown("test", tested),
            **({"penalty": sums.mean("penalty")} if sums.penalty else {}),
            "nfe": sums.per_batch("nfe"),
            "nfe_backward": sums.per_batch("nfe_backward"),
            "rejected": sums.per_batch("rejected"),
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

    def _measure(self, loader: Any) -> Measured:
        with self._evaluated_weights():
            return measure(self.net, loader, self.parts.task, self.fabric, self.recipe.channels_last)

    # --- a batch ------------------------------------------------------------------------------------------------------

    def _train_batch(self, batch: Batch) -> bool:
        """One step, or none where the batch fails; whether some rank was asked to stop."""
        recipe, each = self.recipe, 1 / len(self.parts.train)
        progress = self.epoch + self.batch * each
        self.lr = recipe.optimiser.lr * lr_factor(recipe.schedule, progress, recipe.epochs, each, self.plateau.drops)
        set_lr(self.optimiser, self.lr)
        forward = self._forward(batch)
        problem = forward.failure if forward.loss is None else self._backward(forward.loss)
        if problem is None:
            self._count(forward)
        else:
            self._skip(problem)
        return forward.stop

    def _forward(self, batch: Batch) -> Forward:
        """Forward; where that fails and the policy says so, again with other tolerances."""
        policy, forward = self.recipe.failure, self.forward(batch, self.step)
        problem, power = forward.failure, {"loosen": 1, "tighten": -1}.get(policy.policy, 0)
        for trial in range(1, policy.retries + 1 if power else 1):
            if forward.failure is None:
                break
            factor = policy.tolerance_factor ** (power * trial)
            forward = self.forward(batch, self.step, factor)
            if forward.failure is None:
                self.journal.event("retried", self.epoch + 1, self.batch, tolerances_times=factor, diagnosis=problem)
        return forward

    def _backward(self, loss: Tensor) -> str | None:
        """Gradients, reduced over ranks, and the optimiser's step; else what is wrong with them, the same on every rank."""
        self.optimiser.zero_grad(set_to_none=True)
        try:
            self.fabric.backward(loss)
        except SolverError as error:  # of the adjoint's own solve; among ranks the others wait in this backward and must hear of it
            if self.fabric.world_size > 1:
                raise
            return f"backward: {error}"
        norm, limit = gradient_norm(self.net), self.recipe.optimiser.clip_norm
        if not isfinite(norm):
            return f"the gradient is not finite (norm {norm})"
        if limit:
            torch.nn.utils.clip_grads_with_norm_(self.net.parameters(), limit, torch.tensor(norm))
        self.optimiser.step()
        self.sums.gradient_norm += norm
        if self.average is not None:
            self.average.update()
        return None

    def _count(self, forward: Forward) -> None:
        sums = self.sums
        sums.images, sums.batches = sums.images + forward.images, sums.batches + 1
        sums.loss, sums.correct, sums.penalty = sums.loss + forward.total, sums.correct + forward.correct, sums.penalty + forward.penalty
        backward = self.forward.sum_over_ranks(costs(self.net.stats, "nfe_backward"))
        sums.add_costs("nfe_backward", [value / self.fabric.world_size for value in backward])
        sums.add_costs("nfe", forward.nfe)
        sums.add_costs("rejected", forward.rejected)
        self._guard(forward.total / max(1, forward.images))

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

    def _give_up(self, reason: str) -> None:
        last = None if self.good_step is None else checkpoint_path(self.run.checkpoints, self.good_step)
        good = f"the last good checkpoint is {last}" if last else "no checkpoint had been written yet"
        self.journal.event("stopped", self.epoch + 1, self.batch, diagnosis=reason)
        raise TrainingStopped(f"stopped in epoch {self.epoch + 1}, batch {self.batch + 1}: {reason}. In {self.run.folder}, {good}")

    # --- saving, going on, ending -------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Only the first rank writes; all sums are over all ranks, so its state is everyone's."""
        self.good_step = self.good_step if self.high_losses else self.step
        if self.fabric.is_global_zero:
            self._seconds()
            save_checkpoint(self.run.checkpoints, self.step, self.state(), spare=self.good_step)
        self._saved_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Everything the rest of the training depends on, as tensors and plain data."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {
            "identity": self.identity,
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": None if self.average is None else self.average.state,
            "plateau": self.plateau.state(),
            "sums": self.sums.state(),
            "best": self.best,
            "metrics_length": self.run.metrics_length(),
            "random": torch.get_rng_state(),
        }

    def restore(self) -> str:
        """Go back to the last whole checkpoint; where that is, for people."""
        path, state = load_last_checkpoint(self.run.checkpoints)
        if state["identity"] != self.identity:
            raise ContinuaError(f"{path} belongs to another recipe than {self.run.config}, which was changed since; start a new run")
        for name in _PLAIN:
            setattr(self, name, state.get(name, getattr(self, name)))  # a name that is new since the run began keeps its default
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.average is not None:
            self.average.state = {name: value.to(self.fabric.device) for name, value in state["average"].items()}
        self.plateau, self.sums, self.best = Plateau(**state["plateau"]), EpochSums(**state["sums"]), state["best"]
        torch.set_rng_state(state["random"])
        if self.fabric.is_global_zero:
            self.run.truncate_metrics(state["metrics_length"])
        self._clock = time.monotonic()
        return f"{path.name}: epoch {self.epoch + 1}, batch {self.batch}"

    def _seconds(self) -> float:
        now = time.monotonic()
        self.seconds, self._clock = self.seconds + now - self._clock, now
        return self.seconds

    def _weights(self) -> dict[str, Tensor]:
        """A copy of the weights that are evaluated and saved."""
        state = self.net.state_dict() if self.average is None else self.average.state
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def _evaluated_weights(self) -> Any:
        return nullcontext() if self.average is None else self.average.applied()

    def _finish(self) -> dict[str, Any]:
        """Report on the test images with the weights that the recipe selects, and save these."""
        chosen = self.best if self.best is not None else {"epoch": self.epoch, "net": self._weights()}
        self.net.load_state_dict(chosen["net"])
        tested = measure(self.net, self.parts.test, self.parts.task, self.fabric, self.recipe.channels_last)
        result = {
            "identity": self.identity,
            "model": self.recipe.model,
            "data": self.recipe.data,
            "parameters": sum(p.numel() for p in self.net.parameters() if p.requires_grad),
            "selection": _SELECTIONS[self.recipe.selection],
            "epoch": chosen["epoch"],
            "test_images": tested.images,
            **_shown("test", tested),
            "seconds": round(self._seconds(), 1),
        }
        if self.fabric.is_global_zero:
            with readable_errors(self.run.best):
                self.parts.task.save(self.net, self.run.best)
            self.run.write_json(self.run.result_file, result)
        return result


_PLAIN = ("epoch", "batch", "step", "lr", "high_losses", "good_step", "first_loss", "seconds")
_SELECTIONS = {
    "last": "last epoch",
    "holdout": "best epoch on images held out from the training images",
    "paper": "best epoch on the test images, as the papers do: optimistic",
}


def _shown(name: str, found: Measured | None) -> dict[str, Any]:
    if found is None:
        return {}
    accuracy = {} if found.accuracy is None else {f"{name}_accuracy": found.accuracy}
    return {f"{name}_loss": found.loss, **accuracy, **({f"{name}_failed": found.failed} if found.failed else {})}
