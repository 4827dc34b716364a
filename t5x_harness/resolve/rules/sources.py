"""SEQ04 and SEQ36: tasks that nobody registered, and sources without examples."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.resolve import examples
from t5x_harness.resolve.rule import Example, ResolveRule
from t5x_harness.spec import Finding

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved


class UnknownTask(ResolveRule):
    """A task or mixture of a name that nothing registered."""

    code = "SEQ04"
    title = "task or mixture that nothing registered"
    why = "SeqIO raises on the TPU and lists every task it knows; the module was not imported, or the name is misspelt."
    bad = Example(
        examples.trained("MIXTURE_OR_TASK_NAME = 'countign'"),
        files=examples.FILES,
        at="MIXTURE_OR_TASK_NAME = 'countign'",
    )
    good = Example(examples.trained("MIXTURE_OR_TASK_NAME = 'counting'"), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each dataset with such a name; those that share the name share the finding."""
        import seqio

        names = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()})
        said = set()
        for role in run.roles:
            if role.parameter in run.tasks or role.source in said:
                continue
            said.add(role.source)
            close = difflib.get_close_matches(role.source, names, n=3, cutoff=0.6)
            yield self.finding(
                run.config,
                f"no task or mixture is called {role.source!r}; {len(names)} are registered"
                + (f", the closest {', '.join(map(repr, close))}" if close else ""),
                role.key(run.config, "mixture_or_task_name"),
                f"use {close[0]!r}" if close else "import the module that registers it in the Gin file",
            )


class NoExamples(ResolveRule):
    """A split without an example."""

    code = "SEQ36"
    title = "split without examples"
    why = "A wrong file pattern or a filter that drops everything trains on nothing, or on the few that are left."
    bad = Example(
        examples.trained(),
        files=examples.files("'targets': ['1 2', '3']})", "'targets': ['1 2', '3']}).filter(lambda x: False)"),
        at="  split = 'train'",
    )
    good = Example(examples.trained(), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each split that was read and is empty."""
        said = set()
        for role, sample in run.sampled():
            if not sample.examples and (sample.task.name, sample.split) not in said:
                said.add((sample.task.name, sample.split))
                yield self.finding(
                    run.config,
                    f"task {sample.task.name} has no example in split {sample.split!r}",
                    role.key(run.config, "split"),
                    "check the source's files and filters",
                )
