"""Two small models, one of each recipe, learned once, and their files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clbruno import CLBrunoClassifier, save


@dataclass(frozen=True)
class Learned:
    """A model, its file, and rows to ask it about."""

    model: CLBrunoClassifier
    path: Path
    x: NDArray[np.float64]


RECIPES = {
    "default": {"recipe": "default"},
    "thin": {"recipe": "default", "memory": 60},
    "whitened": {"recipe": "default", "couplings": 2, "hidden": 16, "whiten": True},
    "paper": {"recipe": "paper", "hidden": 16, "context_dim": 8, "dof": 5.0},
}


def rows(classes: int, n: int, dim: int, seed: int) -> tuple[NDArray[np.float64], list[str]]:
    """`n` rows of each of some classes around different means."""
    rng = np.random.default_rng(seed)
    x = np.vstack([rng.normal(3 * at, 1, (n, dim)) for at in range(classes)])
    return x, [f"class {at}" for at in range(classes) for _ in range(n)]


@pytest.fixture(scope="session", params=list(RECIPES))
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """A model of two tasks that share a label."""
    x, y = rows(3, 40, 5, seed=0)
    model = CLBrunoClassifier(random_state=0, max_epochs=2, patience=2, **RECIPES[request.param])
    model.partial_fit(x[:80], y[:80], task="Boston")
    model.partial_fit(x[40:] + 1, y[40:], task="Oslo")
    path = tmp_path_factory.mktemp(request.param) / "m.clb"
    save(model, path)
    return Learned(model, path, rows(3, 20, 5, seed=1)[0])
