"""What is known of the benchmark's truth set, in ball arithmetic: closed forms of Φ, and integrals
whose error is bounded.

python tests/known_truths.py prints the file that the package holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

from flint import acb, arb, ctx, fmpq

from bnncert.bench.known import PLANTED

BITS = 160
DIGITS = 30
FAR = 20  # standard deviations, beyond which there is less than 1e-80


def phi(z: acb) -> acb:
    return (-(z**2) / 2).exp() / acb(2 * arb.pi()).sqrt()


def tail(z: arb) -> arb:
    """Q(z)."""
    return (z / arb(2).sqrt()).erfc() / 2


def below(z: arb) -> arb:
    """Φ(z)."""
    return tail(-z)


def smooth_below(z: acb) -> acb:
    """The same for complex numbers, as integrals ask for it."""
    return (-z / acb(2).sqrt()).erfc() / 2


def number(numerator: int, denominator: int = 1) -> arb:
    return arb(fmpq(numerator, denominator))


def integral(f: Callable[[acb], acb], first: arb | int, last: arb | int = FAR) -> arb:
    """∫ f φ over [first, last], f between 0 and 1 on the real line, and what lies beyond FAR."""
    found = acb.integral(lambda z, _: f(z) * phi(z), acb(first), acb(last))
    beyond = tail(arb(FAR))
    return found.real + beyond.union(arb(0)) + beyond.union(arb(0))


def _noisy_line() -> arb:
    """w ~ N(1, 1), b ~ N(1/4, 1/4); the end that matters is 1/2 where w > 0, else 3/2."""
    parts = []
    for end, first, last in ((number(1, 2), -1, FAR), (number(3, 2), -FAR, -1)):
        # w = 1 + z: P(b > -end w) = Φ((1/4 + end (1 + z)) / (1/2))
        def above(z: acb, end: arb = end) -> acb:
            return smooth_below((acb(number(1, 4)) + acb(end) * (1 + z)) * 2)

        parts.append(integral(above, first, last))
    return parts[0] + parts[1]


def _product() -> arb:
    """1/2 + ∫ φ(w) Φ(1/w) dw over w > 0; below w = 1/20, Φ(1/w) is 1 but for Q(20)."""
    small = number(1, FAR)
    near = below(small) - number(1, 2)
    near = (near - near * tail(arb(FAR))).union(near)
    return number(1, 2) + near + integral(lambda w: smooth_below(1 / w), small)


def _opposed() -> arb:
    """∫ φ(v) (2 Φ(1/2 + v/4) - 1) dv over v > -2."""
    return integral(lambda v: 2 * smooth_below(acb(number(1, 2)) + v / 4) - 1, -2)


def _neurons() -> arb:
    half = number(1, 2)
    return below(half) / 2 + integral(lambda z: smooth_below(acb(half) + z), 0)


def _softmax(x: arb) -> arb:
    """E σ(x + 2 g), the exponential's own period kept out of the way by tanh."""
    return integral(lambda g: (1 + ((acb(x) + 2 * g) / 2).tanh()) / 2, -FAR)


def truths() -> dict[str, tuple[arb, arb]]:
    """The least and the largest probability of each instance: one number, but for predictive
    means."""
    one, two, half = arb(1), arb(2), number(1, 2)
    known = {
        "linear": below(half.sqrt()),
        "relu": below(one),
        "two-tails": 1 - 2 * tail(number(3, 2)),
        "wide-line": 1 - 2 * tail(arb(0.05)),
        "noisy-line": _noisy_line(),
        "product": _product(),
        "opposed": _opposed(),
        "neurons": _neurons(),
        "thirds": number(2, 3),
        "repeated-samples": half,
        "around-zero": arb(0),
        **{f"planted-{delta}": below(arb(z)) for delta, (z, _) in PLANTED.items()},
        "tie-dead": below(half),
        "tie-classes": arb(0),
        "float32": tail(two),
        "float64": tail(arb(4)),
        "box-width": 1 - 2 * tail(one),
        "overlap": (1 - 2 * tail(one)) ** 2,
        "islands": 2 * (tail(one) - tail(two)),
        "quadrants": 2 * tail(half) ** 2,
        "outside": below(two),
        "slope": tail(two),
        "repeated-rows": below(one),
        "mixture": number(3, 4) * below(arb(4)) + number(1, 4) * tail(arb(12)),
        "common": below(1 / arb(8).sqrt()),
        "kernel": below(number(3, 2) / number(17, 16).sqrt()),
        "far-safe": 1 - tail(arb(10)),
        "far-unsafe": tail(arb(10)),
    }
    found = {name: (value, value) for name, value in known.items()}
    return found | {"logit": (_softmax(half), _softmax(number(3, 2)))}


def exactly(value: arb) -> Fraction:
    """A ball without radius as a fraction."""
    mantissa, exponent = value.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def decimal(value: Fraction, up: bool) -> str:
    """So many digits behind the point, rounded up or down."""
    scaled = value * 10**DIGITS
    whole = (
        -(-scaled.numerator // scaled.denominator) if up else scaled.numerator // scaled.denominator
    )
    digits = f"{whole:0{DIGITS + 1}d}"
    return f"{digits[:-DIGITS]}.{digits[-DIGITS:]}"


def stored() -> dict[str, dict[str, str]]:
    """What no right answer can pass: of its lower bound from above, of its upper from below."""
    with ctx.workprec(BITS):
        return {
            f"truth-{name}": {
                "lower_at_most": decimal(exactly(least.upper()), up=True),
                "upper_at_least": decimal(exactly(most.lower()), up=False),
            }
            for name, (least, most) in truths().items()
        }


if __name__ == "__main__":
    print(json.dumps(stored(), indent=1))
