"""Makes all derived files in ``data/``: ``python -m t5x_harness.sample_tasks.make_data``.

``rivers.tsv`` is the one file written by hand. The rest is a pure function of it and of ``numbers.py``.
"""

import argparse
import io
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import sentencepiece
import tensorflow as tf

from t5x_harness.sample_tasks import numbers, rivers

_Item = TypeVar("_Item")

# One in this many items is held out.
_HELD_OUT = 8


def make_text(folder: Path) -> None:
    """Makes the pretraining documents, one per line."""
    documents = [rivers.paragraph(r) for r in rivers.rivers()] + list(rivers.comparisons())
    for split, lines in _splits(documents).items():
        (folder / f"rivers-{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_languages(folder: Path) -> None:
    """Makes the TSV files with number words and their languages."""
    rows = []
    for n in range(0, numbers.LIMIT, 41):
        rows += [f"{numbers.english(n)}\tenglish", f"{numbers.german(n)}\tgerman"]
    for split, lines in _splits(rows).items():
        (folder / f"languages-{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_questions(folder: Path) -> None:
    """Makes the TFExample records with the questions."""
    for split, questions in _splits(list(rivers.questions())).items():
        with tf.io.TFRecordWriter(str(folder / f"rivers-{split}.tfrecord")) as writer:
            for q in questions:
                features = {"question": [q.question], "context": [q.context], "answers": list(q.answers)}
                example = tf.train.Example(
                    features=tf.train.Features(feature={name: _strings(v) for name, v in features.items()})
                )
                writer.write(example.SerializeToString(deterministic=True))


def make_sentencepiece(folder: Path) -> None:
    """Makes a unigram model of 512 pieces with T5's special ids: padding 0, end 1, unknown 2."""
    documents = [rivers.paragraph(r) for r in rivers.rivers()] + list(rivers.comparisons())
    documents += [q.question for q in rivers.questions()]
    documents += [f"translate English to German: {numbers.english(n)}" for n in range(0, numbers.LIMIT, 7)]
    documents += [numbers.german(n) for n in range(0, numbers.LIMIT, 7)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents),
        model_writer=model,
        model_type="unigram",
        vocab_size=512,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    (folder / "sentencepiece.model").write_bytes(model.getvalue())


def make_sums(folder: Path) -> None:
    """Prepares the TFDS data of the builder ``sample_sums``."""
    from t5x_harness.sample_tasks import tasks  # imported here: it reads the files that the other makers write

    tasks.SampleSums(data_dir=str(folder / "tfds")).download_and_prepare()


def _splits(items: list[_Item]) -> dict[str, list[_Item]]:
    held_out = items[::_HELD_OUT]
    return {"train": [item for i, item in enumerate(items) if i % _HELD_OUT], "validation": held_out}


def _strings(values: Iterable[str]) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))


def main() -> None:
    """Writes the files into the folder given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=rivers.DATA, help="where to write (default: the package's data)")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO)
    for make in (make_text, make_languages, make_questions, make_sentencepiece, make_sums):
        logging.info("%s", make.__doc__)
        make(folder)


if __name__ == "__main__":
    main()
