"""Learning rates are those of torch's schedules, and a resumed run has its optimizer back."""

from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.config import Config
from tests.support.late import Late
from tests.train.ranks import assert_refused, complete, run, text_of, weights

torch = Late("torch")

STEPS = 8
TASK = text_of("optimizers")
FLAGS = (
    *("--device", "cpu", "--steps", str(STEPS), "--global-batch", "6", "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "0", "--lr", "0.02", "--out", "here"),
    *("--resume", "auto", "--warmup", "0"),
)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "final"), [("cosine", 0.1), ("linear", 0.25), ("constant", None)])
def test_a_schedule_is_torchs(kind: str, final: float | None) -> None:
    from spawnlaunch.train.schedule import schedule

    ours = schedule(Config(lr=1.0, schedule=kind, final_lr=final, warmup=0, steps=20), 100, 8)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedules = torch.optim.lr_scheduler
    theirs: Any = {
        "cosine": lambda: schedules.CosineAnnealingLR(optimizer, 19, eta_min=0.1),
        "linear": lambda: schedules.LinearLR(optimizer, 1.0, 0.25, total_iters=19),
        "constant": lambda: schedules.ConstantLR(optimizer, 1.0),
    }[kind]()
    for step in range(1, 21):
        assert ours.share(step) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("warmup", [0, 1, 5, 20])
@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_the_rate_that_is_typed_is_reached_and_the_last_one_too(kind: str, warmup: int) -> None:
    from spawnlaunch.train.schedule import schedule

    ours = schedule(Config(lr=1.0, schedule=kind, warmup=warmup, steps=20), 100, 8)
    shares = [ours.share(step) for step in range(1, 21)]
    assert max(shares) == shares[max(1, warmup) - 1] == 1.0
    assert shares[: max(1, warmup)] == sorted(shares[: max(1, warmup)])
    if kind != "constant" and warmup < 20:
        assert shares[-1] == pytest.approx(0.05)


@pytest.mark.full
def test_the_state_of_an_optimizer_is_put_back_by_the_names_of_its_parameters(cwd: Path) -> None:
    """In another order of groups and parameters a run goes on as if there had been none."""
    flags = (*FLAGS, "--task", "task.py:Sides", "--schedule", "constant")
    complete(1, *flags, "--steps", "9", "--out", "whole", cwd=cwd)
    complete(1, *flags, "--steps", "4", cwd=cwd)
    complete(1, *flags, "--steps", "9", cwd=cwd, TURNED="yes")
    whole, gone_on = (weights(cwd / name, 9) for name in ("whole", "here"))
    assert all(torch.equal(whole[name], gone_on[name]) for name in whole)
    ended = run(1, *flags, "--steps", "10", cwd=cwd, TURNED="moved")
    said = "here/step-00000009 is of another model: its optimizer has other parameters in its gro"
    assert_refused(ended, said)
    assert "0.weight" in ended[0].err


@pytest.mark.full
def test_a_resumed_run_has_the_decay_and_rate_that_were_typed_for_it(cwd: Path) -> None:
    """The state of AdamW is the checkpoint's, and what was typed is not."""
    flags = (*FLAGS, "--task", "task.py:Line")
    complete(1, *flags, "--schedule", "linear", "--final-lr", "0", cwd=cwd)
    more = ("--steps", str(STEPS + 1), "--schedule", "constant", "--betas", "0,0")
    complete(1, *flags, *more, "--lr", "0.5", "--weight-decay", "0", cwd=cwd)
    before, after = (weights(cwd / "here", step) for step in (STEPS, STEPS + 1))
    # The first step of Adam without memory moves each weight by the rate.
    for name, weight in after.items():
        moved = (weight - before[name]).abs().flatten().tolist()
        assert moved == pytest.approx(len(moved) * [0.5], rel=1e-3)
    (cwd / "task.py").write_text(f"{TASK}\n\nclass Line(Other):\n    pass\n")
    said = "here/step-00000009 is of another run: its optimizer is 'AdamW' and yours is 'RMSprop'"
    assert_refused(run(1, *flags, cwd=cwd), said)


@pytest.mark.full
def test_a_resumed_run_has_what_an_optimizer_keeps_in_its_groups(cwd: Path) -> None:
    flags = (*FLAGS, "--task", "task.py:Counts", "--schedule", "constant")
    for more, decay in ((0, "0.1"), (1, "0.1"), (2, "0.2")):
        complete(2, *flags, "--steps", str(STEPS + more), "--decay", decay, cwd=cwd)
        file = cwd / "here" / f"step-{STEPS + more:08}" / "training.pt"
        for group in torch.load(file, weights_only=True)["optimizer"]["param_groups"]:
            assert group["steps"] == STEPS + more
            assert group["seen"] == STEPS + more
            assert (group["lr"], group["weight_decay"]) == (0.02, float(decay))
