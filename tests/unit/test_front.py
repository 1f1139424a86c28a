"""The fixed front for images, against a slow convolution and what it promises."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import correlate2d
from sklearn.datasets import load_digits

from clbruno import CLBrunoClassifier, InputError, load, save
from clbruno.data.front import FREQUENCY, REACH, WIDTH, ImageFront


def images(n: int = 3, shape: tuple[int, ...] = (28, 28), seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(0, 255, (n, *shape))


def wavelet(angle: float) -> NDArray[np.complex128]:
    side = np.arange(-REACH, REACH + 1)
    x, y = side[None, :], side[:, None]
    envelope = np.exp(-(x**2 + y**2) / (2 * WIDTH**2))
    wave = envelope * np.exp(1j * FREQUENCY * (x * np.cos(angle) + y * np.sin(angle)))
    wave = wave - envelope * wave.real.sum() / envelope.sum()
    found: NDArray[np.complex128] = wave / np.sqrt((np.abs(wave) ** 2).sum())
    return found


def places(image: NDArray[np.float64], grid: int) -> NDArray[np.float64]:
    step = len(image) // grid
    return image.reshape(grid, step, grid, step).mean((1, 3))


def halved(image: NDArray[np.float64]) -> NDArray[np.float64]:
    return places(image, len(image) // 2)


def seen(image: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.abs(correlate2d(image, wavelet(angle).conj(), "same"))
    return found


def test__front__is_the_docstrings_equations() -> None:
    image = images(1, (56, 56))[0]
    parts = [places(image, 7)]
    angles = np.pi * np.arange(8) / 8
    parts += [places(seen(image, angle), 7) for angle in angles]
    parts += [places(seen(halved(image), angle), 7) for angle in angles]
    for angle in angles:
        deeper = halved(seen(image, angle))
        parts += [places(seen(deeper, other), 4) for other in np.pi * np.arange(4) / 4]
    truth = np.sqrt(np.concatenate([part.ravel() for part in parts]))

    found = ImageFront((56, 56))(image.reshape(1, -1))[0]

    assert found == pytest.approx(truth, rel=1e-4, abs=1e-3)


def test__front__other_unit__a_common_factor() -> None:
    front, x = ImageFront((28, 28)), images().reshape(3, -1)

    assert front(x / 255) == pytest.approx(front(x) / np.sqrt(255), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64, np.int64])
def test__front__type_of_pixels__changes_nothing(kind: type) -> None:
    x = images().round().reshape(3, -1)

    assert np.array_equal(ImageFront((28, 28))(x.astype(kind)), ImageFront((28, 28))(x))


def test__front__rows_on_their_own__the_same() -> None:
    front, x = ImageFront((8, 12)), images(300, (8, 12)).reshape(300, -1)

    assert front(x)[270:272] == pytest.approx(front(x[270:272]), rel=1e-5)


def test__front__channels__averaged_for_the_filters_and_kept_for_the_means() -> None:
    grey = images(2, (16, 16))
    colour = np.repeat(grey[..., None], 3, axis=3)
    plain, found = (ImageFront(x.shape[1:])(x.reshape(2, -1)) for x in (grey, colour))

    assert found.shape[1] == plain.shape[1] + 2 * 49
    assert found[:, 147:] == pytest.approx(plain[:, 49:], rel=1e-5)


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


def test__estimator__images__as_arrays_or_as_rows_the_same(tmp_path: Path) -> None:
    X, y = digits()
    stacked = X.reshape(-1, 8, 8)
    model = CLBrunoClassifier(image_shape=(8, 8), random_state=0)
    for part in (y < 5, y >= 5):
        model.partial_fit(stacked[part], y[part])

    found = model.predict_proba(stacked)

    assert model.n_features_in_ == 64
    assert (model.predict(X) == y).mean() > 0.97
    assert np.array_equal(model.predict_proba(X), found)
    save(model, tmp_path / "model.clb")
    again = load(tmp_path / "model.clb")
    assert again.n_features_in_ == 64
    assert again.image_shape == (8, 8)
    assert np.array_equal(again.predict_proba(X), found)
    assert model.sample(3, random_state=0)[0].shape == (3, ImageFront((8, 8)).features)
    assert model.compare(X[:40]).nearest == "default"


def test__estimator__rows_that_are_no_such_images__says_how_many_pixels() -> None:
    X, y = digits()

    with pytest.raises(InputError, match=r"\(9, 9\) makes 81 pixels, and X has 64"):
        CLBrunoClassifier(image_shape=(9, 9)).fit(X, y)


def test__estimator__marginal_and_a_front__says_why_not() -> None:
    X, y = digits()
    model = CLBrunoClassifier(image_shape=(8, 8), missing="marginal").fit(X, y)

    with pytest.raises(InputError, match="mixes the pixels"):
        model.predict(X)
