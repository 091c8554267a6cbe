"""The model and what changes it: everything of a run but its position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from . import rng
from .clock import Clock
from .config import Config
from .data import number_on
from .distributed import World, start_sum_over_ranks
from .task import Optimizing, Task

BETAS = (0.9, 0.95)
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Gradients are of a loss per sample, hundreds of tokens at once, so the first scale is lower than
# the usual 65536, which is made for means over tokens. It adapts itself from there.
FIRST_SCALE = 512.0
TINY = 1e-6  # in place of a zero that would be divided by


class Step(NamedTuple):
    """What one step leaves to look at, all of it on the device.

    ``totals`` are three numbers of all ranks together: the sum of the losses, the count of terms,
    and how many ranks want to stop. ``losses`` are this rank's sums, one per forward pass.
    """

    totals: Tensor
    losses: Tensor


class Learner:
    """The model, its optimizer and its scaler; ``bare`` is the model without any wrapper."""

    def __init__(
        self, task: Task, config: Config, world: World, device: torch.device, per_rank: float
    ) -> None:
        """``per_rank`` is the mean number of samples of a rank in one step."""
        torch.manual_seed(config.seed)
        self.task = task
        self.config = config
        self.world = world
        self.device = device
        self.per_rank = per_rank
        self.clock = Clock(device)
        self.bare = task.model().to(device).train()  # what comes from a file may be in eval mode
        # Kept, because to find them walks through the whole model.
        self.learning = [p for p in self.bare.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(task, self.bare, self.learning, config)
        self.scaler = torch.amp.GradScaler(
            device.type, init_scale=FIRST_SCALE, enabled=config.precision == "fp16"
        )
        self.ddp = self._data_parallel() if world.size > 1 else None
        wrapped: nn.Module = self.ddp or self.bare
        # The wrapper first and the compiler around it: so it can overlap communication.
        self.model: nn.Module = torch.compile(wrapped) if config.compile else wrapped  # type: ignore[assignment]

    def _data_parallel(self) -> DistributedDataParallel:
        wrapped = DistributedDataParallel(
            self.bare,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            static_graph=self.config.static_graph,
            bucket_cap_mb=self.config.bucket_mb,
        )
        # The wrapper sends rank 0's buffers around before every forward pass. What no checkpoint
        # holds must be the same after a resume, and so it is a constant that need not be sent.
        kept = self.bare.state_dict()
        wrapped.broadcast_buffers = any(name in kept for name, _ in self.bare.named_buffers())
        wrapped.register_comm_hook(None, lambda _, bucket: self._send(bucket))
        return wrapped

    def _send(self, bucket: Any) -> torch.futures.Future[Tensor]:
        """Add up a bucket of gradients over the ranks.

        Without a hook the wrapper takes the mean, which is one more pass over the gradients.
        """
        self.clock.sent()
        work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
        future: torch.futures.Future[Tensor] = work.get_future().then(lambda sums: sums.value()[0])
        return future

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that forward passes run in."""
        half = HALVES.get(self.config.precision)
        return torch.autocast(self.device.type, half) if half else nullcontext()

    def settle(self, batch: Any) -> None:
        """Let the wrapper arrange its buckets, by a pass that changes nothing else.

        DistributedDataParallel groups gradients into buckets, and after its first backward pass
        groups them anew, in the order in which they became ready. From 3 ranks up that changes the
        order in which numbers are added, so the first step after a resume would add in another
        order than the same step of a run that was never interrupted. With this pass before either,
        on the same samples, every step that counts finds the same buckets.
        """
        if self.ddp is None:
            return
        buffers = [b.clone() for b in self.bare.buffers()]
        with rng.aside(self.config.seed, self.world.rank, self.device):
            with self.autocast():
                loss_sum, _ = self.task.loss(self.model, batch)
            torch.autograd.backward(loss_sum)
        self._forget_gradients()
        with torch.no_grad():
            for buffer, before in zip(self.bare.buffers(), buffers, strict=True):
                buffer.copy_(before)

    def step(self, batches: Iterator[Any], wants_stop: Callable[[], bool]) -> Step:
        """Learn from the next ``accumulate`` batches; this rank's share of one global batch."""
        self.clock.start()
        losses, counts = [], []
        for micro in range(self.config.accumulate):
            last = micro + 1 == self.config.accumulate
            batch = next(batches)
            self.clock.have_data()
            with self._gradients_stay_here(not last):
                with self.autocast():
                    loss_sum, count = self.task.loss(self.model, batch)
                losses.append(loss_sum.detach())
                counts.append(number_on(count, self.device))
                if last:
                    # These numbers travel while the backward pass computes.
                    totals = start_sum_over_ranks(self._totals(losses, counts, wants_stop()))
                torch.autograd.backward(self.scaler.scale(loss_sum / self.per_rank))
            self.clock.computed()
        summed = totals()
        self.clock.received()
        self._update(summed[1])
        self.clock.stop()
        return Step(summed, torch.stack(losses))

    def _gradients_stay_here(self, wanted: bool) -> AbstractContextManager[Any]:
        return self.ddp.no_sync() if wanted and self.ddp is not None else nullcontext()

    def _totals(self, losses: list[Tensor], counts: list[Tensor], stop: bool) -> Tensor:
        # Filled on the device: to copy a number there would wait for what is queued.
        stops = torch.full((), float(stop), dtype=torch.float64, device=self.device)
        sums = [torch.stack(parts).double().sum() for parts in (losses, counts)]
        return torch.stack((*sums, stops))

    def _update(self, count: Tensor) -> None:
        """Change the weights by the gradient of the global loss sum divided by its ``count``.

        The gradients at hand are of the loss sum divided by a rank's mean share of the samples,
        which keeps half precision in its range. So one factor is left, and clipping is another: one
        pass over the gradients applies both.
        """
        self.scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.learning if p.grad is not None]
        factor = (self.per_rank / count.clamp(min=TINY)).float()
        if self.config.clip:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) * factor
            factor = factor * (self.config.clip / (norm + TINY)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factor)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._forget_gradients()

    def _forget_gradients(self) -> None:
        """Those too that the optimizer of a task leaves alone: they would be added up for ever."""
        for parameter in self.learning:
            parameter.grad = None

    def share_buffers(self) -> None:
        """Have rank 0's buffers on every rank, as a checkpoint has them.

        The wrapper does so before each forward pass of the training, which may change them again:
        the running means of BatchNorm are of the rank's own samples then.
        """
        if self.ddp is not None and self.ddp.broadcast_buffers:
            for buffer in self.bare.buffers():
                dist.broadcast(buffer, src=0)

    def set_lr(self, lr: float) -> None:
        """Use this learning rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copies on the CPU of the weights, and of everything else that learning changes."""
        rest = {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
        return copied(self.bare.state_dict()), copied(rest)

    def load(self, weights: dict[str, Any], rest: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        self.bare.load_state_dict(weights)
        self.optimizer.load_state_dict(rest["optimizer"])
        if rest["scaler"]:  # else the run that wrote it had another --precision
            self.scaler.load_state_dict(rest["scaler"])


def copied(value: Any) -> Any:
    """The value with a copy on the CPU of every tensor in it."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    return value


def make_optimizer(
    task: Task, model: nn.Module, learning: list[nn.Parameter], config: Config
) -> torch.optim.Optimizer:
    """The task's own, or AdamW for the parameters that are ``learning``.

    Only matrices decay: a norm's scale has no reason to be near 0.
    """
    if isinstance(task, Optimizing):
        return task.optimizer(model, config.lr)
    groups = [
        {"params": [p for p in learning if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=BETAS, fused=True)
