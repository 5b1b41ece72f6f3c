"""Variational inference: Bayes by Backprop with the local reparameterisation trick.

Fits q(w) = N(mean, std²), independent over weights, std = softplus(rho), by stochastic gradients of

    loss = E_q[-log p(y | x, w)]  +  kl_weight · KL(q || N(0, prior_std²)) / N

per example, in nats.

With kl_weight = 1 this is the negative evidence lower bound (ELBO), and q approximates the Bayesian
posterior; a smaller weight gives a "cold" posterior, narrower and usually more accurate. Nothing
here is certified: training runs in float32, and what it returns is an ordinary posterior to
certify.

A training can be taken up again after its last whole epoch: a checkpoint holds all that the next
epoch depends on.

References: Blundell et al., Weight Uncertainty in Neural Networks (ICML 2015); Kingma, Salimans,
Welling, Variational Dropout and the Local Reparameterization Trick (NeurIPS 2015).
"""

from bnncert.train.augmentation import SHIFT, augmented
from bnncert.train.examples import accuracy
from bnncert.train.loop import Trained, train
from bnncert.train.recipe import (
    BAYESIAN,
    PRIORS,
    SCHEDULES,
    BayesByBackprop,
    Robust,
    learning_rate,
)
from bnncert.train.scores import Scores, score
from bnncert.train.state import Epoch
from bnncert.train.variational import kl_divergence

__all__ = [
    "BAYESIAN",
    "PRIORS",
    "SCHEDULES",
    "SHIFT",
    "BayesByBackprop",
    "Epoch",
    "Robust",
    "Scores",
    "Trained",
    "accuracy",
    "augmented",
    "kl_divergence",
    "learning_rate",
    "score",
    "train",
]
