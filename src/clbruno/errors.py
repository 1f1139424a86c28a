"""One small tree of errors: each message says what is wrong, where, and what to do."""


class CLBrunoError(Exception):
    """Anything that this library refuses or cannot do."""


class InputError(CLBrunoError, ValueError):
    """Something the caller handed in is wrong, and the caller can mend it."""


class InputTypeError(InputError, TypeError):
    """A value is of a type that cannot be used, and the caller can mend it."""


class ModelFileError(CLBrunoError):
    """A model file is damaged, hostile, foreign, or newer than this library."""


class LockedFileError(CLBrunoError):
    """Another process is writing the same model file."""


class TrainingError(CLBrunoError, RuntimeError):
    """An update could not be learned; the model is what it was before."""


class SmallClassWarning(UserWarning):
    """A class has so few samples that its statistics come close to showing them."""


class MissingWarning(UserWarning):
    """A feature that was learned is missing in every row that is asked about."""
