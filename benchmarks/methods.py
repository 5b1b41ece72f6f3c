"""All methods side by side: mean certified P_safe over the first images of the MNIST test set, and seconds an image.

usage: BNNCERT_DATA=FOLDER python benchmarks/methods.py [cpu|cuda] [IMAGES] [NETWORK ...]

Box methods: LBP with the rows folded in, λ = 0.5 (sampling: 5), mean centre, at most 50 bound calls an input.
Prints a Markdown table.
"""

import sys

from paper import EPS, load

from bnncert import GIE, PIE, Concentration, Sampling, certify

METHODS = {
    "sampling": Sampling(samples=1, step=5.0),
    "PIE": PIE(samples=1),
    "GIE": GIE(samples=1),
    "concentration": Concentration(effort=0),
    "optimised": Concentration(effort=1, upper=True),
}


def main(device: str = "cpu", images: str = "50", *names: str) -> None:
    print("| network | ε | " + " | ".join(METHODS) + " | certified upper bound |")
    print("|---|---|" + "---|" * (len(METHODS) + 1))
    for name in names or EPS:
        problem = load(name, int(images)).to(device)
        cells = []
        for method in METHODS.values():
            results = certify(problem, method)
            lower, upper, seconds = (
                sum(getattr(result, field) for result in results) / len(results)
                for field in ("lower", "upper", "seconds")
            )
            cells.append(f"{100 * lower:.2f} % ({seconds:.3f} s)")
        print(f"| {name} | {EPS[name]} | " + " | ".join(cells) + f" | {100 * upper:.2f} % |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
