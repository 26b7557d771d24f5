"""`bilevel data`: the data sets and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

Name = Annotated[str, typer.Argument(help="A data set of `bilevel data list`.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List, get and find data sets, e.g. `bilevel data get mnist`.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
    )
    group.command("list")(show)
    group.command("get")(get)
    group.command("path")(path)
    app.add_typer(group, name="data")


def show() -> None:
    """Show every data set: its size, where it is, where it comes from.

    `BILEVEL_DATA=/data bilevel data list` looks into another folder.
    """
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table

    from bilevel.datasets import catalogue, data_folder

    root = data_folder()
    sizes = Table("name", box=None, padding=(0, 2, 0, 0))
    for title in ("train rows", "test rows", "features", "classes", "size"):
        sizes.add_column(title, justify="right")
    sizes.add_column("present")
    places = Table(box=None, padding=(1, 2, 0, 0), show_header=False)
    places.add_column()
    places.add_column(overflow="fold")
    for origin in catalogue().values():
        here = not origin.missing(root)
        held = sum(file.stat().st_size for file in origin.files(root)) if here else None
        counts = (origin.train_rows, origin.test_rows, origin.features, len(origin.class_names))
        size = decimal(origin.download_bytes if held is None else held)
        numbers = (f"{count:,}" for count in counts)
        sizes.add_row(origin.name, *numbers, size, "yes" if here else "no")
        where = str(origin.folder(root)) if here else f"absent: bilevel data get {origin.name}"
        places.add_row(origin.name, f"{where}\n{origin.source}\nlicence: {origin.licence}")
    Console().print(sizes, places)


def get(name: Name) -> None:
    """Download a data set unless it is there, check it, and say where it is.

    `bilevel data get fashion-mnist` puts it into the user's cache;
    `BILEVEL_DATA=/data bilevel data get fashion-mnist` puts it into /data/fashion-mnist.
    """
    import pooch
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from bilevel.datasets import data_folder
    from bilevel.datasets.catalogue import find

    pooch.get_logger().setLevel("WARNING")  # the bar tells what it would
    origin = find(name)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        origin.load(data_folder(), lambda file: DownloadBar(progress, file))
    typer.echo(f"{name} is complete in {origin.folder(data_folder())}")


def path(name: Name) -> None:
    """Print the folder where a data set lies, or where its files are to be put.

    `ls $(bilevel data path mnist)`
    """
    from bilevel.datasets import data_folder
    from bilevel.datasets.catalogue import find

    origin = find(name)
    typer.echo(origin.folder(data_folder()))
    missing = [file.name for file in origin.missing(data_folder())]
    if missing:
        typer.echo(f"missing there: {', '.join(missing)}; try `bilevel data get {name}`", err=True)


class DownloadBar:
    """One file's line in rich's progress display, as pooch drives it."""

    def __init__(self, progress: Progress, file: str) -> None:
        self._progress = progress
        self._task = progress.add_task(file, total=None)

    @property
    def total(self) -> int:
        return int(self._progress.tasks[self._task].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, amount: int) -> None:
        self._progress.advance(self._task, amount)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)
