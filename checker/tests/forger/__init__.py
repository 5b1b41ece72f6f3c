"""An adversary of the checker: random evidence of every kind for random tiny networks, with the
right digests.

Nothing here comes from the prover. A network is so small, and so few of its weights are random,
that what is asked can be integrated: over a grid of the one or two coordinates that are random, or
over a list of networks. Networks are chains and graphs. Evidence is drawn at random, seldom
sensible, sometimes broken on purpose; whatever the checker then says is supported must be true.
"""
