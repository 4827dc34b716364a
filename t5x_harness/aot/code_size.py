"""How large a program's code may be where none was generated.

It takes a device's memory beside the values. It cannot be worked out from what is known before: for 22 programs,
formulas of the numbers and sizes of instructions were off by 36 % and more, and by 63 % for a program that they were
not fitted to. So there is a bound: code grows with the products. In 29 programs it had 37,000 to 770,000 bytes for
each, the more the larger the arrays: T5 1.1 from small to XXL with 1 to 12 layers, scanned layers, a tiny model; train,
evaluation, predict and score; v3 to v6e.
"""

from __future__ import annotations

_OF_A_PRODUCT = 2**20


def most_code_bytes(products: int) -> int:
    """Returns what no measured program's code came close to, in bytes.

    Args:
      products: instructions with products that a program has.
    """
    return products * _OF_A_PRODUCT
