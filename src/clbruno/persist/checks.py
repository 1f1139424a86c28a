"""Small questions to what was read from a file; each raises a `ModelFileError` when it is a no."""

import math
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from clbruno.errors import ModelFileError


def require(condition: bool, complaint: str) -> None:
    """Go on only if the condition holds."""
    if not condition:
        raise ModelFileError(complaint)


def shaped(
    tensors: dict[str, Tensor],
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Take the tensor of this name out of `tensors`; it must have this shape and type."""
    require(name in tensors, f"the tensor {name!r} is missing")
    tensor = tensors.pop(name)
    require(
        tensor.shape == shape,
        f"the tensor {name!r} has the shape {tuple(tensor.shape)} and should have {shape}",
    )
    right = tensor.dtype == dtype if dtype else tensor.dtype.is_floating_point
    require(right, f"the tensor {name!r} has the type {tensor.dtype}")
    return tensor


class Fields:
    """The fields of a JSON object, each taken once and checked; `end` finds what is left over."""

    def __init__(self, value: object, what: str) -> None:
        require(isinstance(value, dict), f"{what} is not an object")
        assert isinstance(value, dict)
        self.values: dict[str, Any] = dict(value)
        self._what = what

    def get(self, name: str) -> Any:
        """The field as it is."""
        require(name in self.values, f"{self._what} has no field {name!r}")
        return self.values.pop(name)

    def _typed(self, name: str, kind: type, text: str) -> Any:
        value = self.get(name)
        require(type(value) is kind, f"the field {name!r} of {self._what} is not {text}")
        return value

    def text(self, name: str) -> str:
        """A text."""
        return str(self._typed(name, str, "a text"))

    def flag(self, name: str) -> bool:
        """True or false."""
        return bool(self._typed(name, bool, "true or false"))

    def items(self, name: str) -> list[Any]:
        """A list."""
        return list(self._typed(name, list, "a list"))

    def child(self, name: str) -> "Fields":
        """An object of its own."""
        return Fields(self.get(name), f"the field {name!r} of {self._what}")

    def whole(self, name: str, low: int, high: int) -> int:
        """A whole number in `[low, high)`."""
        value = int(self._typed(name, int, "a whole number"))
        require(low <= value < high, f"the field {name!r} of {self._what} is out of bounds")
        return value

    def real(self, name: str, low: float = -math.inf) -> float:
        """A finite number of at least `low`."""
        return self._real(name, self.get(name), low)

    def real_or_inf(self, name: str) -> float:
        """A number, or the text `inf`, because JSON has no infinity."""
        value = self.get(name)
        return math.inf if value == "inf" else self._real(name, value, -math.inf)

    def is_null(self, name: str) -> bool:
        """Whether the field is null; then it is taken."""
        if name in self.values and self.values[name] is None:
            del self.values[name]
            return True
        return False

    def positive(self, name: str) -> float:
        """A finite number above zero."""
        value = self.real(name)
        require(value > 0, f"the field {name!r} of {self._what} is not positive")
        return value

    def _real(self, name: str, value: Any, low: float) -> float:
        # An int can be too large for a float; it is compared before it is converted.
        right = type(value) in (int, float) and abs(value) < 1e308 and value >= low
        require(right, f"the field {name!r} of {self._what} is not a number in its bounds")
        return float(value)

    def reals(self, name: str) -> dict[str, float]:
        """An object whose values are finite numbers."""
        values = self.child(name).values
        return {key: self._real(name, value, -math.inf) for key, value in values.items()}

    def texts(self, name: str) -> dict[str, str]:
        """An object whose values are texts."""
        values = self.child(name).values
        require(
            all(isinstance(value, str) for value in values.values()),
            f"the field {name!r} of {self._what} does not hold texts",
        )
        return values

    def names(self, name: str) -> tuple[Hashable, ...]:
        """Unique names of tasks or labels, all texts or all numbers of a kind, at least one."""
        names = Fields.name_list(self.items(name))
        require(len(names) > 0, f"the field {name!r} of {self._what} is empty")
        require(len(set(map(type, names))) == 1, f"the {name} are not names of one kind")
        require(len(set(names)) == len(names), f"one of the {name} stands there twice")
        return names

    @staticmethod
    def name_list(values: Any) -> tuple[Hashable, ...]:
        """Names of tasks or labels."""
        require(
            all(type(value) in (str, int, float, bool) for value in values),
            "a name is neither a text nor a number",
        )
        return tuple(values)

    @staticmethod
    def whole_list(values: object, what: str, length: int) -> tuple[int, ...]:
        """Counts or positions: whole numbers from 0 to 2^53, exact as floats."""
        require(isinstance(values, list) and len(values) == length, f"{what}: wrong in number")
        assert isinstance(values, list)
        right = all(type(value) is int and 0 <= value <= 2**53 for value in values)
        require(right, f"{what}: not whole numbers from 0 on")
        return tuple(values)

    def end(self) -> None:
        """Every field has been taken."""
        require(
            not self.values, f"{self._what} has an unknown field {next(iter(self.values), '')!r}"
        )
