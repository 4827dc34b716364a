"""Converted models compute the same in transformers as in T5X. One process runs all tests, as its imports take long."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from tiny_models import KINDS, parameters_of, write

from t5x_harness.conversion import transformers_folder
from t5x_harness.conversion.architecture import parameters
from t5x_harness.conversion.conversion import convert
from t5x_harness.conversion.request import Conversion, ConversionError, ConversionRequest, Form
from t5x_harness.conversion.stored import read_t5x
from t5x_harness.standins.vocabularies import VocabularySize, model_of

GIN = """
from __gin__ import dynamic_registration
from t5x.examples.{network} import network
network.T5Config.mlp_activations = {activations}
"""


def config_of(folder: Path, kind: str) -> tuple[str, ...]:
    about = KINDS[kind]
    file = folder / "model.gin"
    file.write_text(GIN.format(network=about.network, activations=about.settings["mlp_activations"]))
    return (str(file),)


def converted(tmp_path: Path, kind: str, **settings: Any) -> Conversion:
    request = {"model_type": KINDS[kind].model_type, "gin_files": config_of(tmp_path, kind), "check": True} | settings
    checkpoint = write(tmp_path / "run", kind)
    return convert(ConversionRequest(str(checkpoint), Form.TRANSFORMERS, str(tmp_path / "hf"), **request))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_greedy_outputs_are_those_of_t5x(tmp_path: Path, kind: str) -> None:
    made = converted(tmp_path, kind)
    assert made.agreement.same_outputs
    assert made.agreement.difference <= 1e-4
    assert made.agreement.largest > 0.5  # otherwise, the agreement would mean nothing
    assert made.agreement.outputs >= 3
    assert made.assumptions == (
        () if kind != "byt5" else ("a vocabulary of bytes, as ByT5 has: the embedding has 384 rows",)
    )
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf", local_files_only=True)
    assert type(model).__name__ == json.loads((tmp_path / "hf/config.json").read_text())["architectures"][0]
    generation = model.generation_config
    assert (generation.decoder_start_token_id, generation.eos_token_id, generation.pad_token_id) == (0, 1, 0)


def test_in_another_type_and_in_several_files(tmp_path: Path) -> None:
    made = converted(tmp_path, "t5_1_1", dtype="bfloat16", shard_bytes=10_000)
    assert made.agreement.holds
    assert made.dtypes == ("bfloat16",)
    assert len([file for file in made.files if file.endswith(".safetensors")]) > 2
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf", local_files_only=True, dtype="auto")
    assert model.dtype == torch.bfloat16


def test_what_does_not_compute_the_same_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a conversion that confuses queries with keys."""

    def exchanged(sizes: Any) -> Any:
        for parameter in parameters(sizes):
            other = tuple(
                piece.translate(str.maketrans("qk", "kq")) if piece.endswith((".q.weight", ".k.weight")) else piece
                for piece in parameter.pieces
            )
            yield dataclasses.replace(
                parameter, pieces=tuple(piece.replace("bloqk", "block").replace("bloc", "bloc") for piece in other)
            )

    monkeypatch.setattr(transformers_folder, "parameters", lambda sizes: tuple(exchanged(sizes)))
    with pytest.raises(ConversionError, match=r"does not compute what T5X's network does: logits .* differ by"):
        converted(tmp_path, "t5_1_1")
    assert not (tmp_path / "hf").exists()


def test_an_umt5_whose_outputs_are_scaled_though_its_logits_are_its_own(tmp_path: Path) -> None:
    """transformers 5.0 to 5.23 always scale them; newer versions read and save this setting in ``config.json``."""
    made = converted(tmp_path, "umt5")
    assert made.warnings[0] == (
        "transformers 5.0 to 5.23 divides the decoder's output of every umT5 by d_model**0.5, which is right only "
        "where logits come from the embedding: use 5.24 or newer, which reads that from config.json. Greedy outputs "
        "are the same in both; logits, sampling and losses are not"
    )
    model = transformers.UMT5ForConditionalGeneration.from_pretrained(tmp_path / "hf", local_files_only=True)
    model.config.scale_decoder_outputs = True
    model.save_pretrained(tmp_path / "scaled")
    with pytest.raises(ConversionError, match=r"(?s)the decoder's output is scaled \(scale_decoder_outputs\)"):
        convert(ConversionRequest(str(tmp_path / "scaled"), Form.T5X, str(tmp_path / "back")))


def test_the_refusal_of_a_version_that_scales_them_has_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = transformers_folder.config_json

    def scaled(*arguments: Any) -> dict[str, Any]:
        return whole(*arguments) | {"tie_word_embeddings": True, "scale_decoder_outputs": True}

    monkeypatch.setattr(transformers_folder, "config_json", scaled)
    with pytest.raises(ConversionError) as error:
        converted(tmp_path, "umt5")
    assert re.search(
        r"does not compute what T5X's network does: .*\.\nA note on this model: transformers 5\.0 to 5\.23 ",
        str(error.value),
        re.DOTALL,
    )


@pytest.mark.parametrize("kind", ["t5_1_0", "t5_1_1", "umt5"])
def test_what_transformers_saved_again_becomes_the_same_checkpoint(tmp_path: Path, kind: str) -> None:
    converted(tmp_path, kind, check=False)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf", local_files_only=True)
    model.save_pretrained(tmp_path / "saved")
    made = convert(ConversionRequest(str(tmp_path / "saved"), Form.T5X, str(tmp_path / "back"), step=7))
    again = read_t5x(made.output)
    for name, array in parameters_of(kind).items():
        np.testing.assert_array_equal(again.read(name), array, err_msg=name)
    assert again.step == 7


@pytest.mark.parametrize("sentinels_in_file", [True, False])
def test_the_tokenizer_gives_the_ids_of_seqio(tmp_path: Path, sentinels_in_file: bool) -> None:
    import seqio

    text = [f"The quick brown fox {i} jumps over the lazy dog, naïve café number {i * 7}!" for i in range(200)]
    (tmp_path / "text").write_text("\n".join(text))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "pieces"),
        vocab_size=120,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        user_defined_symbols=[f"\u2581<extra_id_{i}>" for i in reversed(range(10))] if sentinels_in_file else [],
    )
    if sentinels_in_file:
        move_sentinels_to_the_end(tmp_path / "pieces.model")
    path, extra_ids = str(tmp_path / "pieces.model"), 0 if sentinels_in_file else 10
    made = converted(tmp_path, "t5_1_1", check=False, vocabulary=path, extra_ids=extra_ids)
    assert {"spiece.model", "tokenizer_config.json"} < set(made.files)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf", local_files_only=True)
    ours = seqio.SentencePieceVocabulary(path, extra_ids=extra_ids)
    for sentence in (*text[:5], "Ünïcode ﬁ Ⅷ and  two spaces ", "an unknown 日本 thing"):
        assert theirs(sentence).input_ids == [*ours.encode(sentence), ours.eos_id]
    assert theirs.convert_tokens_to_ids("<extra_id_0>") == ours.vocab_size - 1
    assert theirs.convert_tokens_to_ids("<extra_id_9>") == ours.vocab_size - 10
    assert theirs.decode(theirs(text[0]).input_ids, skip_special_tokens=True) == text[0]


def move_sentinels_to_the_end(file: Path) -> None:
    """Moves the sentinels to their place in T5's own vocabularies."""
    from sentencepiece import sentencepiece_model_pb2 as protos

    model = protos.ModelProto()
    model.ParseFromString(file.read_bytes())
    pieces = sorted(model.pieces, key=lambda piece: "<extra_id_" in piece.piece)
    del model.pieces[:]
    model.pieces.extend(pieces)
    file.write_bytes(model.SerializeToString())


def test_bytes_are_those_of_seqio(tmp_path: Path) -> None:
    import seqio

    converted(tmp_path, "byt5", check=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf", local_files_only=True)
    assert type(theirs).__name__ == "ByT5Tokenizer"
    for sentence in ("bytes: naïve 日本", "two  spaces"):
        assert theirs(sentence).input_ids == [*seqio.ByteVocabulary().encode(sentence), 1]
    assert len(theirs) == 384


def test_where_the_tokenizer_differs_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "bytes.model"
    file.write_bytes(model_of(VocabularySize(300)))
    plain = converted(tmp_path, "t5_1_1", check=False, vocabulary=str(file))
    assert plain.warnings == (
        "this vocabulary keeps spaces in a row, and the T5Tokenizer of transformers makes them one",
    )
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "hf", local_files_only=True).eos_token_id == 1


def test_the_page_loads_it_so(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pieces.model"
    file.write_bytes(model_of(VocabularySize(300)))
    converted(tmp_path, "t5_1_1", check=False, vocabulary=str(file))
    monkeypatch.chdir(tmp_path)
    page = (repository / "docs/conversion.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(blocks[0], "conversion.md", "exec"), {})
    assert capsys.readouterr().out.startswith("['")


def test_a_trained_run_converts_as_the_page_says(repository: Path, pytester: pytest.Pytester) -> None:
    page = (repository / "docs/conversion.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    pytester.makepyfile(blocks[1])
    pytester.runpytest_subprocess("--t5x-runtime=embedded").assert_outcomes(passed=1)
