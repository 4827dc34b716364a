"""PLN01: a plan that differs from the golden plan."""

from t5x_harness.findings.rule import Rule, trained, training

PLN01 = Rule(
    "PLN01",
    "plan that differs from the golden plan",
    name="ChangedPlan",
    why=(
        "A change in a file that many configs include changes runs that no one looked at. Where `--plan-golden` keeps "
        "the plan of each run beside the configs, the change shows in review: which bindings, and their effect. "
        "The comparison is only made where there is a golden plan."
    ),
    bad=training("TRAIN_STEPS = 20_000", golden=trained("TRAIN_STEPS = 10_000"), at="TRAIN_STEPS = 20_000"),
    good=training("TRAIN_STEPS = 10_000", golden=trained("TRAIN_STEPS = 10_000")),
)
