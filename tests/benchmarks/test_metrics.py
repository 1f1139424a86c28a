"""Metrics against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import metrics

MATRIX = np.array([[0.9, 0.0, 0.0], [0.6, 0.8, 0.5], [0.7, 0.4, 1.0]])


def test__matrix_figures__three_steps__equal_hand_values() -> None:
    assert metrics.final_average(MATRIX) == pytest.approx(0.7)
    assert metrics.average_incremental(MATRIX) == pytest.approx((0.9 + 0.7 + 0.7) / 3)
    assert metrics.forgetting(MATRIX) == pytest.approx((0.2 + 0.4) / 2)
    assert metrics.backward_transfer(MATRIX) == pytest.approx((-0.2 - 0.4) / 2)


def test__forward_transfer__one_seen_batch__counts_that_batch_only() -> None:
    seen = np.array([False, False, True])
    assert metrics.forward_transfer(MATRIX, 0.2, seen) == pytest.approx(0.3)
    assert metrics.forward_transfer(MATRIX, 0.2, np.zeros(3, dtype=bool)) is None


def test__matrix_figures__one_step__have_no_forgetting() -> None:
    assert metrics.forgetting(MATRIX[:1, :1]) is None
    assert metrics.backward_transfer(MATRIX[:1, :1]) is None


def test__ece__two_bins__equals_weighted_gaps() -> None:
    proba = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    truth = np.array([0, 1, 0, 0])
    assert metrics.ece(proba, truth) == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)


def test__ece__certain_and_right__is_zero() -> None:
    assert metrics.ece(np.eye(3), np.arange(3)) == 0.0


def test__nll__impossible_truth__is_floored_at_708() -> None:
    proba = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert metrics.nll(proba, np.array([1, 0])) == pytest.approx((708 + np.log(2)) / 2)


def test__columns_of__absent_value__is_minus_one() -> None:
    found = metrics.columns_of(np.array(["c", "a"]), np.array(["c", "b", "a", "z"]))
    assert found.tolist() == [0, -1, 1, -1]


def test__auroc__ties__count_one_half() -> None:
    assert metrics.auroc(np.array([2.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx(0.875)
