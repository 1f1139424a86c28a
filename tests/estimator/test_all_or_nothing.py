"""An update that fails, anywhere, leaves the estimator as it was, bit for bit."""

import copy
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import clbruno
from clbruno import CLBrunoClassifier, TrainingError
from clbruno.learn import problem
from clbruno.learn.objective import functional
from clbruno.learn.replay import Teacher
from clbruno.learn.student import Student

STEPS = 50
LONG = {"max_epochs": 7, "patience": 7, "batch_size": 16}
HOME = os.path.dirname(clbruno.__file__)

FAULTS: dict[str, type[BaseException]] = {
    "error": ZeroDivisionError,
    "interrupt": KeyboardInterrupt,
    "nan": TrainingError,
}


class Faulty:
    """The likelihood, but for its `at`-th call."""

    def __init__(self, fault: str, at: int) -> None:
        self.real, self.fault, self.left = problem.likelihood, fault, at

    def __call__(self, *arguments: Any) -> torch.Tensor:
        self.left -= 1
        loss = self.real(*arguments)
        if self.left == 0:
            if self.fault == "nan":
                return loss * torch.nan
            raise FAULTS[self.fault]("injected")
        return loss


class InterruptAt:
    """Ctrl-C at the `at`-th call of a function of this library; 0 only counts them."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt

    def during(self, action: Callable[[], Any]) -> None:
        """Run the action under this profile."""
        sys.setprofile(self)
        try:
            action()
        finally:
            sys.setprofile(None)


@pytest.fixture(scope="module", params=["couplings", "paper"])
def trained(request: pytest.FixtureRequest, blobs: Any, settings: Any) -> CLBrunoClassifier:
    """A model with a trained flow."""
    x, y = blobs(3, 40, 4, gap=1.0)
    model = CLBrunoClassifier(
        random_state=0,
        **{**settings[request.param], **LONG, "learning_rate": 0.01, "max_epochs": 20},
    )
    model.partial_fit(bent(x), y, task="A").set_params(**LONG)
    assert model.model_.log[0].epochs > 0
    return model


@pytest.fixture(scope="module")
def closed_form(blobs: Any) -> CLBrunoClassifier:
    """A model that learns in closed form."""
    x, y = blobs(3, 40, 4)
    return CLBrunoClassifier(random_state=0).partial_fit(x, y, task="A")


def bent(x: Any) -> Any:
    """Bananas: no Gaussian fits them, so a flow has something to learn."""
    return np.hstack([x[:, :2], x[:, 2:] + 2 * x[:, :2] ** 2])


@pytest.fixture
def batch(blobs: Any) -> dict[str, Any]:
    """A known class, a new one, and a new task."""
    x, y = blobs(5, 40, 4, seed=1, gap=1.0)
    return {"X": bent(x[40:]), "y": y[40:], "task": ["A"] * 100 + ["B"] * 60}


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test__partial_fit__fault_at_a_training_step__predicts_exactly_as_before(
    trained: CLBrunoClassifier,
    batch: dict[str, Any],
    answers: Any,
    same: Any,
    step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = list(FAULTS)[step % len(FAULTS)]
    before, model = answers(trained, batch["X"]), trained.model_
    monkeypatch.setattr(problem, "likelihood", Faulty(fault, step))

    with pytest.raises(FAULTS[fault]):
        trained.partial_fit(**batch)

    assert trained.model_ is model
    same(answers(trained, batch["X"]), before)


def test__partial_fit__after_fifty_faults__learns_as_if_nothing_had_been(
    trained: CLBrunoClassifier,
    batch: dict[str, Any],
    answers: Any,
    same: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never_failed = copy.deepcopy(trained)
    for step, fault in enumerate(FAULTS, start=3):
        with monkeypatch.context() as patch:
            patch.setattr(problem, "likelihood", Faulty(fault, step))
            with pytest.raises(FAULTS[fault]):
                trained.partial_fit(**batch)

    again = copy.deepcopy(trained).partial_fit(**batch)

    same(answers(again, batch["X"]), answers(never_failed.partial_fit(**batch), batch["X"]))


def moments_of_interruption(action: Callable[[], Any]) -> Iterator[int]:
    """Fifty calls, evenly spread over all that the action makes, the first and the last too."""
    count = InterruptAt(0)
    count.during(action)
    assert count.calls > STEPS
    yield from np.unique(np.linspace(1, count.calls, STEPS).astype(int)).tolist()


@pytest.mark.parametrize("method", ["partial_fit", "fit"])
def test__closed_form__interrupt_at_any_call__predicts_exactly_as_before(
    closed_form: CLBrunoClassifier, batch: dict[str, Any], answers: Any, same: Any, method: str
) -> None:
    x = batch["X"] if method == "partial_fit" else batch["X"][:, :3]
    given = {**batch, "X": x}
    before, state = answers(closed_form, batch["X"]), dict(vars(closed_form))

    for at in moments_of_interruption(lambda: getattr(copy.deepcopy(closed_form), method)(**given)):
        with pytest.raises(KeyboardInterrupt):
            InterruptAt(at).during(lambda: getattr(closed_form, method)(**given))
        assert vars(closed_form) == state, at

    same(answers(closed_form, batch["X"]), before)


def test__fit__interrupt_during_the_first__stays_unfitted(batch: dict[str, Any]) -> None:
    blank = CLBrunoClassifier(random_state=0)
    state = dict(vars(blank))

    for at in moments_of_interruption(lambda: copy.deepcopy(blank).fit(**batch)):
        with pytest.raises(KeyboardInterrupt):
            InterruptAt(at).during(lambda: blank.fit(**batch))
        assert vars(blank) == state, at


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, bytes]]:
    """Every tensor of a model, as bytes."""
    if isinstance(value, torch.Tensor):
        yield name, value.detach().numpy().tobytes()
    elif isinstance(value, nn.Module):
        for part, tensor in value.state_dict().items():
            yield from tensors_of(tensor, f"{name}.{part}")
    elif isinstance(value, tuple):
        for at, item in enumerate(value):
            yield from tensors_of(item, f"{name}.{at}")
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name), f"{name}.{field.name}")


def test__teacher__after_training__is_bit_identical(
    trained: CLBrunoClassifier, batch: dict[str, Any], answers: Any, same: Any
) -> None:
    old = trained.model_
    tensors, said = dict(tensors_of(old)), answers(trained, batch["X"])
    student = copy.copy(trained)

    student.partial_fit(**batch)

    assert student.model_ is not old
    assert len(tensors) > 10
    assert dict(tensors_of(old)) == tensors
    same(answers(trained, batch["X"]), said)
    flow = dict(tensors_of(student.model_.flow))
    assert student.model_.log[-1].epochs == 0 or any(
        flow[name] != value for name, value in tensors_of(old.flow)
    )


def test__update__flow_of_the_old_model__shares_no_memory_with_the_new(
    trained: CLBrunoClassifier, batch: dict[str, Any]
) -> None:
    new = copy.copy(trained).partial_fit(**batch).model_

    old = {tensor.data_ptr() for tensor in trained.model_.flow.state_dict().values()}

    assert not old & {tensor.data_ptr() for tensor in new.flow.state_dict().values()}


def test__regulariser__while_new_is_old__is_zero(trained: CLBrunoClassifier) -> None:
    old = trained.model_
    generator = torch.Generator().manual_seed(0)
    replay = Teacher(old, 32, per_task=False).draw(generator)
    student = Student.of(old, old.registry, generator)

    with torch.no_grad():
        in_single = functional(student.flow, _single(replay), student.context(replay.cell))
        student = student.double()
        in_double = functional(student.flow, replay, student.context(replay.cell))

    assert float(in_double) == 0.0
    assert 0 < float(in_single) / replay.x.numel() < 1e-9


def test__regulariser__a_student_that_moved__is_not_zero(trained: CLBrunoClassifier) -> None:
    old = trained.model_
    generator = torch.Generator().manual_seed(0)
    replay = Teacher(old, 32, per_task=False).draw(generator)
    student = Student.of(old, old.registry, generator).double()
    with torch.no_grad():
        for weights in student.flow.parameters():
            weights.add_(0.01)
        moved = functional(student.flow, replay, student.context(replay.cell))

    assert float(moved) / replay.x.numel() > 1e-6


def _single(replay: Any) -> Any:
    return replay._replace(z=replay.z.float(), x=replay.x.float())
