"""The trainer's program: ``python -m trainer.task``.

Every replica trains on its share of the points and leaves its model among the checkpoints. The primary replica waits
for all of them and saves their average.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from trainer.model import Model, average, make_points, train
from trainer.replica import Replica

EXAMPLES_FOR_EVALUATION = 1000


def main(arguments: list[str] | None = None) -> None:
    """Trains, and saves the model if this is the primary replica."""
    options = parse(arguments)
    replica = Replica.from_environment()
    points, classes = make_points(options.examples, options.seed)
    share = slice(replica.rank, None, replica.count)
    model = train(points[share], classes[share], options.steps, options.learning_rate)
    print(
        f"replica {replica.rank} of {replica.count}: loss {model.loss(points[share], classes[share]):.4f}", flush=True
    )
    save(model, part(options.checkpoint_dir, replica.rank))
    if replica.is_primary:
        model = average([wait_for(part(options.checkpoint_dir, n), options.patience) for n in range(replica.count)])
        save(model, options.model_dir / "model.npz")
        report(model, options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the program's flags. In a job, the default folders are those of the job."""
    parser = argparse.ArgumentParser(description="Trains a line between two clouds of points.")
    parser.add_argument("--steps", type=int, default=100, help="of gradient descent")
    parser.add_argument("--learning_rate", type=float, default=0.5)
    parser.add_argument("--examples", type=int, default=2000, help="points to train on, over all replicas")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for the other replicas")
    model_dir = os.environ.get("AIP_MODEL_DIR", "output/model")
    checkpoint_dir = os.environ.get("AIP_CHECKPOINT_DIR", "output/checkpoints")
    parser.add_argument("--model_dir", type=folder, default=model_dir)
    parser.add_argument("--checkpoint_dir", type=folder, default=checkpoint_dir)
    return parser.parse_args(arguments)


def folder(address: str) -> Path:
    """Returns a folder by its path or by its address in Cloud Storage, which a job's machines mount at ``/gcs``."""
    return Path(address.replace("gs://", "/gcs/", 1))


def part(checkpoints: Path, rank: int) -> Path:
    """Returns the path of a replica's model, in a folder that belongs to its job alone, so that jobs do not mix."""
    return checkpoints / os.environ.get("CLOUD_ML_JOB_ID", "here") / f"part-{rank}.npz"


def save(model: Model, file: Path) -> None:
    """Writes a model completely or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished.npz")
    np.savez(unfinished, weights=model.weights, bias=model.bias)
    unfinished.rename(file)


def wait_for(file: Path, patience: float) -> Model:
    """Reads a replica's model once it exists.

    Raises:
      TimeoutError: it was not written in time.
    """
    deadline = time.monotonic() + patience
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} did not come within {patience:g} s: did its replica fail?")
        time.sleep(0.1)
    with np.load(file) as saved:
        return Model(saved["weights"], float(saved["bias"]))


def report(model: Model, options: argparse.Namespace) -> None:
    """Reports the quality of the model in the log, in a file, and to hyperparameter tuning if this is a trial."""
    points, classes = make_points(EXAMPLES_FOR_EVALUATION, options.seed + 1)
    loss, accuracy = model.loss(points, classes), model.accuracy(points, classes)
    print(f"on other points: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    metrics = {"loss": loss, "accuracy": accuracy, "steps": options.steps, "learning_rate": options.learning_rate}
    (options.model_dir / "metrics.json").write_text(json.dumps(metrics))
    if "CLOUD_ML_TRIAL_ID" in os.environ:
        import hypertune

        hypertune.HyperTune().report_hyperparameter_tuning_metric(
            hyperparameter_metric_tag="loss", metric_value=loss, global_step=options.steps
        )


if __name__ == "__main__":
    main()
