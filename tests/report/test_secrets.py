"""No form of a report shows a secret, and what is not one is shown as it is."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import ERROR, WRITERS, report_of, report_saying

from t5x_harness.findings.printable import PrintableLines, printable
from t5x_harness.lint import domains
from t5x_harness.report.report import Report
from t5x_harness.spec import Assignment, BoundValue, Change, Edit, Location, Outcome, Reason, RunSettings
from t5x_harness.system.secrets import mask_text, masked_binding

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def _random(length: int, more: str = "") -> st.SearchStrategy[str]:
    """Returns random characters with a digit in them."""
    return st.text(_LETTERS + more, min_size=length - 2, max_size=length + 8).map(lambda text: f"{text}7Q")


SHAPES = {
    "Hugging Face": ("hf_{}", _random(34)),
    "OpenAI": ("sk-proj-{}", _random(40)),
    "Anthropic": ("sk-ant-api03-{}", _random(60)),
    "GitHub": ("ghp_{}", _random(36)),
    "GitHub's apps": ("ghs_{}", _random(36)),
    "GitHub, fine-grained": ("github_pat_{}", _random(60, "_")),
    "Google's API keys": ("AIza{}", _random(35, "-_")),
    "Google OAuth": ("ya29.{}", _random(60, "-_")),
    "AWS": ("AKIA{}", st.text("ABCDEFGHIJ234567", min_size=16, max_size=16)),
    "AWS, for a session": ("ASIA{}", st.text("ABCDEFGHIJ234567", min_size=16, max_size=16)),
    "Slack": ("xoxb-123456789012-{}", _random(24)),
    "a JSON web token": ("eyJhbGciOiJIUzI1NiJ9.eyJ{}.dozjgNryP4J3jVmNHl0w5N", _random(30, "-_")),
    "a private key": (r"-----BEGIN RSA PRIVATE KEY-----\n{}\nabc=\n-----END RSA PRIVATE KEY-----\n", _random(64, "+/")),
    "a password in an address": ("https://me:{}@example.org/checkpoint_3", _random(12)),
    "a header": ("Authorization: Bearer {}", _random(30)),
    "a key in an address": ("https://example.org/x?a=b&key={}&c=d", _random(30)),
    "a binding": ("HF_TOKEN = '{}'", _random(12)),
    "a parameter": ("train/my.Log.api_key = '{}'", st.text("0123456789abcdef", min_size=40, max_size=40)),
    "a variable": ("AWS_SECRET_ACCESS_KEY={}", _random(40, "+")),
    "a line of YAML": ("api_key: {}", _random(24)),
    "an entry": ('{{"name": 1, "client_secret": "{}"}}', _random(24)),
    "quoted twice": (r"f(\"password\": \"{}\")", _random(10)),
}


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=2, deadline=None)
@given(secrets=st.fixed_dictionaries({shape: secrets for shape, (_, secrets) in SHAPES.items()}))
def test_no_report_shows_a_secret(form: str, secrets: dict[str, str]) -> None:
    text = ", ".join(text.format(secrets[shape]) for shape, (text, _) in SHAPES.items())
    written = WRITERS[form](report_saying(f"before {text}, after"))
    assert [shape for shape, secret in secrets.items() if secret in written] == []
    assert "after" in written


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_what_is_around_a_secret_stays(shape: str, data: st.DataObject) -> None:
    text, secrets = SHAPES[shape]
    secret = data.draw(secrets)
    shown = mask_text(f"before {text.format(secret)}, after")
    assert secret not in shown
    assert "***" in shown
    assert shown.startswith("before ")
    assert shown.endswith(", after")
    assert mask_text(shown) == shown
    if (name := text.partition("{}")[0].rstrip(" ='\"\\:{")) in ("HF_TOKEN", "train/my.Log.api_key"):
        assert name in shown


def test_a_private_key_that_arrives_line_by_line_is_masked() -> None:
    lines, shown = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "AgEAAoIBAQC7+Vq/3mUe", "b2s="), PrintableLines()
    said = [shown(f"worker 0  {line}") for line in ("-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----")]
    assert [line for line in lines if line in "\n".join(said)] == []
    assert shown("worker 0  the next word is long: internationalization") == (
        "worker 0  the next word is long: internationalization"
    )


def test_a_value_is_masked_by_the_name_beside_it() -> None:
    secret, place = "'correcthorse9'", Location("run.gin", 1)
    bound = BoundValue("my.Log.api_key", "my.Log", Assignment(secret, place), (Assignment(secret, place),))
    change = Change("HF_TOKEN", secret, secret, Reason.GIVEN)
    (result,) = report_of(outcome=Outcome.PASSED, changes=(change,)).results
    report = Report((dataclasses.replace(result, bindings=(bound,)),))
    for form, write in WRITERS.items():
        assert "correcthorse9" not in write(report), form
    assert json.loads(WRITERS["json"](report))["runs"][0]["bindings"][0]["value"] == "'***'"
    assert "HF_TOKEN = '***'" in WRITERS["text with everything"](report)


def test_an_edit_with_a_secret_is_left_out_because_a_program_would_write_the_mask() -> None:
    edit = Edit("run.gin", 4, 4, "TOKENS = 1  # HF_TOKEN = 'correcthorse9'\n")
    for edits, shown in (((edit,), []), (ERROR.edits, [dataclasses.asdict(ERROR.edits[0])])):
        report = report_of(dataclasses.replace(ERROR, edits=edits))
        assert json.loads(WRITERS["json"](report))["findings"][0]["edits"] == shown
        assert "***" not in WRITERS["sarif"](report)


def _names() -> Iterator[str]:
    """Yields every name of a parameter of T5X, SeqIO and optax, and every option of a run."""
    for file in Path(domains.__file__).parent.glob("*.toml"):
        for parameters in tomllib.loads(file.read_text()).values():
            yield from parameters if isinstance(parameters, dict) else ()
    yield from (field.name for field in dataclasses.fields(RunSettings))


def test_no_parameter_of_t5x_is_masked() -> None:
    names = sorted(set(_names()))
    assert len(names) > 500
    for name in names:
        for value in ("'inputs_v2'", "'wmt_t2t_ende_v003'", "'abcdefgh12345678'"):
            for text in (f"x.{name} = {value}", f"f({name}={value})", f"{{'{name}': {value}}}"):
                assert mask_text(text) == text
            assert masked_binding(f"x.{name}", value) == value


@pytest.mark.parametrize(
    "text",
    [
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "TRAIN_STEPS = 1_020_000 in run.gin:14",
        "gs://my-bucket/t5_1_1_small/checkpoint_1000000 and gs://b/a:b@c",
        "http://localhost:8080/x@y",
        "HF_TOKEN = %TOKEN; HF_TOKEN = @tokens.of_me(); HF_TOKEN=$HF_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS=/home/me/key.json, credentials = 'secrets/key.json'",
        "EOS_TOKEN = '</s>'; unk_token='unknown0'; my_pad_token='padding0'; token='▁the'; NUM_TOKENS = '12345678'",
        "token_id = '12345678'; MAX_TOKENS=77; TOKENIZER = 'sentencepiece0'; key = 'inputs'; feature_keys: 'targets'",
        "decode(token=next_token, key=rng); secret=secrets[0]; password=None",
        "hf_tokenizer_for_sentencepiece_models, /data/sk-en-wmt16_newstest_2016, task-0123456789abcdefgh, disk-a1b2c3",
        "Bearer authentication is not supported; basic four-layer-transformers",
        "the password must not be empty: 'token' is unknown",
        "***, HF_TOKEN = '***', https://***@example.org",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_text(text) == text
    assert printable(text) == text or re.search(r"\s:", text)
