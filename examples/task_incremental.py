"""Three hospitals send different pairs of digits, one after the other; each is a task."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from clbruno import CLBrunoClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
hospitals = {"Boston": (0, 1), "Oslo": (2, 3), "Kyoto": (4, 5)}

model = CLBrunoClassifier(random_state=0)
for name, digits in hospitals.items():
    here = (y == digits[0]) | (y == digits[1])
    model.partial_fit(X[here], y[here], task=name)  # the data may be deleted now

for name, digits in hospitals.items():
    here = (y_test == digits[0]) | (y_test == digits[1])
    known = (model.predict(X_test[here], task=name) == y_test[here]).mean()
    unknown = (model.predict(X_test[here]) == y_test[here]).mean()
    task = (model.predict_task(X_test[here]) == name).mean()
    print(f"{name}: task known {known:.3f}, task unknown {unknown:.3f}, task told {task:.3f}")
