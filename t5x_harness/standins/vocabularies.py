"""Generated SentencePiece vocabularies of the size that a path and a model imply, and SeqIO's vocabularies on them.

A config names its vocabulary by a path in a bucket such as ``gs://t5-data/vocabs/cc_all.32000.100extra/…``. The
stand-in has as many pieces as the file at that path, the special ids of T5's public vocabularies, and bytes for
everything that has no piece, so decoding the ids of a text returns the text (in TensorFlow without leading
spaces, which its decoder always drops). Its ids are not those of the real file.

Two of T5's paths may differ only in where the sentinels come from: the file (``….100extra``) or ``extra_ids=100``. As
with the real files, their stand-ins are equal byte for byte once SeqIO has added its extra ids.

A vocabulary keeps the path that the user gave it. Comparisons use this path; reports and config.gin show it. If
an emulated Google Cloud is available, the file is put into its bucket at that path, for every client to read.
Otherwise SeqIO opens another file for that path.

The pieces are frequent words and letters first, then ever longer runs of letters. Nothing is trained or random. The
n-th piece is the same on every machine, and a larger vocabulary begins with the pieces of a smaller one.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from t5x_harness.buckets.emulated import store
from t5x_harness.buckets.reach import is_replaced
from t5x_harness.spec import StandInPolicy

EOS_ID = 1
PAD_ID = 0
UNK_ID = 2

_PUBLISHED = re.compile(r"(?:gs://|/gcs/)t5-data/vocabs/")
"""The paths of T5's public vocabularies, which contain their sizes."""

_DEFAULT_PIECES = 32_000
"""The size of T5's English vocabulary, which applies if neither the path nor the model implies a size."""

_LEAST_WITH_BYTES = 384
"""Smaller vocabularies have letters instead of bytes. Both together would leave hardly any room for pieces."""

_SENTINELS = re.compile(r"\.(\d+)extra\b")
_NUMBER = re.compile(r"(?<!\d)\d{3,7}(?!\d)")
_THOUSANDS = re.compile(r"(?<!\d)(\d{1,3})k(?![a-z\d])", re.IGNORECASE)
_BUCKET = re.compile(r"^(?:\w+://|/gcs/)[^/]*/")


@dataclasses.dataclass(frozen=True)
class VocabularySize:
    """The number of ids of a SentencePiece file.

    Attributes:
      pieces: the number of ids, including padding, end of sequence and unknown, but not the sentinels.
      sentinels: the number of ``<extra_id_…>`` pieces at the end of the file itself.
    """

    pieces: int
    sentinels: int = 0

    @property
    def total(self) -> int:
        """The number of all ids of the file."""
        return self.pieces + self.sentinels


def size_of(path: str, *, rows: int | None = None, extra_ids: int = 0) -> VocabularySize:
    """Returns the size of the vocabulary that a path names.

    Args:
      path: the SentencePiece file. A number in it is the size of the vocabulary, as in ``cc_all.32000.100extra`` or
        ``my_vocab_64k``. The name of the file counts more than that of its folder; the bucket's name does not count.
      rows: the number of rows of the model's embedding, which T5's models round up to a multiple of 128; None if it is
        not known. It decides if the path names no size.
      extra_ids: the number of ids that SeqIO adds to those of the file.
    """
    for part in reversed(_BUCKET.sub("", path).split("/")):
        sentinels = int(found[1]) if (found := _SENTINELS.search(part)) else 0
        name = _SENTINELS.sub("", part)
        numbers = [n for n in map(int, _NUMBER.findall(name)) if n >= _LEAST_WITH_BYTES]
        if usual := [n for n in numbers if n % 100 == 0 or n.bit_count() == 1]:  # others are dates or versions
            return VocabularySize(usual[-1], sentinels)
        if thousands := _THOUSANDS.search(name):
            # 64k is 65,536 if the embedding is too large for 64,000 and has room for 65,536.
            decimal, binary, others = int(thousands[1]) * 1000, int(thousands[1]) * 1024, extra_ids + sentinels
            is_binary = rows is not None and decimal + others + 128 <= rows >= binary + others
            return VocabularySize(binary if is_binary else decimal, sentinels)
    if rows is None or rows <= extra_ids:
        return VocabularySize(_DEFAULT_PIECES)
    left = rows - extra_ids
    return VocabularySize(left - left % 100 if left > _LEAST_WITH_BYTES else left)


def is_published(path: str) -> bool:
    """Tells whether a path is one of T5's public vocabularies, whose sizes :func:`size_of` knows for certain."""
    return _PUBLISHED.match(path) is not None


@functools.lru_cache(maxsize=8)
def model_of(size: VocabularySize) -> bytes:
    """Returns a serialized SentencePiece unigram model: the same bytes for the same size.

    Ids 0, 1 and 2 are padding, end of sequence and unknown; the sentinels are the last ids in descending order. From
    384 pieces on, it has a piece for each byte; smaller models have letters only, and other characters become unknown.

    Args:
      size: the size of the model.

    Raises:
      ValueError: there is no room for the three special ids.
    """
    from sentencepiece import sentencepiece_model_pb2 as protos

    if size.pieces < UNK_ID + 1:
        raise ValueError(f"a vocabulary of {size.pieces} pieces has no room for padding, end of sequence and unknown")
    kinds = protos.ModelProto.SentencePiece
    model = protos.ModelProto()
    add = model.pieces.add
    for piece, kind in (("<pad>", kinds.CONTROL), ("</s>", kinds.CONTROL), ("<unk>", kinds.UNKNOWN)):
        add(piece=piece, score=0.0, type=kind)
    with_bytes = size.pieces >= _LEAST_WITH_BYTES
    for byte in range(256 if with_bytes else 0):
        add(piece=f"<0x{byte:02X}>", score=0.0, type=kinds.BYTE)
    for piece, score in _scored(size.pieces - len(model.pieces)):
        add(piece=piece, score=score)
    for sentinel in reversed(range(size.sentinels)):  # as SeqIO adds them
        add(piece=f"\u2581<extra_id_{sentinel}>", score=0.0, type=kinds.USER_DEFINED)
    trainer = model.trainer_spec
    trainer.model_type = protos.TrainerSpec.UNIGRAM
    trainer.pad_id, trainer.eos_id, trainer.unk_id, trainer.bos_id = PAD_ID, EOS_ID, UNK_ID, -1
    trainer.byte_fallback = with_bytes
    normalizer = model.normalizer_spec
    normalizer.name = "identity"  # decoding could not restore what a normalizer joins or drops
    normalizer.add_dummy_prefix = True
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


_SPACE = "\u2581"
"""The character that SentencePiece writes for a space."""

_LETTERS = "etaoinshrdlucmfwypvbgkjxqz"
"""The letters of English, the most frequent first."""

WORDS = """
the of and to a in is that for it was on are as with his they at be this have from or one had by but not what all were
we when your can said there use an each which she do how their if will up other about out many then them these so some
her would make like him into time has look two more write go see number no way could people my than first water been
call who its now find long down day did get come made may part over new sound take only little work know place year
live me back give most very after thing our just name good sentence man think say great where help through much before
line right too mean old any same tell boy follow came want show also around form three small set put end does another
well large must big even such because turn here why ask went men read need land different home us move try kind hand
picture again change off play spell air away animal house point page letter mother answer found study still learn
should world high every near add food between own below country plant last school father keep tree never start city
earth eye light thought head under story saw left few while along might close something seem next hard open example
begin life always those both paper together got group often run important until children side feet car mile night walk
white sea began grow took river four carry state once book hear stop without second later miss idea enough eat face
watch far really almost let above girl sometimes mountain cut young talk soon list song being leave family it's
music color red body dog question fish area mark horse problem complete room knew since ever piece told usually didn't
friend easy heard order door sure become top ship across today during short better best however low hour black product
happen whole measure remember early wave reach listen wind rock space cover fast several hold himself toward five step
morning pass vowel true hundred against pattern table north slow money map farm pull draw voice cold notice south sing
war ground fall king town unit figure certain field travel wood fire upon done English road half ten fly gave box
finally wait correct oh quick person became shown minute strong verb star front feel fact inch street decide contain
course surface produce building ocean class note nothing rest careful scientist inside wheel stay green known island
week less machine base ago stood plane system behind ran round boat game force bring understand warm common explain dry
though language shape deep thousand yes clear equation yet government fill heat full hot check object am rule among
noun power cannot able six size dark ball material special heavy fine pair circle include built can't matter square
syllable perhaps bill felt suddenly test direction center farmer ready anything divide general energy subject Europe
moon region return believe dance member pick simple cell paint mind love cause rain exercise egg train blue wish drop
developed window difference distance heart site sum summer wall forest probably legs sat main winter wide written length
reason kept interest arm brother race present beautiful store job edge past sign record finish discover wild happy
beside gone sky glass million west lay weather root instrument meet third month paragraph raise represent soft whether
clothes flower shall teacher held describe drive translate German French Romanian text summarize article report answer
company business market president public million percent service health development information data model university
research history national international according available process program policy water community international
""".split()
"""English words, the most frequent first."""

_ENDINGS = "s ed ing er ly tion al ment ness able ive ful less ist ity ous est ion ic ance ence en es 's n't".split()

_MARKS = ".,!?:;-'\"()[]{}<>/\\@#$%^&*_+=|~`0123456789"

_ALPHABETS = (
    (0x00C0, 0x0180),  # Latin with marks
    (0x0391, 0x03CA),  # Greek
    (0x0410, 0x0450),  # Cyrillic
    (0x05D0, 0x05EB),  # Hebrew
    (0x0621, 0x064B),  # Arabic
    (0x0905, 0x093A),  # Devanagari
    (0x0E01, 0x0E2F),  # Thai
    (0x3041, 0x3097),  # Hiragana
    (0x30A1, 0x30FB),  # Katakana
    (0x4E00, 0x9FA6),  # Chinese characters
)


def _letters() -> Iterator[str]:
    """Yields single characters, the most useful first: space, English, marks and digits, then other alphabets."""
    yield _SPACE
    yield from _LETTERS
    yield from _LETTERS.upper()
    yield from _MARKS
    for start, end in _ALPHABETS:
        yield from map(chr, range(start, end))


def _pieces() -> Iterator[str]:
    """Yields pieces of more than one character endlessly, the most important first. Some may come twice."""
    for word in WORDS:
        yield _SPACE + word
    yield from _ENDINGS
    for pair in itertools.product(_LETTERS, repeat=2):
        yield "".join(pair)
        yield _SPACE + "".join(pair)
    for word in WORDS:
        yield word
        yield _SPACE + word.capitalize()
        yield _SPACE + word + "s"
    for length in itertools.count(3):
        for run in itertools.product(_LETTERS, repeat=length):
            yield "".join(run)
            yield _SPACE + "".join(run)


def _scored(number: int) -> list[tuple[str, float]]:
    """Returns pieces with log probabilities that all differ, so that a text is always cut in the same way.

    A later piece costs more, but no two pieces cost less than the piece that they form together.
    """
    single = list(itertools.islice(_letters(), min(number, max(100, number // 4))))
    chosen = dict.fromkeys(single)
    longer = _pieces()
    while len(chosen) < number:
        chosen[next(longer)] = None
    return [(piece, -8.0 - 4.0 * rank / number) for rank, piece in enumerate(chosen)]


class VocabularyFiles:
    """The files that stand in for paths: always the same file for a path.

    Args:
      folder: the folder that the files are written to.
      policy: when a file is generated.
      rows: the number of rows of the model's embedding; None if it is not known.
      note: called once for each path, with the path and a description of its replacement.
    """

    def __init__(self, folder: Path, policy: StandInPolicy, rows: int | None, note: Callable[[str, str], None]) -> None:
        self._folder = folder
        self._policy = policy
        self._rows = rows
        self._note = note
        self._files: dict[str, str] = {}
        self._generated: set[str] = set()

    def install(self) -> None:
        """Makes SeqIO open these files in this process. If several runs share it, the last run's files count."""
        from t5x_harness.upstream.seqio import open_vocabulary_files

        open_vocabulary_files(self.file_for)

    def file_for(self, path: str, extra_ids: int) -> str:
        """Returns the file to open for ``path``: itself, or one generated for a vocabulary with ``extra_ids``."""
        if path not in self._files:
            self._files[path] = self._make(path, extra_ids) if is_replaced(str(path), self._policy) else path
        return self._files[path]

    def replaces(self, path: str) -> bool:
        """Tells whether the file that was opened for ``path`` is generated."""
        return path in self._generated

    def _make(self, path: str, extra_ids: int) -> str:
        size = size_of(path, rows=self._rows, extra_ids=extra_ids)
        here = store()
        object_file = here.local(path) if here is not None else None
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{hashlib.sha256(path.encode()).hexdigest()[:12]}.model"
        file.write_bytes(model_of(size))
        if here is not None and object_file is not None:
            here.claim(path)
            object_file.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, object_file)  # atomic if both are on one disk
        self._generated.add(path)
        sentinels = f", {size.sentinels} of them sentinels" if size.sentinels else ""
        self._note(path, f"{size.total:,} generated pieces{sentinels}")
        return path if object_file is not None else str(file)
