"""Statistics follow a flow that was trained on: exact for linear changes, close for others."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from clbruno import CLBrunoClassifier
from clbruno.core.cells import ClassLatent, Thin
from clbruno.core.flow import FlowSequence, Whitening
from clbruno.core.model import Model
from clbruno.core.moments import Moments
from clbruno.learn.following import followed
from clbruno.learn.student import Student

DIM, EACH = 4, 400


def rows() -> tuple[Tensor, list[str]]:
    """Three classes around means of their own, each with a covariance of its own."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for at in range(3):
        turn = torch.randn(DIM, DIM, generator=generator) / 3 + torch.eye(DIM)
        parts.append(torch.randn(EACH, DIM, generator=generator) @ turn + 3 * at)
    return torch.cat(parts).double(), [f"class {at}" for at in range(3) for _ in range(EACH)]


def model_of(**settings: object) -> Model:
    x, y = rows()
    model = CLBrunoClassifier(random_state=0, max_epochs=2, hidden=8, **settings)
    return model.fit(x.numpy(), y).model_


def student_of(model: Model) -> Student:
    return Student(copy.deepcopy(model.flow), None, None).double().requires_grad_(False)


def truth(student: Student, model: Model) -> list[Moments]:
    """The statistics of the rows themselves under the student."""
    z = student.z_of(model.scaler.forward(rows()[0]), torch.zeros(3 * EACH, dtype=torch.long))
    return [Moments.of(part, full=True) for part in z.split(EACH)]


def distance(one: list[Moments], other: list[Moments]) -> tuple[float, float]:
    """How far the means and the covariances are from each other, root mean square."""
    pairs = list(zip(one, other, strict=True))
    mean = torch.stack([a.mean - b.mean for a, b in pairs])
    cov = torch.stack([a.scatter / a.count - b.scatter / b.count for a, b in pairs])
    return float(mean.square().mean().sqrt()), float(cov.square().mean().sqrt())


def full(latent: object) -> list[Moments]:
    assert isinstance(latent, ClassLatent)
    return [latent.seen(cell) for cell in range(3)]


def assert_nearer(
    found: ClassLatent, model: Model, student: Student, *, mean: float, cov: float
) -> None:
    """Under these shares of the distance that the statistics had before they followed."""
    expected = truth(student, model)
    apart, wide = distance(full(model.latent), expected)
    now_apart, now_wide = distance(full(found), expected)
    assert now_apart < mean * apart
    assert now_wide < cov * wide


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("memory", [2_000_000, 3 * DIM * 2])
def test__followed__flow_that_has_not_moved__nothing_changes(memory: int) -> None:
    model = model_of(memory=memory)

    found = followed(model.latent, model, student_of(model), generator())

    for one, other in zip(found.moments, model.latent.moments, strict=True):
        assert isinstance(one, Thin) == (memory < 100)
        torch.testing.assert_close(one.mean, other.mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.within, model.latent.within, rtol=1e-6, atol=1e-6)


def test__followed__linear_change__the_statistics_of_the_rows_themselves() -> None:
    model = model_of()
    turn = torch.diag(torch.tensor([1.2, 0.9, 1.0, 1.1], dtype=torch.float64)) + 0.05
    flows = [*model.flow.flows, Whitening(torch.full((DIM,), 0.3).double(), turn)]
    student = Student(FlowSequence(flows), None, None).double()

    found = followed(model.latent, model, student, generator())

    assert_nearer(found, model, student, mean=0.01, cov=0.01)
    within = sum(seen.scatter for seen in truth(student, model))
    torch.testing.assert_close(found.within, within, rtol=0.01, atol=0.01 * float(within.max()))


def test__followed__couplings_that_moved__is_much_nearer_to_the_rows_than_before() -> None:
    model = model_of()
    student = student_of(model)
    noise = generator()
    for weights in student.flow.parameters():
        weights += 0.1 * torch.randn(weights.shape, generator=noise)

    found = followed(model.latent, model, student, generator())

    assert_nearer(found, model, student, mean=0.4, cov=0.6)


def test__moved__thin_cells__as_full_ones_but_for_what_is_not_kept() -> None:
    whole = model_of().latent
    thin = replace(whole, memory=3 * DIM * DIM - 1).thinned()
    noise = generator()
    shift, slope, rest = (
        torch.randn(shape, generator=noise).double() / 10
        for shape in ((3, DIM), (DIM, DIM), (DIM, DIM))
    )

    one, other = (latent.moved(shift, slope, rest @ rest.mT) for latent in (whole, thin))

    assert not other.whole
    torch.testing.assert_close(one.within, other.within)
    for cell in range(3):
        torch.testing.assert_close(one.moments[cell].mean, other.moments[cell].mean)
        seen, kept = thin.seen(cell), other.seen(cell)
        turn = torch.eye(DIM).double() + slope
        moved = turn @ (seen.scatter - seen.count * thin.pooled) @ turn.mT
        torch.testing.assert_close(kept.scatter - kept.count * other.pooled, moved)
