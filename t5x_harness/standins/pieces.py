"""Pieces of text for generated vocabularies: frequent words and letters first, then ever longer runs of letters.

Nothing is trained or random. The n-th piece is the same on every machine, and a larger vocabulary begins with the
pieces of a smaller one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

SPACE = "\u2581"
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


def letters() -> Iterator[str]:
    """Yields single characters, the most useful first: space, English, marks and digits, then other alphabets."""
    yield SPACE
    yield from _LETTERS
    yield from _LETTERS.upper()
    yield from _MARKS
    for start, end in _ALPHABETS:
        yield from map(chr, range(start, end))


def pieces() -> Iterator[str]:
    """Yields pieces of more than one character endlessly, the most important first. Some may come twice."""
    for word in WORDS:
        yield SPACE + word
    yield from _ENDINGS
    for pair in itertools.product(_LETTERS, repeat=2):
        yield "".join(pair)
        yield SPACE + "".join(pair)
    for word in WORDS:
        yield word
        yield SPACE + word.capitalize()
        yield SPACE + word + "s"
    for length in itertools.count(3):
        for run in itertools.product(_LETTERS, repeat=length):
            yield "".join(run)
            yield SPACE + "".join(run)
