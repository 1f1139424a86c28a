"""The loop: it minimises, stops, keeps the best, and says when a loss is no number."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from clbruno.errors import TrainingError
from clbruno.learn.trainer import FALL, FALLS, Epoch, train


class Parabola:
    """Losses (w - 3)^2; the scores are given, or the loss itself."""

    recordable = True

    def __init__(self, steps: int = 5, scores: list[float] | None = None) -> None:
        self.module = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.module.weight.zero_()
        self.steps, self.scores = steps, scores
        self.weights: list[float] = []

    def loss(self) -> Tensor:
        return (self.module.weight - 3).square().sum()

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(self.steps):
            yield ()

    def score(self) -> float:
        self.weights.append(float(self.module.weight.detach()))
        if self.scores is None:
            return float(self.loss().detach())
        return self.scores[len(self.weights) - 1]

    def train(self, **settings: float) -> int:
        numbers = {"learning_rate": 0.1, "max_epochs": 50, "patience": 5, **settings}
        return train(self.module, self, **numbers)  # type: ignore[arg-type]


def test__train__parabola__reaches_the_minimum() -> None:
    problem = Parabola()

    best = problem.train(max_epochs=200, patience=200)

    assert float(problem.module.weight.detach()) == pytest.approx(3, abs=0.05)
    assert best > 1


def test__train__best_state_in_the_middle__is_kept() -> None:
    problem = Parabola(scores=[9.0, 5.0, 1.0, 4.0, 4.0, 4.0])

    assert problem.train(max_epochs=5) == 2
    assert float(problem.module.weight.detach()) == problem.weights[2]


def test__train__nothing_helps__nothing_changes() -> None:
    problem = Parabola(scores=[1.0, 2.0, 2.0, 2.0])

    assert problem.train(max_epochs=3) == 0
    assert float(problem.module.weight.detach()) == 0.0


def test__train__equal_score__is_not_better() -> None:
    problem = Parabola(scores=[1.0] * 4)

    assert problem.train(max_epochs=3) == 0


@pytest.mark.parametrize("patience", [1, 2, 4])
def test__train__patience__epochs_between_falls_until_the_last(patience: int) -> None:
    problem = Parabola(scores=[9.0, 1.0] + [5.0] * 40)

    assert problem.train(patience=patience) == 1
    assert len(problem.weights) == 1 + 1 + (FALLS + 1) * patience


def test__train__after_a_fall__the_best_state_goes_on_with_a_smaller_step() -> None:
    problem = Parabola(steps=1, scores=[9.0, 1.0] + [5.0] * 40)

    problem.train(patience=2, learning_rate=0.1)

    best = problem.weights[1]
    for fall in range(1, FALLS + 1):
        after = problem.weights[2 + 2 * fall]
        assert abs(after - best) == pytest.approx(0.1 * FALL**fall, rel=1e-3)


def test__train__better_after_a_fall__the_patience_starts_anew() -> None:
    problem = Parabola(scores=[9.0, 8.0, 8.5, 7.0, 7.5, 6.0] + [7.0] * 40)

    assert problem.train(patience=1) == 5


def test__train__max_epochs__bounds_it() -> None:
    problem = Parabola()

    problem.train(max_epochs=3, learning_rate=1e-3)

    assert len(problem.weights) == 4


def test__train__on_epoch__is_told_every_epoch() -> None:
    problem, seen = Parabola(scores=[9.0, 4.0, 6.0]), []

    train(
        problem.module,
        problem,
        learning_rate=0.1,
        max_epochs=2,
        patience=9,
        on_epoch=seen.append,
    )

    assert [(each.number, each.of, each.score, each.best) for each in seen] == [
        (1, 2, 4.0, 4.0),
        (2, 2, 6.0, 4.0),
    ]
    assert isinstance(seen[0], Epoch)
    assert seen[1].loss < seen[0].loss < 9.0


class Broken(Parabola):
    """A loss that turns bad at one step."""

    def __init__(self, at: int, factor: float) -> None:
        super().__init__()
        self.at, self.factor, self.taken = at, factor, 0

    def loss(self) -> Tensor:
        self.taken += 1
        return super().loss() * (self.factor if self.taken == self.at else 1)

    def score(self) -> float:
        return 0.0


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
@pytest.mark.parametrize("at", [1, 4, 5, 6, 13])
def test__train__loss_is_no_number__training_error_at_once(at: int, factor: float) -> None:
    problem = Broken(at, factor)

    with pytest.raises(
        TrainingError, match=f"in epoch {(at - 1) // 5 + 1}; the model is unchanged"
    ):
        problem.train()

    assert problem.taken == at


class Cliff(Parabola):
    """A finite loss with a gradient that is no number."""

    def loss(self) -> Tensor:
        return (self.module.weight * 0).sqrt().sum()


def test__train__gradient_is_no_number__training_error() -> None:
    problem = Cliff(scores=[1.0] * 9)

    with pytest.raises(TrainingError, match="gradient of norm nan"):
        problem.train()


def test__train__huge_gradient__the_step_is_bounded() -> None:
    problem = Parabola(steps=1)
    sizes: list[float] = []
    problem.module.weight.register_post_accumulate_grad_hook(
        lambda weight: sizes.append(float(weight.grad.norm()))
    )
    before = torch.optim.Adam.step
    clipped: list[float] = []

    def step(self: torch.optim.Adam) -> None:
        clipped.append(float(self.param_groups[0]["params"][0].grad.norm()))
        before(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", step)
        with torch.no_grad():
            problem.module.weight.fill_(1e4)
        problem.train(max_epochs=1)

    assert sizes[0] > 1e4
    assert clipped[0] <= 5.005  # as docs/design.md says
