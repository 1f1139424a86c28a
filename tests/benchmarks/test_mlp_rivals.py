"""Gradient-trained rivals against closed forms of their equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.rivals.ewc import EWC, fisher_diagonal
from benchmarks.rivals.lwf import LwF, distillation
from benchmarks.rivals.mlp import FineTuning, GrowingMLP, JointMLP
from benchmarks.rivals.si import SI

SMALL = {"hidden": 32, "epochs": 20, "batch": 32}


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), 50)
    return 3 * rng.standard_normal((4, 6))[y] + rng.standard_normal((200, 6)), y


def learn(model: FineTuning) -> tuple[FineTuning, float, float]:
    """Two pieces of one task; accuracy on the first and on the second at the end."""
    x, y = blobs()
    for low in (0, 2):
        part = (y == low) | (y == low + 1)
        model.partial_fit(x[part], y[part], "a")
    right = model.predict(x) == y
    return model, float(right[:100].mean()), float(right[100:].mean())


def test__growing_mlp__grow__keeps_the_old_logits() -> None:
    net = GrowingMLP(3, 5)
    net.grow(2)
    x = torch.randn(4, 3)
    before = net(x)
    net.grow(6)
    assert net(x).shape == (4, 6)
    torch.testing.assert_close(net(x)[:, :2], before)


@pytest.mark.parametrize(("over", "columns"), [("piece", 2), ("all", 4)])
def test__task_loss__softmax__goes_over_the_piece_or_over_all(over: str, columns: int) -> None:
    model = FineTuning(over=over)
    for pair in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        model._column(*pair)
    model._restrict(torch.tensor([1, 3]))
    loss = model.task_loss(torch.full((1, 4), 7.0), torch.tensor([1]))
    assert float(loss) == pytest.approx(np.log(columns))


def test__fine_tuning__over_the_piece__moves_no_old_output() -> None:
    x, y = blobs()
    model = FineTuning(over="piece", **SMALL)
    model.partial_fit(x[y < 2], y[y < 2], "a")
    before = model.net.bias.detach().clone()
    model.partial_fit(x[y >= 2], y[y >= 2], "a")
    torch.testing.assert_close(model.net.bias[:2].detach(), before)


def test__lwf__heads__one_per_old_task_or_one_for_all() -> None:
    for over, expected in (("piece", [[0, 1], [2]]), ("all", [slice(3)])):
        model = LwF(over=over)
        for pair in (("a", 0), ("a", 1), ("b", 0), ("c", 1)):
            model._column(*pair)
        assert model.heads(3) == expected


def test__fine_tuning__second_piece__forgets_the_first() -> None:
    _, first, second = learn(FineTuning(**SMALL))
    assert first < 0.3
    assert second > 0.95


def test__joint_mlp__both_pieces__learns_both() -> None:
    model, first, second = learn(JointMLP(**SMALL))
    assert min(first, second) > 0.95
    assert model.floats_stored > 200 * 6


def test__fisher__linear_softmax__equals_p_one_minus_p_x_squared() -> None:
    net = GrowingMLP(3, 4)
    net.grow(3)
    rows = torch.randn(7, 3)
    found = fisher_diagonal(net, rows, [0, 1, 2])[0]
    with torch.no_grad():
        hidden, p = net.body(rows), net(rows).softmax(1)
    expected = torch.einsum("nk,nh->kh", p * (1 - p), hidden**2) / 7
    torch.testing.assert_close(found, expected)


def test__fisher__every_parameter__equals_squared_gradients_row_by_row() -> None:
    net = GrowingMLP(3, 4).double()
    net.grow(4)
    net.double()
    rows, columns = torch.randn(5, 3).double(), [0, 2, 3]
    expected = [torch.zeros_like(theta) for theta in net.parameters()]
    for x in rows:
        log_p = net(x[None])[0, columns].log_softmax(dim=0)
        for answer in log_p:
            slopes = torch.autograd.grad(answer, list(net.parameters()), retain_graph=True)
            for total, slope in zip(expected, slopes, strict=True):
                total += answer.exp().detach() * slope**2 / len(rows)
    for found, wanted in zip(fisher_diagonal(net, rows, columns), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test__ewc__two_anchors__penalty_gradient_is_the_sum_of_both() -> None:
    model = EWC(strength=3.0)
    net = GrowingMLP(2, 3)
    net.grow(2)
    theta = [parameter.detach() for parameter in net.parameters()]
    fisher = [[torch.rand_like(t) + 0.1 for t in theta] for _ in range(2)]
    anchor = [[torch.randn_like(t) for t in theta] for _ in range(2)]
    model.weight = [a + b for a, b in zip(*fisher, strict=True)]
    model.pull = [
        f0 * a0 + f1 * a1
        for f0, a0, f1, a1 in zip(fisher[0], anchor[0], fisher[1], anchor[1], strict=True)
    ]
    model._before(net)
    model._penalty(net, torch.zeros(1, 2)).backward()
    for index, parameter in enumerate(net.parameters()):
        expected = 3.0 * sum(
            f[index] * (theta[index] - a[index]) for f, a in zip(fisher, anchor, strict=True)
        )
        torch.testing.assert_close(parameter.grad, expected)


@pytest.mark.parametrize(
    "make", [lambda: EWC(strength=1e7, **SMALL), lambda: SI(strength=1e6, **SMALL)]
)
def test__importance__endless_strength__freezes_what_the_first_piece_used(make: type) -> None:
    model = make()
    x, y = blobs()
    model.partial_fit(x[y < 2], y[y < 2], "a")
    before = model._scores(model.scaler(x))
    model.partial_fit(x[y >= 2], y[y >= 2], "b")
    moved = np.abs(model._scores(model.scaler(x))[:100, :2] - before[:100]).mean()
    assert moved < 0.3 * np.abs(before[:100]).mean()
    assert (model.predict(x[:100], "a") == y[:100]).mean() > 0.95


def test__distillation__equal_logits__is_zero_with_zero_gradient() -> None:
    logits = torch.randn(5, 4)
    student = logits.clone().requires_grad_()
    loss = distillation(student, logits, 2.0)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert float(student.grad.abs().max()) < 1e-6


def test__distillation__two_columns__equals_hand_value() -> None:
    loss = distillation(torch.tensor([[0.0, 0.0]]), torch.tensor([[2 * np.log(3.0), 0.0]]), 2.0)
    expected = 4 * (0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5))
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test__lwf__second_task__keeps_more_of_the_first_than_fine_tuning() -> None:
    x, y = blobs(1)
    drift = []
    for model in (FineTuning(**SMALL), LwF(strength=10.0, **SMALL)):
        model.partial_fit(x[y < 2], y[y < 2], "a")
        before = model.pair_proba(x, "a")[:, :2]
        model.partial_fit(x[y >= 2], y[y >= 2], "b")
        drift.append(np.abs(model.pair_proba(x, "a")[:, :2] - before).mean())
        assert (model.predict(x[y >= 2], "b") == y[y >= 2]).mean() > 0.95
    assert drift[1] < 0.5 * drift[0]


def test__si__small_steps__path_sums_to_the_loss_drop() -> None:
    model = SI(hidden=8, epochs=200, lr=1e-4, batch=100)
    x, y = blobs()
    rows, target = torch.as_tensor(x[:100], dtype=torch.float32), torch.as_tensor(y[:100])
    for pair in (("a", 0), ("a", 1)):
        model._column(*pair)
    torch.manual_seed(0)
    net = GrowingMLP(6, 8)
    net.grow(2)
    start = float(model.task_loss(net(rows), target).detach())
    model._train(net, rows, target)
    drop = start - float(model.task_loss(net(rows), target).detach())
    assert drop > 0.05
    assert sum(float(path.sum()) for path in model.path) == pytest.approx(drop, rel=0.02)
