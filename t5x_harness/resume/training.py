"""A training at the sizes of a run's own stages, in a process of its own, which may be ended on the way."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.execute.command_line import as_t5x
from t5x_harness.execute.execution import Progress, open_execution
from t5x_harness.execute.host_files import of_host
from t5x_harness.execute.output import scalars_in
from t5x_harness.resolve.exceptions import error_text
from t5x_harness.resolve.explanation import explain, log_traceback
from t5x_harness.resume.injection import Injector
from t5x_harness.resume.repeater import Repeatable
from t5x_harness.spec import Fault, Stage
from t5x_harness.upstream.jax import use_tpu_numerics
from t5x_harness.upstream.t5x import before_finding, install_mesh

if TYPE_CHECKING:
    from t5x_harness.execute.prepare import RunData
    from t5x_harness.gin.config import GinConfig

_POLL_SECONDS = 0.01


class Training:
    """Trains as T5X's own program would, and records what it does.

    Args:
      argument: the argument of :func:`~t5x_harness.execute.execution.open_execution`, with a spec that has the sizes of
        the run's own stages, and ``training``, a :class:`~t5x_harness.resume.repeater.Repeatable` as JSON.
      progress: a function that receives progress events.
    """

    def __init__(self, argument: Mapping[str, Any], progress: Progress) -> None:
        self._run = open_execution(argument, progress)
        self._training = Repeatable.from_json(argument["training"])
        install_mesh(self._run.slice, self._training.data_axis)

    def train(
        self, record: str, life: int, local: str, fault: dict[str, Any] | None, at_step: int, permit: str
    ) -> dict[str, Any]:
        """Trains from the newest checkpoint in MODEL_DIR to the last step.

        It reports ``{"looks": True}`` before it looks for that checkpoint, if nothing of the user's may have read
        MODEL_DIR before.

        Args:
          record: the file that the training is recorded in; of a host other than the first, beside it.
          life: how many processes have begun this training, including this one.
          local: MODEL_DIR on this machine's disk.
          fault: the fault that ends it, here or on another host, as JSON; None for none.
          at_step: the first step at which the fault's moment counts.
          permit: a file that is awaited before MODEL_DIR is read; empty not to wait.

        Returns:
          ``metrics``, the scalars in MODEL_DIR by tag and step; or ``finding``, the mistake that ended it, as JSON.
          After a fault that it survived, ``ended`` says how it ended.
        """
        from t5x_harness.resolve.datasets import few_examples

        run = self._run
        ordered = None if fault is None else Fault.from_json(fault)
        comes = ordered is not None and ordered.host in (None, run.host)
        injector = Injector(ordered, at_step, self._announce) if ordered is not None and comes else None
        self._life = life
        self._permit = Path(permit) if permit else None
        try:
            use_tpu_numerics(run.spec.settings.tpu_numerics)
            with as_t5x(run.spec, run.runtime.location):
                run.open_config((Path(self._training.standins), self._training.embedding_rows))
                assert run.config is not None
                data = self._data(run.config)
                with few_examples(data.all_tasks, self._training.examples):
                    self._work(run.config, data, Path(record), Path(local), injector)
        except Exception as error:  # anything that the user's code or T5X raises
            log_traceback(error)
            if ordered is not None and (injector is None or injector.came):  # it came, here or on another host
                return {"ended": error_text(error)}
            return {"finding": explain(error, Stage.RESUME, run.config).to_json()}
        return {"metrics": scalars_in(Path(local))}

    def _work(self, config: "GinConfig", data: "RunData", record: Path, local: Path, injector: Injector | None) -> None:
        """Calls T5X's own function."""
        import gin
        from t5x import train as train_module
        from t5x import utils

        from t5x_harness.execute.record import Recorder

        trainer_cls = config.build("trainer_cls")
        recorder = Recorder(of_host(record, self._run.host), injector, self._life)
        readers = [config.build(name) for name in ("get_dataset_fn", "train_eval_get_dataset_fn")]
        if all(read is None or read.__module__ == utils.__name__ for read in readers):
            before_finding(utils, self._look)
        gin.get_configurable(train_module.train)(
            **({} if trainer_cls is None else {"trainer_cls": recorder.watch(trainer_cls)})
        )

    def _look(self) -> None:
        """Reports that training is about to look for its checkpoint, and waits until it may."""
        self._run.progress({"stage": Stage.RESUME.value, "looks": True})
        while self._permit is not None and not self._permit.exists():
            time.sleep(_POLL_SECONDS)

    def _announce(self, when: str) -> None:
        self._run.progress({"stage": Stage.RESUME.value, "fault": when})

    def _data(self, config: "GinConfig") -> "RunData":
        """Returns the data of the run, which reads stand-ins as that of the run's own stages does."""
        from t5x_harness.execute.prepare import RunData
        from t5x_harness.resolve.datasets import roles_of, tasks_of

        assert self._run.standins is not None
        data = RunData(roles := roles_of(config), {role.parameter: tasks_of(role) for role in roles})
        for role in roles:
            self._run.standins.take_places(role.dataset, data.of_roles[role.parameter])
        return data
