"""`clbruno forget`: drop what a model keeps of a task or a label."""

from clbruno.cli.console import say, show_json
from clbruno.cli.tables import names_like
from clbruno.errors import InputError
from clbruno.persist import atomic, load, save

_LEFT: tuple[str, ...] = (
    "The weights of the flow, the scaling of the features and the settings that were tuned on held-"
    "back rows were learned with these samples among others and stay as they are",
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
        old = learner.model_.registry
        learner.forget(
            None if task is None else names_like(old.tasks[0], [task], "task")[0],
            None if label is None else names_like(old.labels[0], [label], "label")[0],
        )
        save(learner, target)
    new = learner.model_.registry
    kept = {(new.tasks[t], new.labels[y]) for t, y in new.cells}
    gone = [
        (old.tasks[t], old.labels[y], count)
        for (t, y), count in zip(old.cells, old.counts, strict=True)
        if (old.tasks[t], old.labels[y]) not in kept
    ]
    left = _LEFT
    if learner.model_.recipe.latent == "task" and {name for name, _, _ in gone} & set(new.tasks):
        left = (_IN_ITS_TASK, *_LEFT)
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
