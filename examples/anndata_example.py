"""Single-cell style: learn two AnnData objects from two sites, annotate a third."""

import anndata
import numpy as np
import pandas as pd

from clbruno import CLBrunoClassifier
from clbruno.annotate import annotate, learn

rng = np.random.default_rng(0)
genes = [f"gene{i}" for i in range(40)]
centres = {kind: rng.normal(0, 1, 40) for kind in ("B cell", "T cell", "monocyte")}


def sample(kinds, n=80):
    """Made-up log expression of some cell types."""
    label = rng.choice(kinds, n)
    X = np.stack([centres[k] for k in label]) + rng.normal(0, 0.7, (n, 40))
    obs = pd.DataFrame({"cell_type": label}, index=[f"cell{i}" for i in range(n)])
    return anndata.AnnData(X.astype("float32"), obs=obs, var=pd.DataFrame(index=genes))


first, second, third = sample(["B cell", "T cell"]), sample(["monocyte", "T cell"]), None
first.obs["site"], second.obs["site"] = "Boston", "Oslo"
model = CLBrunoClassifier(random_state=0)
learn(model, first, label="cell_type", task="site")
learn(model, second, label="cell_type", task="site")

third = sample(["B cell", "T cell", "monocyte"])[:, genes[::-1]].copy()  # genes in another order
annotate(model, third)
print("accuracy:", (third.obs["clbruno_label"] == third.obs["cell_type"]).mean())
print(third.obs.head(3).to_string())
