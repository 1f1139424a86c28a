"""Generative rivals against quadrature, automatic differentiation and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks.rivals.boovae import BoostedVAE, BooVAE, component_loss, kept_close
from benchmarks.rivals.flows import ClassFlows, RealNVP
from benchmarks.rivals.mergan import ConditionalGAN, MeRGAN, alignment
from benchmarks.rivals.mlp import FineTuning, GrowingMLP
from benchmarks.rivals.replay import GenerativeReplay
from benchmarks.rivals.vae import VAE, ClassVAEs


def strokes(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Four classes of 12 noisy pixels, each class with its own three bright ones."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), 80)
    bright = np.repeat(np.eye(4), 3, axis=1)[y]
    return np.clip(0.8 * bright + 0.1 + 0.05 * rng.standard_normal((320, 12)), 0, 1), y


def test__vae__one_latent__evidence_equals_quadrature() -> None:
    torch.manual_seed(0)
    model, x = VAE(5, 8, 1).double(), torch.rand(3, 5).double().round()
    with torch.no_grad():
        grid = torch.linspace(-8, 8, 4001).double()[:, None, None].expand(-1, 3, 1)
        prior = -0.5 * grid[..., 0] ** 2 - 0.5 * math.log(2 * math.pi)
        exact = (model.log_likelihood(x, grid) + prior).logsumexp(0) + math.log(16 / 4000)
        found = model.log_evidence(x, 20000)
    torch.testing.assert_close(found, exact, atol=5e-3, rtol=0)


def test__vae__elbo__mean_is_below_the_evidence() -> None:
    torch.manual_seed(1)
    model, x = VAE(6, 8, 2), torch.rand(4, 6).round()
    with torch.no_grad():
        bound = torch.stack([model.elbo(x) for _ in range(400)]).mean(0)
        assert (bound <= model.log_evidence(x, 5000) + 0.02).all()


def test__flow__fresh__is_the_standard_normal() -> None:
    x = torch.randn(6, 4)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(1)
    torch.testing.assert_close(RealNVP(4, 8, 4).log_prob(x), expected)


def test__flow__random_weights__invert_and_match_autograd() -> None:
    torch.manual_seed(0)
    flow = RealNVP(5, 8, 4).double()
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(3, 5).double()
    with torch.no_grad():
        z, ladj = flow(x)
        torch.testing.assert_close(flow.inverse(z), x)
    for row, value in zip(x, ladj, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda r: flow(r[None])[0][0], row)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClassVAEs(hidden=32, latent=2, epochs=30),
        lambda: ClassFlows(hidden=32, couplings=2, epochs=300),
    ],
)
def test__one_per_class__two_tasks__knows_class_and_task(make: type) -> None:
    model = make()
    x, y = strokes()
    for low, task in ((0, "a"), (2, "b")):
        part = (y == low) | (y == low + 1)
        model.partial_fit(x[part], y[part], task)
    fresh, truth = strokes(1)
    assert (model.predict(fresh) == truth).mean() > 0.97
    assert (model.predict_task_proba(fresh).argmax(1) == truth // 2).mean() > 0.97


def test__replay__penalty__weighs_old_and_new_by_pieces() -> None:
    model = GenerativeReplay(hidden=8)
    for pair in (("a", 0), ("a", 1)):
        model._column(*pair)
    x, y = strokes()
    rows, target = torch.as_tensor(x[:160]).float(), torch.as_tensor(y[:160])
    net = GrowingMLP(12, 8)
    net.grow(2)
    model.pieces, model._replayed = 4, (rows[:1], target[:1])
    expected = 3 * model.task_loss(net(rows[:1]), target[:1])
    torch.testing.assert_close(model._penalty(net, rows), expected)


def memory_after_two_pieces(model: FineTuning) -> float:
    """Accuracy on the first piece when the second is learned."""
    x, y = strokes()
    for low in (0, 2):
        part = (y == low) | (y == low + 1)
        model.partial_fit(x[part], y[part], "a")
    return float((model.predict(x[:160]) == y[:160]).mean())


SOLVER = {"hidden": 64, "epochs": 20, "batch": 32, "scale": "none"}


def test__fine_tuning__two_pieces__forgets() -> None:
    assert memory_after_two_pieces(FineTuning(**SOLVER)) < 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda: GenerativeReplay(latent=4, generator_hidden=64, generator_epochs=60, **SOLVER),
        lambda: MeRGAN(latent=4, generator_hidden=64, generator_epochs=150, **SOLVER),
        lambda: BooVAE(
            components=6, steps=20, latent=4, generator_hidden=64, generator_epochs=60, **SOLVER
        ),
    ],
)
def test__replay__two_pieces__remembers_what_fine_tuning_forgets(make: type) -> None:
    assert memory_after_two_pieces(make()) > 0.9


def test__alignment__constant_shift__is_its_square_times_the_pixels() -> None:
    old = ConditionalGAN(6, 8, 3, 4)
    for parameter in old.parameters():
        torch.nn.init.zeros_(parameter)
    new = ConditionalGAN(6, 8, 3, 4)
    new.load_state_dict(old.state_dict())
    z, code = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])
    assert float(alignment(new, old, z, code).detach()) == 0.0
    torch.nn.init.constant_(new.generator[4].bias, math.log(3.0))  # 0.75 in place of 0.5
    assert float(alignment(new, old, z, code).detach()) == pytest.approx(6 * 0.25**2)


def test__gan_losses__blind_critic__equal_penalty_and_log_classes() -> None:
    gan = ConditionalGAN(6, 8, 3, 4)
    for part in (gan.verdict, gan.naming):
        torch.nn.init.zeros_(part.weight)
        torch.nn.init.zeros_(part.bias)
    x, code = torch.rand(5, 6), torch.tensor([0, 1, 2, 3, 0])
    made = gan.make(torch.randn(5, 3), code)
    blind = float(gan.critic_loss(x, made, code).detach())
    assert blind == pytest.approx(10 + math.log(4))  # a slope of 0 is 1 away from 1
    assert float(gan.generator_loss(made, code).detach()) == pytest.approx(math.log(4))


def test__gan_losses__linear_critic_of_slope_one__has_no_penalty() -> None:
    gan = ConditionalGAN(6, 8, 3, 4)
    gan.critic, gan.verdict = torch.nn.Identity(), torch.nn.Linear(6, 1)
    gan.naming = torch.nn.Linear(6, 4)
    with torch.no_grad():
        gan.verdict.weight.copy_(torch.eye(6)[:1])
        gan.naming.weight.zero_()
        gan.naming.bias.zero_()
    real, made = torch.rand(5, 6), torch.rand(5, 6)
    loss = float(gan.critic_loss(real, made, torch.tensor([0, 1, 2, 3, 0])).detach())
    assert loss == pytest.approx(float((made - real)[:, 0].mean()) + math.log(4), abs=1e-6)


def test__boosted_prior__components__mix_to_the_stated_density() -> None:
    torch.manual_seed(0)
    model = BoostedVAE(4, 8, 2)
    z = torch.randn(3, 2)
    normal = torch.distributions.Normal
    with torch.no_grad():
        torch.testing.assert_close(model.log_prior(z), normal(0.0, 1.0).log_prob(z).sum(1))
        for share in (1.0, 0.5, 0.25):
            model.boost(torch.rand(4), share)
        mean, log_sd = model.posterior(model.inputs)
        each = normal(mean, log_sd.exp()).log_prob(z[:, None]).sum(-1).exp()
        torch.testing.assert_close(model.weights, torch.tensor([0.375, 0.375, 0.25]))
        torch.testing.assert_close(model.log_prior(z).exp(), each @ model.weights)


def test__boosted_vae__unchanged__is_close_to_itself() -> None:
    model = BoostedVAE(4, 8, 2)
    model.boost(torch.rand(4), 1.0)
    assert float(kept_close(model, model).detach()) == pytest.approx(0.0, abs=1e-4)
    other = BoostedVAE(4, 8, 2)
    assert float(kept_close(other, model).detach()) > 0.01


def test__component_loss__input_like_the_rows__is_lower() -> None:
    torch.manual_seed(0)
    x, _ = strokes()
    rows = torch.as_tensor(x[:80]).float()
    model = BoostedVAE(12, 16, 2)
    torch.nn.init.normal_(model.encoder[2].weight, std=1.0)
    with torch.no_grad():
        near = torch.stack([component_loss(model, rows[0], rows) for _ in range(20)]).mean()
        far = torch.stack([component_loss(model, 1 - rows[0], rows) for _ in range(20)]).mean()
    assert near < far


def test__component_loss__only_its_own_row__is_the_priors_mean_log_density() -> None:
    torch.manual_seed(0)
    model, u = BoostedVAE(4, 8, 2), torch.rand(4)
    with torch.no_grad():
        found = torch.stack([component_loss(model, u, u[None]) for _ in range(300)]).mean()
        mean, log_sd = model.posterior(u)
        square = (mean**2 + (2 * log_sd).exp()).sum()
    assert float(found) == pytest.approx(float(-0.5 * square) - math.log(2 * math.pi), abs=0.05)
