"""A table of bad input, crossed with every method: a clear message, or success; never a change.

After every failure the estimator answers exactly as before, bit for bit.
"""

import copy
import datetime
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import DataConversionWarning, NotFittedError

from clbruno import CLBrunoClassifier, InputError, SmallClassWarning, TrainingError
from clbruno.config import TUNABLE, recipe

N, DIM = 60, 3
NAMES = ["p", "q", "r"]

_rng = np.random.default_rng(0)
X = np.vstack([_rng.normal(4 * at, 1, (N // 3, DIM)) for at in range(3)])
Y = np.repeat(["a", "b", "c"], N // 3)
TASKS = np.where(Y == "c", "B", "A")
X.flags.writeable = Y.flags.writeable = TASKS.flags.writeable = False
FRAME = pd.DataFrame(X, columns=NAMES)

Model = CLBrunoClassifier
Method = Callable[[Model, Any], Any]

LEARN: dict[str, Method] = {
    "fit": lambda model, x: model.fit(x, Y),
    "partial_fit": lambda model, x: model.partial_fit(x, Y, task="A"),
    "partial_fit, a new task": lambda model, x: model.partial_fit(x, Y, task="C"),
}
ANSWER: dict[str, Method] = {
    "predict": lambda model, x: model.predict(x),
    "predict in a task": lambda model, x: model.predict(x, task="A"),
    "predict_proba": lambda model, x: model.predict_proba(x),
    "predict_proba in a task": lambda model, x: model.predict_proba(x, task="A"),
    "predict_log_proba": lambda model, x: model.predict_log_proba(x),
    "predict_task": lambda model, x: model.predict_task(x),
    "predict_task_proba": lambda model, x: model.predict_task_proba(x),
    "score_samples": lambda model, x: model.score_samples(x),
    "score_samples in a task": lambda model, x: model.score_samples(x, task="A"),
    "typicality": lambda model, x: model.typicality(x),
    "typicality in a task": lambda model, x: model.typicality(x, task="A"),
}


def holed(hole: Any) -> Any:
    x = X.astype(object) if isinstance(hole, str | None) else X.copy()
    x[7, 1] = hole
    return x


REFUSED_X: dict[str, tuple[Any, str]] = {
    "NaN": (holed(np.nan), "contains NaN"),
    "NaN in float32": (holed(np.nan).astype(np.float32), "contains NaN"),
    "infinity": (holed(np.inf), "contains infinity"),
    "minus infinity": (holed(-np.inf), "contains infinity"),
    "complex": (X + 1j, "Complex data not supported"),
    "text in an object array": (holed("x"), "could not convert string to float: 'x'"),
    "None in an object array": (holed(None), "contains NaN"),
    "numbers as text": (X.astype(str), "not compatible with arrays of bytes/strings"),
    "bytes": (np.full((N, DIM), b"1"), "not compatible with arrays of bytes/strings"),
    "sparse matrix": (sp.csr_matrix(X), "Sparse data was passed"),
    "sparse array": (sp.coo_array(X), "Sparse data was passed"),
    "no rows": (X[:0], "0 sample"),
    "no columns": (X[:, :0], "0 feature"),
    "1-D": (X[:, 0], "Expected 2D array, got 1D array"),
    "3-D": (X[None], "dim 3"),
    "0-D": (np.float64(3), "Expected 2D array, got scalar"),
    "a number": (5, "Expected 2D array, got scalar"),
    "None": (None, "Expected 2D array, got scalar"),
    "text": ("abc", "Expected 2D array, got scalar"),
    "dictionary": ({"p": 1}, "Expected 2D array, got scalar"),
    "set": ({1, 2}, "Expected 2D array, got scalar"),
    "ragged lists": ([[1, 2, 3], [1, 2]], "inhomogeneous shape"),
    "dates": (np.full((N, DIM), np.datetime64("2020-01-01")), "must hold real numbers"),
    "structured": (np.zeros(N, dtype=[("p", float), ("q", float)]), "Expected 2D array"),
    "integers beyond any float": ([[10**400] * DIM] * N, "must hold real numbers"),
    "floats with squares beyond any float": (X * 1e300, "too large to compute with"),
    "one float too large": (holed(-1e200), "size 1e+200, too large to compute with"),
    "masked": (np.ma.masked_array(X, X > 5), "masked entries"),
    "tensor with a gradient": (torch.tensor(X, requires_grad=True), "requires grad"),
    "bfloat16 tensor": (torch.tensor(X).bfloat16(), "BFloat16"),
    "series": (pd.Series(X[:, 0]), "Expected a 2-dimensional container"),
    "frame with text": (FRAME.assign(q="x"), "could not convert string to float: 'x'"),
    "frame with categories": (FRAME.assign(q=pd.Categorical(["x"] * N)), "real numbers"),
    "frame with NA": (
        FRAME.astype("Float64").assign(q=pd.array([pd.NA] * N, dtype="Float64")),
        "contains NaN",
    ),
    "frame with dates": (FRAME.assign(q=pd.Timestamp("2020")), "DateTime64"),
    "frame, names of two kinds": (FRAME.rename(columns={"q": 1}), "string names"),
    "frame, name twice": (FRAME.rename(columns={"q": "p"}), "stand twice: 'p'"),
    "frame, six names twice": (
        pd.DataFrame(np.zeros((N, 12)), columns=list("abcdefabcdef")),
        "'a', 'b', 'c', 'd', 'e' and 1 more",
    ),
    "polars with null": (pl.DataFrame(X, schema=NAMES).with_columns(q=pl.lit(None)), "NaN"),
    "polars with text": (pl.DataFrame(X, schema=NAMES).with_columns(q=pl.lit("a")), "real numbers"),
    "lazy polars": (pl.DataFrame(X, schema=NAMES).lazy(), "Expected 2D array"),
}

REFUSED_WIDTH: dict[str, tuple[Any, str]] = {
    "too narrow": (X[:, :2], "X has 2 features, but CLBrunoClassifier is expecting 3"),
    "too wide": (np.hstack([X, X]), "X has 6 features, but CLBrunoClassifier is expecting 3"),
    "narrow list": ([[1.0]] * N, "X has 1 features, but"),
}

REFUSED_NAMES: dict[str, tuple[Any, str]] = {
    "missing": (FRAME[["p", "r"]], "missing: 'q'"),
    "extra": (FRAME.assign(s=1.0), "not learned from: 's'"),
    "renamed": (FRAME.rename(columns={"q": "Q"}), "missing: 'q'; not learned from: 'Q'"),
    "six extra": (
        FRAME.assign(**{f"s{at}": 0.0 for at in range(6)}),
        "'s0', 's1', 's2', 's3', 's4' and 1 more",
    ),
    "twice": (pd.concat([FRAME, FRAME[["q"]]], axis=1), "stand twice: 'q'"),
    "polars, missing": (pl.DataFrame(X[:, :2], schema=["p", "r"]), "missing: 'q'"),
    "array of another width": (X[:, :2], "X has 2 features, but"),
}

ACCEPTED_X: dict[str, Any] = {
    "lists": X.tolist(),
    "tuples": tuple(map(tuple, X.tolist())),
    "integers": X.astype(int),
    "true and false": X > 4,
    "unsigned bytes": np.abs(X).astype(np.uint8),
    "float16": X.astype(np.float16),
    "float32": X.astype(np.float32),
    "long double": X.astype(np.longdouble),
    "big endian": X.astype(">f8"),
    "numbers in an object array": X.astype(object),
    "by columns": np.asfortranarray(X),
    "every second row": np.repeat(X, 2, axis=0)[::2],
    "backwards": X[::-1].copy()[::-1],
    "read-only": X,
    "nothing masked": np.ma.masked_array(X),
    "tensor": torch.tensor(X),
    "frame": FRAME,
    "frame of numbered columns": pd.DataFrame(X),
    "frame of nullable floats": FRAME.astype("Float64"),
    "polars": pl.DataFrame(X, schema=NAMES),
    "tiny": X * 1e-100,
    "large": X * 1e100,
    "all the same": np.ones((N, DIM)),
}

# What y is, and the message in a fresh model; `None` is success there.
LABELS: dict[str, tuple[Any, str | None]] = {
    "None": (None, "y is None"),
    "too short": (Y[:5], "inconsistent numbers of samples: X has 60 rows, y has 5"),
    "too long": (np.tile(Y, 2), "y has 120"),
    "empty": ([], "y has 0"),
    "one text": ("a", "1d array"),
    "two columns": (np.c_[Y, Y], "1d array"),
    "dictionary": ({"a": 1}, "1d array"),
    "sparse": (sp.csr_matrix(np.ones((N, 1))), "Sparse data was passed"),
    "continuous": (np.linspace(0, 1, N), "Unknown label type: continuous"),
    "NaN": (np.where(np.arange(N) == 3, np.nan, 1.0), "NaN"),
    "infinity": (np.where(np.arange(N) == 3, np.inf, 1.0), "infinity"),
    "complex": (np.full(N, 1j), "Complex data not supported"),
    "text and number, a list": (["a"] * 30 + [1] * 30, "names of one kind"),
    "text and number, an array": (np.array(["a", 1] * 30, dtype=object), "names of one kind"),
    "text and true": ([True, "a"] * 30, "names of one kind"),
    "text and None": ([*["a"] * 59, None], "Missing values are no names"),
    "text and NaN": ([*["a"] * 59, np.nan], "Missing values are no names"),
    "all None": ([None] * N, "Missing values are no names"),
    "text and NA": (pd.Series([pd.NA, *Y[1:]], dtype="string"), "Missing values are no names"),
    "integer and NA": (pd.Series([1] * 59 + [pd.NA], dtype="Int64"), "NaN"),
    "polars null": (pl.Series([None, *Y[1:]]), "Missing values are no names"),
    "masked": (np.ma.masked_array(np.arange(N) // 20, np.arange(N) < 3), "masked entries"),
    "bytes": (np.repeat([b"a", b"b"], 30), "bytes"),
    "dates": ([datetime.date(2020, 1, 1)] * N, "names of one kind"),
    "tuples": ([("a", "b")] * N, "1d array"),
    "beyond 64 bits": ([10**30] * 30 + [1] * 30, "beyond 64 bits"),
    "2 ** 63": (np.array([2**63] * 30 + [1] * 30, dtype=np.uint64), "beyond 64 bits"),
    "10 ** 9": (np.repeat([0, 10**9, 5], 20), None),
    "negative": (np.repeat([-1, 0, 1], 20), None),
    "whole floats": (np.repeat([1.0, 2.0, 3.0], 20), None),
    "true and false": (np.arange(N) < 30, None),
    "objects that are integers": (np.array([1, 2] * 30, dtype=object), None),
    "nullable integers": (pd.Series(np.repeat([1, 2, 3], 20), dtype="Int64"), None),
    "tensor": (torch.arange(N) // 20, None),
}
# The same where text labels were learned before; the kinds do not mix.
OTHER_KIND = "labels were texts so far"

LABELS_OF_TEXT: dict[str, Any] = {
    "list": Y.tolist(),
    "objects": Y.astype(object),
    "objects that are numpy texts": np.array([np.str_(name) for name in Y], dtype=object),
    "series": pd.Series(Y),
    "categories": pd.Series(Y).astype("category"),
    "pandas texts": pd.Series(Y, dtype="string"),
    "polars": pl.Series(Y.tolist()),
    "polars categories": pl.Series(Y.tolist(), dtype=pl.Categorical),
    "empty text as a name": np.where(Y == "a", "", Y),
    "one class": ["a"] * N,
}

# What `task` is, and the message when learning and when asking; `None` is success.
TASK_NAMES: dict[str, tuple[Any, str | None, str | None]] = {
    "unknown": ("Z", None, "unknown task 'Z'; known tasks: 'A', 'B'"),
    "unknown in one row": (["A"] * 40 + ["Z"] * 20, None, "unknown task 'Z'"),
    "empty text": ("", None, "unknown task ''"),
    "too short": (["A"], "task has 1", "task has 1"),
    "too long": (["A"] * 61, "task has 61", "task has 61"),
    "no rows": ([], "task has 0", "task has 0"),
    "two columns": (np.full((N, 2), "A"), "one name or one per row", "one name or one per row"),
    "number": (3, "tasks were texts so far", "unknown task 3"),
    "10 ** 9": (10**9, "tasks were texts so far", "unknown task 1000000000"),
    "10 ** 40": (10**40, "beyond 64 bits", "beyond 64 bits"),
    "NaN": (np.nan, "NaN or infinity", "NaN or infinity"),
    "NaN in every row": ([np.nan] * N, "NaN or infinity", "NaN or infinity"),
    "infinity": (np.inf, "NaN or infinity", "NaN or infinity"),
    "None in one row": ([*["A"] * 59, None], "names of one kind", "names of one kind"),
    "NaN in one row": ([*["A"] * 59, np.nan], "names of one kind", "names of one kind"),
    "text and number": (["A", 1] * 30, "names of one kind", "names of one kind"),
    "true": (True, "tasks were texts so far", "unknown task True"),
    "bytes": (b"A", "names of one kind", "names of one kind"),
    "object": (object(), "names of one kind", "names of one kind"),
    "dictionary": ({}, "names of one kind", "names of one kind"),
    "set": ({"A"}, "names of one kind", "names of one kind"),
    "complex": (1j, "names of one kind", "names of one kind"),
    "date": (datetime.date(2020, 1, 1), "names of one kind", "names of one kind"),
    "NA": (pd.NA, "names of one kind", "names of one kind"),
    "masked": (np.ma.masked_array([1] * N, [True] * N), "masked", "masked"),
    "None": (None, None, None),
    "numpy text": (np.str_("A"), None, None),
    "0-D array": (np.array("A"), None, None),
    "series": (pd.Series(TASKS), None, None),
    "categories": (pd.Series(TASKS, dtype="category"), None, None),
    "polars": (pl.Series(TASKS.tolist()), None, None),
    "tuple": (tuple(TASKS.tolist()), None, None),
}

# Arguments of `sample`, and the message; `None` is success.
SAMPLES: dict[str, tuple[dict[str, Any], str | None]] = {
    "none": ({"n": 0}, "n must be a whole number of at least 1, got 0"),
    "negative": ({"n": -1}, "n must be a whole number"),
    "fraction": ({"n": 1.5}, "n must be a whole number"),
    "float": ({"n": 2.0}, "n must be a whole number"),
    "text": ({"n": "3"}, "n must be a whole number"),
    "no number": ({"n": None}, "n must be a whole number"),
    "true": ({"n": True}, "n must be a whole number"),
    "list": ({"n": [2]}, "n must be a whole number"),
    "unknown task": ({"task": "Z"}, "unknown task 'Z'; known tasks: 'A', 'B'"),
    "task per row": ({"task": ["A"]}, "names of one kind"),
    "task of another kind": ({"task": 3}, "unknown task 3"),
    "task NA": ({"task": pd.NA}, "names of one kind"),
    "task series": ({"task": pl.Series(["A", "B"])}, "names of one kind"),
    "unknown label": ({"label": "z"}, "unknown label 'z'; known labels: 'a', 'b', 'c'"),
    "label of another kind": ({"label": 1}, "unknown label 1"),
    "label of another task": (
        {"task": "B", "label": "a"},
        "label 'a' was never learned in task 'B'; its labels: 'c'",
    ),
    "negative seed": ({"random_state": -1}, "random_state must be a whole number"),
    "seed a fraction": ({"random_state": 1.5}, "random_state must be a whole number"),
    "seed a text": ({"random_state": "x"}, "random_state must be a whole number"),
    "numpy number": ({"n": np.int64(2)}, None),
    "one row": ({"n": 1, "task": "A", "label": "b"}, None),
    "label in any task": ({"label": "b"}, None),
    "random state": ({"random_state": np.random.RandomState(0)}, None),
}

FORGETS: dict[str, tuple[dict[str, Any], str | None]] = {
    "nothing": ({}, "name a task, a label, or both"),
    "unknown task": ({"task": "Z"}, "unknown task 'Z'"),
    "unknown label": ({"label": "z"}, "unknown label 'z'"),
    "label of another task": ({"task": "B", "label": "a"}, "never learned in task 'B'"),
    "list of tasks": ({"task": ["A", "B"]}, "names of one kind"),
    "task NA": ({"task": pd.NA}, "names of one kind"),
    "one task": ({"task": "A"}, None),
    "one label": ({"label": "b"}, None),
}

# Settings that are wrong, with a part of the message, for every number of the recipe and the rest.
SETTINGS: list[tuple[str, Any, str]] = [
    *(("recipe", value, "unknown recipe") for value in ("papers", None, 3, ["paper"], b"paper")),
    *(("device", value, "cannot be used here") for value in ("", "x", 1.5, [], "meta", True)),
    *(
        ("random_state", value, "random_state must be a whole number")
        for value in (-1, 1.5, "x", True, [1], np.array([3]), np.random.default_rng(0))
    ),
    *(("couplings", value, "couplings must be a whole number") for value in (-1, 1.5, "6", True)),
    *(("hidden", value, "hidden must be a whole number") for value in (0, 2.0)),
    *(("context_dim", value, "context_dim must be a whole number") for value in (-1, 0.5)),
    *(("whiten", value, "whiten must be True or False") for value in (1, "yes")),
    *(("latent", value, "latent must be 'task' or 'class'") for value in ("tasks", 3)),
    *(("dof", value, "dof must be a number over 2") for value in (2, -1.0, np.nan, "inf")),
    *(("strength", value, "strength must be") for value in (0, -1.0, np.inf, np.nan)),
    *(("ridge", value, "ridge must be") for value in (0, 1, -0.1, np.nan)),
    *(("kappa", value, "kappa must be a number over 0") for value in (0, -1, np.inf)),
    *(("blur", value, "blur must be a number from 0") for value in (-1, np.inf)),
    *(("image_shape", value, "image_shape must be None") for value in (28, (28,), (4, 4))),
    *(("memory", value, "memory must be a whole number") for value in (0, 1.0)),
    *(("jitter", value, "jitter must be a number from 0") for value in (-0.1, float("nan"))),
    *(("alpha_1", value, "alpha_1 must be a number from 0") for value in (-0.1, np.inf, "1")),
    *(("alpha_2", value, "alpha_2 must be a number from 0") for value in (-0.1, np.nan)),
    *(("replay", value, "replay must be a whole number") for value in (-1, 2.5)),
    *(("replay_per_task", value, "replay_per_task must be True or False") for value in (0, "no")),
    *(("batch_size", value, "batch_size must be a whole number") for value in (1, 3.0)),
    *(("learning_rate", value, "learning_rate must be a number") for value in (0, -1e-3, np.nan)),
    *(("max_epochs", value, "max_epochs must be a whole number") for value in (-1, 1.5)),
    ("patience", 0, "patience must be a whole number"),
    *(("validation_share", value, "validation_share must be a number") for value in (-0.1, 1)),
    *(("frozen", value, "frozen must be True or False") for value in (0, "yes")),
    ("label_prior", "count", "label_prior must be"),
    *(("task_prior", value, "task_prior must be") for value in ("flat", 0)),
    *(("min_class_size", value, "min_class_size must be a whole number") for value in (0, 1.5)),
]

# Settings that a model keeps for life, changed between two updates.
FOR_LIFE: dict[str, Any] = {
    "couplings": 3,
    "hidden": 9,
    "context_dim": 3,
    "whiten": True,
    "latent": "task",
    "dof": 5.0,
    "strength": 7.0,
    "ridge": 0.5,
    "kappa": 2.0,
    "memory": 99,
}


@dataclass(frozen=True)
class Witness:
    """A model, and what it said before anything was tried on it."""

    model: Model
    answers: Callable[[Model, Any], dict[str, Any]]
    same: Callable[[dict[str, Any], dict[str, Any]], None]
    before: dict[str, Any]

    def refuses(self, call: Callable[[Model], Any], message: str) -> None:
        """The call fails with this message, in an error for the user, and leaves no trace."""
        attributes = set(vars(self.model))
        with pytest.raises(InputError) as caught:
            call(self.model)
        text = str(caught.value)
        assert message in text
        assert len(text) > 15
        self.same(self.answers(self.model, X), self.before)
        assert set(vars(self.model)) == attributes

    def accepts(self, call: Callable[[Model], Any]) -> Any:
        """The call works, on a copy."""
        return call(copy.deepcopy(self.model))


def witness(model: Model, answers: Any, same: Any) -> Witness:
    model.partial_fit(FRAME if model.verbose else X, Y, task=TASKS)
    model.partial_fit(X, Y, task=TASKS)
    return Witness(model, answers, same, answers(model, X))


@pytest.fixture(scope="module")
def plain(answers: Any, same: Any) -> Witness:
    """A model of arrays."""
    return witness(CLBrunoClassifier(random_state=0), answers, same)


@pytest.fixture(scope="module")
def named(answers: Any, same: Any) -> Witness:
    """A model of data frames."""
    return witness(CLBrunoClassifier(random_state=0, verbose=1), answers, same)


@pytest.fixture(scope="module")
def paper(answers: Any, same: Any, settings: Any) -> Witness:
    """A small model as published."""
    return witness(CLBrunoClassifier(random_state=0, **settings["paper"]), answers, same)


def rows(table: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", list(table))


@pytest.fixture(autouse=True)
def _frames_that_are_no_estimators_business() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Determining the column names of a LazyFrame")
        yield


def test__table__has_sixty_rows__and_every_setting() -> None:
    tables = (REFUSED_X, REFUSED_WIDTH, REFUSED_NAMES, LABELS, TASK_NAMES, SAMPLES, FORGETS)

    assert sum(map(len, tables)) + len(SETTINGS) >= 60
    assert {name for name, _, _ in SETTINGS} == {*TUNABLE, "recipe", "device", "random_state"}


@rows(REFUSED_X)
@pytest.mark.parametrize("method", [*LEARN, *ANSWER])
def test__any_method__bad_features__input_error(plain: Witness, case: str, method: str) -> None:
    x, message = REFUSED_X[case]

    plain.refuses(lambda model: {**LEARN, **ANSWER}[method](model, x), message)


@rows(REFUSED_X)
def test__paper__bad_features__input_error(paper: Witness, case: str) -> None:
    x, message = REFUSED_X[case]

    paper.refuses(lambda model: model.partial_fit(x, Y, task="C"), message)
    paper.refuses(lambda model: model.predict(x), message)


@rows(REFUSED_WIDTH)
@pytest.mark.parametrize("method", [*LEARN, *ANSWER])
def test__any_method__another_width__input_error_unless_fit(
    plain: Witness, case: str, method: str
) -> None:
    x, message = REFUSED_WIDTH[case]

    if method == "fit":
        plain.accepts(lambda model: model.fit(x, Y))
    else:
        plain.refuses(lambda model: {**LEARN, **ANSWER}[method](model, x), message)


@rows(REFUSED_NAMES)
@pytest.mark.parametrize("method", [*LEARN, *ANSWER])
def test__any_method__names_that_do_not_match__input_error_unless_fit(
    named: Witness, case: str, method: str
) -> None:
    x, message = REFUSED_NAMES[case]

    if method == "fit" and case != "twice":
        named.accepts(lambda model: model.fit(x, Y))
    else:
        named.refuses(lambda model: {**LEARN, **ANSWER}[method](model, x), message)


@rows(ACCEPTED_X)
@pytest.mark.parametrize("method", [*LEARN, *ANSWER])
def test__any_method__other_containers__work(plain: Witness, case: str, method: str) -> None:
    if case == "large" and method.startswith("partial_fit"):  # the flow is trained in float32
        with pytest.raises(TrainingError, match="overflow; the model is unchanged"):
            LEARN[method](copy.deepcopy(plain.model), ACCEPTED_X[case])
        return

    found = plain.accepts(lambda model: {**LEARN, **ANSWER}[method](model, ACCEPTED_X[case]))

    if method in ANSWER:
        assert len(found) == N
        assert found.dtype.kind != "f" or np.isfinite(found).all()
    else:
        assert np.isfinite(found.predict_proba(ACCEPTED_X[case])).all()


@pytest.mark.parametrize("method", list(ANSWER))
def test__any_answer__one_row__works(plain: Witness, method: str) -> None:
    assert len(ANSWER[method](plain.model, X[:1])) == 1


@pytest.mark.parametrize("method", list(ANSWER))
def test__any_answer__rows_beyond_computing__input_error_names_the_row(
    answers: Any, same: Any, method: str
) -> None:
    tiny = CLBrunoClassifier(random_state=0).fit(X * 1e-150, Y, task=TASKS)
    far = X * 1e-150
    far[5] = 1e50

    with pytest.raises(InputError, match=r"row 5 of X .* cannot be computed"):
        ANSWER[method](tiny, far)


def test__partial_fit__batch_beyond_computing__training_error(answers: Any, same: Any) -> None:

    tiny = CLBrunoClassifier(random_state=0).fit(X * 1e-150, Y)
    before = answers(tiny, X * 1e-150)

    with pytest.raises(TrainingError, match="overflow; the model is unchanged"):
        tiny.partial_fit(X * 1e20, Y)

    same(answers(tiny, X * 1e-150), before)


@rows(LABELS)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "first partial_fit"])
def test__learning__labels__message_or_success(plain: Witness, case: str, method: str) -> None:
    y, message = LABELS[case]

    if message is not None and method != "first partial_fit":
        plain.refuses(lambda model: getattr(model, method)(X, y, task="A"), message)
    elif message is not None:
        fresh = CLBrunoClassifier(random_state=0)
        with pytest.raises(InputError) as caught:
            fresh.partial_fit(X, y)
        assert message in str(caught.value)
        assert not hasattr(fresh, "model_")
        assert not hasattr(fresh, "n_features_in_")
    elif method == "partial_fit":
        plain.refuses(lambda model: model.partial_fit(X, y, task="A"), OTHER_KIND)
    else:
        model = CLBrunoClassifier(random_state=0)
        getattr(model, method.removeprefix("first "))(X, y)
        assert model.classes_.tolist() == np.unique(np.asarray(y, dtype=object)).tolist()
        assert set(model.predict(X)) <= set(model.classes_)


@rows(LABELS_OF_TEXT)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test__learning__texts_in_other_containers__work(plain: Witness, case: str, method: str) -> None:
    model = plain.accepts(lambda it: getattr(it, method)(X, LABELS_OF_TEXT[case], task="A"))

    assert model.classes_.dtype.kind == "U"
    assert set(LABELS_OF_TEXT[case]) <= set(model.classes_)


@pytest.mark.parametrize(
    "y",
    [Y[:, None], pd.DataFrame({"y": Y}), [[name] for name in Y]],
    ids=["array", "frame", "list"],
)
def test__learning__column_of_labels__works_with_a_warning(plain: Witness, y: Any) -> None:
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = plain.accepts(lambda model: model.partial_fit(X, y, task="A"))

    assert model.classes_.tolist() == ["a", "b", "c"]


@rows(TASK_NAMES)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test__learning__tasks__message_or_success(plain: Witness, case: str, method: str) -> None:
    task, learning, _ = TASK_NAMES[case]

    def call(model: Model) -> Any:
        return getattr(model, method)(X, Y, task=task)

    if learning is None or (method == "fit" and "so far" in learning):
        assert plain.accepts(call).predict_task_proba(X).shape[0] == N
    else:
        plain.refuses(call, learning)


@rows(TASK_NAMES)
@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_log_proba", "score_samples", "typicality"]
)
def test__answers__tasks__message_or_success(plain: Witness, case: str, method: str) -> None:
    task, _, asking = TASK_NAMES[case]

    def call(model: Model) -> Any:
        return getattr(model, method)(X, task=task)

    if asking is None:
        assert len(plain.accepts(call)) == N
    else:
        plain.refuses(call, asking)


@rows(SAMPLES)
def test__sample__arguments__message_or_success(plain: Witness, case: str) -> None:
    arguments, message = SAMPLES[case]

    if message is None:
        x, y = plain.accepts(lambda model: model.sample(**arguments))
        assert x.shape == (arguments.get("n", 1), DIM)
        assert y.shape == (arguments.get("n", 1),)
    else:
        plain.refuses(lambda model: model.sample(**arguments), message)


@rows(FORGETS)
def test__forget__arguments__message_or_success(plain: Witness, case: str) -> None:
    arguments, message = FORGETS[case]

    if message is None:
        assert np.isfinite(plain.accepts(lambda it: it.forget(**arguments)).predict_proba(X)).all()
    else:
        plain.refuses(lambda model: model.forget(**arguments), message)


@pytest.mark.parametrize("by", ["task", "label"])
def test__forget__the_last__input_error(answers: Any, same: Any, by: str) -> None:
    model = CLBrunoClassifier(random_state=0).fit(X[:20], Y[:20], task="A")
    before = answers(model, X)

    with pytest.raises(InputError, match="nothing would be left"):
        model.forget(**{by: {"task": "A", "label": "a"}[by]})

    same(answers(model, X), before)


@pytest.mark.parametrize(("name", "value", "message"), SETTINGS)
def test__learning__wrong_setting__input_error_that_names_it(
    plain: Witness, name: str, value: Any, message: str
) -> None:
    fresh = CLBrunoClassifier(**{name: value})
    for method in (fresh.fit, fresh.partial_fit):
        with pytest.raises(InputError) as caught:
            method(X, Y)
        assert message in str(caught.value)
    assert not hasattr(fresh, "model_")

    model = copy.deepcopy(plain.model).set_params(**{name: value})
    before = {key: id(item) for key, item in vars(model).items()}
    with pytest.raises(InputError) as caught:
        model.fit(X, Y)
    assert message in str(caught.value)
    assert {key: id(item) for key, item in vars(model).items()} == before
    plain.same(plain.answers(model, X), plain.before)


@pytest.mark.parametrize(("name", "value"), FOR_LIFE.items())
def test__partial_fit__setting_kept_for_life_changes__input_error(
    plain: Witness, name: str, value: Any
) -> None:
    model = copy.deepcopy(plain.model).set_params(**{name: value})

    with pytest.raises(InputError, match=f"{name} is .* in this model and cannot become"):
        model.partial_fit(X, Y, task="A")

    plain.same(plain.answers(model, X), plain.before)


@pytest.mark.parametrize(("name", "value"), {**FOR_LIFE, "latent": "class"}.items())
def test__fit__setting_kept_for_life_changes__starts_with_it(name: str, value: Any) -> None:
    model = CLBrunoClassifier(random_state=0, max_epochs=1).fit(X, Y).set_params(**{name: value})

    assert model.fit(X, Y).model_.recipe == recipe("default", max_epochs=1, **{name: value})


@pytest.mark.parametrize(
    "classes", [None, [], ["a", "b", "c"], ["a"], ["x", "y"], 5, "abc", np.array([1, 2])]
)
def test__partial_fit__classes__accepted_and_without_effect(plain: Witness, classes: Any) -> None:
    with_them, without = (
        plain.accepts(lambda model, extra=extra: model.partial_fit(X, Y, task="A", **extra))
        for extra in ({"classes": classes}, {})
    )

    plain.same(plain.answers(with_them, X), plain.answers(without, X))


@pytest.mark.parametrize("method", list(ANSWER))
def test__any_answer__before_learning__not_fitted(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ANSWER[method](CLBrunoClassifier(), X)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.sample(3),
        lambda model: model.forget(task="A"),
        lambda model: model.score(X, Y),
    ],
)
def test__sample_and_forget__before_learning__not_fitted(ask: Any) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ask(CLBrunoClassifier())


@pytest.mark.parametrize("name", ["classes_", "tasks_", "class_count_", "n_updates_", "model_"])
def test__attributes__before_learning__not_there(name: str) -> None:
    assert not hasattr(CLBrunoClassifier(), name)


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
@pytest.mark.parametrize("count", [1, 4])
def test__learning__few_samples_of_a_class__a_warning_and_an_answer(
    settings: Any, recipe: str, count: int
) -> None:
    keep = np.r_[np.arange(40), 40 + np.arange(count)]

    with pytest.warns(SmallClassWarning, match="fewer than 5 samples of 'c'"):
        model = CLBrunoClassifier(random_state=0, **settings[recipe]).fit(X[keep], Y[keep])

    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
def test__learning__one_sample_then_one_class__works(settings: Any, recipe: str) -> None:
    model = CLBrunoClassifier(random_state=0, min_class_size=1, **settings[recipe])

    model.partial_fit(X[:1], Y[:1])

    assert model.predict(X).tolist() == ["a"] * N
    assert model.predict_proba(X).tolist() == [[1.0]] * N
    model.partial_fit(X[:20], Y[:20])
    assert model.class_count_.tolist() == [21]
    model.partial_fit(X[20:], Y[20:])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.isfinite(model.predict_proba(X)).all()


def test__partial_fit__class_of_another_task__is_a_cell_of_its_own(plain: Witness) -> None:
    model = plain.accepts(lambda it: it.partial_fit(X[:20], Y[:20], task="B"))

    assert model.classes_.tolist() == ["a", "b", "c"]
    assert set(model.predict(X, task="B")) == {"a", "c"}
    assert model.class_count_.tolist() == [60, 40, 40]


def test__frames__reordered_columns__same_answers(named: Witness) -> None:
    order = ["r", "p", "q"]

    for frame in (FRAME[order], pl.DataFrame(X, schema=NAMES)[order]):
        named.same(named.answers(named.model, frame), named.before)


def test__frames__reordered_columns__same_learning(named: Witness) -> None:
    order = ["r", "p", "q"]
    frames = (FRAME, FRAME[order], pl.DataFrame(X, schema=NAMES)[order])

    models = [named.accepts(lambda it, x=x: it.partial_fit(x, Y, task="C")) for x in frames]

    for model in models[1:]:
        named.same(named.answers(model, FRAME), named.answers(models[0], FRAME))
        assert model.feature_names_in_.tolist() == NAMES
