"""Experiments: the paper's table and figures, then ours.

Each gives rows and a figure drawn from them.
"""

from bnncert.experiments.cnn import CNN
from bnncert.experiments.epsilon import EPSILON
from bnncert.experiments.fig1 import FIG1
from bnncert.experiments.fig2 import FIG2
from bnncert.experiments.fig3 import FIG3
from bnncert.experiments.fig4 import FIG4
from bnncert.experiments.fig5 import FIG5
from bnncert.experiments.noise import NOISE
from bnncert.experiments.radii import RADII
from bnncert.experiments.refinement import REFINEMENT
from bnncert.experiments.run import QUICK, Experiment, Setting, run
from bnncert.experiments.runtime import RUNTIME
from bnncert.experiments.sigma import SIGMA
from bnncert.experiments.size import SIZE
from bnncert.experiments.table1 import TABLE1
from bnncert.experiments.training import TRAINING

EXPERIMENTS: dict[str, Experiment] = {
    "table1": TABLE1,
    "fig1": FIG1,
    "fig2": FIG2,
    "fig3": FIG3,
    "fig4": FIG4,
    "fig5": FIG5,
    "runtime": RUNTIME,
    "radii": RADII,
    "refinement": REFINEMENT,
    "epsilon": EPSILON,
    "sigma": SIGMA,
    "size": SIZE,
    "noise": NOISE,
    "training": TRAINING,
    "cnn": CNN,
}
ALL = tuple(name for name in EXPERIMENTS if name != "cnn")

__all__ = ["ALL", "EXPERIMENTS", "QUICK", "Experiment", "Setting", "run"]
