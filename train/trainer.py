"""The training step and the evaluation: ``Trainer.train_step`` and ``Trainer.evaluate``.

``examples/plain_ddp.py`` is the same without what this adds: losses and gradients that are exact
for any number of ranks, several passes per step, and half precision.

On a device Python only queues the work. Nothing in a step reads a number that is computed there,
which would make both wait for each other: ``Watch`` reads it some steps later, and ``Log`` when a
line is due.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count as numbers_from
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from . import optimizer as optimizers
from . import rng
from .checkpoint import copied
from .config import Config
from .distributed import World, any_rank, from_every_rank, sum_over_ranks
from .errors import RefusedError, StoppedError, shared_refusal
from .feed import NO_MORE, number_on
from .log import Clock, Step
from .model import build_model, learning_of, named, size_of
from .task import Task, has

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Gradients are of a loss per sample, hundreds of tokens at once, so the first scale is lower than
# the usual 65536, which is made for means over tokens. It adapts itself from there.
FIRST_SCALE = 512.0
TINY = 1e-6  # in place of a count of zero, which would be divided by
STOP_CHECK_BATCHES = 8  # of an evaluation, after which the ranks agree on whether to stop
OF_ADAMW = ("betas", "weight_decay")


class Trainer:
    """The model, its optimizer and its scaler; ``bare`` is the model without any wrapper."""

    def __init__(
        self, task: Task, config: Config, world: World, device: torch.device, per_rank: float
    ) -> None:
        """``per_rank`` is the mean number of samples of a rank in one step."""
        self.task, self.config, self.world, self.device = task, config, world, device
        self.per_rank = per_rank
        self.clock = Clock(device)
        model = build_model(task, config)
        self.bare = model.to(device)
        if not model.training:  # as from_pretrained leaves it; only a part in eval mode is meant so
            model.train()
        self.learning = learning_of(self.bare)
        self.requires_grad = [p.requires_grad for p in self.bare.parameters()]
        self.optimizer = optimizers.make(task, self.bare, list(self.learning.values()), config)
        self.names = optimizers.names_in(self.optimizer, self.bare)
        in_optimizer = {name for group in self.names for name in group}
        # In the order of the model, the same on all ranks: their norms are added up in it.
        self.optimized = [p for n, p in self.bare.named_parameters() if n in in_optimizer]
        self.first_groups = copy.deepcopy(  # an optimizer may keep state in its own
            [
                {k: v for k, v in group.items() if k not in optimizers.OF_PARAMETERS}
                for group in self.optimizer.param_groups
            ]
        )
        self.scaler = torch.amp.GradScaler(
            device.type, init_scale=FIRST_SCALE, enabled=config.precision == "fp16"
        )
        # Inside of the wrapper: so the compiler can overlap communication, and validations use it.
        self.model: nn.Module = torch.compile(self.bare) if config.compile else self.bare  # type: ignore[assignment]
        self.ddp = self._data_parallel() if world.size > 1 else None
        self.loss: Callable[[Any], Any] = self.ddp or functools.partial(task.loss, self.model)
        self.shares_buffers = self.ddp is not None and self.ddp.broadcast_buffers
        self.tensors, self.buffers = self._shapes(), self._buffer_shapes()

    def train_step(self, batches: Iterator[Any], wants_stop: bool) -> Step:
        """Learn from the next ``accumulate`` batches: this rank's share of one global batch."""
        clock, passes = self.clock, self.config.accumulate
        losses, counts = [], []
        clock.start()
        for micro in range(passes):
            is_last = micro + 1 == passes
            batch = next(batches)  # read and moved to the device by feed.Feed
            clock.have_data()
            # The last backward pass averages the gradients over the ranks while it goes on.
            with self.ddp.no_sync() if self.ddp and not is_last else nullcontext():
                with self.autocast():
                    loss_sum, count = sum_and_count(self.loss(batch))  # the forward pass
                torch.autograd.backward(self.scaler.scale(loss_sum / self.per_rank))
            losses.append(loss_sum.detach())
            counts.append(number_on(count, self.device))
            clock.computed(is_last)
        self.refuse_wrong_gradients()

        # The next forward pass would send buffers of different sizes around, and gloo would abort.
        if self.shares_buffers and self._buffer_shapes() != self.buffers:
            wants_stop = True  # and all ranks raise the error when they save
            if self.device.type != "cpu":  # they see that some steps later, which is too late
                raise RefusedError(self.changed_tensors())

        # Of all ranks: the sum of the losses, the count of terms, how many want to stop. The last
        # is filled on the device: to copy a number there would wait for what is queued.
        stops = torch.full((), float(wants_stop), dtype=torch.float64, device=self.device)
        sums = [torch.stack(parts).double().sum() for parts in (losses, counts)]
        totals = sum_over_ranks(torch.stack((*sums, stops)))
        all_losses, all_counts, _ = totals
        clock.received()

        # What is there now is the mean over the ranks of the gradients of loss sums / per_rank,
        # which keeps half precision in its range; wanted is the gradient of the global mean.
        self.scaler.unscale_(self.optimizer)
        factor = self.per_rank * self.world.size / all_counts.clamp(min=TINY)
        for parameter in self.optimized:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
        norm = clip_grad_norm_(self.optimized, self.config.clip or math.inf)
        # On a device the host does not wait for the norm: the run stops when the host sees that it
        # is not finite, and saves nothing before. The scaler leaves out such steps by itself.
        if self.device.type != "cpu" or self.scaler.is_enabled() or (norm + all_losses).isfinite():
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.bare.zero_grad()  # also of parameters that the task's optimizer does not have
        clock.stop()
        return Step(torch.cat((totals, norm.double()[None])), torch.stack(losses))

    def evaluate(
        self, batches: Iterator[Any], rounds: int | None, wants_stop: Callable[[], bool]
    ) -> dict[str, Tensor] | None:
        """Return the task's sums over the samples of all ranks, as float64 on the CPU.

        Every rank takes part in so many ``rounds``, of one batch or none; without a number each has
        as many. None if the ranks agreed to stop.
        """
        self.share_buffers()
        sums: dict[str, Tensor] = {}
        with self.evaluating(), self.autocast():
            for number in numbers_from() if rounds is None else range(rounds):
                if number % STOP_CHECK_BATCHES == 0 and any_rank(wants_stop(), self.device):
                    return None
                batch = next(batches, NO_MORE)
                if batch is NO_MORE and rounds is None:
                    break
                if batch is NO_MORE or batch is None:
                    continue  # in the last round some ranks may have nothing left
                # The ranks may have different numbers of batches, so the model has no wrapper: that
                # may communicate in every forward pass, and ranks would wait for each other.
                for name, value in self.task.measure(self.model, batch).items():
                    value = number_on(value, self.device).double()
                    sums[name] = sums[name] + value if name in sums else value

        self.refuse_changed_tensors()
        # A rank without samples learns the names and the shapes from another.
        shapes: dict[str, tuple[int, ...]] = {}
        for of_rank in from_every_rank({name: tuple(value.shape) for name, value in sums.items()}):
            if shapes and of_rank and of_rank != shapes:
                raise StoppedError(
                    f"the ranks disagree on what measure() returns: {shapes} or {of_rank}; return "
                    "the same sums, of the same shapes, on every rank"
                )
            shapes |= of_rank
        for name, shape in shapes.items():
            sums.setdefault(name, torch.zeros(shape, dtype=torch.float64, device=self.device))
        return {name: sum_over_ranks(sums[name]).cpu() for name in shapes}

    def _data_parallel(self) -> DistributedDataParallel:
        if sparse := [n for n, b in self.bare.named_buffers() if b.layout != torch.strided]:
            raise shared_refusal(
                f"the buffer {named(sparse)} is sparse, which several ranks cannot share; make it "
                "in forward, keep it dense, or train with one rank"
            )
        wrapped = DistributedDataParallel(
            Loss(self.task, self.model),
            gradient_as_bucket_view=True,
            find_unused_parameters=self.config.find_unused,
            bucket_cap_mb=self.config.bucket_mb,
        )
        # The wrapper sends rank 0's buffers around before every forward pass. A buffer that no
        # checkpoint holds must be the same after a resume, and so it is a constant that need not be
        # sent.
        saved = self.bare.state_dict()
        wrapped.broadcast_buffers = any(name in saved for name, _ in self.bare.named_buffers())
        halved = self.config.gradient_dtype == "bf16"
        hook = default_hooks.bf16_compress_hook if halved else default_hooks.allreduce_hook
        # The hook must not hold the trainer, which holds the wrapper: Python cannot free that
        # cycle, a part of which is in C++, and the wrapper has to go before its process group. A
        # lambda, since annotations that are texts are refused.
        wrapped.register_comm_hook((self.clock, hook), lambda to, bucket: timed(to, bucket))
        return wrapped

    def autocast(self) -> AbstractContextManager[Any]:
        """The context that sets the precision of forward passes."""
        half = HALVES.get(self.config.precision)
        return torch.autocast(self.device.type, half) if half else nullcontext()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into eval mode without gradients, and restore each module's mode after it.

        The block draws the same random numbers each time, whatever was drawn before, and training
        goes on as if it had drawn none.
        """
        modes = [(module, module.training) for module in self.bare.modules()]
        self.bare.eval()
        try:
            with torch.no_grad(), rng.aside(self.config.seed, self.world.rank, self.device):
                yield
        finally:
            self.bare.train()  # a model may have its own train(), as one that merges weights
            for module, mode in modes:
                module.training = mode

    def refuse_wrong_gradients(self) -> None:
        """Raises StoppedError where parameters were frozen or thawed, RefusedError without any.

        The wrapper adds up over the ranks what required a gradient when it was made.
        """
        now = [p.requires_grad for p in self.bare.parameters()]
        if now != self.requires_grad:
            of_bare = zip(self.bare.named_parameters(), self.requires_grad, strict=False)
            changed = [name for (name, p), was in of_bare if p.requires_grad != was]
            raise StoppedError(
                f"requires_grad of {named(changed) or 'the model'} has changed in the run, and the "
                "gradients of the ranks are added up for those that had it at the start; set it in "
                "model(), save, and go on in a new run with --init"
            )
        if self.ddp is not None and not self.clock.all_sent:
            names = named([n for n, p in self.learning.items() if p.grad is None])
            raise shared_refusal(
                f"this step gave no gradient to {names}; freeze what loss() does not use, with "
                "requires_grad_(False), or use --find-unused if it is used now and then"
            )
        if all(p.grad is None for p in self.optimized):
            raise shared_refusal(
                "this step gave no gradient to any parameter; use the model in loss()"
            )

    def refuse_changed_tensors(self) -> None:
        """Raises StoppedError on all ranks where a tensor of one has changed its shape."""
        for wrong in filter(None, from_every_rank(self.changed_tensors())):
            raise StoppedError(wrong)

    def changed_tensors(self) -> str:
        """The error for the first parameter or buffer that has another shape now; "" for none."""
        now = self._shapes()
        changed = [n for n in {**self.tensors, **now} if self.tensors.get(n) != now.get(n)]
        if not changed:
            return ""
        name = changed[0]
        was, has_now = (of.get(name, "not there") for of in (self.tensors, now))
        return (
            f"{name} of the model has changed in the run: it was {was} and is {has_now}, so that "
            "neither a new model nor another rank could take it; make it as large as it can become "
            "in model(), or compute it in forward and keep it out of the buffers"
        )

    def _shapes(self) -> dict[str, str]:
        """Return the shape and type of what is saved or shared, as "(4, 4) torch.float32"."""
        tensors = {n: v for n, v in self.bare.state_dict().items() if isinstance(v, Tensor)}
        if self.shares_buffers:
            tensors |= self.bare.named_buffers()
        return {name: f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()}

    def _buffer_shapes(self) -> list[torch.Size]:
        return [buffer.shape for buffer in self.bare.buffers()] if self.shares_buffers else []

    @torch.no_grad()
    def share_buffers(self) -> None:
        """Copy rank 0's buffers, which a checkpoint has, to every rank.

        The wrapper does so before each forward pass of the training, and the pass may change them
        again: the running means of BatchNorm are of the rank's own samples then. Raises
        StoppedError on all ranks where one has a buffer of another shape than at the start.
        """
        self.refuse_changed_tensors()
        if self.shares_buffers:
            for buffer in self.bare.buffers():
                dist.broadcast(buffer, src=0)

    def describe(self) -> list[str]:
        """Lines on the model, and on flags that the task makes useless."""
        lines = [size_of(self.bare)]
        typed = [getattr(self.config, name) != getattr(Config, name) for name in OF_ADAMW]
        if any(typed) and has(self.task, "optimizer"):
            lines.append("--betas and --weight-decay are unused: the optimizer is the task's")
        if self.device.type != "cpu" and self.config.precision == "fp32" and not self.config.tf32:
            lines.append(
                "matrix products are in float32, without TF32; --tf32 or --precision bf16 is faster"
            )
        return lines

    def set_lr(self, share: float) -> float:
        """Use this share of the rate that each group was made with; returns the highest rate."""
        for group, first in zip(self.optimizer.param_groups, self.first_groups, strict=True):
            group["lr"] = first["lr"] * share
        return max(float(first["lr"]) for first in self.first_groups) * share

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copies on the CPU of the weights, and of everything else that learning changes."""
        rest = {
            "optimizer": optimizers.state_by_name(self.optimizer, self.names),
            "scaler": self.scaler.state_dict(),
            "groups": self.first_groups,
        }
        return copied(self.bare.state_dict()), copied(rest)

    def load(self, weights: dict[str, Any], rest: dict[str, Any]) -> None:
        """Restore what ``state`` returned.

        Raises RuntimeError or ValueError where it is of another model or optimizer.
        """
        self.bare.load_state_dict(weights)
        state, was = optimizers.by_position(rest["optimizer"], rest["groups"], self.names)
        # On a CPU the optimizer keeps the tensors that it is given, and these are mapped from a
        # file.
        self.optimizer.load_state_dict(copied(state) if self.device.type == "cpu" else state)
        optimizers.use_changed(self.optimizer, was, self.first_groups)
        if rest["scaler"]:  # else the run that wrote it had another --precision
            self.scaler.load_state_dict(rest["scaler"])


class Loss(nn.Module):
    """The loss of a task as the forward pass of a module, which is what is wrapped.

    So ``loss`` has the same model on any number of ranks, and calls it as often, and by as many of
    its methods, as it wants to.
    """

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.of = functools.partial(task.loss, model)

    def forward(self, batch: Any) -> Any:
        """Return the task's loss for a batch."""
        return self.of(batch)


def timed(to: tuple[Clock, Any], bucket: Any) -> torch.futures.Future[Tensor]:
    """Let torch's own hook average a bucket of gradients; from the last on, a rank only waits."""
    clock, hook = to
    clock.sent(bucket.is_last())
    averaged: torch.futures.Future[Tensor] = hook(None, bucket)
    return averaged


def sum_and_count(result: Any) -> tuple[Tensor, Tensor | float]:
    """Check loss()'s result. Raises RefusedError unless it is a sum to learn from, and a count."""
    wrong = ""
    try:
        loss_sum, count = result
    except (TypeError, ValueError):
        wrong = f"an object of the class {type(result).__name__}"
    else:
        if not isinstance(loss_sum, Tensor):
            wrong = f"a sum of the class {type(loss_sum).__name__}, which has no gradient"
        elif loss_sum.dim():
            wrong = f"a tensor of the shape {tuple(loss_sum.shape)} in place of its sum"
        elif not loss_sum.requires_grad:
            wrong = "a sum that was detached from the parameters"
    if wrong:
        raise RefusedError(
            f"loss() of the task returns {wrong}; return the sum of the losses as a tensor, and "
            "the count, as in: return loss.sum(), len(batch)"
        )
    return loss_sum, count
