"""NPCL and SSRE against closed forms of their parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from benchmarks.rivals.mlp import FineTuning
from benchmarks.rivals.npcl import NPCL, AttentiveProcess, divergence
from benchmarks.rivals.ssre import SSRE, Expanded, similarity

SMALL = {"hidden": 32, "epochs": 20, "batch": 32}


def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 60)
    return 3 * rng.standard_normal((4, 6))[y] + 0.5 * rng.standard_normal((240, 6)), y


def test__divergence__two_gaussians__equals_torch() -> None:
    m, s, n, t = torch.randn(4, 5)
    expected = kl_divergence(Normal(m, s.exp()), Normal(n, t.exp())).sum()
    torch.testing.assert_close(divergence((m, s), (n, t)), expected)


def test__process__context_in_another_order__answers_the_same() -> None:
    torch.manual_seed(0)
    process = AttentiveProcess(6, 16, 4, 8)
    x, code, order = torch.randn(9, 6), torch.randint(8, (9,)), torch.randperm(9)
    answers = []
    for index in (torch.arange(9), order):
        key, value = process.encode(x[index], code[index])
        answers.append(process.logits(x, key, value, process.latent_law(value)[0]))
    torch.testing.assert_close(*answers)


def test__npcl__buffer__never_exceeds_its_size_and_holds_all_pieces() -> None:
    model = NPCL(memory=40, **SMALL)
    x, y = blobs()
    for low in (0, 2):
        part = (y == low) | (y == low + 1)
        model.partial_fit(x[part], y[part], "a")
    assert len(model.kept_x) == 40
    first = int((model.kept_y < 2).sum())
    assert 10 <= first <= 30
    rows = {tuple(row) for row in model.scaler(x).astype(np.float32).tolist()}
    assert {tuple(row) for row in model.kept_x.tolist()} <= rows


def test__expanded__merged__gives_the_same_answers() -> None:
    layer = Expanded(torch.nn.Linear(5, 3))
    torch.nn.init.normal_(layer.side)
    x = torch.randn(4, 5)
    before = layer(x).detach()
    torch.testing.assert_close(layer.merged()(x).detach(), before)


def test__expanded__training__leaves_the_main_branch() -> None:
    layer = Expanded(torch.nn.Linear(5, 3))
    layer(torch.randn(4, 5)).sum().backward()
    assert layer.main.weight.grad is None
    assert layer.side.grad is not None


def test__similarity__is_the_largest_cosine() -> None:
    found = similarity(
        torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 3.0], [1.0, 0.0]])
    )
    torch.testing.assert_close(found, torch.tensor([1.0, 0.5**0.5]))


def test__ssre__prototypes__are_class_means_of_features() -> None:
    model, (x, y) = SSRE(**SMALL), blobs()
    model.partial_fit(x[:120], y[:120], "a")
    with torch.no_grad():
        features = model.net.body(torch.as_tensor(model.scaler(x[:120])).float())
    torch.testing.assert_close(model.prototypes[1], features[60:].mean(0))
    assert model.owner.tolist() == [0, 1]


@pytest.mark.parametrize("make", [lambda: NPCL(**SMALL), lambda: SSRE(strength=10.0, **SMALL)])
def test__two_pieces__keeps_more_than_fine_tuning(make: type) -> None:
    kept = []
    for model in (FineTuning(**SMALL), make()):
        x, y = blobs()
        for low in (0, 2):
            part = (y == low) | (y == low + 1)
            model.partial_fit(x[part], y[part], "a")
        kept.append(float((model.predict(x[:120]) == y[:120]).mean()))
    assert kept[1] > kept[0] + 0.3
