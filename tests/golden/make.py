"""Write the golden files of the present protocol: `python tests/golden/make.py`.

A released protocol's files are never written again; they show that its files can still be read.
"""

import json
from pathlib import Path

import numpy as np

from clbruno import CLBrunoClassifier, save
from clbruno.persist.container import PROTOCOL

KINDS: dict[str, dict[str, object]] = {
    "default": {"recipe": "default"},
    "thin": {"recipe": "default", "memory": 40},
    "flow": {"recipe": "default", "couplings": 2, "hidden": 4, "whiten": True},
    "paper": {"recipe": "paper", "couplings": 2, "hidden": 4, "context_dim": 3, "dof": 5.0},
}


def main() -> None:
    """Learn one small model of each kind and keep its file, some rows and its answers to them."""
    folder = Path(__file__).parent
    rng = np.random.default_rng(0)
    x = np.vstack([rng.gamma(1 + 2 * at, 1, (30, 3)) for at in range(4)])
    rows = np.vstack([rng.gamma(1 + 2 * at, 1, (5, 3)) for at in range(4)])
    for kind, settings in KINDS.items():
        model = CLBrunoClassifier(random_state=0, max_epochs=2, **settings)  # type: ignore[arg-type]
        model.partial_fit(x[:60], ["a"] * 30 + ["b"] * 30, task="Boston")
        model.partial_fit(x[30:], ["b"] * 30 + ["c"] * 30 + ["é"] * 30, task="Oslo")
        save(model, folder / f"protocol-{PROTOCOL}-{kind}.clb")
        answers = {
            "rows": rows.tolist(),
            "classes": model.classes_.tolist(),
            "tasks": model.tasks_.tolist(),
            "counts": model.class_count_.tolist(),
            "predict_proba": model.predict_proba(rows).tolist(),
            "predict_task_proba": model.predict_task_proba(rows).tolist(),
            "score_samples": model.score_samples(rows).tolist(),
            "typicality": model.typicality(rows).tolist(),
        }
        text = json.dumps(answers, ensure_ascii=False, indent=1)
        (folder / f"protocol-{PROTOCOL}-{kind}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
