"""One tree of errors, with a branch for what the caller can mend."""

import inspect

import pytest

from clbruno import errors
from clbruno.errors import (
    CLBrunoError,
    InputError,
    LockedFileError,
    ModelFileError,
    SmallClassWarning,
    TrainingError,
)


@pytest.mark.parametrize("error", [InputError, ModelFileError, LockedFileError, TrainingError])
def test__errors__every_one__is_a_clbruno_error(error: type[Exception]) -> None:
    assert issubclass(error, CLBrunoError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(InputError, ValueError), (TrainingError, RuntimeError), (SmallClassWarning, UserWarning)],
)
def test__errors__builtin_branch__is_kept(error: type, expected: type) -> None:
    assert issubclass(error, expected)


@pytest.mark.parametrize("error", [ModelFileError, LockedFileError, TrainingError])
def test__errors__not_the_callers_input__is_no_value_error(error: type) -> None:
    assert not issubclass(error, ValueError)


def test__errors__module__holds_nothing_outside_the_tree() -> None:
    found = {cls for _, cls in inspect.getmembers(errors, inspect.isclass)}

    assert all(issubclass(cls, CLBrunoError | Warning) for cls in found)
    assert all(cls.__doc__ for cls in found)
