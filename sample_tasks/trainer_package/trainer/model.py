"""Logistic regression: the model that the trainer trains, and the points that it learns from."""

import dataclasses

import numpy as np

__all__ = ["Model", "average", "make_points", "train"]


@dataclasses.dataclass(frozen=True)
class Model:
    """A line that separates two classes of points in the plane.

    Attributes:
      weights: [2] float64, the weight of each coordinate.
      bias: the constant term.
    """

    weights: np.ndarray
    bias: float

    def probabilities(self, points: np.ndarray) -> np.ndarray:
        """Returns the probability that each of [n, 2] points is of class 1: [n] float64."""
        return 1 / (1 + np.exp(-(points @ self.weights + self.bias)))

    def loss(self, points: np.ndarray, classes: np.ndarray) -> float:
        """Returns the mean cross entropy in nats."""
        likely = np.where(classes == 1, self.probabilities(points), 1 - self.probabilities(points))
        return float(-np.mean(np.log(np.maximum(likely, 1e-12))))

    def accuracy(self, points: np.ndarray, classes: np.ndarray) -> float:
        """Returns the share of points on the correct side of the line."""
        return float(np.mean((self.probabilities(points) > 0.5) == (classes == 1)))


def make_points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns two overlapping clouds of points, [count, 2] float64, and their classes, [count] int64."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, 2, count)
    return random.normal(np.where(classes == 1, 1.5, -1.5)[:, None], 1.0, (count, 2)), classes


def train(points: np.ndarray, classes: np.ndarray, steps: int, learning_rate: float) -> Model:
    """Trains a model by full-batch gradient descent from zero."""
    model = Model(np.zeros(points.shape[1]), 0.0)
    for _ in range(steps):
        error = model.probabilities(points) - classes
        weights = model.weights - learning_rate * points.T @ error / len(points)
        model = Model(weights, model.bias - learning_rate * float(error.mean()))
    return model


def average(models: list[Model]) -> Model:
    """Returns the mean of models that were trained on equal parts of the points."""
    return Model(np.mean([model.weights for model in models], axis=0), float(np.mean([model.bias for model in models])))
