"""Continual learning by exchangeable sequence modelling (CL-BRUNO).

The names are resolved when they are first used, so importing `clbruno` loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "CLBrunoClassifier": "clbruno.estimator",
    "load": "clbruno.persist",
    "save": "clbruno.persist",
    "Stream": "clbruno.data.stream",
    "CLBrunoError": "clbruno.errors",
    "InputError": "clbruno.errors",
    "ModelFileError": "clbruno.errors",
    "TrainingError": "clbruno.errors",
    "SmallClassWarning": "clbruno.errors",
}

__all__ = [
    "CLBrunoClassifier",
    "CLBrunoError",
    "InputError",
    "ModelFileError",
    "SmallClassWarning",
    "Stream",
    "TrainingError",
    "__version__",
    "load",
    "save",
]

if TYPE_CHECKING:
    from clbruno.data.stream import Stream
    from clbruno.errors import (
        CLBrunoError,
        InputError,
        ModelFileError,
        SmallClassWarning,
        TrainingError,
    )
    from clbruno.estimator import CLBrunoClassifier
    from clbruno.persist import load, save


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clbruno' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
