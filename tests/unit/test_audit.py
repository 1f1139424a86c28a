"""Attacks against slow counts, and that they find a model that remembers."""

import numpy as np
import pytest

from clbruno import CLBrunoClassifier, InputError
from clbruno.audit import Rows, attack, audit


def test__attack__against_counting_pairs() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.5, 1, 40).round(1), rng.normal(0, 1, 300).round(1)

    found = attack("score", members, others)

    pairs = [(m > o) + 0.5 * (m == o) for m in members for o in others]
    assert found.auc == pytest.approx(np.mean(pairs))
    for rate, hits in zip((0.01, 0.001), found.hits, strict=True):
        allowed = [t for t in np.unique(others) if (others > t).mean() <= rate]
        assert hits == pytest.approx((members > min(allowed)).mean())


def rows(x: np.ndarray, y: list[str]) -> Rows:
    return Rows(x, y, ["default"] * len(y))


def test__audit__a_class_of_two_samples_in_many_dimensions__is_found() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(342, 30))
    labels = ["big"] * 200 + ["few"] * 2 + ["big"] * 100 + ["few"] * 40
    model = CLBrunoClassifier(random_state=0, min_class_size=1, ridge=0.1)
    model.fit(x[:202], labels[:202])

    found = audit(model, rows(x[:202], labels[:202]), rows(x[202:], labels[202:]))

    by_name = {group.name: group for group in found.groups}
    assert set(by_name) == {
        "all",
        "smallest class (2)",
        "classes of up to 2",
        "classes of over 50",
    }
    few = {each.name: each for each in by_name["smallest class (2)"].attacks}
    many = {each.name: each for each in by_name["classes of over 50"].attacks}
    assert few["likelihood"].auc == 1
    assert many["likelihood"].auc < 0.9
    assert (by_name["all"].members, by_name["all"].others) == (202, 70)


def test__audit__too_few_others__says_so() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    model = CLBrunoClassifier(random_state=0).fit(x, ["a", "b"] * 10)

    with pytest.raises(InputError, match="at least 4 non-members"):
        audit(model, rows(x, ["a", "b"] * 10), rows(x[:3], ["a", "b", "a"]))
