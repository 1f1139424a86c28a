"""New classes and more samples of known ones arrive in one cohort, in any order."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from clbruno import CLBrunoClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

model = CLBrunoClassifier(random_state=0)
for digits in ((0, 1, 2), (3, 4), (1, 3, 5, 6), (7, 8, 9)):  # the third batch repeats 1 and 3
    here = [label in digits for label in y]
    model.partial_fit(X[here], y[here])
    seen = [label in model.classes_ for label in y_test]
    accuracy = (model.predict(X_test[seen]) == y_test[seen]).mean()
    print(f"after {digits}: {len(model.classes_)} classes, accuracy {accuracy:.3f}")

print("samples learned of each class:", dict(zip(model.classes_, model.class_count_, strict=True)))
print("typicality of noise:", model.typicality(255 * X_test[:1, ::-1]).round(3))
