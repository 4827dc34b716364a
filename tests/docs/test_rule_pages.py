"""Each rule has a page and each page a rule; every failure that a rule could find has a rule or a reason."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.commands.main import main
from t5x_harness.google.vertex.validation.judging import SpecViolation, judge, misspelt_accelerators
from t5x_harness.rulebook.codes import AUXILIARY_CODES, NOT_CAUGHT, RUN_CODES, every_code, job_codes, rules_by_code
from t5x_harness.rulebook.example_text import base_page
from t5x_harness.rulebook.pages import job_page, pages
from t5x_harness.rulebook.rules import all_codes, all_rules
from t5x_harness.symptoms.table import symptom_codes
from t5x_harness.vertex.job_rules import job_rules

REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "docs" / "rules"
STAGES = json.loads((REPOSITORY / "tests" / "reference" / "failure_codes.json").read_text())["stages"]


REASONS = {code: reason for group in NOT_CAUGHT.values() for code, (_, reason) in group.items()}


def test_the_pages_are_what_the_rules_say() -> None:
    made = pages()
    there = {path.name: path.read_text() for path in PAGES.glob("*.md")}
    assert sorted(there) == sorted(made), "run: python -m t5x_harness.rulebook.pages docs/rules"
    for name, text in made.items():
        assert there[name] == text, f"{name} is out of date; run: python -m t5x_harness.rulebook.pages docs/rules"


def test_every_mistake_explains_itself() -> None:
    for rule in all_rules():
        assert re.fullmatch(r"[A-Z]{3}\d\d", rule.code)
        assert rule.title
        assert not rule.title.endswith("."), rule.code
        assert rule.why.endswith((".", "`")), rule.code


def test_a_code_has_one_mistake() -> None:
    codes = [code for code, *_ in {(rule.code, rule.title, rule.why) for rule in all_rules()}]
    assert sorted(codes) == list(all_codes())


@pytest.mark.parametrize("code", [c for c, stages in STAGES.items() if {"S0", "S1", "S2", "S5"} & set(stages)])
def test_a_failure_that_can_be_seen_early_has_a_rule_or_a_reason(code: str) -> None:
    has_page = code in all_codes() or code in job_codes() or code in AUXILIARY_CODES
    assert has_page != (code in REASONS), f"{code} needs a rule or a reason, and not both"


def test_every_reason_is_of_a_known_failure_and_says_something() -> None:
    for code, reason in REASONS.items():
        assert code in STAGES
        assert len(reason.split()) > 4


@pytest.mark.parametrize("code", all_codes())
def test_a_page_has_an_example_with_its_fix_and_says_how_to_silence_it(code: str) -> None:
    text = pages()[f"{code}.md"]
    parts = ("## Example and fix", "`run.gin`", f"# t5x-harness: ignore[{code}]")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "```diff" in text or "The fix adds `" in text or "The fix removes `" in text


@pytest.mark.parametrize("code", all_codes())
def test_a_page_and_the_common_files_show_all_of_an_example(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    rule = rules_by_code()[code][0]
    short, common = ((PAGES / name).read_text() for name in (f"{code}.md", "base.md"))
    assert main(["explain", code]) == 0
    explained = capsys.readouterr().out
    for example, mark in ((rule.bad, "-"), (rule.good, "+")):
        wanted = [line for text in (example.gin, *example.files.values()) for line in text.splitlines()]
        for page in (explained, f"{short}\n{common}"):
            shown = page.splitlines()
            missing = [line for line in wanted if not {line, f" {line}".rstrip(), mark + line} & {*shown}]
            assert missing == [], "explain prints an example in full, a page all that the common files have not"
    assert "](base.md" not in explained


def test_a_page_does_not_repeat_the_common_files() -> None:
    written = pages()
    several = [line for line in base_page().splitlines() if line.startswith(("    preprocessors=", "import __main__"))]
    assert len(several) == 4
    for line in several:
        repeated = [
            name for name, text in written.items() if name != "base.md" and {line, f" {line}"} & {*text.splitlines()}
        ]
        assert len(repeated) < 20, line


def test_every_code_of_how_a_run_went_is_listed() -> None:
    sources = [path for folder in ("t5x_harness", "plugin") for path in (REPOSITORY / folder).rglob("*.py")]
    named = r'"((?:AOT|POD|RES|RUN|USR)\d\d)"'
    used = {code for path in sources for code in re.findall(named, path.read_text(encoding="utf-8"))}
    others = {*all_codes(), *symptom_codes(), *(code for codes in NOT_CAUGHT.values() for code in codes)}
    assert used - (others - set(RUN_CODES)) == set(RUN_CODES)


@pytest.mark.parametrize("code", job_codes())
def test_a_page_about_a_job_has_an_example_with_its_fix_and_where_it_is_from(code: str) -> None:
    text, mistake = job_page(code), job_codes()[code]
    parts = ["## Example and fix", "```diff"]
    parts += ["## What avoids it"] * bool(mistake.avoided) + ["## Where the rules are from"] * bool(mistake.rules)
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert mistake.avoided or mistake.rules, "a page says who does something about it"
    assert re.search(r"^[+-][^+-]", text.split("```diff")[1].split("```")[0], re.MULTILINE)
    assert code not in all_codes(), "a code has one page"


@pytest.mark.parametrize("code", [code for code, mistake in job_codes().items() if mistake.example == "yaml"])
def test_the_bad_spec_of_a_page_has_its_mistake_and_the_good_one_none(code: str) -> None:
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("google.cloud.aiplatform_v1")
    mistake = job_codes()[code]
    bad = found_in(yaml.safe_load(mistake.bad), mistake.location)
    assert {violation.code for violation in bad} == {code} or (code == "VTX13" and "VTX13" in {v.code for v in bad})
    assert found_in(yaml.safe_load(mistake.good), mistake.good_location) == []


def found_in(spec: dict[str, object], location: str) -> list[SpecViolation]:
    from google.cloud.aiplatform_v1.types import CustomJob
    from google.protobuf import json_format

    document = {"displayName": "x", "jobSpec": spec}
    if misspelt := misspelt_accelerators(document):
        return list(misspelt)
    verdict = judge(json_format.ParseDict(document, CustomJob.pb()()), location, job_rules())
    return [*verdict.violations, *verdict.warnings]


def test_explain_prints_pages_and_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gin02"]) == 0
    explained, short = capsys.readouterr().out, pages()["GIN02.md"]
    assert explained.startswith(short[: short.index("To [silence]")])
    assert "--t5x-ignore GIN02" in explained
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == [*every_code()]
    assert main(["explain", "vtx04"]) == 0
    assert capsys.readouterr().out == pages()["VTX04.md"]
    assert main(["explain", "RUN01"]) == 0
    assert "It cannot be silenced" in capsys.readouterr().out


def test_every_code_that_a_text_names_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [REPOSITORY / "README.md"]
    for folder in ("t5x_harness", "plugin", "fixtures", "sample_tasks", "docs"):
        texts += [p for p in (REPOSITORY / folder).rglob("*") if p.suffix in {".py", ".md", ".toml", ".json", ".gin"}]
    named = {code for path in texts for code in re.findall(r"\b[A-Z]{3}\d\d\b", path.read_text(encoding="utf-8"))}
    assert len(named) > 150
    for code in sorted(named):
        assert main(["explain", code]) == 0, code
        assert capsys.readouterr().out.startswith(f"# {code}")


def test_a_check_of_the_doctor_is_explained_by_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ENV10", "IMG04", "POD01"]) == 0
    explained = capsys.readouterr().out
    assert "# ENV10: /gcs paths\n\nChecked by `t5x-harness doctor`, which prints the fix" in explained
    assert "user namespaces" in explained
    assert "# IMG04: TPU library\n\nChecked by `t5x-harness doctor --image`" in explained
    assert "Nothing finds it in a config before it runs: how it is started is not in the config." in explained


def test_explaining_imports_nothing_heavy() -> None:
    program = (
        "import sys; from t5x_harness.commands.main import main; main(['explain']);"
        "print([m for m in ('jax', 'numpy', 'tensorflow', 'seqio', 't5x', 'flax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_explain_lists_a_family_and_offers_the_closest_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "msh"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line[:3] for line in lines} == {"MSH"}
    assert any(line.startswith("MSH02  lint, plan  error ") for line in lines)
    assert main(["explain", "GIN002"]) == 2
    assert "there is no code GIN002; did you mean GIN02" in capsys.readouterr().err
    assert main(["explain", "GINO4"]) == 2
    assert capsys.readouterr().err == "t5x-harness: there is no code GINO4; did you mean GIN04?\n"
    assert main(["explain", "QQQ"]) == 2
    assert capsys.readouterr().err.endswith("t5x-harness explain lists them all\n")
