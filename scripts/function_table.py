"""Writes exact values of the elementary functions of f64, for the tests of their accuracy.

    python scripts/function_table.py > crates/exec/src/math/tests/wide.txt

Each line has a function, its arguments' bits, the result's bits and how far the exact value lies
from it, in thousandths of the result's last place. Needs mpmath.
"""

import random
import struct

import mpmath
from mpmath import mp, mpf

mp.prec = 250
random.seed(20)


def bits(x: float) -> int:
    """The bits of a float."""
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def spread(low: float, high: float, count: int) -> list[float]:
    """Magnitudes from `low` to `high`, evenly by their exponents."""
    a, b = mpmath.log(low), mpmath.log(high)
    return [float(mpmath.exp(a + (b - a) * random.random())) for _ in range(count)]


def signed(values: list[float]) -> list[float]:
    """The same with signs by chance."""
    return [x if random.random() < 0.5 else -x for x in values]


def evenly(low: float, high: float, count: int) -> list[float]:
    """Numbers from `low` to `high`."""
    return [random.uniform(low, high) for _ in range(count)]


def line(name: str, arguments: list[float], exact: mpf) -> str | None:
    """A line of the table; none where the result is not a number that is not 0."""
    if not mpmath.isfinite(exact) or abs(exact) > mpf(2) ** 1024 or exact == 0:
        return None
    # mpmath's own conversion does not round to subnormals once.
    exponent = max(mpmath.floor(mpmath.log(abs(exact), 2)), mpf(-1022))
    unit = mpf(2) ** (exponent - 52)
    nearest = mpmath.nint(exact / unit)
    result = float(nearest * unit)
    if result in (float("inf"), float("-inf")):
        return None
    rest = int(mpmath.nint((exact / unit - nearest) * 1000))
    words = " ".join(f"{bits(x):016x}" for x in arguments)
    return f"{name} {words} {bits(result):016x} {rest}"


EVERYWHERE = signed(spread(1e-300, 1e300, 8))
ONE = {
    "exp": (mpmath.exp, evenly(-745, 709.7, 40) + signed(spread(1e-20, 1, 20))),
    "exp2": (lambda x: mpf(2) ** x, evenly(-1074, 1023.9, 40) + signed(spread(1e-20, 1, 20))),
    "expm1": (mpmath.expm1, evenly(-40, 60, 40) + signed(spread(1e-20, 1, 40)) + [700.0, 709.7]),
    "log": (mpmath.log, spread(1e-320, 1e308, 30) + evenly(0.4, 2.5, 50)),
    "log2": (lambda x: mpmath.log(x, 2), spread(1e-320, 1e308, 30) + evenly(0.4, 2.5, 50)),
    "log10": (mpmath.log10, spread(1e-320, 1e308, 30) + evenly(0.4, 2.5, 50)),
    "log1p": (
        mpmath.log1p,
        spread(1e-300, 1e300, 20) + signed(spread(1e-20, 0.99, 40)) + evenly(-0.9, 4, 40),
    ),
    "sin": (mpmath.sin, evenly(-10, 10, 40) + signed(spread(1e-10, 1e308, 60))),
    "cos": (mpmath.cos, evenly(-10, 10, 40) + signed(spread(1e-10, 1e308, 60))),
    "tan": (mpmath.tan, evenly(-10, 10, 40) + signed(spread(1e-10, 1e308, 60))),
    "asin": (mpmath.asin, evenly(-1, 1, 50) + signed(spread(1e-300, 1, 10))),
    "acos": (mpmath.acos, evenly(-1, 1, 50) + signed(spread(1e-300, 1, 10))),
    "atan": (mpmath.atan, evenly(-4, 4, 50) + EVERYWHERE),
    "sinh": (mpmath.sinh, evenly(-30, 30, 40) + signed(spread(1e-20, 1, 20)) + [709.9, -710.4]),
    "cosh": (mpmath.cosh, evenly(-30, 30, 40) + signed(spread(1e-20, 1, 20)) + [709.9, -710.4]),
    "tanh": (mpmath.tanh, evenly(-20, 20, 30) + signed(spread(1e-300, 1, 30)) + evenly(-1, 1, 30)),
    "asinh": (mpmath.asinh, evenly(-4, 4, 40) + EVERYWHERE),
    "acosh": (mpmath.acosh, evenly(1, 4, 40) + spread(1.0000001, 1e300, 20)),
    "atanh": (mpmath.atanh, evenly(-1, 1, 40) + signed(spread(1e-300, 1, 10))),
    "erf": (mpmath.erf, evenly(-6, 6, 60) + signed(spread(1e-308, 1, 20))),
}
# Close to multiples of pi/2, where sine, cosine and tangent lose the most.
HARD = [6381956970095103 * 2.0**797, 5.319372648326541e255]
HARD += [float(mpf(n) * mp.pi / 2) for n in (1, 2, 3, 11, 355, 103993, 600001, 10**7, 3 * 10**14)]
for name in ("sin", "cos", "tan"):
    ONE[name] = (ONE[name][0], ONE[name][1] + HARD)


def pow_pairs() -> list[tuple[float, float]]:
    """Bases around 1 with large exponents, and powers over the whole range."""
    near_one = [
        (1 + x, y) for x, y in zip(signed(spread(1e-15, 0.1, 30)), spread(1, 1e5, 30), strict=True)
    ]
    bases = spread(1e-310, 1e308, 60)
    spans = [(x, random.uniform(-1070, 1023) / float(mpmath.log(x, 2))) for x in bases]
    return near_one + spans + [(-3.0, 5.0), (-1.5, -7.0), (10.0, -308.25), (2.0, -1073.5)]


PAIRS = {
    "pow": (mpmath.power, pow_pairs()),
    "atan2": (
        mpmath.atan2,
        list(zip(signed(spread(1e-5, 1e5, 40)), signed(spread(1e-5, 1e5, 40)), strict=True))
        + list(
            zip(signed(spread(1e-300, 1e300, 20)), signed(spread(1e-300, 1e300, 20)), strict=True)
        ),
    ),
}
ONE["erfc"] = (mpmath.erfc, evenly(-6, 27, 60) + signed(spread(1e-20, 1, 20)))


def main() -> None:
    """Prints the table."""
    for name, (function, arguments) in ONE.items():
        for x in arguments:
            if text := line(name, [x], function(mpf(x))):
                print(text)
    for name, (function, pairs) in PAIRS.items():
        for x, y in pairs:
            if text := line(name, [x, y], function(mpf(x), mpf(y))):
                print(text)


if __name__ == "__main__":
    main()
