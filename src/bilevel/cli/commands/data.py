"""`bilevel data`: the data sets and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bilevel.cli.options import Json, print_json
from bilevel.cli.usage import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from bilevel.datasets import Origin

Name = Annotated[str, typer.Argument(help="A data set of `bilevel data list`.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Commands,
        help="List, download and locate data sets, for example `bilevel data get mnist`.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
    )
    group.command("list", epilog=_examples("list", "list --json"))(show)
    group.command("get", epilog=_examples("get mnist", "get omniglot"))(get)
    group.command("path", epilog=_examples("path mnist", "path fc100"))(path)
    app.add_typer(group, name="data")


def _examples(*words: str) -> str:
    return "**Examples**\n\n" + "\n\n".join(f"`bilevel data {each}`" for each in words)


def show(json: Json = False) -> None:
    """List all data sets: size, location and source.

    `BILEVEL_DATA=/data bilevel data list` looks in another folder.
    """
    from rich.console import Console
    from rich.table import Table

    from bilevel.datasets import catalogue, data_folder

    root, console = data_folder(), Console()
    if json:
        print_json([_facts(origin, root) for origin in catalogue().values()])
        return
    places = Table(box=None, padding=(1, 2, 0, 0), show_header=False)
    places.add_column()
    places.add_column(overflow="fold")
    kinds: dict[str, list[Origin[Any]]] = {}
    for origin in catalogue().values():
        kinds.setdefault(origin.kind, []).append(origin)
        here = not origin.missing(root)
        where = str(origin.folder(root)) if here else f"missing: bilevel data get {origin.name}"
        places.add_row(origin.name, f"{where}\n{origin.source}\nlicence: {origin.licence}")
    for kind, origins in kinds.items():
        console.print(f"[bold]{kind}[/]", sizes(origins, root), "", sep="\n")
    console.print(places)


def _facts(origin: Origin[Any], root: Path) -> dict[str, Any]:
    here = not origin.missing(root)
    about = {"name": origin.name, "kind": origin.kind, "present": here, **origin.facts(root)}
    return {**about, "folder": str(origin.folder(root)), "source": origin.source}


def sizes(origins: list[Origin[Any]], root: Path) -> Table:
    """The facts of data sets of one kind, and whether they are in the data folder."""
    from rich.filesize import decimal
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    for title in (*origins[0].facts(root), "size"):
        table.add_column(title, justify="right")
    table.add_column("present")
    for origin in origins:
        here = not origin.missing(root)
        files = origin.files(root) if here else []
        size = sum(file.stat().st_size for file in files) if here else origin.download_bytes
        shown = decimal(size) if size else "–"
        table.add_row(origin.name, *origin.facts(root).values(), shown, "yes" if here else "no")
    return table


def get(name: Name) -> None:
    """Download a data set if it is missing, check it, and print its size and location.

    A data set that cannot be downloaded freely is made from files that you obtain; an error says
    which, and where to put them.

    `bilevel data get fashion-mnist` writes to the user's cache;
    `BILEVEL_DATA=/data bilevel data get fashion-mnist` writes to /data/fashion-mnist.
    """
    from bilevel.cli.bars import downloads
    from bilevel.datasets import data_folder
    from bilevel.datasets.catalogue import find

    origin = find(name)
    with downloads() as bar_for:
        origin.load(data_folder(), bar_for)
    typer.echo(f"{name} is complete in {origin.folder(data_folder())}")
    facts = origin.facts(data_folder()).items()
    typer.echo("; ".join(f"{title}: {value}" for title, value in facts))


def path(name: Name) -> None:
    """Print the folder of a data set, or where its files belong.

    `ls $(bilevel data path mnist)`
    """
    from bilevel.datasets import data_folder
    from bilevel.datasets.catalogue import find

    origin = find(name)
    typer.echo(origin.folder(data_folder()))
    missing = [file.name for file in origin.missing(data_folder())]
    if missing:
        typer.echo(f"missing there: {', '.join(missing)}; try `bilevel data get {name}`", err=True)
