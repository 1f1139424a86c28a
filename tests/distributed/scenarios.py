"""What the ranks of the tests do. Each scenario runs in every process of a group, or alone."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from clbruno import CLBrunoClassifier, InputError
from clbruno.config import recipe
from clbruno.core.latent import ExchangeableGaussian
from clbruno.learn import engine, problem
from clbruno.learn.distributed import Group
from clbruno.learn.engine import Lesson
from clbruno.learn.laws import StackedLaws
from clbruno.learn.student import Student

SHARES = {1: [1.0], 2: [0.7, 0.3], 3: [0.5, 0.0, 0.5], 4: [0.1, 0.0, 0.65, 0.25]}
"""How the rows lie on the ranks: unequal, and from three ranks on with nothing on one."""

SMALL = {"hidden": 8, "batch_size": 80, "replay": 10, "max_epochs": 1}
RECIPES: dict[str, dict[str, Any]] = {
    "closed form": {"couplings": 0},
    "couplings": {"couplings": 2, **SMALL},
    "whitened": {"couplings": 2, "whiten": True, **SMALL},
    "paper": {"recipe": "paper", "couplings": 2, "context_dim": 4, **SMALL},
    "student-t": {"recipe": "paper", "couplings": 2, "context_dim": 4, "dof": 5.0, **SMALL},
}


def enter(rank: int, size: int, store: str, pipe: Any, scenario: str, arguments: Any) -> None:
    """Be one rank, and send what the scenario returns, or what it raises."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        answer = globals()[scenario](*arguments)
    except Exception as error:
        pipe.send(error)
        raise SystemExit(1) from error
    pipe.send(answer)
    dist.barrier()
    dist.destroy_process_group()


def mine(group: Group, number: int) -> slice:
    """The rows of this rank."""
    ends = np.round(np.cumsum([0.0, *SHARES[group.size]]) * number).astype(int)
    return slice(int(ends[group.rank]), int(ends[group.rank + 1]))


def cohort(classes: int, n: int, dim: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows in random order, each class around a mean of its own."""
    means = 3 * np.random.default_rng(7).normal(size=(8, dim))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(means[y], 1.0), np.array([f"class {at}" for at in y])


def updates(settings: dict[str, Any], dim: int = 5) -> CLBrunoClassifier:
    """Two updates: new classes in a first task, then those and others in a second."""
    group = Group.current()
    model = CLBrunoClassifier(random_state=3, **settings)
    for seed, classes, n, task in [(0, 3, 300, "A"), (1, 5, 200, "B")]:
        x, y = cohort(classes, n, dim, seed)
        here = mine(group, n)
        model.partial_fit(x[here], y[here], task=task)
    return model


def learned(settings: dict[str, Any]) -> dict[str, Any]:
    """The statistics and answers after two updates, and what the log says."""
    model = updates(settings)
    latent, x = model.model_.latent, cohort(5, 20, 5, seed=9)[0]
    return {
        "count": [seen.count for seen in latent.moments],
        "mean": torch.stack([seen.mean for seen in latent.moments]).numpy(),
        "scatter": torch.stack([seen.scatter for seen in latent.moments]).numpy(),
        "center": model.model_.scaler.center.numpy(),
        "scale": model.model_.scaler.scale.numpy(),
        "curve": model.model_.curve.numpy(),
        "proba": model.predict_proba(x),
        "density": model.score_samples(x),
        "classes": model.classes_.tolist(),
        "weights": [w.numpy() for w in model.model_.flow.state_dict().values()],
        "log": [
            [r.fingerprint, r.seconds, r.time, dict(r.after), r.counts] for r in model.model_.log
        ],
    }


def gradients(settings: dict[str, Any], dim: int) -> list[Any]:
    """The gradient of every step of the first epoch of a second update, in float64."""
    kept: list[Any] = []

    def steps(student: Student, increment: problem.Increment, **_: Any) -> int:
        student.double()
        assert increment.teacher is not None
        exact = increment.teacher.model.placed(torch.device("cpu"), torch.float64)
        increment.teacher = dataclasses.replace(increment.teacher, model=exact)
        for inputs in increment.inputs():
            student.zero_grad()
            increment.loss(*inputs).backward()
            increment.new.group.add_gradients(list(student.parameters()))
            kept.append(torch.cat([w.grad.flatten() for w in student.parameters()]).numpy())
        kept.append(np.array(increment.score()))
        return 0

    group = Group.current()
    x, y = cohort(3, 120, dim)
    old = CLBrunoClassifier(random_state=3, **{**settings, "max_epochs": 0})
    numbers = old._recipe()
    old = engine.learn(None, _lesson(x, y, "A", numbers, group), lambda _: None)
    with torch.no_grad():
        for weights in old.flow.parameters():  # away from the identity
            weights += 0.3 * torch.randn(
                weights.shape, generator=torch.Generator().manual_seed(0)
            ).to(weights)
    numbers = recipe(numbers.name, **{**settings_of(numbers), "max_epochs": 1})
    x, y = cohort(5, 160, dim, seed=1)
    original, engine.train = engine.train, steps
    try:
        engine.learn(old, _lesson(x, y, "B", numbers, group), lambda _: None)
    finally:
        engine.train = original
    return kept


def settings_of(numbers: Any) -> dict[str, Any]:
    """The settings that a recipe stands for."""
    return {name: getattr(numbers, name) for name in vars(numbers) if name != "name"}


def _lesson(x: Any, y: Any, task: str, numbers: Any, group: Group) -> Lesson:
    here = mine(group, len(x))
    labels = y[here].tolist()
    return Lesson(x[here], [task] * len(labels), labels, numbers, 3, torch.device("cpu"), group)


def sequence(n: int, dim: int) -> tuple[float, Any]:
    """The joint likelihood of two sequences of which no rank has all, and its gradient."""
    group = Group.current()
    generator = torch.Generator().manual_seed(0)
    x = 2 + torch.randn((n, dim), generator=generator, dtype=torch.float64)
    weight = torch.randn((dim, dim), generator=generator, dtype=torch.float64).requires_grad_()
    owner = torch.arange(n) % 2 * 2  # sequences 0 and 2: nothing of 1 is there
    here = mine(group, n)
    rho = torch.full((dim,), 0.3, dtype=torch.float64, requires_grad=True)
    same = [ExchangeableGaussian.prior(rho + 0.5, rho)] * 3
    laws = StackedLaws(ExchangeableGaussian.stack(same), group)
    loss = laws.nll(torch.tanh(x[here] @ weight), owner[here])
    loss.backward()
    grads = [group.sum(grad) for grad in (weight.grad, rho.grad) if grad is not None]
    return float(group.sum(loss.detach())), torch.cat([g.flatten() for g in grads]).numpy()


def folder(path: str, settings: dict[str, Any]) -> Any:
    """A folder of Parquet files that the ranks share."""
    model = CLBrunoClassifier(random_state=0, **settings).partial_fit(Path(path), "diagnosis")
    latent = model.model_.latent
    order = np.argsort(model.classes_)
    means = torch.stack([seen.mean for seen in latent.moments]).numpy()[order]
    names = np.argsort(model.feature_names_in_)
    return {
        "count": model.class_count_[order].tolist(),
        "raw mean": model.model_.scaler.inverse(torch.from_numpy(means)).numpy()[:, names],
        "updates": model.n_updates_,
        "file order": model.feature_names_in_.tolist(),
        "proba": model.predict_proba(np.zeros((3, len(names)))),
    }


def refused(which: str) -> str:
    """What every rank is told where the ranks do not fit together."""
    group = Group.current()
    x, y = cohort(3, 40, 4)
    odd = group.rank == 1
    settings = {"kappa": 0.5} if which == "settings" and odd else {}
    model = CLBrunoClassifier(random_state=0, **settings)
    if which == "features" and odd:
        x = x[:, :3]
    labels: Any = np.arange(40) % 3 if which == "labels" and odd else y
    if which == "empty":
        x, labels = x[:0], y[:0]
    try:
        model.partial_fit(x, labels)
    except InputError as error:
        assert not hasattr(model, "model_")
        return str(error)
    return "nothing was refused"


def left_alone(at: int) -> str:
    """Train until one rank is killed at its n-th reduction; the message that the other gets."""
    group = Group.current()
    model = updates(RECIPES["closed form"])
    before = model.predict_proba(cohort(3, 20, 5)[0])
    if group.rank == 1:
        _kill_at(at)
    x, y = cohort(3, 300, 5, seed=4)
    paper = CLBrunoClassifier(random_state=0, **{**RECIPES["paper"], "max_epochs": 500})
    try:
        paper.partial_fit(x[mine(group, 300)], y[mine(group, 300)])
    except Exception as error:
        assert not hasattr(paper, "model_")
        assert (model.predict_proba(cohort(3, 20, 5)[0]) == before).all()
        return f"{type(error).__name__}: {error}"
    return "nobody was missed"


def _kill_at(moment: int) -> None:
    original, left = dist.all_reduce, moment

    def counted(*values: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*values, **more)

    dist.all_reduce = counted
