"""`clbruno forget`: drop what a model keeps of a task or a label."""

from collections.abc import Sequence

from clbruno.cli.console import say, show_json
from clbruno.cli.tables import names_like
from clbruno.core.cells import Thin
from clbruno.core.model import Model
from clbruno.errors import InputError
from clbruno.persist import atomic, load, save

_FLOW = "The weights of the flow were learned with these samples among others and stay as they are"
_THIN = (
    "Their classes were kept in thin form, so what they gave to the covariance that all classes "
    "share is known in part, and the rest of it stays"
)
_LEFT = (
    "The scaling of the features, and the settings that were tuned on some of their rows, stay as "
    "they are",
    "The update log still names the task, the labels and how many samples there were",
    "Copies of the file that were made before still hold all of it",
)
_IN_ITS_TASK = (
    "This recipe keeps one sum for all labels of a task, and theirs cannot be taken out of it; it "
    "goes when the whole task is forgotten"
)


def forget(model: str, task: str | None, label: str | None, as_json: bool) -> None:
    """Replace a model file by one without the statistics of a task, a label, or one class."""
    if task is None and label is None:
        raise InputError("say what to forget: --task, --label, or both for one label of one task")
    with atomic.writing(model) as target:
        learner = load(target.path)
        before = learner.model_
        old = before.registry
        learner.forget(
            None if task is None else names_like(old.tasks[0], [task], "task")[0],
            None if label is None else names_like(old.labels[0], [label], "label")[0],
        )
        save(learner, target)
    new = learner.model_.registry
    kept = {(new.tasks[t], new.labels[y]) for t, y in new.cells}
    cells = [at for at, (t, y) in enumerate(old.cells) if (old.tasks[t], old.labels[y]) not in kept]
    gone = [
        (old.tasks[old.cells[at][0]], old.labels[old.cells[at][1]], old.counts[at]) for at in cells
    ]
    left = _left(before, cells, tasks_stay={name for name, _, _ in gone} & set(new.tasks) != set())
    if as_json:
        show_json({"model": model, "forgotten": [list(cell) for cell in gone], "left": list(left)})
        return
    say(f"Forgotten in {model}: their counts, statistics and embeddings are gone from the file.")
    for task_name, label_name, count in gone:
        say(f"  {label_name} in {task_name} ({count:,} samples)")
    say("What may be left of them:")
    for sentence in left:
        say(f"  - {sentence}.")
    say("To be rid of these as well, learn a new model without those data.")


def _left(before: Model, cells: Sequence[int], *, tasks_stay: bool) -> tuple[str, ...]:
    """What of these cells may still be in the model or beside it, in sentences."""
    latent, recipe = before.latent, before.recipe
    thin = any(isinstance(latent.moments[at], Thin) for at in cells if recipe.latent == "class")
    return (
        *((_IN_ITS_TASK,) if recipe.latent == "task" and tasks_stay else ()),
        *((_FLOW,) if recipe.couplings or recipe.whiten else ()),
        *((_THIN,) if thin else ()),
        *_LEFT,
    )
