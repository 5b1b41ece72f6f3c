"""The manifest of a run folder, from its plan."""

from __future__ import annotations

from bnncert.campaign.plan import Plan
from bnncert.record import about_data, methods_asked, names_for
from bnncert.results.answers import AT_LEAST
from bnncert.results.manifest import Manifest, Subject, file_source, written_now


def recorded(plan: Plan, device: str) -> Manifest:
    """What the plan asks, of every posterior, by every method."""
    job = plan.job
    question = job.question
    subjects = [
        Subject(
            name=each.name,
            source=file_source(each.path),
            posterior=each.posterior,
            architecture=each.network.digest,
            family=each.family,
            weights=each.size,
        )
        for each in plan.subjects
    ]
    at_least = AT_LEAST if job.at_least is None else job.at_least
    names = names_for(None, plan.subjects[0].network, plan.data)
    return written_now(
        about_data(question, plan.data, plan.indices, subjects, at_least=at_least),
        methods_asked(job.methods),
        seed=job.seed,
        features=names.features,
        outputs=names.outputs,
        device=device,
    )
