"""attack."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from bnncert.cli.options import Device, Posterior, Seed, device_named, takes_question
from bnncert.question import Question

EPS = (0.05,)  # unless it is given


def register(app: typer.Typer) -> None:
    app.command()(attack)


@takes_question(
    leave_out=("target", "eps_file"), eps="Radius of the input region; 0.05 unless given."
)
def attack(
    posterior: Posterior,
    question: Question,
    samples: Annotated[
        int, typer.Option(min=0, help="Sampled networks to attack too, each on its own.")
    ] = 0,
    device: Device = "cpu",
    seed: Seed = 0,
) -> None:
    """Estimate, from above, what can be certified.

    By accuracy on clean inputs and under attack (PGD).

    Of a regression it is the share of inputs whose output stays within --tolerance of y.
    """
    from bnncert.ask import ask
    from bnncert.attack import surviving
    from bnncert.console import progress
    from bnncert.importers import load_posterior
    from bnncert.posteriors.base import sample

    network, weights = load_posterior(posterior)
    for eps in question.eps or EPS:
        asked = ask(replace(question, eps=(eps,)), network, weights.to(device_named(device)))
        problem = asked.problem
        drawn = sample(problem.posterior, samples, seed) if samples else None
        about = f"{len(asked.indices)} inputs, eps {eps:g} ({question.norm})"
        print(f"{'network':<12} {'clean':>8} {'attacked':>9}   {about}")
        central = problem.posterior.center.unsqueeze(0)
        for name, networks in (("mean", central), (f"{samples} samples", drawn)):
            if networks is not None:
                with progress(f"attacking {name}") as bar:
                    task = bar.add_task(name, total=len(problem), note="")
                    clean, attacked = surviving(
                        problem, networks, seed, progress=partial(bar.advance, task)
                    )
                print(f"{name:<12} {100 * clean:>6.2f} % {100 * attacked:>7.2f} %")
