"""Whole numbers in English and German words: a translation task that needs no corpus."""

LIMIT = 10_000

_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
_GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def english(number: int) -> str:
    """Returns a number in English words: ``1021`` is "one thousand twenty-one".

    Raises:
      ValueError: the number is negative or at least ``LIMIT``.
    """
    _check(number)
    if number < 20:
        return _ENGLISH[number]
    if number < 100:
        tens, unit = divmod(number, 10)
        return _ENGLISH_TENS[tens - 2] + (f"-{_ENGLISH[unit]}" if unit else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    head, rest = divmod(number, size)
    return f"{_ENGLISH[head]} {name}" + (f" {english(rest)}" if rest else "")


def german(number: int) -> str:
    """Returns a number in German words: ``1021`` is "eintausendeinundzwanzig".

    Raises:
      ValueError: the number is negative or at least ``LIMIT``.
    """
    _check(number)
    if number < 20:
        return _GERMAN[number]
    if number < 100:
        tens, unit = divmod(number, 10)
        return (f"{_german_unit(unit)}und" if unit else "") + _GERMAN_TENS[tens - 2]
    size, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
    head, rest = divmod(number, size)
    return _german_unit(head) + name + (german(rest) if rest else "")


def _german_unit(unit: int) -> str:
    """Returns a digit as it is written before another word, where "eins" loses its s."""
    return "ein" if unit == 1 else _GERMAN[unit]


def _check(number: int) -> None:
    if not 0 <= number < LIMIT:
        raise ValueError(f"{number} is not between 0 and {LIMIT - 1}")
