"""What learns: the model in its wrappers, its optimizer and its scaler; ``loop`` has the step.

And what becomes of a run in which a loss or a gradient is not finite: ``Watch``.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from . import rng
from .checkpoint import copied
from .config import Config
from .distributed import Buckets, World, from_every_rank, start_sum_over_ranks, together
from .errors import RefusedError, StoppedError, shared_refusal
from .log import Clock, Step
from .model import build_model, in_eval_mode, learning_of, make_optimizer, named, size_of
from .order import Order
from .screen import Screen
from .task import Task, has

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Gradients are of a loss per sample, hundreds of tokens at once, so the first scale is lower than
# the usual 65536, which is made for means over tokens. It adapts itself from there.
FIRST_SCALE = 512.0
# The scaler of half precision halves its scale after each step that is not finite, and leaves that
# step out: so it finds the scale. When it has done so this often in a row, no scale helps.
HALVINGS = 32
# From torch 2.13 on.
BATCHED, DDP_TAKES = "batched_grad_copy", inspect.signature(DistributedDataParallel).parameters
OF_ADAMW = ("betas", "weight_decay")
LAG = 2  # steps that the device may be behind
SHOWN = 64  # samples named in a message


def sum_and_count(found: Any) -> tuple[Tensor, Tensor | float]:
    """What loss() returned. Raises RefusedError unless it is a sum to learn from, and a count."""
    what = ""
    try:
        loss_sum, count = found
    except (TypeError, ValueError):
        what = f"an object of the class {type(found).__name__}"
    else:
        if not isinstance(loss_sum, Tensor):
            what = f"a sum of the class {type(loss_sum).__name__}, which has no gradient"
        elif loss_sum.dim():
            what = f"a tensor of the shape {tuple(loss_sum.shape)} in place of its sum"
        elif not loss_sum.requires_grad:
            what = "a sum that was detached from the parameters"
    if what:
        raise RefusedError(
            f"loss() of the task returns {what}; return the sum of the losses as a tensor, and "
            "the count, as in: return loss.sum(), len(batch)"
        )
    return loss_sum, count


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
        """What the task makes of a batch."""
        return self.of(batch)


def plain(value: Any) -> Any:
    """A value of a group of an optimizer as one that can be compared."""
    return value.tolist() if isinstance(value, Tensor) else value


def _send(to: tuple[Clock, Buckets], bucket: Any) -> torch.futures.Future[Tensor]:
    """Add up a bucket of gradients over the ranks.

    Without a hook the wrapper takes the mean, which is one more pass over the gradients.
    """
    clock, buckets = to
    clock.sent(bucket.is_last())
    return buckets.send(bucket.buffer(), bucket.is_last())


class Learner:
    """The model, its optimizer and its scaler; ``bare`` is the model without any wrapper."""

    def __init__(
        self, task: Task, config: Config, world: World, device: torch.device, per_rank: float
    ) -> None:
        """``per_rank`` is the mean number of samples of a rank in one step."""
        self.task = task
        self.config = config
        self.world = world
        self.device = device
        self.per_rank = per_rank
        self.clock = Clock(device)
        model = build_model(task, config, world, device)
        self.bare = model.to(device)
        if not model.training:  # as from_pretrained leaves it; a part of it that is so was put so
            model.train()
        # Kept, because to find them walks through the whole model.
        self.learning = learning_of(self.bare)
        self.is_first_step = True
        self.unused_in_first_step: list[str] = []
        self.optimizer = make_optimizer(task, self.bare, self.learning, config)
        groups = self.optimizer.param_groups
        self.optimized = [p for group in groups for p in group["params"]]
        self.first_groups = copy.deepcopy(  # an optimizer may keep state in its own
            [{k: v for k, v in group.items() if k != "params"} for group in groups]
        )
        # Whether a step that is not finite is left out by the optimizer's kernel, or by the host.
        # The host of a device would wait for it; what the CPU computed is there.
        on_cpu, fused = device.type == "cpu", "_step_supports_amp_scaling"
        self.kernel_leaves_out = not on_cpu and getattr(self.optimizer, fused, False)
        self.host_leaves_out = on_cpu or config.skip_nonfinite > 0
        # The kernel of AdamW divides gradients by a float32, which would round a float64.
        wide = any(p.dtype == torch.float64 for p in self.optimized)
        own = has(task, "optimizer")
        self.kernel_scales = not (own or wide or config.precision == "fp16")
        self.scaler = torch.amp.GradScaler(
            device.type, init_scale=FIRST_SCALE, enabled=config.precision == "fp16"
        )
        self.start_sum = start_sum_over_ranks
        # Inside of the wrapper: so the compiler can overlap communication, and validations have it.
        self.model: nn.Module = torch.compile(self.bare) if config.compile else self.bare  # type: ignore[assignment]
        self.ddp = self._data_parallel() if world.size > 1 else None
        self._loss: Callable[[Any], Any] = self.ddp or functools.partial(task.loss, self.model)

    def _data_parallel(self) -> DistributedDataParallel:
        # Gradients begin as None, and so are copied to the buckets: all of a bucket at once.
        batched: Any = {"batched_grad_copy": True} if BATCHED in DDP_TAKES else {}
        wrapped = DistributedDataParallel(
            Loss(self.task, self.model),
            **batched,
            gradient_as_bucket_view=True,
            static_graph=self.config.static_graph,
            find_unused_parameters=self.config.find_unused,
            bucket_cap_mb=self.config.bucket_mb,
        )
        # The wrapper sends rank 0's buffers around before every forward pass. What no checkpoint
        # holds must be the same after a resume, and so it is a constant that need not be sent.
        kept = self.bare.state_dict()
        wrapped.broadcast_buffers = any(name in kept for name, _ in self.bare.named_buffers())
        # It holds no learner, which holds the wrapper: Python cannot see that circle, as a part of
        # it is in C++, and the wrapper has to go before its process group.
        buckets = Buckets(self.world, self.config.gradient_dtype == "bf16")
        if self.device.type == "cpu":  # a device has an operation beside its computation for free
            self.start_sum = buckets.start_sum
        wrapped.register_comm_hook((self.clock, buckets), lambda to, bucket: _send(to, bucket))
        return wrapped

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that forward passes run in."""
        half = HALVES.get(self.config.precision)
        return torch.autocast(self.device.type, half) if half else nullcontext()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Have the model in eval mode, and no gradients; behind it each module in the mode it had.

        It draws the same random numbers each time, whatever was drawn before, and training goes on
        as if it had drawn none.
        """
        modes = [(module, module.training) for module in self.bare.modules()]
        self.bare.eval()
        try:
            with torch.no_grad(), rng.aside(self.config.seed, self.world.rank, self.device):
                yield
        finally:
            self.bare.train()  # which a model may have its own of, as one that merges weights
            for module, mode in modes:
                module.training = mode

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
        self.note_buffers()
        with rng.aside(self.config.seed, self.world.rank, self.device):
            with self.autocast():
                loss_sum, _ = together(lambda: self.loss(batch))
            torch.autograd.backward(loss_sum)
        self._refuse_sparse()
        self._refuse_unused()
        self.forget_gradients()
        self.bring_back_buffers(unless=torch.zeros((), dtype=torch.bool, device=self.device))

    def note_buffers(self) -> None:
        """Keep what the forward passes of a step may change, such as the means of BatchNorm."""
        self.noted = [b.clone() for b in self.bare.buffers()]

    def bring_back_buffers(self, unless: Tensor) -> None:
        """Have the buffers as they were noted, by a truth value that the host need not wait for."""
        with torch.no_grad():
            for buffer, before in zip(self.bare.buffers(), self.noted, strict=True):
                buffer.copy_(torch.where(unless, buffer, before))
        self.noted = []  # as large as the buffers

    def _without_gradient(self) -> list[str]:
        return [n for n, p in self.bare.named_parameters() if p.requires_grad and p.grad is None]

    def _refuse_sparse(self) -> None:
        """Raises RefusedError where a gradient is sparse, which no kernel here has a norm of."""
        of_bare = self.bare.named_parameters()
        if names := [n for n, p in of_bare if p.grad is not None and p.grad.is_sparse]:
            raise shared_refusal(
                f"the gradient of {named(names)} is sparse, which cannot be clipped; leave "
                "sparse=True of the nn.Embedding out",
            )

    def _refuse_unused(self) -> None:
        """Raises RefusedError on all ranks where the wrapper would wait for a gradient for ever."""
        if self.config.find_unused or self.config.static_graph:
            return
        unused = from_every_rank(self._without_gradient())
        if names := list(dict.fromkeys(name for of_rank in unused for name in of_rank)):
            raise shared_refusal(
                f"the first batch gave no gradient to {named(names)}; freeze what loss() does not "
                "use, with requires_grad_(False), or type --find-unused if it is used now and then",
            )

    def unused(self) -> str:
        """The parameters that the first step of a single rank did not use; empty at later ones."""
        names, self.unused_in_first_step = self.unused_in_first_step, []
        return named(names) if names else ""

    def describe(self) -> list[str]:
        """Lines on the model, and on flags that the task makes useless."""
        lines = [size_of(self.bare)]
        if kept := in_eval_mode(self.bare):
            lines.append(f"in eval mode, as model() left them: {named(kept)}")
        typed = [getattr(self.config, one) != getattr(Config, one) for one in OF_ADAMW]
        if any(typed) and has(self.task, "optimizer"):
            lines.append("--betas and --weight-decay are unused: the optimizer is the task's")
        if self.device.type != "cpu" and self.config.precision == "fp32" and not self.config.tf32:
            lines.append(
                "matrix products are in float32, without TF32; --tf32 or --precision bf16 is faster"
            )
        return lines

    def loss(self, batch: Any) -> tuple[Tensor, Tensor | float]:
        """The forward pass: the sum of the losses of a batch, and the count of its terms."""
        return sum_and_count(self._loss(batch))

    def refuse_unsent(self) -> None:
        """Raises RefusedError where the wrapper still waits for a gradient, and sent not all."""
        if self.ddp is not None and not self.clock.all_sent:
            names = named(self._without_gradient())
            raise RefusedError(
                f"this step gave no gradient to {names}, and the first one did; type --find-unused"
            )

    def gradients_stay_here(self, wanted: bool) -> AbstractContextManager[Any]:
        """Whether a backward pass only adds to this rank's gradients, and sends nothing."""
        return self.ddp.no_sync() if wanted and self.ddp is not None else nullcontext()

    def look_at_first_gradients(self) -> None:
        """In the first step: which parameters it does not use, and RefusedError for sparse ones."""
        if self.is_first_step:
            self.is_first_step = False
            self.unused_in_first_step = [] if self.ddp else self._without_gradient()
            self._refuse_sparse()

    def optimize_if(self, finite: Tensor, factor: Tensor, gradients: list[Tensor]) -> None:
        """Let the optimizer make its step with the gradients times a factor, if all are finite.

        Else everything is left as it is.
        """
        if self.config.skip_nonfinite:
            self.bring_back_buffers(unless=finite)
        if self.kernel_scales:  # in the pass that it makes anyway
            self.optimizer.grad_scale = (1.0 / factor).float()  # type: ignore[attr-defined]
        else:
            wide = any(gradient.dtype == torch.float64 for gradient in gradients)
            torch._foreach_mul_(gradients, factor if wide else factor.float())
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)  # which masks what it finds, and lowers its scale
            self.scaler.update()
        elif self.kernel_leaves_out:
            # As the scaler does it: the kernel reads it on the device, and the host need not.
            self.optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif self.host_leaves_out and not finite:
            return
        else:
            # Unmasked on a device: the run stops when the host sees it, and saves nothing before.
            self.optimizer.step()

    def forget_gradients(self) -> None:
        """Those too that the optimizer of a task leaves alone: they would be added up for ever."""
        for parameter in self.learning:
            parameter.grad = None

    @torch.no_grad()
    def share_buffers(self) -> None:
        """Have rank 0's buffers on every rank, as a checkpoint has them.

        The wrapper does so before each forward pass of the training, which may change them again:
        the running means of BatchNorm are of the rank's own samples then.
        """
        if self.ddp is not None and self.ddp.broadcast_buffers:
            for buffer in self.bare.buffers():
                dist.broadcast(buffer, src=0)

    def set_lr(self, share: float) -> float:
        """Use this share of the rate that each group was made with; returns the highest rate."""
        for group, made in zip(self.optimizer.param_groups, self.first_groups, strict=True):
            group["lr"] = made["lr"] * share
        return max(float(made["lr"]) for made in self.first_groups) * share

    def state_bytes(self) -> int:
        """About what a checkpoint takes; of a task's own optimizer nothing is known."""
        weights = sum(v.nbytes for v in self.bare.state_dict().values() if isinstance(v, Tensor))
        return int(weights + self.moments_bytes())

    def moments_bytes(self) -> int:
        """What AdamW keeps; 0 for a task's own optimizer, of which nothing is known."""
        if has(self.task, "optimizer"):
            return 0
        return 2 * sum(int(p.nbytes) for p in self.optimized)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copies on the CPU of the weights, and of everything else that learning changes."""
        optimizer, scaler = self.optimizer.state_dict(), self.scaler.state_dict()
        rest = {"optimizer": optimizer, "scaler": scaler, "groups": self.first_groups}
        return copied(self.bare.state_dict()), copied(rest)

    def load(self, weights: dict[str, Any], rest: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        self.bare.load_state_dict(weights)
        state = rest["optimizer"]
        # On a CPU it keeps the tensors that it is given, and these are mapped from a file.
        self.optimizer.load_state_dict(copied(state) if self.device.type == "cpu" else state)
        before = rest.get("groups", [{}] * len(self.first_groups))  # those of old have none
        groups = zip(self.optimizer.param_groups, before, self.first_groups, strict=True)
        for group, was, made in groups:
            # Decay and the like are what this run asks for, if it asks for something else than the
            # run before; otherwise what the optimizer made of them: it may count steps there.
            for name, value in copy.deepcopy(made).items():
                if name not in was or plain(was[name]) != plain(value):
                    group[name] = value
        if rest["scaler"]:  # else the run that wrote it had another --precision
            self.scaler.load_state_dict(rest["scaler"])


class _Seen(NamedTuple):
    step: int
    first: int  # position in the stream
    totals: Tensor
    losses: Tensor
    arrived: Any  # a CUDA event, or None


class Watch:
    """The steps that nobody has looked at yet."""

    def __init__(self, order: Order, device: torch.device, config: Config, screen: Screen) -> None:
        self.order = order
        self.on_device = device.type != "cpu"
        self.screen = screen
        self.scaled = config.precision == "fp16"
        self.allowed = max(config.skip_nonfinite, HALVINGS if self.scaled else 0)
        self.in_a_row = 0  # steps that were not finite
        self.unseen: deque[_Seen] = deque()

    def look(self, step: int, first: int, result: Step) -> bool:
        """Whether the ranks agreed to stop; ``first`` is where in the stream the step began.

        Raises StoppedError on every rank when the loss of a step was not finite on one of them, or
        the gradient, unless ``--skip-nonfinite`` allows for it.
        """
        totals, arrived = result.totals, None
        if self.on_device:
            totals = torch.empty_like(totals, device="cpu", pin_memory=True)
            totals.copy_(result.totals, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self.unseen.append(_Seen(step, first, totals, result.losses, arrived))
        stop = False
        while len(self.unseen) > (LAG if self.on_device else 0):
            stop |= self._see(self.unseen.popleft())
        return stop

    def look_at_all(self) -> None:
        """Wait for the device and look at every step; raises as ``look`` does."""
        while self.unseen:
            self._see(self.unseen.popleft())

    def _see(self, seen: _Seen) -> bool:
        if seen.arrived is not None:
            seen.arrived.synchronize()
        loss, _, stops, norm = seen.totals.tolist()
        if math.isfinite(loss) and math.isfinite(norm):
            self.in_a_row = 0
            return bool(stops)
        self.in_a_row += 1
        if self.in_a_row > self.allowed:
            culprits = from_every_rank(self._culprits(seen))
            raise StoppedError("; ".join(filter(None, culprits)) or _of_gradient(seen.step, norm))
        if not self.scaled:
            what = f"loss {loss:.3f}, norm of the gradient {norm:.3g}"
            self.screen.line(f"step {seen.step} changed no weight: {what}")
        return bool(stops)

    def _culprits(self, seen: _Seen) -> str:
        """What this rank has to say about a loss that is not finite; nothing if its own is."""
        for micro, loss in enumerate(seen.losses.tolist()):
            if not math.isfinite(loss):
                samples = self.order.batch(seen.first, micro).indices
                more = f" and {len(samples) - SHOWN} more" if len(samples) > SHOWN else ""
                return (
                    f"rank {self.order.rank}: the loss of step {seen.step} is {loss}, on the "
                    f"training samples {', '.join(map(str, samples[:SHOWN]))}{more}; look at them, "
                    "or type a lower --lr or a longer --warmup"
                )
        return ""


def _of_gradient(step: int, norm: float) -> str:
    return (
        f"the norm of the gradient of step {step} is {norm}, and its loss is finite; no weight was "
        "changed; type a lower --lr or a longer --warmup, or --skip-nonfinite 1 to go on without "
        "such steps"
    )
