"""Append-only names: positions never move, counts add up, unknown names are named."""

import pytest

from clbruno.errors import InputError
from clbruno.registry import DEFAULT_TASK, Registry


def cohorts() -> Registry:
    registry = Registry().extended("Boston", ["healthy", "ill"], [30, 12])
    return registry.extended("Oslo", ["ill", 7], [5, 4])


def test__registry__extended__appends_in_order_of_arrival() -> None:
    registry = cohorts()

    assert registry.tasks == ("Boston", "Oslo")
    assert registry.labels == ("healthy", "ill", 7)
    assert registry.cells == ((0, 0), (0, 1), (1, 1), (1, 2))
    assert registry.counts == (30, 12, 5, 4)
    assert registry.task_of_cell == (0, 0, 1, 1)
    assert registry.label_of_cell == (0, 1, 1, 2)


def test__registry__more_of_a_known_task__keeps_positions_and_adds_counts() -> None:
    before = cohorts()

    after = before.extended("Boston", ["new", "ill"], [3, 100])

    assert after.tasks == before.tasks
    assert after.labels == (*before.labels, "new")
    assert after.cells == (*before.cells, (0, 3))
    assert after.counts == (30, 112, 5, 4, 3)
    assert before.counts == (30, 12, 5, 4), "the old registry is not changed"


def test__registry__cells_of_a_task__are_its_positions() -> None:
    registry = cohorts().extended("Boston", ["new"], [1])

    assert registry.cells_of_task(0) == (0, 1, 4)
    assert registry.cells_of_task(1) == (2, 3)


def test__registry__indices__are_the_positions_of_the_names() -> None:
    registry = cohorts()

    assert [registry.task_index(name) for name in registry.tasks] == [0, 1]
    assert [registry.label_index(name) for name in registry.labels] == [0, 1, 2]
    assert registry.cell_index("Oslo", "ill") == 2
    assert registry.cell_index("Boston", "ill") == 1


def test__registry__unknown_task__input_error_lists_known_and_what_to_do() -> None:
    with pytest.raises(InputError, match=r"'Rome'.*'Boston', 'Oslo'.*Learn it first") as caught:
        cohorts().task_index("Rome")

    assert caught.value.__cause__ is None


def test__registry__unknown_label__input_error_lists_five_and_counts_the_rest() -> None:
    registry = Registry().extended("t", list(range(12)), [1] * 12)

    with pytest.raises(InputError, match=r"'x'; known labels: 0, 1, 2, 3, 4 and 7 more$"):
        registry.label_index("x")


def test__registry__label_of_another_task__input_error_lists_the_tasks_own() -> None:
    with pytest.raises(InputError, match=r"'healthy'.*'Oslo'.*'ill', 7$"):
        cohorts().cell_index("Oslo", "healthy")


@pytest.mark.parametrize(
    ("cells", "counts"), [(((0, 0), (0, 0)), (1, 1)), (((0, 0),), ()), (((0, 0),), (1, 2))]
)
def test__registry__double_cell_or_missing_count__input_error(
    cells: tuple[tuple[int, int], ...], counts: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match="every cell needs one count"):
        Registry(("t",), ("y",), cells, counts)


def test__registry__labels_and_counts_of_different_lengths__refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        Registry().extended("t", ["a", "b"], [1])


def test__registry__cells_matching__a_task_a_label_or_both() -> None:
    registry = cohorts()

    assert registry.cells_matching("Oslo", None) == (2, 3)
    assert registry.cells_matching(None, "ill") == (1, 2)
    assert registry.cells_matching("Oslo", "ill") == (2,)


def test__registry__cells_matching_nothing_named_or_unknown__input_error() -> None:
    with pytest.raises(InputError, match="name a task, a label, or both"):
        cohorts().cells_matching(None, None)
    with pytest.raises(InputError, match="unknown label 'x'"):
        cohorts().cells_matching(None, "x")
    with pytest.raises(InputError, match="unknown task 'x'"):
        cohorts().cells_matching("x", None)


def test__registry__without_some_cells__drops_what_has_none_left() -> None:
    registry = cohorts().without([2, 3])

    assert registry == Registry(("Boston",), ("healthy", "ill"), ((0, 0), (0, 1)), (30, 12))


def test__registry__without_one_label__keeps_the_order_of_the_rest() -> None:
    registry = cohorts().without([0])

    assert registry.tasks == ("Boston", "Oslo")
    assert registry.labels == ("ill", 7)
    assert registry.cells == ((0, 0), (1, 0), (1, 1))
    assert registry.counts == (12, 5, 4)


def test__registry__default_task__has_a_name() -> None:
    assert Registry().extended(DEFAULT_TASK, ["a"], [1]).task_index("default") == 0
