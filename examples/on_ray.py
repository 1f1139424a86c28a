"""Learn a folder of Parquet files with Ray Train and answer another with Ray Data.

python examples/on_ray.py MODEL COHORT LABEL NEW ANSWERS, on one machine or on a Ray cluster.
"""

import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer

from clbruno import CLBrunoClassifier, Stream, load, save
from clbruno.ray import Predictor

WORKERS = 2


def learn(task: dict[str, str]) -> None:
    """What every worker does: its process group is there, and the folder is shared out."""
    path = Path(task["model"])
    model = load(path) if path.exists() else CLBrunoClassifier(random_state=0)
    cohort = Stream.of_tables(task["cohort"], label=task["label"], ignore=("patient",))
    model.partial_fit(cohort)
    if get_context().get_world_rank() == 0:
        save(model, path)


if __name__ == "__main__":
    model, cohort, label, new, answers = sys.argv[1:]
    model, cohort, new, answers = (str(Path(p).resolve()) for p in (model, cohort, new, answers))
    trainer = TorchTrainer(
        learn,
        train_loop_config={"model": model, "cohort": cohort, "label": label},
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(storage_path=str(Path(model).parent / "ray")),
    )
    trainer.fit()
    ray.data.read_parquet(new).map_batches(
        Predictor,
        fn_constructor_args=[model],
        fn_constructor_kwargs={"keep": ("patient",)},
        compute=ray.data.ActorPoolStrategy(size=WORKERS),
        num_cpus=0.5,  # what reads and writes needs a core as well, or a small cluster stands still
    ).write_parquet(answers)
