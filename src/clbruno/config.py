"""Recipes: every number of the model and of its training, named, frozen, checked once."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from clbruno.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a model is built and learned, besides data and seed.

    Attributes:
        name: the recipe these numbers started from.
        couplings: number of coupling layers; 0 leaves the flow the identity.
        hidden: width of each coupling's hidden layer.
        context_dim: length l of task and label embeddings; 0 keeps labels out of the flow.
        whiten: put a closed-form whitening before the couplings.
        latent: `"task"`, the paper's exchangeable Gaussian per task, or `"class"`, the
            conjugate law per (task, class).
        dof: degrees of freedom of the task latent's Student-t option; inf is the Gaussian.
        strength: v0, samples that the pooled covariance is worth to a class; None is 0.5 D.
        ridge: share of the unit covariance in every class's; None chooses it by leave-one-out
            while all classes keep full covariances, and is 0.02, or what was chosen before, once
            they do not.
        blur: the filter on a class's own covariance, as a multiple of the ridge: directions in
            which the classes vary less than that keep the pooled covariance; 0 for no filter.
        kappa: samples that a task's mean is worth to a class.
        memory: most numbers that all classes' covariances may take together.
        jitter: standard deviation, in scaled units, of the noise that is added to the rows on
            which the flow is trained; the statistics are those of the rows themselves.
        alpha_1: weight of the likelihood of pseudo-data.
        alpha_2: weight of the functional regulariser; 0 leaves it out.
        replay: N', pseudo-samples per step.
        replay_per_task: draw N' for every task, as the paper does, not for all together.
        batch_size: rows of new data per step.
        learning_rate: of Adam.
        max_epochs: most passes over a new batch of data; 0 learns in closed form alone.
        patience: epochs without a better validation score before the learning rate falls, and
            after its last fall before training stops.
        validation_share: share of a new batch held back to stop the training.
        frozen: learn statistics alone and leave flow, ridge and temperature as they are: exact,
            in closed form, and the order of the batches does not matter.
        label_prior: p(y | t) from the `"counts"` or `"uniform"`.
        task_prior: p(t) `"uniform"` or from the `"counts"`.
        image_shape: (height, width) or (height, width, channels) of images whose pixels the rows
            are: a fixed front of filters stands before the flow; None takes the rows as they are.
        min_class_size: classes with fewer samples bring a warning.
    """

    name: str
    couplings: int
    hidden: int
    context_dim: int
    whiten: bool
    latent: Literal["task", "class"]
    dof: float
    strength: float | None
    ridge: float | None
    blur: float
    kappa: float
    memory: int
    jitter: float
    alpha_1: float
    alpha_2: float
    replay: int
    replay_per_task: bool
    batch_size: int
    learning_rate: float
    max_epochs: int
    patience: int
    validation_share: float
    frozen: bool
    label_prior: Literal["counts", "uniform"]
    task_prior: Literal["uniform", "counts"]
    image_shape: tuple[int, ...] | None
    min_class_size: int

    def __post_init__(self) -> None:
        for name, (expected, holds) in _BOUNDS.items():
            value = getattr(self, name)
            if not holds(value):
                raise InputError(f"{name} must be {expected}, got {value!r}")

    def with_overrides(self, **overrides: Any) -> "Recipe":
        """The recipe with some numbers replaced."""
        unknown = sorted(set(overrides) - set(TUNABLE))
        if unknown:
            raise InputError(f"unknown recipe setting {unknown[0]!r}; known: {', '.join(TUNABLE)}")
        return dataclasses.replace(self, **overrides)


def _whole(low: int) -> tuple[str, Callable[[Any], bool]]:
    return f"a whole number of at least {low}", lambda v: _is_int(v) and v >= low


def _real(
    low: float, high: float = math.inf, *, closed: bool = False
) -> tuple[str, Callable[[Any], bool]]:
    text = f"a number {'from' if closed else 'over'} {low:g}"
    text += f" and under {high:g}" if high < math.inf else ""
    return text, lambda v: _is_real(v) and (v >= low if closed else v > low) and v < high


def _optional(bound: tuple[str, Callable[[Any], bool]]) -> tuple[str, Callable[[Any], bool]]:
    text, holds = bound
    return f"None or {text}", lambda v: v is None or holds(v)


def _one_of(*names: str) -> tuple[str, Callable[[Any], bool]]:
    return " or ".join(repr(n) for n in names), lambda v: isinstance(v, str) and v in names


def _image(low: int) -> tuple[str, Callable[[Any], bool]]:
    def holds(value: Any) -> bool:
        sized = isinstance(value, tuple) and len(value) in (2, 3) and all(map(_is_int, value))
        return value is None or (sized and min(value[:2]) >= low and min(value) >= 1)

    text = "None, (height, width) or (height, width, channels)"
    return f"{text} with sides of at least {low} pixels", holds


def _flag() -> tuple[str, Callable[[Any], bool]]:
    return "True or False", lambda v: isinstance(v, bool)


def _is_int(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__")


def _is_real(value: Any) -> bool:
    return (
        not isinstance(value, bool)
        and (_is_int(value) or isinstance(value, float))
        and value == value
    )


_BOUNDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a text", lambda v: isinstance(v, str)),
    "couplings": _whole(0),
    "hidden": _whole(1),
    "context_dim": _whole(0),
    "whiten": _flag(),
    "latent": _one_of("task", "class"),
    "dof": ("a number over 2, or inf", lambda v: _is_real(v) and v > 2),
    "strength": _optional(_real(0)),
    "ridge": _optional(_real(0, 1)),
    "blur": _real(0, closed=True),
    "kappa": _real(0),
    "memory": _whole(1),
    "jitter": _real(0, closed=True),
    "alpha_1": _real(0, closed=True),
    "alpha_2": _real(0, closed=True),
    "replay": _whole(0),
    "replay_per_task": _flag(),
    "batch_size": _whole(2),
    "learning_rate": _real(0),
    "max_epochs": _whole(0),
    "patience": _whole(1),
    "validation_share": _real(0, 1, closed=True),
    "frozen": _flag(),
    "label_prior": _one_of("counts", "uniform"),
    "task_prior": _one_of("uniform", "counts"),
    "image_shape": _image(8),
    "min_class_size": _whole(1),
}

TUNABLE = tuple(name for name in _BOUNDS if name != "name")
"""The settings that a keyword may override, in the order of the recipe."""

RECIPES = {
    "paper": Recipe(
        name="paper",
        couplings=6,
        hidden=256,
        context_dim=128,
        whiten=False,
        latent="task",
        dof=math.inf,
        strength=None,
        ridge=None,
        blur=5.0,
        kappa=0.01,
        memory=2_000_000,
        jitter=0.0,
        alpha_1=1.0,
        alpha_2=1.0,
        replay=128,
        replay_per_task=True,
        batch_size=128,
        learning_rate=1e-3,
        max_epochs=100,
        patience=3,
        validation_share=0.1,
        frozen=False,
        label_prior="counts",
        task_prior="uniform",
        image_shape=None,
        min_class_size=5,
    ),
    "default": Recipe(
        name="default",
        couplings=2,
        hidden=64,
        context_dim=0,
        whiten=False,
        latent="class",
        dof=math.inf,
        strength=None,
        ridge=None,
        blur=5.0,
        kappa=0.01,
        memory=2_000_000,
        jitter=0.1,
        alpha_1=2.0,
        alpha_2=0.0,
        replay=256,
        replay_per_task=False,
        batch_size=128,
        learning_rate=1e-3,
        max_epochs=20,
        patience=3,
        validation_share=0.1,
        frozen=False,
        label_prior="counts",
        task_prior="uniform",
        image_shape=None,
        min_class_size=5,
    ),
}


def recipe(name: str, **overrides: Any) -> Recipe:
    """A named recipe, with some of its numbers replaced.

    >>> recipe("paper").couplings, recipe("paper", couplings=4).couplings
    (6, 4)
    """
    if not isinstance(name, str) or name not in RECIPES:
        raise InputError(f"unknown recipe {name!r}; known: {', '.join(sorted(RECIPES))}")
    return RECIPES[name].with_overrides(**overrides)
