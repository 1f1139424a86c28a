"""Write a labelled cohort as a folder of Parquet files, `cohort`, and unlabelled rows as `new`."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
diagnosis = data.target_names[data.target]
for folder, rows, parts in [("cohort", range(450), 5), ("new", range(450, 569), 2)]:
    Path(folder).mkdir(exist_ok=True)
    for part in range(parts):
        here = rows[part::parts]
        columns = {name: data.data[here, at] for at, name in enumerate(data.feature_names)}
        columns["patient"] = [f"P{row:03d}" for row in here]
        if folder == "cohort":
            columns["diagnosis"] = diagnosis[here]
        pq.write_table(pa.table(columns), Path(folder) / f"{part}.parquet")
print("wrote cohort/ and new/")
