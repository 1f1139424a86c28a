"""The scikit-learn skin: checks what comes in, names what goes out, learns all or nothing."""

import copy
import dataclasses
import warnings
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from clbruno.config import TUNABLE, Recipe, recipe
from clbruno.core.comparison import Comparison, compare
from clbruno.core.conformal import label_set, level_sets, typicality
from clbruno.core.missing import observe, observed_levels, patterns, separation
from clbruno.core.model import Model, chunks_of
from clbruno.core.posterior import LOG_FLOOR, Posterior
from clbruno.data.front import ImageFront, as_rows
from clbruno.data.stream import Block, Stream, as_stream
from clbruno.data.table import (
    Table,
    first_names,
    kind_of,
    match_features,
    read_labels,
    read_name,
    read_table,
    read_tasks,
    with_missing,
)
from clbruno.errors import InputError, MissingWarning, SmallClassWarning
from clbruno.history import joined
from clbruno.learn.distributed import Group
from clbruno.learn.engine import Lesson, forget, learn, warn_of_small
from clbruno.learn.merging import Merged, Sites, merge
from clbruno.learn.progress import Progress
from clbruno.registry import DEFAULT_TASK

Floats = NDArray[np.float64]
Tasks = torch.Tensor | None

CHUNK_NUMBERS = 2**20
"""Numbers of the input per pass; bounds the memory of an answer."""


class CLBrunoClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns labelled data that arrive in pieces, keeps no sample, and answers with probabilities.

    Args:
        recipe: `"default"`, or `"paper"` for the model as it was published.
        device: `"auto"`, `"cpu"` or `"cuda"`: where the flow is trained.
        random_state: seed of all randomness; None takes a fresh one.
        verbose: 1 shows a progress bar for every update.
        missing: `"error"` refuses a NaN; `"marginal"` answers from the features that a row has.

    Every other argument is a number of the recipe, see `clbruno.config.Recipe`; None keeps the
    recipe's.

    Attributes:
        classes_: labels in the order they were learned; the columns of `predict_proba`.
        tasks_: tasks in the order they were learned; the columns of `predict_task_proba`.
        class_count_: samples learned of each class, over all tasks.
        n_updates_: how many batches were learned.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if the first batch had any.
        model_: the learned state, a frozen value.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal(c, 1, (30, 2)) for c in (0, 6, 12)])
        >>> y = np.repeat(["a", "b", "c"], 30)
        >>> model = CLBrunoClassifier(random_state=0).partial_fit(X[:60], y[:60])
        >>> model = model.partial_fit(X[60:], y[60:])
        >>> model.predict([[0, 0], [6, 6], [12, 12]]).tolist()
        ['a', 'b', 'c']
    """

    model_: Model
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        recipe: str = "default",
        *,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        couplings: int | None = None,
        hidden: int | None = None,
        context_dim: int | None = None,
        whiten: bool | None = None,
        latent: str | None = None,
        dof: float | None = None,
        strength: float | None = None,
        ridge: float | None = None,
        blur: float | None = None,
        kappa: float | None = None,
        memory: int | None = None,
        jitter: float | None = None,
        alpha_1: float | None = None,
        alpha_2: float | None = None,
        replay: int | None = None,
        replay_per_task: bool | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_epochs: int | None = None,
        patience: int | None = None,
        validation_share: float | None = None,
        frozen: bool | None = None,
        label_prior: str | None = None,
        task_prior: str | None = None,
        image_shape: tuple[int, ...] | None = None,
        min_class_size: int | None = None,
        missing: str = "error",
    ) -> None:
        self.recipe = recipe
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.couplings = couplings
        self.hidden = hidden
        self.context_dim = context_dim
        self.whiten = whiten
        self.latent = latent
        self.dof = dof
        self.strength = strength
        self.ridge = ridge
        self.blur = blur
        self.kappa = kappa
        self.memory = memory
        self.jitter = jitter
        self.alpha_1 = alpha_1
        self.alpha_2 = alpha_2
        self.replay = replay
        self.replay_per_task = replay_per_task
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_share = validation_share
        self.frozen = frozen
        self.label_prior = label_prior
        self.task_prior = task_prior
        self.image_shape = image_shape
        self.min_class_size = min_class_size
        self.missing = missing

    def fit(self, X: Any, y: Any = None, task: Any = DEFAULT_TASK) -> Self:
        """Start afresh and learn one batch.

        Args:
            X: array, memory map, data frame or AnnData, rows by features.
            y: one label per row, all of one kind.
            task: the task of the rows: one name, or one per row.
        """
        return self._learn(None, X, y, task)

    def partial_fit(
        self, X: Any, y: Any = None, task: Any = DEFAULT_TASK, classes: Any = None
    ) -> Self:
        """Learn one more batch: new tasks, new classes, more samples of known ones, in any mix.

        Training works on a copy: an error or an interruption leaves the estimator as it was.
        Inside an initialised `torch.distributed` process group every rank calls this, with rows of
        its own (or none), or with the same path, whose files the ranks share.

        Args:
            X: array, memory map, data frame or AnnData, rows by features; or, for what does not
                fit into memory, a `clbruno.Stream`, an iterator of `(X, y)` or `(X, y, task)`, or
                the path of a table or of a folder of Parquet files.
            y: one label per row, of the kind that was learned before; the name of the column with
                the labels where X is a path; nothing where X brings them.
            task: the task of the rows: one name, or one per row.
            classes: accepted for the sake of scikit-learn's habits; classes may appear at any time.
        """
        return self._learn(getattr(self, "model_", None), X, y, task)

    def predict(self, X: Any, task: Any = None, abstain: float | None = None) -> NDArray[Any]:
        """The most probable label of each row; of its task's labels where `task` is given.

        Args:
            X: rows by features.
            task: the task of the rows: one name, or one per row.
            abstain: answer None instead of a label, in an array of objects, where a row of what
                was learned would look so untypical with a probability of at most this, or where
                the set of `coverage=1 - abstain` holds more than one label.
        """
        best = _column(self.classes_, self.predict_proba(X, task).argmax(axis=1))
        if abstain is None:
            return best
        level = _share("abstain", abstain)
        unsure = self.predict_set(X, 1 - level, task).sum(axis=1) != 1
        answers = best.astype(object)
        answers[unsure | (self.typicality(X, task) <= level)] = None
        return answers

    def predict_set(self, X: Any, coverage: float = 0.9, task: Any = None) -> NDArray[np.bool_]:
        """Which labels belong to the set of each row, one column per entry of `classes_`.

        Split conformal prediction with the scores of held-back rows, class by class where there
        are enough: the true label is in the set with at least the probability `coverage`, among
        rows that are exchangeable with those that were learned, and their task where it is given.
        The most probable label is always in it.
        """
        level = _share("coverage", coverage)
        model = self._fitted()

        def inside(posterior: Posterior, tasks: Tasks, x: torch.Tensor) -> torch.Tensor:
            if tasks is None:
                return label_set(model, posterior, None, level)
            found = torch.zeros((len(tasks), len(model.registry.labels)), dtype=torch.bool)
            for known in tasks.unique().tolist():
                here = tasks == known
                part = dataclasses.replace(posterior, log_likelihood=posterior.log_likelihood[here])
                found[here] = label_set(model, part, known, level)
            return found

        return self._answer(X, task, inside).astype(bool)

    def predict_proba(self, X: Any, task: Any = None) -> Floats:
        """p(y | x), or p(y | t, x) where `task` is given; one column per entry of `classes_`."""
        return np.exp(self._log_label(X, task))

    def predict_log_proba(self, X: Any, task: Any = None) -> Floats:
        """The logarithm of `predict_proba`, never below -708."""
        return np.maximum(self._log_label(X, task), LOG_FLOOR)

    def predict_task(self, X: Any) -> NDArray[Any]:
        """The most probable task of each row."""
        return _column(self.tasks_, self.predict_task_proba(X).argmax(axis=1))

    def predict_task_proba(self, X: Any) -> Floats:
        """p(t | x); columns `tasks_`."""
        return self._answer(X, None, lambda posterior, *_: posterior.log_task().exp())

    def score_samples(self, X: Any, task: Any = None) -> Floats:
        """log p(x), or log p(x | t) where `task` is given, in the units of the data."""

        def density(posterior: Posterior, tasks: Tasks, x: torch.Tensor) -> torch.Tensor:
            if tasks is None:
                return posterior.log_density()
            return posterior.log_evidence().gather(1, tasks[:, None])[:, 0]

        return self._answer(X, task, density)

    def typicality(self, X: Any, task: Any = None, against: str = "held-back") -> Floats:
        """A p-value in (0, 1]: small means unlike anything seen.

        The share of rows of the task that are less probable than the row; without a task, that of
        the task it is most typical of.

        Args:
            X: rows by features.
            task: the task of the rows: one name, or one per row.
            against: `"held-back"` compares with real rows that were held back, so that a level of
                0.05 means one false alarm in twenty; `"generated"` with rows that the model
                generates, as in the paper (level sets, supplement A.3).
        """
        if against not in ("held-back", "generated"):
            raise InputError(f"against must be 'held-back' or 'generated', got {against!r}")
        model = self._fitted()

        def p_value(posterior: Posterior, tasks: Tasks, x: torch.Tensor) -> torch.Tensor:
            how = level_sets if against == "generated" else typicality
            evidence, full = posterior.log_evidence(), not bool(x.isnan().any())
            each = how(model, evidence, model.levels) if full else torch.empty_like(evidence)
            for rows, at in () if full else patterns(x):
                each[rows] = how(model, evidence[rows], observed_levels(model, at))
            return each.amax(1) if tasks is None else each.gather(1, tasks[:, None])[:, 0]

        return self._answer(X, task, p_value)

    def sample(
        self, n: int = 1, task: Any = None, label: Any = None, random_state: Any = None
    ) -> tuple[Floats, NDArray[Any]]:
        """Draw rows from what was learned.

        Args:
            n: how many.
            task: draw from this task; None draws the task from its prior.
            label: draw this label; None draws it from p(y | t).
            random_state: seed; None takes a fresh one.

        Returns:
            the rows, and their labels; with `image_shape` what the front makes of images, not
            images: it cannot be inverted.
        """
        check_is_fitted(self, "model_")
        if isinstance(n, bool) or not hasattr(n, "__index__") or n < 1:
            raise InputError(f"n must be a whole number of at least 1, got {n!r}")
        task = None if task is None else read_name(task, "task")
        label = None if label is None else read_name(label, "label")
        generator = torch.Generator().manual_seed(_seed_of(random_state))
        cells = self.model_.draw(n, task, label, generator)
        x = self.model_.sample(cells, generator)
        labels = np.array(self.model_.registry.label_of_cell)[cells.numpy()]
        return x.numpy(), _column(self.classes_, labels)

    def compare(self, X: Any, task: Any = None) -> Comparison:
        """Does an unlabelled batch look like the tasks that were learned, and if not, in what?

        Args:
            X: the batch, rows by features.
            task: compare with this task alone.

        Returns:
            for each task the mean of p(t | x), the p-values of exchangeability, and the features
            that differ most; the nearest task.
        """
        x = self._input(X)
        if x.dtype.kind == "f" and np.isnan(x).any():
            raise InputError("a comparison needs rows without missing values")
        model = self.model_
        tasks = range(len(model.registry.tasks))
        known = tasks if task is None else [model.registry.task_index(read_name(task, "task"))]
        x = self._seen(x, model.recipe)
        kind = "column" if model.front is None else "filter response"
        names = None if model.front else self._names()
        names = names or tuple(f"{kind} {at}" for at in range(x.shape[1]))
        return compare(model, _tensor(x), known, names)

    def merge(
        self,
        other: "CLBrunoClassifier",
        base: "CLBrunoClassifier | None" = None,
        names: tuple[str, str] = ("this model", "the other"),
    ) -> Merged:
        """Take in what another model has learned, from its statistics alone.

        Exact where both descend from one model (copies of its file) and the flow was not trained
        since, as with the default recipe: the result is that of one model which learned all
        batches. Otherwise the other model's generated rows are learned.

        Args:
            other: the other model; it is only read.
            base: the model that both descend from; needed for classes that it knew already and of
                which both have learned more.
            names: of this and the other model, for the update log.

        Returns:
            whether it was exact, what was done, and the accuracies before and after.
        """
        a, b = self._fitted(), other._fitted()
        columns = match_features(
            Table(np.arange(other.n_features_in_)[None], other._names()),
            self._names(),
            self.n_features_in_,
            type(self).__name__,
        )
        _same_kind(b.registry.labels[0], a.registry.labels[0], "labels")
        _same_kind(b.registry.tasks[0], a.registry.tasks[0], "tasks")
        root = None if base is None else base._fitted()
        sites = Sites(a, b, root, names, columns[0].tolist())
        with Progress(self.verbose, "merge", transient=True) as progress:
            merged = merge(sites, self._device(), progress.on_epoch)
        self.model_ = merged.model
        return merged

    def forget(self, task: Any = None, label: Any = None) -> Self:
        """Drop what is kept of a task, of a label, or of a label in one task.

        Statistics and embeddings go. A flow that was trained with the data may still carry traces
        of them; so may the pooled covariance where classes are kept in thin form. With the task
        latent a task's statistics are one sum, from which a single label cannot be taken out.
        """
        check_is_fitted(self, "model_")
        task = None if task is None else read_name(task, "task")
        label = None if label is None else read_name(label, "label")
        self.model_ = forget(self.model_, task, label)
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels in the order they were learned."""
        return np.array(self._fitted().registry.labels)

    @property
    def tasks_(self) -> NDArray[Any]:
        """Tasks in the order they were learned."""
        return np.array(self._fitted().registry.tasks)

    @property
    def class_count_(self) -> NDArray[np.int64]:
        """Samples learned of each class, over all tasks."""
        registry = self._fitted().registry
        count = np.zeros(len(registry.labels), dtype=np.int64)
        np.add.at(count, list(registry.label_of_cell), list(registry.counts))
        return count

    @property
    def n_updates_(self) -> int:
        """How many batches were learned."""
        return len(self._fitted().log)

    def _fitted(self) -> Model:
        check_is_fitted(self, "model_")
        model: Model = self.model_
        return model

    def _recipe(self) -> Recipe:
        given = {name: getattr(self, name) for name in TUNABLE}
        return recipe(self.recipe, **{k: v for k, v in given.items() if v is not None})

    def _learn(self, old: Model | None, X: Any, y: Any, task: Any) -> Self:
        task = DEFAULT_TASK if task is None else task
        group = Group.current()
        stream = as_stream(X, y, task)
        if stream is not None:
            return self._learn_stream(old, stream, group)
        owner, empty = type(self).__name__, not group.alone
        rows = as_rows(X, self._recipe().image_shape)
        table = read_table(rows, owner, may_be_empty=empty)
        labels = read_labels(y, len(table.x))
        return self._learn_block(old, Block(table, labels, read_tasks(task, len(table.x))), group)

    def _learn_stream(self, old: Model | None, stream: Stream, group: Group) -> Self:
        """Learn block after block on a copy, which is taken over when the stream has ended."""
        learner, model = copy.copy(self), old
        learner.random_state = group.first(self._seed(old))
        number = 0 if old is None else len(old.log)
        with warnings.catch_warnings():
            # A class may be small in a block; whether it is in the whole is known at the end.
            warnings.simplefilter("ignore", SmallClassWarning)
            seed = [learner.random_state, number]
            for block in group.in_step(stream.blocks(seed, (group.rank, group.size))):
                model = learner._learn_block(model, block, group).model_
        if model is old or model is None:
            raise InputError(
                "no rank of the process group has a row; give one of them at least one"
            )
        record = joined(model.log[number:])
        log = (*model.log[:number], record)
        learner.model_ = dataclasses.replace(model, log=log)
        learner.random_state = self.random_state
        warn_of_small(learner.model_.recipe, record)
        self.__dict__ = {**vars(learner)}
        return self

    def _learn_block(self, old: Model | None, block: Block | None, group: Group) -> Self:
        settings = self._recipe()
        owner = type(self).__name__
        log = () if old is None else old.log
        group.agree(
            {
                "settings": dataclasses.asdict(settings),
                "updates learned before": [record.fingerprint for record in log],
            }
        )
        block = _shared_block(block, group)
        table, labels, tasks = block.table, block.labels, block.tasks
        x = table.x
        if old is not None:
            x = match_features(table, self._names(), self.n_features_in_, owner)
            if labels:
                _same_kind(labels[0], old.registry.labels[0], "labels")
                _same_kind(tasks[0], old.registry.tasks[0], "tasks")
        seed = group.first(self._seed(old))
        seen = self._seen(x, settings)
        lesson = Lesson(seen, tasks, labels, settings, seed, self._device(), group)
        shown = 0 if group.rank else self.verbose
        with Progress(shown, f"update {len(log) + 1}") as progress:
            model = learn(old, lesson, progress.on_epoch)
            progress.on_end(model.log[-1])
        if old is None:
            self._start_with(model, table)
        self.model_ = model
        return self

    def _start_with(self, model: Model, table: Table) -> None:
        """Take over a first model and its features in one assignment: nothing halves it."""
        state = {**vars(self), "model_": model, "n_features_in_": table.x.shape[1]}
        state.pop("feature_names_in_", None)
        if table.names is not None:
            state["feature_names_in_"] = np.array(table.names, dtype=object)
        self.__dict__ = state

    def _names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names)

    def _seed(self, old: Model | None) -> int:
        """The seed of a model is drawn once; every later update's follows from it."""
        return _seed_of(self.random_state) if old is None else old.seed

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.zeros(1, device=self.device)
            device.item()
            return device.device
        except (RuntimeError, AssertionError, TypeError, ImportError) as error:
            raise InputError(f"device {self.device!r} cannot be used here: {error}") from None

    def _input(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        owner = type(self).__name__
        rows = as_rows(X, self.model_.recipe.image_shape)
        table = read_table(rows, owner, missing=self._may_miss())
        if self._may_miss():
            table = with_missing(table, self._names())
        x = match_features(table, self._names(), self.n_features_in_, owner)
        if self._may_miss():
            self._name_missing_columns(x)
        return x

    def _seen(self, x: NDArray[Any], settings: Recipe) -> NDArray[Any]:
        """The rows as the model sees them: through the front for images, if there is one."""
        if settings.image_shape is None:
            return x
        front = ImageFront(settings.image_shape)
        if x.shape[1] != front.pixels:
            raise InputError(
                f"image_shape {front.shape} makes {front.pixels} pixels, and X has {x.shape[1]} "
                "columns; give each row the pixels of one image"
            )
        return front(x)

    def _may_miss(self) -> bool:
        if self.missing not in ("error", "marginal"):
            raise InputError(f"missing must be 'error' or 'marginal', got {self.missing!r}")
        if self.missing == "marginal" and self.image_shape is not None:
            raise InputError("missing='marginal' is about columns, and a front mixes the pixels")
        return self.missing == "marginal"

    def _name_missing_columns(self, x: NDArray[Any]) -> None:
        gone = np.isnan(x).all(axis=0) if x.dtype.kind == "f" else np.zeros(x.shape[1], bool)
        if not gone.any():
            return
        there = torch.from_numpy(np.flatnonzero(~gone))
        names = self._names() or tuple(f"column {at}" for at in range(len(gone)))
        lost = [name for name, out in zip(names, gone, strict=True) if out]
        share = separation(self.model_, there)
        warnings.warn(
            f"{len(lost)} of {len(gone)} features are missing in every row: {first_names(lost)}; "
            f"those that are there carry {share:.0%} of the separation of the classes",
            MissingWarning,
            stacklevel=5,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "marginal"
        return tags

    def _known_tasks(self, task: Any, rows: int) -> torch.Tensor | None:
        if task is None:
            return None
        names = read_tasks(task, rows)
        place = {name: self.model_.registry.task_index(name) for name in dict.fromkeys(names)}
        return torch.tensor([place[name] for name in names])

    def _log_label(self, X: Any, task: Any) -> Floats:
        def answer(posterior: Posterior, tasks: Tasks, x: torch.Tensor) -> torch.Tensor:
            if tasks is None:
                return posterior.log_label()
            return posterior.log_label_in(tasks, len(self.model_.registry.labels))

        return self._answer(X, task, answer)

    def _posterior(self, x: torch.Tensor) -> Posterior:
        if bool(x.isnan().any()):
            return self.model_.posterior_from(observe(self.model_, x).log_likelihood)
        return self.model_.posterior(x)

    def _answer(self, X: Any, task: Any, question: Any) -> Floats:
        """Ask a question of the posterior, chunk by chunk."""
        x = self._input(X)
        tasks = self._known_tasks(task, len(x))
        answers = np.empty(0)
        for rows in chunks_of(len(x), max(1, CHUNK_NUMBERS // max(x.shape[1], self.model_.dim))):
            here = _tensor(self._seen(x[rows], self.model_.recipe))
            posterior = self._posterior(here)
            _refuse_overflow(posterior, rows.start)
            part = question(posterior, None if tasks is None else tasks[rows], here).numpy()
            if rows.start == 0:
                # All at once: small results kept between large temporary ones fragment the heap.
                answers = np.empty((len(x), *part.shape[1:]))
            answers[rows] = part
        return answers


def _shared_block(block: Block | None, group: Group) -> Block:
    """The block with its features in one order on all ranks; an empty one where there is none."""
    if group.alone:
        assert block is not None
        return block
    mine = None if block is None else [block.table.names, block.table.x.shape[1]]
    heads = [head for head in group.gathered(mine) if head is not None]
    names, width = heads[0]
    if any(sorted(head[0] or []) != sorted(names or []) or head[1] != width for head in heads):
        raise InputError("the ranks of the process group have other features than each other")
    order = None if names is None else tuple(names)
    if block is None:
        return Block(Table(np.empty((0, width)), order), [], [])
    return dataclasses.replace(
        block, table=Table(match_features(block.table, order, width, "rank 0"), order)
    )


def _refuse_overflow(posterior: Posterior, first: int) -> None:
    lost = ~posterior.log_likelihood.isfinite().all(dim=1)
    if bool(lost.any()):
        raise InputError(
            f"row {first + int(lost.int().argmax())} of X (counted from 0) is so far from all that "
            "was learned that its density cannot be computed; check its values and their unit"
        )


def _tensor(x: ArrayLike) -> torch.Tensor:
    return torch.from_numpy(np.array(x, dtype=np.float64))


def _share(name: str, value: Any) -> float:
    """A share strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"{name} must be a number between 0 and 1, got {value!r}")
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1, got {value!r}")
    return float(value)


def _seed_of(state: Any) -> int:
    """The seed that a `random_state` stands for; a fresh one for None."""
    if isinstance(state, np.random.RandomState):
        return int(state.randint(2**31))
    whole = isinstance(state, int | np.integer) and not isinstance(state, bool) and state >= 0
    if state is not None and not whole:
        raise InputError(
            f"random_state must be a whole number from 0, a RandomState or None, got {state!r}"
        )
    return int(np.random.SeedSequence(state).generate_state(1)[0])


def _column(names: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    column: NDArray[Any] = names[at]
    return column


def _same_kind(new: Any, old: Any, what: str) -> None:
    if type(new) is not type(old):
        raise InputError(
            f"{what} were {kind_of(old)} so far (such as {old!r}) and are {kind_of(new)} now (such "
            f"as {new!r}); convert them to one kind"
        )
