"""Make the picture of the README, and the figures behind it: `python docs/pictures/make.py`."""

import json
from pathlib import Path

from clbruno.demo import SEEDS, one_run, opening
from clbruno.report.pictures import standalone

HERE = Path(__file__).resolve().parent

runs = [one_run(seed) for seed in range(SEEDS)]
figures = {
    "command": "python docs/pictures/make.py",
    "data": "sklearn.datasets.load_digits, 30 % held out, five tasks of two digits",
    "runs": [
        {
            "seed": seed,
            "clbruno": run.final,
            "clbruno, all digits at once": run.joint,
            "SGDClassifier.partial_fit": run.sgd_final,
            "clbruno, after every step": [
                [v for v in row if v == v] for row in run.matrix.tolist()
            ],
            "SGDClassifier, after every step": [
                [v for v in row if v == v] for row in run.sgd.tolist()
            ],
        }
        for seed, run in enumerate(runs)
    ],
}
(HERE / "ten-seconds.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
(HERE / "ten-seconds.svg").write_text(standalone(opening(runs).svg), encoding="utf-8")
