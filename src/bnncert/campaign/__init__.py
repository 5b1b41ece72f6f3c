"""Campaigns: whole test sets, several radii, methods and posteriors, on every core, device and
machine; resumable.

    schema -> plan -> work, on the workers of executors -> bundle, store -> table
                                   driven by runner, shown by progress, joined by merge

Nothing is imported here, so that the command line can describe itself without loading torch.
"""
