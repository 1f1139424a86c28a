"""Several sites share the same labels but not the same scanner: domain-incremental learning."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from clbruno import CLBrunoClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
y = y.map({0: "malignant", 1: "benign"})
site = np.random.default_rng(0).choice(["north", "south", "west"], len(X))
X = X * np.where(site == "south", 1.15, 1.0)[:, None]  # the south's scanner reads high
X, X_test, y, y_test, site, site_test = train_test_split(
    X, y, site, test_size=0.3, stratify=y, random_state=0
)

model = CLBrunoClassifier(random_state=0)
for name in ("north", "south", "west"):
    model.partial_fit(X[site == name], y[site == name], task=name)

print(f"site unknown: accuracy {(model.predict(X_test) == y_test).mean():.3f}")
known = model.predict(X_test, task=site_test)  # one task per row
print(f"site known:   accuracy {(known == y_test).mean():.3f}")
columns = model.predict_proba(X_test[X_test.columns[::-1]])  # columns are matched by name
print("reordered columns give the same answers:", np.allclose(columns, model.predict_proba(X_test)))
