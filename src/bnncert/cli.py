"""The command line. torch is imported inside the commands, so that --help is instant."""

from __future__ import annotations

import math
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bnncert.campaign import commands
from bnncert.errors import InputError
from bnncert.memory import keep_freed_memory
from bnncert.threads import wait_asleep
from bnncert.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from bnncert.certificate import Result
    from bnncert.data import Dataset
    from bnncert.decision import Decision
    from bnncert.methods import Method
    from bnncert.network import Network
    from bnncert.posterior import Posterior
    from bnncert.problem import Problem
    from bnncert.zoo import Recipe

INTERRUPTED = 130  # what the option parser makes of Ctrl-C, where it does not raise Abort
BATCH = 32  # inputs between two movements of the progress bar
ALL, LINF = ":", "linf"  # what is selected, and the norm, unless something else is asked for

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Certified probabilistic robustness of Bayesian neural networks.",
)


def main() -> None:
    """Run the program: exit code 2 and one line on standard error for anything the user can put right."""
    keep_freed_memory()
    wait_asleep()
    try:
        code = app(standalone_mode=False) or 0
    except InputError as error:
        _fail(str(error))
    except Exception as error:
        # The option parser's own errors, whichever package they come from.
        if hasattr(error, "format_message"):
            _fail(error.format_message() + " (see --help)")
        if type(error).__name__ != "Abort":
            raise
        code = INTERRUPTED
    if code == INTERRUPTED:
        _fail(
            "interrupted; nothing unfinished was written, and what can be resumed goes on with the same command", code
        )
    sys.exit(code)


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"bnncert: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


@app.callback(invoke_without_command=True)
def _program(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"bnncert {__version__}")
        raise typer.Exit


@app.command()
def certify(
    posterior: Annotated[Path, typer.Argument(help="Posterior file: .safetensors (native) or .npz.")],
    inputs: Annotated[
        str | None, typer.Option(help="Data set (see below) or .npz file with x and optionally y and eps.")
    ] = None,
    eps: Annotated[
        str | None, typer.Option(help="Radius of the input region, or several: 0.01,0.02; else eps of the .npz.")
    ] = None,
    vnnlib: Annotated[
        Path | None, typer.Option(help="Question from a VNN-LIB 1.0 file instead: it states the counterexample.")
    ] = None,
    at_least: Annotated[
        str | None, typer.Option(help="Ask whether P_safe is at least this; exit code 1 unless it is, everywhere.")
    ] = None,
    select: Annotated[str, typer.Option(help="Which inputs: START:STOP, one index, or a list 3,7,12.")] = ALL,
    method: Annotated[
        str | None, typer.Option(help="concentration (default), sampling, pie, gie; enumeration for weight samples.")
    ] = None,
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = LINF,
    clip: Annotated[
        tuple[float, float] | None, typer.Option(help="Intersect the region with [LO, HI]; images: 0 1 by default.")
    ] = None,
    no_clip: Annotated[bool, typer.Option("--no-clip", help="Do not clip, also for images.")] = False,
    target: Annotated[int | None, typer.Option(help="Only this rival class instead of all.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Regression: the output stays within this distance of y.")
    ] = None,
    upper: Annotated[bool, typer.Option("--upper", help="concentration: also certify an upper bound.")] = False,
    effort: Annotated[
        int | None,
        typer.Option(help="concentration: 0 plain slopes, 1 (default) optimised ones, 2 and 3 branch and bound too."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Effort 2, 3: most domains an input; 1,000 and 20,000 unless given.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Effort 2, 3: seconds of branch and bound an input.")] = None,
    precision: Annotated[
        float | None, typer.Option(help="Effort 2, 3: stop where so little can still be gained; 0.001 unless given.")
    ] = None,
    estimate: Annotated[
        int, typer.Option(min=0, help="Networks to draw for an estimate beside the certified interval.")
    ] = 0,
    bound: Annotated[
        str | None, typer.Option(help="Box methods: lbp (default), lbp-forward (as published) or ibp.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Box methods: centres, the posterior's own first; 50 unless given.")
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(help="Box methods: λ, width or growth in standard deviations; 0.5 unless given."),
    ] = None,
    rho: Annotated[
        float | None, typer.Option(help="gie: extra growth in the direction of the gradient; 0.2 unless given.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Box methods: bound calls an input, failures included; 50 unless given.")
    ] = None,
    walk: Annotated[str | None, typer.Option(help="pie, gie: linear (default, as published) or bisection.")] = None,
    mean_first: Annotated[
        bool | None, typer.Option(help="Box methods: start with the posterior's centre (default).")
    ] = None,
    zero_gradient_only: Annotated[
        bool, typer.Option("--zero-gradient-only", help="gie: the growth of the published code.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of everything random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for results.jsonl and certificates.")] = None,
) -> None:
    """Certify P(a network drawn from POSTERIOR is robust around each input).

    Data sets: digits, mnist, fashion-mnist, cifar10 (their test splits).
    """
    from bnncert.certificate import jointly
    from bnncert.display import show_answers, show_query, show_results
    from bnncert.importers import load_posterior, load_vnnlib
    from bnncert.methods import Concentration, default_method
    from bnncert.problem import Problem
    from bnncert.question import method_named

    options: dict[str, Any] = {"samples": samples, "step": step, "budget": budget, "bound": bound, "walk": walk}
    options |= {"mean_first": mean_first, "rho": rho, "zero_gradient_only": zero_gradient_only or None}
    options |= {"upper": upper or None, "effort": effort, "nodes": nodes}
    options |= {"time_limit": time_limit, "precision": precision}
    options = {name: value for name, value in options.items() if value is not None}
    threshold = _threshold(at_least)
    network, weights = load_posterior(posterior)
    method = method or default_method(weights).name
    if vnnlib is None and threshold is not None and method == Concentration.name:
        options |= {"at_least": float(threshold)}  # of each input; a file's threshold is on all its regions together
    chosen, weights = method_named(method, options), weights.to(_device(device))
    bounds: dict[str, tuple[float, float]]
    if vnnlib is not None:
        about_inputs = (inputs, eps, clip, target, tolerance, no_clip or None)
        if any(value is not None for value in about_inputs) or (select, norm) != (ALL, LINF):
            raise InputError("--vnnlib says what is asked: leave out --inputs, --eps and what belongs to them")
        query = load_vnnlib(vnnlib, network, weights.center)
        if not query.exact:  # then no upper bound is one of the question
            chosen = method_named(method, {name: value for name, value in options.items() if name != "upper"})
        parts = [Problem(network, weights, specification.to(device)) for specification in query.specifications]
        results = _certify_parts(parts, chosen, seed, list(range(len(parts))), estimate, out)
        if len(results) < len(parts):
            raise typer.Exit(INTERRUPTED)
        show_results(results, f"{posterior.name}, {vnnlib.name}, method {chosen.name}", region="box")
        lower, at_most = jointly([(result.lower, result.upper) for result in results])
        bounds = {vnnlib.name: (lower, at_most if query.exact else 1.0)}
        show_query(vnnlib.name, query, bounds[vnnlib.name])
    else:
        if inputs is None:
            raise InputError("nothing is asked; give --inputs and --eps, or --vnnlib")
        problem, names, radii = _asked(network, weights, inputs, eps, select, norm, (clip, no_clip), target, tolerance)
        parts = [problem[start : start + BATCH] for start in range(0, len(problem), BATCH)]
        results = _certify_parts(parts, chosen, seed, names, estimate, out, several_radii=len(radii) > 1)
        size = ", ".join(f"{radius:g}" for radius in radii) or "of each input"
        show_results(results, f"{posterior.name}, eps {size} ({norm}), method {chosen.name}", radii)
        bounds = {_query_name(result, len(radii) > 1): (result.lower, result.upper) for result in results}
    if out:
        print(f"results and certificates are in {out}")
    if len(results) < sum(map(len, parts)):
        raise typer.Exit(INTERRUPTED)
    if threshold is not None and not show_answers(bounds, threshold):
        raise typer.Exit(1)


@app.command()
def decide(
    posterior: Annotated[Path, typer.Argument(help="Posterior file: .safetensors (native) or .npz.")],
    inputs: Annotated[str, typer.Option(help="Data set or .npz file with x, y and optionally eps.")],
    eps: Annotated[
        str | None, typer.Option(help="Radius of the input region, or several: 0.01,0.02; else eps of the .npz.")
    ] = None,
    select: Annotated[str, typer.Option(help="Which inputs: START:STOP, one index, or a list 3,7,12.")] = ALL,
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = LINF,
    clip: Annotated[
        tuple[float, float] | None, typer.Option(help="Intersect the region with [LO, HI]; images: 0 1 by default.")
    ] = None,
    no_clip: Annotated[bool, typer.Option("--no-clip", help="Do not clip, also for images.")] = False,
    tolerance: Annotated[
        float | None, typer.Option(help="Regression: the mean output stays within this distance of y.")
    ] = None,
    effort: Annotated[int, typer.Option(help="0 plain slopes, 1 optimised ones.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for decisions.jsonl and certificates.")] = None,
) -> None:
    """Certify the decision of the averaged network: bounds of its mean softmax, or mean output, around each input.

    This is another quantity than the P_safe of `certify`: not how many networks are robust, but whether their mean is.
    """
    from bnncert.decision import decide as decide_problem
    from bnncert.display import progress, show_decisions
    from bnncert.importers import load_posterior
    from bnncert.results import DECISIONS, result_folder

    network, weights = load_posterior(posterior)
    problem, names, radii = _asked(
        network, weights.to(_device(device)), inputs, eps, select, norm, (clip, no_clip), None, tolerance
    )
    decisions: list[Decision] = []
    folder = result_folder(out, len(radii) > 1, DECISIONS) if out else nullcontext(lambda _: None)
    with folder as store, progress("deciding") as bar:
        task = bar.add_task("deciding", total=len(problem), note="")
        for start in range(0, len(problem), BATCH):
            part = problem[start : start + BATCH]
            batch = decide_problem(part, effort=effort, indices=names[start : start + BATCH])
            store(batch)
            decisions += batch
            bar.advance(task, len(batch))
    size = ", ".join(f"{radius:g}" for radius in radii) or "of each input"
    show_decisions(decisions, f"{posterior.name}, eps {size} ({norm}), predictive {decisions[0].quantity}")
    if out:
        print(f"decisions and certificates are in {out}")


@app.command()
def check(
    target: Annotated[Path, typer.Argument(help="A certificate, also BUNDLE.zip/NAME, or a folder of results.")],
    posterior: Annotated[Path, typer.Option(help="The posterior it speaks of: .safetensors or .npz.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with every verdict.")] = False,
) -> None:
    """Check certificates independently, in rigorous arithmetic. Exit code 0 accepted, 1 rejected, 2 not checkable."""
    try:
        from bnncert_check.__main__ import run
    except ModuleNotFoundError as error:
        raise InputError("the checker needs python-flint; install it with: pip install 'bnncert[check]'") from error
    raise typer.Exit(run(target, posterior, as_json))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="What `certify --out` or `run` wrote: results and certificates.")],
    posterior: Annotated[
        Path | None, typer.Option(help="The posterior that was certified, for cross-sections through its weights.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page; report.html in the folder by default.")
    ] = None,
    eps: Annotated[float | None, typer.Option(help="Only the results of this radius.")] = None,
) -> None:
    """Write one HTML page about a folder of results, with the checker's verdicts if the folder holds check.json."""
    from bnncert.report import write_report

    path = write_report(folder, posterior, out, eps)
    print(f"{path} ({path.stat().st_size / 1e6:.2f} MB)")


commands.register(app)


@app.command()
def train(
    data: Annotated[str, typer.Option(help="Data set: digits, mnist, fashion-mnist or cifar10.")] = "digits",
    network: Annotated[str, typer.Option(help="mlp, or cnn for images: five convolutions, then two layers.")] = "mlp",
    hidden: Annotated[str, typer.Option(help="mlp: widths of the hidden layers, as 128 or 50,50.")] = "128",
    bayesian: Annotated[str, typer.Option(help="Random weights: all, or those of dense layers.")] = "all",
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 30,
    batch_size: Annotated[int, typer.Option(help="Examples a gradient step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Adam's.")] = 1e-3,
    schedule: Annotated[str, typer.Option(help="Of the learning rate: constant, or cosine down to 0.")] = "constant",
    kl_weight: Annotated[float, typer.Option(help="1 is the full evidence lower bound; less is narrower.")] = 0.01,
    prior_std: Annotated[float, typer.Option(help="Standard deviation of the prior N(0, s²).")] = 1.0,
    initial_std: Annotated[float, typer.Option(help="Standard deviation every weight starts with.")] = 0.05,
    weight_decay: Annotated[float, typer.Option(help="Of the weights that are not random.")] = 1e-4,
    augment: Annotated[bool, typer.Option("--augment", help="Mirror and move the images.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of everything random.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Where to write the posterior.")] = Path("posterior.safetensors"),
) -> None:
    """Train a Bayesian neural network (Bayes by Backprop, ReLU) and save its posterior.

    An interrupted training goes on after its last whole epoch when the same command is given again.
    """
    from bnncert.train import BayesByBackprop
    from bnncert.zoo import Recipe

    training = BayesByBackprop(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        prior_std=prior_std,
        kl_weight=kl_weight,
        initial_std=initial_std,
        seed=seed,
        bayesian=bayesian,
        schedule=schedule,
        augment=augment,
        weight_decay=weight_decay,
    )
    _fit(Recipe(_architecture(network, hidden, data), data, training), out, device)


@app.command()
def attack(
    posterior: Annotated[Path, typer.Argument(help="Posterior file: .safetensors (native) or .npz.")],
    inputs: Annotated[str, typer.Option(help="Data set or .npz file with x and y.")],
    eps: Annotated[float, typer.Option(help="Radius of the input region.")] = 0.05,
    select: Annotated[str, typer.Option(help="Which inputs: START:STOP, one index, or a list 3,7,12.")] = ":",
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = "linf",
    clip: Annotated[
        tuple[float, float] | None, typer.Option(help="Intersect the region with [LO, HI]; images: 0 1 by default.")
    ] = None,
    no_clip: Annotated[bool, typer.Option("--no-clip", help="Do not clip, also for images.")] = False,
    samples: Annotated[int, typer.Option(min=0, help="Sampled networks to attack too, each on its own.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of everything random.")] = 0,
) -> None:
    """Accuracy on clean inputs and under attack (PGD): an estimate, from above, of what can be certified."""
    from bnncert.data import load_inputs
    from bnncert.importers import load_posterior
    from bnncert.methods.attack import surviving
    from bnncert.posterior import sample
    from bnncert.problem import Problem
    from bnncert.question import condition_on, labels_of, region_of, selection

    network, weights = load_posterior(posterior)
    data = load_inputs(inputs)
    indices = selection(select, len(data.x))
    region = region_of(network, data.x[indices], eps, norm, _clip(clip, no_clip, data.image))
    condition = condition_on(network, region, labels_of(data, indices), None, None)
    problem = Problem(network, weights, condition).to(_device(device))
    drawn = sample(problem.posterior, samples, seed) if samples else None
    print(f"{'network':<12} {'clean':>8} {'attacked':>9}   {len(indices)} inputs, eps {eps:g} ({norm})")
    for name, networks in (("mean", problem.posterior.center.unsqueeze(0)), (f"{samples} samples", drawn)):
        if networks is not None:
            clean, attacked = surviving(problem, networks, seed)
            print(f"{name:<12} {100 * clean:>6.2f} % {100 * attacked:>7.2f} %")


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(help="A state_dict (.pt, .pth, .safetensors), .npz, .onnx or native file.")],
    kind: Annotated[
        str,
        typer.Option(
            "--as", help="bayesian-torch, torchbnn, blitz, torch-uncertainty, torch (plain), npz, native or onnx."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the posterior.")] = Path("posterior.safetensors"),
    activation: Annotated[
        str | None, typer.Option(help="Between the layers: relu (default), leaky_relu, tanh or sigmoid.")
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(help="Of one input, as 3,32,32; needed where a convolution comes first.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Names of the layers, first to last, where the file does not tell: stem,head.")
    ] = None,
    std: Annotated[
        float | None, typer.Option(help="torch, onnx: standard deviation of the weights; 0 if not given.")
    ] = None,
    no_bias: Annotated[bool, typer.Option("--no-bias", help="blitz: the layers were made with bias=False.")] = False,
) -> None:
    """Write a posterior trained elsewhere as a native file.

    A state_dict holds no architecture: the layers are taken in order with one activation between them. Networks with
    strides, padding, pools or normalisation are imported in Python, with bnncert.from_torch(module). An .npz, native or
    ONNX file holds its architecture.
    """
    from bnncert.importers import save_posterior
    from bnncert.importers.files import Assumptions, import_file
    from bnncert.question import whole_numbers

    _posterior_path(out)
    shape = whole_numbers(input_shape, "--input-shape") if input_shape else None
    names = layers.split(",") if layers else None
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        found = import_file(file, kind, Assumptions(activation, shape, std, names, not no_bias))
    for remark in remarks:
        print(f"bnncert: warning: {remark.message}", file=sys.stderr)
    save_posterior(out, found.network, found.posterior, found.notes)
    print(f"read as  {', '.join(str(layer) for layer in found.network.layers)}")
    print(f"{out}: {found.network.size} weights, {found.posterior.family}, from {found.notes['library']}")


zoo_app = typer.Typer(
    no_args_is_help=True, help="Networks of the paper and others: shipped, or trained by one command."
)
app.add_typer(zoo_app, name="zoo")


@zoo_app.command("list")
def zoo_list() -> None:
    """Every network, its data and accuracy, and whether it is at hand."""
    from bnncert.display import show_zoo

    show_zoo()


@zoo_app.command("train")
def zoo_train(
    name: Annotated[str, typer.Argument(help="A name that `zoo list` shows.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Where to write it; by default where `zoo path` finds it.")] = None,
) -> None:
    """Train a network by its recipe; an interrupted run goes on where it stopped."""
    from bnncert.zoo import recipe, trained_path

    made, path = recipe(name), out or trained_path(name)
    if out is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    _fit(made, path, device)


@zoo_app.command("path")
def zoo_path(name: Annotated[str, typer.Argument(help="A name that `zoo list` shows.")]) -> None:
    """Print where the trained posterior is."""
    from bnncert.zoo import posterior_path

    print(posterior_path(name))


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help="table1, fig1 to fig5, runtime, epsilon, ...; all; or list.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few images and networks: all in under ten minutes.")] = False,
    published: Annotated[
        Path | None, typer.Option(help="Folder with the published posteriors, paper_1x128.npz and so on; else the zoo.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for rows and figures.")] = Path("reproduction"),
) -> None:
    """Run the paper's experiments and ours; write rows (CSV, JSON) and figures. Interrupted runs go on."""
    from bnncert.experiments import ALL, EXPERIMENTS, Setting, run

    if experiment == "list":
        for name, each in EXPERIMENTS.items():
            print(f"{name:<8} {each.about}")
        return
    if experiment not in (*EXPERIMENTS, "all"):
        raise InputError(f"experiment {experiment!r} is not known; choose all, {', '.join(EXPERIMENTS)}")
    if published is not None and not published.is_dir():
        raise InputError(f"--published {str(published)!r} is no folder; name the one with paper_1x128.npz and so on")
    setting = Setting(quick, published, _device(device))
    for name in ALL if experiment == "all" else (experiment,):
        rows = run(name, EXPERIMENTS[name], setting, out, keep=experiment == "all")
        print(f"{name:<8} {len(rows)} rows: {out / name}.csv, .json, .svg, .png", flush=True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the posterior, results and certificates.")] = Path(
        "bnncert-demo"
    ),
) -> None:
    """Train a small BNN on digits, certify test images with every method and show the table (under a minute)."""
    from bnncert.demo import run_demo

    run_demo(out)


@app.command()
def doctor() -> None:
    """Say what this installation can do: versions, devices, data, optional packages."""
    from bnncert.doctor import examine

    for name, finding in examine():
        print(f"{name:<14} {finding}")


def _posterior_path(out: Path) -> None:
    if out.suffix != ".safetensors" or not out.parent.is_dir():
        raise InputError(f"--out {str(out)!r} must be a .safetensors file in a folder that exists")


def _architecture(name: str, hidden: str, data: str) -> Network:
    """The network asked for, of the data set's sizes."""
    from bnncert.data import load_inputs
    from bnncert.network import cnn, mlp
    from bnncert.question import labels_of, whole_numbers

    examples = load_inputs(data, "train")
    shape, classes = tuple(examples.x.shape[1:]), int(labels_of(examples, [*range(len(examples.x))]).max()) + 1
    if name == "cnn":
        return cnn((1, *shape) if len(shape) == 2 else shape, classes)
    if name != "mlp":
        raise InputError(f"network {name!r} is not known; choose mlp or cnn")
    return mlp(math.prod(shape), *whole_numbers(hidden, "--hidden"), classes)


def _fit(recipe: Recipe, path: Path, device: str) -> None:
    """Train under a progress bar, write the posterior, and say how good it is."""
    from bnncert.display import progress
    from bnncert.zoo import fit_recipe

    with progress("training") as bar:
        task = bar.add_task("training", total=recipe.training.epochs, note="")
        notes = fit_recipe(
            recipe,
            path,
            _device(device),
            lambda epoch: bar.update(task, completed=epoch.number, note=f"loss {epoch.loss:.3f}"),
        )
    print(
        f"{path}: accuracy at the mean {100 * notes['accuracy']:.2f} % on the test set, median std {notes['std']:.2g}, "
        f"ELBO {notes['log'][-1]['elbo']:.4g}"
    )


def _clip(clip: tuple[float, float] | None, no_clip: bool, image: bool) -> tuple[float, float] | None:
    if clip is not None and no_clip:
        raise InputError("--clip and --no-clip contradict each other; give one of them")
    return None if no_clip else clip or ((0.0, 1.0) if image else None)


def _threshold(text: str | None) -> Decimal | None:
    """A probability, exactly as it was typed."""
    try:
        threshold = None if text is None else Decimal(text)
    except InvalidOperation:
        threshold = Decimal("nan")
    if threshold is not None and not (threshold.is_finite() and 0 <= threshold <= 1):
        raise InputError(f"--at-least {text!r} is not a probability; give a number from 0 to 1, for example 0.95")
    return threshold


def _radii(text: str | None) -> list[float]:
    """The numbers in a list; none if there is no list."""
    try:
        radii = [float(part) for part in text.split(",")] if text is not None else []
    except ValueError as error:
        raise InputError(f"'--eps' is {text!r}; give a number, or several as 0.01,0.02") from error
    if len(set(radii)) < len(radii):
        raise InputError(f"'--eps' {text!r} names a radius twice; give each once")
    return radii


def _asked(
    network: Network,
    weights: Posterior,
    inputs: str,
    eps: str | None,
    select: str,
    norm: str,
    clipping: tuple[tuple[float, float] | None, bool],
    target: int | None,
    tolerance: float | None,
) -> tuple[Problem, list[int], list[float]]:
    """The problem on the weights' device, what its inputs are called, and the radii if they are given for all."""
    from bnncert.data import load_inputs
    from bnncert.problem import Problem
    from bnncert.question import condition_on, region_of, selection

    data = load_inputs(inputs)
    indices, radii = selection(select, len(data.x)), _radii(eps)
    x, y, each = _repeated(data, indices, radii)
    region = region_of(network, x, each, norm, _clip(*clipping, data.image))
    condition = condition_on(network, region, y, target, tolerance).to(weights.center.device)
    return Problem(network, weights, condition), [index for index in indices for _ in radii or (None,)], radii


def _repeated(data: Dataset, indices: list[int], radii: list[float]) -> tuple[Tensor, Tensor, Tensor]:
    """The chosen inputs, their labels and radii, once for each radius; their own radii where none are given."""
    import torch

    from bnncert.question import labels_of

    x, y, count = data.x[indices], labels_of(data, indices), len(radii)
    if radii:
        each = torch.tensor(radii, dtype=torch.float64).repeat(len(indices))
        return x.repeat_interleave(count, 0), y.repeat_interleave(count, 0), each
    if data.eps is None:
        raise InputError("no radius is given; add --eps, or an array 'eps' to the .npz of the inputs")
    return x, y, data.eps[indices]


def _query_name(result: Result, several_radii: bool) -> str:
    return f"input {result.index}" + (f", eps {result.eps!r}" if several_radii else "")


def _device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' is not available on this machine; use --device cpu")
    if name not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not known; choose cpu or cuda")
    return name


def _certify_parts(
    parts: list[Problem],
    method: Method,
    seed: int,
    indices: list[int],
    samples: int,
    out: Path | None,
    several_radii: bool = False,
) -> list[Result]:
    """Certify part by part under a progress bar, storing as it goes; fewer results where it is interrupted."""
    from bnncert.certification import certify as certify_problem
    from bnncert.display import progress
    from bnncert.results import result_folder

    results: list[Result] = []
    folder = result_folder(out, several_radii) if out else nullcontext(lambda _: None)
    with folder as store, progress("certifying") as bar, _noticing_interrupts() as interrupts:
        task = bar.add_task("certifying", total=len(indices), note="")
        for part in parts:
            names = indices[len(results) : len(results) + len(part)]
            batch = certify_problem(part, method, seed=seed, indices=names, samples=samples)
            store(batch)
            results += batch
            bar.advance(task, len(batch))
            if interrupts:
                break  # the search gave what it had, and the inputs after it are not begun
    return results


@contextmanager
def _noticing_interrupts() -> Iterator[list[int]]:
    """Ctrl-C as ever, and a list that tells afterwards whether there was one: some methods end early instead."""
    noticed: list[int] = []

    def notice(number: int, frame: FrameType | None) -> None:
        noticed.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield noticed
        return
    before = signal.signal(signal.SIGINT, notice)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)
