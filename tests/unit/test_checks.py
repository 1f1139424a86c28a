"""The contracts catch what they name: one broken implementation for every check."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clbruno.checks import check_flow, check_latent
from clbruno.core.conjugate import NormalInverseWishart
from clbruno.core.coupling import Context
from clbruno.core.flow import CouplingFlow
from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.moments import Moments

DIM, CONTEXT = 3, 2


class Good(CouplingFlow):
    """A conditional flow with weights that are not zero."""

    def __init__(self, context_dim: int = CONTEXT) -> None:
        generator = torch.Generator().manual_seed(0)
        super().__init__(DIM, 2, 8, context_dim, generator=generator)
        with torch.no_grad():
            for weights in self.parameters():
                weights.normal_(0, 0.4, generator=generator)


class HalvesPrecision(Good):
    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        z, ladj = super().forward(x, context)
        return z, ladj.float()


class WritesIntoItsInput(Good):
    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        answer = super().forward(x.clone(), context)
        x.detach().mul_(2)
        return answer


class ForgetsToInvert(Good):
    def inverse(self, z: Tensor, context: Context | None = None) -> Tensor:
        return z


class WrongLogDet(Good):
    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        z, ladj = super().forward(x, context)
        return z, -ladj


class NormalisesByTheBatch(Good):
    """Exact for its own batch, but a row's log-determinant depends on the others."""

    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        z, ladj = super().forward(x, context)
        return z, ladj + (1e-3 * (len(x) - 3) if len(x) > 3 else 0.0)


class HasAnIdleWeight(Good):
    def __init__(self) -> None:
        super().__init__()
        self.idle = torch.nn.Parameter(torch.ones(1))


class IgnoresTheContext(Good):
    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        return super().forward(x, None)

    def inverse(self, z: Tensor, context: Context | None = None) -> Tensor:
        return super().inverse(z, None)


def test__check_flow__good_flow__passes() -> None:
    check_flow(lambda dtype: Good().to(dtype), context_dim=CONTEXT)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (HalvesPrecision, "shapes"),
        (WritesIntoItsInput, "shapes"),
        (ForgetsToInvert, "inverse"),
        (WrongLogDet, "log_det"),
        (NormalisesByTheBatch, "rows"),
        (HasAnIdleWeight, "gradients"),
    ],
)
def test__check_flow__broken_flow__error_starts_with_the_checks_name(
    broken: type[Good], check: str
) -> None:
    with pytest.raises(AssertionError, match=f"^{check}: "):
        check_flow(lambda dtype: broken().to(dtype), context_dim=CONTEXT)


def test__check_flow__context_ignored__is_told() -> None:
    with pytest.raises(AssertionError, match=r"^(gradients: layers\.0\.context|context: )"):
        check_flow(lambda dtype: IgnoresTheContext().to(dtype), context_dim=CONTEXT)


def test__check_flow__conditional_flow_called_label_free__is_told() -> None:
    flow = Good(context_dim=0)
    flow.conditional = True

    with pytest.raises(AssertionError, match=r"^context: conditional is True"):
        check_flow(lambda dtype: flow.to(dtype))


class GoodLatent(ExchangeableGaussian):
    """The exchangeable Gaussian, to be broken."""

    def given(self, seen: Moments) -> Any:
        return replace(self, **vars(super().given(seen)))


class LearnsTooLittle(GoodLatent):
    def given(self, seen: Moments) -> Any:
        return super().given(replace(seen, count=max(seen.count - 1, 0.0)))


class ForgetsAConstant(GoodLatent):
    def nll(self, new: Moments) -> Tensor:
        return super().nll(new) - 0.1


class LogProbOfAnother(GoodLatent):
    def log_prob(self, z: Tensor) -> Tensor:
        return super().log_prob(z) - 0.1


class OrderMatters(GoodLatent):
    def nll_of(self, z: Tensor) -> Tensor:
        return super().nll_of(z) + 1e-3 * z[0].sum()


class RowsMatter(GoodLatent):
    def nll_of(self, z: Tensor) -> Tensor:
        return super().nll_of(z) + 1e-3 * z.square().sum()


class TooWideSamples(GoodLatent):
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.mean + 1.1 * (super().sample(n, generator) - self.mean)


class ShiftedSamples(GoodLatent):
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return super().sample(n, generator) + 0.1


class GlobalSamples(GoodLatent):
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        torch.manual_seed(generator.initial_seed())
        return super().sample(n, torch.default_generator)


class DeafToTheSeed(GoodLatent):
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return super().sample(n, torch.Generator().manual_seed(0))


def latent(kind: type[GoodLatent]) -> GoodLatent:
    nu = torch.tensor([1.0, 2.0], dtype=torch.float64)
    infinite = torch.tensor(math.inf, dtype=torch.float64)
    return kind(torch.zeros(2).double(), 0.4 * nu, 0.6 * nu, infinite)


def test__check_latent__good_latent__passes() -> None:
    check_latent(lambda: latent(GoodLatent))


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (LearnsTooLittle, "conditioning"),
        (ForgetsAConstant, "chain_rule"),
        (LogProbOfAnother, "one_sample"),
        (OrderMatters, "permutation"),
        (RowsMatter, "rows"),
        (TooWideSamples, "samples"),
        (ShiftedSamples, "samples"),
        (GlobalSamples, "seeds"),
        (DeafToTheSeed, "seeds"),
    ],
)
def test__check_latent__broken_latent__error_starts_with_the_checks_name(
    broken: type[GoodLatent], check: str
) -> None:
    with pytest.raises(AssertionError, match=f"^{check}: "):
        check_latent(lambda: latent(broken))


def test__check_latent__empty_sequence_that_teaches__is_told() -> None:
    class Restless(NormalInverseWishart):
        def given(self, seen: Moments) -> Any:
            law = super().given(seen)
            return replace(
                self,
                **{name: getattr(law, name) for name in ("mean", "kappa", "dof")},
                scale=law.scale * (1.01 if seen.count == 0 else 1.0),
            )

    prior = Restless(torch.zeros(2).double(), 1.0, 5.0, torch.eye(2).double())
    with pytest.raises(AssertionError, match=r"^empty: "):
        check_latent(lambda: prior)
