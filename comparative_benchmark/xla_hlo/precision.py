"""What the products of a program say of their precision, read from its HLO text."""

import re

_DEFINITION = re.compile(r"\s*(?:ROOT )?%?([\w.-]+) = (\w+)\[")
_PRODUCT = re.compile(r" (?:dot|convolution)\(([^)]*)\)")
_NAME = re.compile(r"%?([\w.-]+)$")


def is_exact(text: str) -> bool | None:
    """Tells whether every product and convolution of float32 asks for the highest precision.

    With any less, XLA lets a GPU round the factors to TF32.

    Args:
      text: of a module that is not optimised yet.

    Returns:
      None for a program without such products.
    """
    types: dict[str, str] = {}
    exact: bool | None = None
    for line in text.splitlines():
        definition = _DEFINITION.match(line)
        if definition is None:
            continue
        types[definition[1]] = definition[2]
        product = _PRODUCT.search(line)
        if product is None:
            continue
        factors = [_NAME.search(factor.strip()) for factor in product[1].split(",")]
        if "f32" in (types.get(found[1]) for found in factors if found):
            exact = exact is not False and "operand_precision={highest,highest}" in line
    return exact
