"""The data file of the rules: every rule can be applied, and says where it is from."""

from __future__ import annotations

import re
import string

from t5x_harness import vertex
from t5x_harness.google.vertex import validation
from t5x_harness.google.vertex.validation import judging, service_rules
from t5x_harness.google.vertex.validation.checks import CHECKS
from t5x_harness.google.vertex.validation.machine_types import cloud_tpus, machine_types, tpu_regions, training_regions
from t5x_harness.google.vertex.validation.rules import Confidence, read_table
from t5x_harness.vertex.job_rules import job_rules

RULES = (*service_rules(), *job_rules())


def test_every_rule_has_a_name_of_its_own_and_a_check() -> None:
    assert judging.judge.__doc__
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert {rule.check for rule in RULES} >= set(CHECKS.values()), "every check is some rule's"


def test_every_rule_has_a_source_unless_it_is_assumed() -> None:
    for rule in RULES:
        assert (rule.source.url == "") == (rule.confidence is Confidence.ASSUMED), rule.name
    tables = read_table(validation.__name__, "machines.toml")
    by_machines = {tables[name]["source"] for name in ("machines", "regions", "training_regions")}
    for package, name, also in ((validation, "rules.toml", by_machines), (vertex, "job_rules.toml", set())):
        table = read_table(package.__name__, name)
        assert {entry["source"] for entry in table["rule"]} | also == set(table["sources"])


def test_only_what_is_sourced_refuses() -> None:
    for rule in RULES:
        sourced = rule.confidence in (Confidence.OBSERVED, Confidence.DOCUMENTED)
        assert rule.refuses == (sourced and not rule.accepted)
    assert {rule.refuses for rule in RULES} == {True, False}


def test_messages_are_sentences() -> None:
    for rule in RULES:
        assert list(string.Formatter().parse(rule.message))
        assert rule.message.endswith((".", "({fix})", "TensorBoard")), rule.name


def test_a_long_text_is_read_once_by_each_pattern() -> None:
    """The server has no thread that could answer while it reads one again from each of its characters."""
    for rule in RULES:
        if form := rule.parameters.get("pattern"):
            for part in ("a", ".", "/", "a.", "a/", ":", "@", "a:1", "projects/a/"):
                re.fullmatch(form, part * 200_000)


def test_the_tables_hold_together() -> None:
    generations = {machine.generation for machine in machine_types().values() if machine.generation}
    generations |= {about.generation for about in cloud_tpus().values()}
    for generation in generations:
        assert set(tpu_regions(generation)) <= set(training_regions())
        assert tpu_regions(generation)
    assert tpu_regions("v4") == ()
