"""Write two labelled cohorts and an unlabelled one as CSV, from sklearn's breast-cancer table."""

import csv

from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
diagnoses = [data.target_names[label] for label in data.target]
header = ["patient", *data.feature_names, "diagnosis"]
table = [
    [f"P{at:03d}", *row, diagnosis]
    for at, (row, diagnosis) in enumerate(zip(data.data.tolist(), diagnoses, strict=True))
]
for name, rows, columns in (
    ("boston.csv", table[:250], len(header)),
    ("oslo.csv", table[250:450], len(header)),
    ("new.csv", table[450:], len(header) - 1),  # nobody knows their diagnosis yet
):
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(row[:columns] for row in [header, *rows])
print("wrote boston.csv, oslo.csv and new.csv")
