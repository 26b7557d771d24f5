"""`bilevel few-shot adapt`: labels for pictures of the user's own."""

from __future__ import annotations

import io
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.labelling import probabilities
from bilevel.apps.few_shot.methods import methods
from bilevel.apps.few_shot.tasks import pixels
from bilevel.models.heads.form import apply, with_ones

from .few_shot_pictures import COLOURED, SIZE, Command, adapted, blob, table, untrained


@pytest.fixture
def few_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command, with support pictures of three colours, and pictures to ask about."""
    return Command(tmp_path, monkeypatch, capsys).with_pictures()


class Pictures(HTMLParser):
    """The pictures of a page, and the text of each group of them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.groups: list[str] = []
        self.marked = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attrs))
        classes = (dict(attrs).get("class") or "").split()
        if "group" in classes:
            self.groups.append("")
        self.marked += "marked" in classes

    def handle_data(self, data: str) -> None:
        if self.groups:
            self.groups[-1] += data


def page(few_shot: Command) -> tuple[str, Pictures]:
    html = (few_shot.folder / "labels/page.html").read_text(encoding="utf-8")
    return html, Pictures(html)


# The labels


def images(seed: int, count: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return np.stack([blob(i // 2, random) for i in range(count)])


def truth_of_heads(model: Checkpoint, head: torch.Tensor, query: Any) -> torch.Tensor:
    """Gradient descent on the head by autograd, for one query image among the support."""
    settings = model.settings
    embedding = settings.make_embedding()
    named = dict(embedding.named_parameters())
    sizes = [p.numel() for p in named.values()]
    parts = torch.split(model.x[: sum(sizes)], sizes)
    parameters = {n: part.view_as(named[n]) for n, part in zip(named, parts, strict=True)}
    found = []
    for image in query:
        together = pixels(np.concatenate([images(1, 6), image[None]]), torch.float32)
        features = with_ones(apply(embedding, parameters, together)).detach()
        W = head.clone().requires_grad_()
        for _ in range(int(settings.options["inner_steps"])):
            loss = cross_entropy(features[:6] @ W, torch.tensor([0, 0, 1, 1, 2, 2]))
            loss = loss + settings.options.get("ridge", 0.0) * W.square().sum()
            (gradient,) = torch.autograd.grad(loss, W)
            W = (W - settings.options["inner_lr"] * gradient).detach().requires_grad_()
        found.append((features[6] @ W).softmax(0).detach())
    return torch.stack(found)


def test_a_label_is_that_of_gradient_descent_with_the_picture_among_the_support(
    tmp_path: Path,
) -> None:
    model = untrained(tmp_path / "m.pt", inner_steps=7, inner_lr=0.4, ridge=0.05)
    query = images(3, 11)  # more than are asked about at a time
    found = probabilities(model, images(1, 6), query, shots=2)
    expected = truth_of_heads(model, torch.zeros(9, 3), query)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


def test_a_learned_head_is_where_the_labels_start(tmp_path: Path) -> None:
    model = untrained(tmp_path / "m.pt", "anil", inner_steps=4, inner_lr=0.2)
    query = images(3, 2)
    found = probabilities(model, images(1, 6), query, shots=2)
    expected = truth_of_heads(model, model.x[-27:].view(9, 3), query)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


def test_maml_labels_by_gradient_descent_on_all_layers(tmp_path: Path) -> None:
    model = untrained(tmp_path / "m.pt", "maml", inner_steps=2, inner_lr=0.1)
    query = images(3, 5)
    found = probabilities(model, images(1, 6), query, shots=2)
    embedding = model.settings.make_embedding()
    named = dict(embedding.named_parameters())
    y = model.x.clone()
    for step in range(3):
        y = y.detach().requires_grad_()
        parts = torch.split(y, [*(p.numel() for p in named.values()), 27])
        own = {n: part.view_as(p) for (n, p), part in zip(named.items(), parts, strict=False)}
        seen = images(1, 6) if step < 2 else query
        logits = with_ones(apply(embedding, own, pixels(seen, y.dtype))) @ parts[-1].view(9, 3)
        if step < 2:
            loss = cross_entropy(logits, torch.tensor([0, 0, 1, 1, 2, 2]))
            y = y - 0.1 * torch.autograd.grad(loss, y)[0]
    expected = logits.softmax(1).detach()
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in methods() if name != "maml"])
def test_a_label_does_not_depend_on_the_other_pictures(tmp_path: Path, name: str) -> None:
    model = untrained(tmp_path / "m.pt", name)
    query = images(3, 10)
    found = probabilities(model, images(1, 6), query, shots=2)
    alone = probabilities(model, images(1, 6), query[9:], shots=2)
    np.testing.assert_allclose(found[9:], alone, rtol=1e-4, atol=1e-6)


# What is written


def test_the_table_has_the_probability_of_every_class(few_shot: Command) -> None:
    shown = adapted(few_shot)
    rows = table(few_shot)
    assert list(rows[0]) == ["file", "label", "probability", "p(blue)", "p(green)", "p(red)"]
    assert [row["file"] for row in rows] == [f"{c}/{i}.png" for c in COLOURED for i in range(3)]
    for row in rows:
        each = {name: float(row[f"p({name})"]) for name in COLOURED}
        assert sum(each.values()) == pytest.approx(1, abs=1e-4)
        assert row["label"] == max(each, key=lambda name: each[name])
        assert float(row["probability"]) == max(each.values())
    right = sum(row["label"] == row["file"].split("/")[0] for row in rows)
    assert right >= 8
    assert f"({right} of 9)" in shown.out
    assert "9 pictures: " in shown.out


def test_the_page_shows_every_picture_in_itself(few_shot: Command) -> None:
    adapted(few_shot)
    html, found = page(few_shot)
    assert len(found.images) == 3 * 2 + 9
    names = [f"{c}/{i}.png" for c in COLOURED for i in range(2)]
    assert [image["alt"] for image in found.images[:6]] == names
    for image in found.images:
        source = image["src"] or ""
        assert source.startswith("data:image/png;base64,")
        assert Image.open(io.BytesIO(b64decode(source.split(",")[1]))).size == (SIZE, SIZE)
    assert not re.search(r'(src|href)="(?!data:|#)', html)
    by_label = [group.split()[0] for group in found.groups if "%" in group]
    assert by_label == list(COLOURED)


def test_a_wrong_label_is_framed_and_has_its_folder(few_shot: Command) -> None:
    (few_shot.folder / "query/red").rename(few_shot.folder / "query/old")
    (few_shot.folder / "query/green").rename(few_shot.folder / "query/red")
    (few_shot.folder / "query/old").rename(few_shot.folder / "query/green")
    adapted(few_shot)
    wrong = sum(row["label"] != row["file"].split("/")[0] for row in table(few_shot))
    assert wrong >= 5
    html, found = page(few_shot)
    assert html.count("<span>✗ ") == found.marked == wrong


def test_pictures_without_folders_are_labelled_without_accuracy(few_shot: Command) -> None:
    flat = few_shot.folder / "flat"
    flat.mkdir()
    for path in (few_shot.folder / "query").rglob("*.png"):
        path.rename(flat / f"{path.parent.name}{path.name}")
    shown = adapted(few_shot, "--query", "flat")
    assert "accuracy" not in shown.out
    assert "✗" not in page(few_shot)[0]
    assert sum(row["file"].startswith(row["label"]) for row in table(few_shot)) >= 8


def test_folders_with_other_names_tell_no_accuracy(few_shot: Command) -> None:
    for name in COLOURED:
        (few_shot.folder / "query" / name).rename(few_shot.folder / "query" / f"{name}ish")
    shown = adapted(few_shot)
    assert "the folders in query are not named after the classes" in shown.err
    assert "accuracy" not in shown.out


def test_names_are_text_on_the_page_and_in_the_terminal(few_shot: Command) -> None:
    strange = "[b]<b>&'"
    for folder in ("support", "query"):
        (few_shot.folder / folder / "red").rename(few_shot.folder / folder / strange)
    shown = adapted(few_shot)
    assert strange in shown.out
    html, found = page(few_shot)
    assert "<b>" not in html
    assert f"{strange}/0.png" in [image["alt"] for image in found.images]


def test_of_many_classes_those_without_a_picture_are_not_listed(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bilevel.apps.few_shot.labels_page._ROWS", 2)
    for name in ("green", "blue"):  # as answers: all queries are red
        (few_shot.folder / "query" / name).rename(few_shot.folder / name)
    shown = adapted(few_shot)
    given = {row["label"] for row in table(few_shot)}
    assert f"none of the other {3 - len(given)} classes" in shown.out
    assert all(f"0 {name}" not in shown.out for name in COLOURED)


def test_many_pictures_are_shown_in_part(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bilevel.apps.few_shot.labels_page._SHOWN", 4)
    monkeypatch.setattr("bilevel.apps.few_shot.labels_page._ROWS", 2)
    shown = adapted(few_shot)
    assert "... and 7 more" in shown.out
    html, found = page(few_shot)
    assert len(found.images) == 6 + 4
    assert "The first 4 of 9 pictures are shown; labels.csv has all." in html
    assert len(table(few_shot)) == 9
