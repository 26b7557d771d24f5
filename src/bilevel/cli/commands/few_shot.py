"""`bilevel few-shot`: learn to learn from a few images, and use it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilevel.cli.options import Force, NewFolder, folder, must_exist, optional, typed
from bilevel.cli.usage import Commands

if TYPE_CHECKING:
    from rich.table import Table

    from bilevel.datasets import ImageClasses

_TRAIN_EPILOG = """
**Algorithms**: `itd-bio` and `aid-bio` are the paper's (a linear head with a ridge, which starts at
zero); `aid-bio-increasing` increases the number of inner steps; `fo-itd-bio` is first-order;
`itd-bio-random-head` is what the authors' code runs; `anil` also learns the start of the head; in
`maml` all layers adapt.

**Examples**

`bilevel few-shot train --data fc100`

`bilevel few-shot train --data my-pictures/ --ways 3`, where `my-pictures/` has a folder per class

`bilevel few-shot train --data omniglot --algorithm anil --ways 20 --shots 1 --steps 500`

`bilevel few-shot train --data mini-imagenet --algorithm aid-bio --batch 4 --seconds 3600 -o mini`

To resume, run the same command again; with more `--steps`, training continues. With `torchrun
--nproc-per-node 2 -m` in front, two processes share the tasks of each step.
"""

_EVALUATE_EPILOG = """
**Examples**

`bilevel few-shot evaluate out/few-shot-fc100-itd-bio/best.pt`

`bilevel few-shot evaluate best.pt --tasks 2000 --queries 15 --json test.json`

`bilevel few-shot evaluate last.pt --split validation`
"""

_ADAPT_EPILOG = """
**Examples**

With `mine/rose/1.jpg`, ..., `mine/rose/5.jpg`, `mine/tulip/1.jpg`, ... and pictures in `unknown/`:

`bilevel few-shot adapt --support mine --query unknown --output labelled`

With a model of your own: `bilevel few-shot adapt best.pt --support mine --query unknown`

`bilevel few-shot adapt best.pt --support mine --query unknown --resize --shots 3`

If `unknown/` has folders named `rose`, `tulip`, ..., the accuracy is reported, too.
"""
_DATA = "fc100, mini-imagenet, omniglot, or a folder with a folder of pictures per class."
_SIZE = "Height and width that the pictures of a folder are resized to."
_INNER_STEPS = "Inner steps. \\[default: the algorithm's own, as for the next options]"
_FILTERS = "Filters per layer. \\[default: 64 for images up to 32×32, else 32]"
_FOLDER = "Folder for the results. \\[default: out/few-shot-DATA-ALGORITHM]"
_EVERY = "Steps between validations. The model is saved at each."
_QUERIES = "Query images per class. \\[default: as in training]"
_QUERY = "A folder of pictures to label. If it has a folder per class, the accuracy is reported."
_SHOTS = "Support pictures per class. \\[default: all of them, but at least as in training]"
_SHIPPED = "best.pt or last.pt of a training run. \\[default: the model for FC100 in the package]"
_DRAWN = "Random seed: decides which tasks are drawn."
_INVERT = "Swap black and white: models of omniglot expect white ink."


class Split(StrEnum):
    """Whose classes tasks are drawn from."""

    TEST = "test"
    VALIDATION = "validation"
    TRAIN = "train"


CheckpointFile = Annotated[
    Path, typer.Argument(help="best.pt or last.pt of a training run.", show_default=False)
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Commands,
        help="Learn to recognise classes from a few pictures; then adapt to your own.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
    )
    group.command(epilog=_TRAIN_EPILOG)(train)
    group.command(epilog=_EVALUATE_EPILOG)(evaluate)
    group.command(epilog=_ADAPT_EPILOG)(adapt)
    app.add_typer(group, name="few-shot")


def train(
    data: Annotated[str, typer.Option(help=_DATA)],
    algorithm: Annotated[str, typer.Option(help="One of the algorithms below.")] = "itd-bio",
    ways: Annotated[int, typer.Option(min=2, help="Classes per task.")] = 5,
    shots: Annotated[int, typer.Option(min=1, help="Support images per class.")] = 5,
    queries: Annotated[int, typer.Option(min=1, help="Query images per class.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Tasks per step.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Outer steps in total.")] = 2000,
    seconds: Annotated[float | None, optional("Time limit, without validations.", "S")] = None,
    inner_steps: Annotated[int | None, optional(_INNER_STEPS, "D", min=1)] = None,
    growth: Annotated[float | None, typer.Option(help="Factor c of aid-bio-increasing.")] = None,
    inner_lr: Annotated[
        str | None, typer.Option(help="Inner step size α, or auto to measure it.", metavar="α")
    ] = None,
    outer_lr: Annotated[float | None, typer.Option(help="Learning rate of the outer Adam.")] = None,
    ridge: Annotated[float | None, typer.Option(help="Ridge penalty r of the heads.")] = None,
    cg_steps: Annotated[int | None, typer.Option(min=1, help="CG steps N, for AID.")] = None,
    filters: Annotated[int | None, optional(_FILTERS, "N", min=1, max=4096)] = None,
    size: Annotated[int, typer.Option(min=16, max=512, help=_SIZE)] = 32,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    validate_every: Annotated[int, typer.Option(min=1, help=_EVERY)] = 100,
    validation_tasks: Annotated[int, typer.Option(min=2, help="Tasks per validation.")] = 200,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that torch may use.")] = None,
    output: Annotated[Path | None, folder(_FOLDER)] = None,
) -> None:
    """Learn an embedding in which new classes can be recognised from a few images.

    Needs images: `bilevel data get fc100`, or a folder of your own with a folder of pictures for
    each of at least 6 classes, of which a fifth is held out for validation and a fifth for
    testing. Writes to the output folder:

    - **best.pt**: the model with the highest accuracy on the validation classes;

    - **last.pt**: the latest model; **checkpoint/**: for resuming;

    - **history.jsonl**, **report.html**: the learning curve; **settings.json**: all settings.
    """
    import torch

    from bilevel.apps.few_shot.methods import number_or_auto
    from bilevel.apps.few_shot.run_folder import Limits, RunFolder
    from bilevel.apps.few_shot.settings import settle
    from bilevel.apps.few_shot.training_job import prepare
    from bilevel.cli.bars import TrainingBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.problem.peers import from_environment

    keep_freed_memory()
    given = {
        "inner_steps": inner_steps,
        "growth": growth,
        "inner_lr": number_or_auto("--inner-lr", inner_lr),
        **{"outer_lr": outer_lr, "ridge": ridge, "cg_steps": cg_steps},
    }
    settings = settle(
        data,
        algorithm,
        given,
        filters=filters,
        size=size,
        ways=ways,
        shots=shots,
        queries=queries,
        batch=batch,
        seed=seed,
        validate_every=validate_every,
        validation_tasks=validation_tasks,
    )
    place = RunFolder(output or Path("out") / f"few-shot-{Path(data).name}-{algorithm}")
    job = prepare(settings, Limits(steps, seconds), place, typed())
    if threads is not None:
        torch.set_num_threads(threads)
    with from_environment() as peers:
        if peers.leads:
            _say(job.beginning)
        ending = job.run(lambda: _load(data, size), TrainingBar, peers)
        if not peers.leads:
            return
    typer.echo(ending.text, err=ending.code != 0)
    raise typer.Exit(ending.code)


def evaluate(
    checkpoint: CheckpointFile,
    tasks: Annotated[int, typer.Option(min=2, help="Number of tasks.")] = 600,
    split: Annotated[Split, typer.Option(help="Split to draw the tasks from.")] = Split.TEST,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help=_DRAWN)] = 0,
    queries: Annotated[int | None, optional(_QUERIES, "N", min=1)] = None,
    json_file: Annotated[
        Path | None, optional("Also write the result to this file.", "FILE", "--json")
    ] = None,
) -> None:
    """Measure the accuracy on new tasks, with a 95 % interval.

    The model adapts to the support images of each task as in training, and is then tested on its
    query images. Batch normalisation uses the statistics of the images at hand, so the query
    images of a task are seen together (transductive). Compare the result only with accuracies
    that were measured in the same way, with the same number of query images.
    """
    must_exist(checkpoint)
    from bilevel.apps.few_shot.checkpoint import load
    from bilevel.apps.few_shot.evaluation import Question, check, evaluation_table, write_record
    from bilevel.apps.few_shot.evaluation import evaluate as measure
    from bilevel.apps.few_shot.settings import image_set
    from bilevel.cli.bars import TasksBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.durable.folders import check_file

    keep_freed_memory()
    model, question = load(checkpoint), Question(split.value, tasks, seed, queries)
    data, size = model.settings.data, model.settings.image_shape[1]
    check(model, image_set(data, size), question)
    if json_file is not None:
        check_file(json_file)
    images = _load(data, size)
    with TasksBar(f"{split} tasks", tasks) as bar:
        found = measure(model, images, question, bar)
    _print(evaluation_table(model, question, found))
    typer.echo(f"Batch normalisation used {model.settings.statistics} (transductive).")
    if json_file is not None:
        write_record(json_file, model, question, found)
        typer.echo(f"result: {json_file}")


def adapt(
    support: Annotated[Path, typer.Option(help="A folder with a folder of pictures per class.")],
    query: Annotated[Path, typer.Option(help=_QUERY)],
    checkpoint: Annotated[Path | None, typer.Argument(help=_SHIPPED, show_default=False)] = None,
    output: NewFolder = Path("out/few-shot-labels"),
    shots: Annotated[int | None, optional(_SHOTS, "N", min=1)] = None,
    resize: Annotated[bool, typer.Option("--resize", help="Accept pictures of any size.")] = False,
    invert: Annotated[bool, typer.Option("--invert", help=_INVERT)] = False,
    force: Force = False,
) -> None:
    """Adapt a model to a few pictures of your own classes, and label other pictures.

    Pictures are converted to the channels and size that the model expects. Each is labelled on its
    own, so that its label does not depend on the other pictures in the folder; only `maml` labels
    all of them together. Writes to the output folder:

    - **labels.csv**: the label of each picture, and the probability of each class;

    - **page.html**: the pictures.
    """
    if checkpoint is not None:
        must_exist(checkpoint)
    from bilevel.apps.few_shot.checkpoint import SHIPPED, load
    from bilevel.apps.few_shot.labelling import Request, label, prepare, write_table
    from bilevel.apps.few_shot.labels_page import labels_table, summary, write_labels_page
    from bilevel.cli.bars import TasksBar
    from bilevel.durable.folders import check_folder, filled

    model = load(checkpoint or SHIPPED)
    check_folder(output, force)
    prepared = prepare(model, Request(support, query, shots, resize, invert))
    for note in prepared.notes:
        _say(f"note: {note}")
    with TasksBar("pictures", len(prepared.query)) as bar:
        labelled = label(model, prepared, bar)
    with filled(output) as draft:
        write_table(draft / "labels.csv", labelled)
        write_labels_page(draft / "page.html", model, labelled, typed())
    _print(labels_table(labelled))
    typer.echo(summary(labelled))
    typer.echo(f"table: {output / 'labels.csv'}\npage:  {output / 'page.html'}")


def _load(data: str, size: int) -> ImageClasses:
    """The images, with a bar for each file that must be downloaded first."""
    from bilevel.apps.few_shot.picture_folders import OwnPictures
    from bilevel.apps.few_shot.settings import image_set
    from bilevel.cli.bars import downloads
    from bilevel.datasets import load_images

    origin = image_set(data, size)
    if isinstance(origin, OwnPictures):
        return origin.load()
    with downloads() as bar_for:
        return load_images(data, bar_for)


def _say(text: str) -> None:
    """Print to stderr, apart from the result."""
    typer.echo(text, err=True)


def _print(table: Table) -> None:
    from rich.console import Console

    Console(soft_wrap=True).print(table)
