"""One construct of the fuzzer's grammar: a few lines of a module, as text with names to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLAT, SEQUENCE, IMAGE = "FSI"


@dataclass(frozen=True)
class Construct:
    """What it adds to ``__init__`` and to ``forward``, where ``h`` flows.

    ``h`` is (batch, channels), (batch, tokens, channels) or (batch, channels, height, width): the letters F, S and I of
    ``domains``. The names to fill in:

    | name         | is                                                                                  |
    |--------------|-------------------------------------------------------------------------------------|
    | a b d        | fresh attributes of the module                                                      |
    | u v w        | fresh local names                                                                   |
    | c            | the dimension of the channels                                                       |
    | C D E        | the channels now; two random numbers of channels                                    |
    | n            | the channels now, read from ``h`` at run time or (seldom) written as a number       |
    | k g          | a number below C; a divisor of it                                                   |
    | T            | the tokens now                                                                      |
    | CD DC C2D .. | a layer between so many channels; ``plain_CD`` is one that ``call`` computes        |
    | norm act     | a norm of C channels; an activation function                                        |
    | ix up        | what goes before a slice of channels; what lets a vector of channels meet ``h``     |
    | pool back    | what makes a vector of an image; what lets a vector for each sample meet ``h``      |
    | M            | C + D                                                                               |

    ``width``, ``length`` and ``to`` say what ``h`` is afterwards, ``when`` where the construct fits.
    """

    name: str
    forward: str
    init: str = ""
    width: str = "C"
    domains: str = "FSI"
    when: str = "True"
    to: str = ""
    length: str = "T"

    def fits(self, domain: str, names: Mapping[str, object]) -> bool:
        return domain in self.domains and bool(self.number(self.when, names))

    def number(self, expression: str, names: Mapping[str, object]) -> int:
        return int(eval(expression, {}, dict(names)))


def table(*constructs: Construct) -> dict[str, Construct]:
    """Constructs by name, each name once."""
    by_name = {construct.name: construct for construct in constructs}
    assert len(by_name) == len(constructs), "two constructs have one name"
    return by_name
