"""One file for a model: verified whole before anything is built from it, replaced atomically."""

import os
from typing import TYPE_CHECKING

from clbruno.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from clbruno.estimator import CLBrunoClassifier
    from clbruno.persist.atomic import Target
    from clbruno.persist.codec import Saved

__all__ = ["load", "save", "verify"]


def save(model: "CLBrunoClassifier", path: "str | os.PathLike[str] | Target") -> None:
    """Write everything that was learned to one file; the old file stays until the new one is whole.

    Args:
        model: a fitted estimator.
        path: where to; the suffix `.clb` is usual.
    """
    from clbruno.persist import codec, container

    if not hasattr(model, "model_"):
        raise InputError("nothing was learned yet, so there is nothing to save; call fit first")
    names = getattr(model, "feature_names_in_", None)
    saved = codec.Saved(model.model_, None if names is None else tuple(map(str, names)))
    container.write(path, *codec.encode(saved))


def load(path: str | os.PathLike[str]) -> "CLBrunoClassifier":
    """Read a model file, verify all of it, and return the estimator that it holds.

    Raises:
        ModelFileError: damaged, hostile, foreign, or written by a newer version.
        InputError: no such file, or no permission to read it.
    """
    import numpy as np

    from clbruno.config import RECIPES, TUNABLE
    from clbruno.estimator import CLBrunoClassifier

    saved = _read(path)
    recipe = saved.model.recipe
    if recipe.name not in RECIPES:
        raise ModelFileError(f"{os.fspath(path)}: this version has no recipe {recipe.name[:40]!r}")
    usual = RECIPES[recipe.name]
    changed = {n: getattr(recipe, n) for n in TUNABLE if getattr(recipe, n) != getattr(usual, n)}
    model = CLBrunoClassifier(recipe.name, random_state=saved.model.seed, **changed)
    model.model_ = saved.model
    model.n_features_in_ = saved.model.width
    if saved.features is not None:
        model.feature_names_in_ = np.array(saved.features, dtype=object)
    return model


def verify(path: str | os.PathLike[str]) -> None:
    """Check a model file whole, and that the model in it can answer; raise if it cannot."""
    import torch

    model = _read(path).model
    try:
        answer = model.posterior(model.scaler.center[None]).log_label()
    except (InputError, RuntimeError) as error:
        raise ModelFileError(f"{os.fspath(path)}: the model cannot answer: {error}") from error
    if not bool(torch.isfinite(answer).all()):
        raise ModelFileError(f"{os.fspath(path)}: the model answers with a NaN or an infinity")


def _read(path: str | os.PathLike[str]) -> "Saved":
    from clbruno.persist import codec, container

    header, tensors = container.read(path)
    try:
        return codec.decode(header, tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error
