"""Write two labelled cohorts and an unlabelled one as CSV, from sklearn's breast-cancer table."""

from sklearn.datasets import load_breast_cancer

data = load_breast_cancer(as_frame=True)
table = data.data.assign(
    patient=[f"P{at:03d}" for at in range(len(data.data))],
    diagnosis=data.target.map({0: "malignant", 1: "benign"}),
)
table.iloc[:250].to_csv("boston.csv", index=False)
table.iloc[250:450].to_csv("oslo.csv", index=False)
table.iloc[450:].drop(columns="diagnosis").to_csv("new.csv", index=False)
print("wrote boston.csv, oslo.csv and new.csv")
