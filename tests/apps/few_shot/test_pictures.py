"""`bilevel few-shot adapt`: which pictures it takes, and which it refuses."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bilevel.apps.few_shot.picture_folders import Reader
from bilevel.errors import UserError

from .few_shot_pictures import (
    COLOURED,
    SIZE,
    Command,
    adapt,
    adapted,
    save_pictures,
    table,
    untrained,
)


@pytest.fixture
def few_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command, with support pictures of three colours, and pictures to ask about."""
    return Command(tmp_path, monkeypatch, capsys).with_pictures()


def html(few_shot: Command) -> str:
    return (few_shot.folder / "labels/page.html").read_text(encoding="utf-8")


def change(folder: Path, save: Callable[[Image.Image, Path], Any]) -> None:
    """Save all pictures otherwise."""
    for path in sorted(folder.rglob("*.png")):
        with Image.open(path) as opened:
            picture = opened.copy()
        path.unlink()
        save(picture, path)


@pytest.mark.parametrize("suffix", ["jpg", "JPEG", "bmp", "gif", "webp", "tif", "ppm"])
def test_pictures_of_every_usual_kind_are_read(few_shot: Command, suffix: str) -> None:
    for folder in ("support", "query"):
        change(few_shot.folder / folder, lambda p, f: p.save(f.with_suffix(f".{suffix}")))
    shown = adapted(few_shot)
    assert int(re.findall(r"\((\d+) of 9\)", shown.out)[0]) >= 8


def test_pictures_of_one_other_size_are_resized_and_it_says_so_once(few_shot: Command) -> None:
    for folder in ("support", "query"):
        change(few_shot.folder / folder, lambda p, f: p.resize((40, 30)).save(f))
    shown = adapted(few_shot)
    assert shown.err.count("resized") == 1
    assert "15 of 15 pictures were resized to 16×16, the model's size" in shown.err
    assert "resized to 16×16" in html(few_shot)


def test_mixed_sizes_are_taken_if_it_is_meant_so(few_shot: Command) -> None:
    with Image.open(few_shot.folder / "query/red/1.png") as opened:
        large = opened.resize((64, 32))
    large.save(few_shot.folder / "query/red/1.png")
    shown = adapt(few_shot)
    assert shown.code == 2
    assert "support/blue/0.png has 16×16 pixels, query/red/1.png has 64×32" in shown.err
    assert "1 of 15 pictures were resized" in adapted(few_shot, "--resize").err


def test_what_the_camera_turned_and_what_is_transparent_is_put_right(few_shot: Command) -> None:
    """The model sees an upright picture on white, whatever lies under what is transparent."""
    half = np.full((SIZE, SIZE, 3), 255, np.uint8)
    half[: SIZE // 2] = (200, 0, 0)
    turned = Image.fromarray(np.rot90(half).copy())
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    turned.save(few_shot.folder / "turned.png", exif=exif)
    alpha = np.zeros((SIZE, SIZE, 4), np.uint8)
    alpha[: SIZE // 2] = (200, 0, 0, 255)  # below it, black that nobody sees
    Image.fromarray(alpha).save(few_shot.folder / "alpha.png")
    reader = Reader((3, SIZE, SIZE))
    for name in ("turned.png", "alpha.png"):
        np.testing.assert_array_equal(reader.read(few_shot.folder / name, name).pixels, half)


def test_grey_models_see_grey_and_may_see_it_inverted(few_shot: Command) -> None:
    Image.fromarray(np.full((SIZE, SIZE), 40, np.uint8)).save(few_shot.folder / "grey.png")
    for invert, value in ((False, 40), (True, 215)):
        read = Reader((1, SIZE, SIZE), invert).read(few_shot.folder / "grey.png", "grey")
        assert read.pixels.shape == (SIZE, SIZE, 1)
        assert (read.pixels == value).all()
    untrained(few_shot.folder / "model.pt", image_shape=(1, SIZE, SIZE))
    assert "the model sees only grey: colours were removed" in adapted(few_shot, "--invert").err


def test_more_pictures_than_needed_are_left_out_by_name(few_shot: Command) -> None:
    save_pictures(few_shot.folder / "more", COLOURED, each=4, seed=5)
    (few_shot.folder / "more/red/3.png").unlink()
    shown = adapted(few_shot, "--support", "more")
    assert "the first 3 pictures of each class are used" in shown.err
    assert "left out are 1 of 'blue', 1 of 'green'" in shown.err
    assert html(few_shot).count("<img") == 3 * 3 + 9
    shown = adapted(few_shot, "--support", "more", "--shots", "1", "--force")
    assert "left out are 3 of 'blue', 3 of 'green', 2 of 'red'" in shown.err
    shown_first = re.findall(r'<img[^>]*alt="(.*?)"', html(few_shot))[:3]
    assert shown_first == [f"{c}/0.png" for c in COLOURED]


def test_any_number_of_classes_goes_with_a_head_that_starts_from_zero(few_shot: Command) -> None:
    save_pictures(few_shot.folder / "support", {"yellow": 3, "pink": 4}, each=2, seed=6)
    shown = adapted(few_shot)
    assert len(table(few_shot)[0]) == 3 + 5
    assert int(re.findall(r"\((\d+) of 9\)", shown.out)[0]) >= 6


@pytest.mark.parametrize("name", ["anil", "maml", "itd-bio-random-head"])
def test_other_models_need_the_number_of_classes_they_were_trained_with(
    few_shot: Command, name: str
) -> None:
    untrained(few_shot.folder / "model.pt", name)
    assert adapt(few_shot, "--output", "first").code == 0
    save_pictures(few_shot.folder / "support", {"yellow": 3}, each=2, seed=6)
    shown = adapt(few_shot)
    assert shown.code == 2
    assert f"4 classes, but this {name} model starts from a last layer for 3" in shown.err


def test_maml_says_that_pictures_are_labelled_together(few_shot: Command) -> None:
    untrained(few_shot.folder / "model.pt", "maml")
    assert "the statistics of the 9 query pictures together" in adapted(few_shot).err


def test_what_is_no_picture_is_passed_over_with_a_line(few_shot: Command) -> None:
    (few_shot.folder / "support/red/notes.txt").write_text("red")
    (few_shot.folder / "query/list.csv").write_text("a,b")
    (few_shot.folder / "query/.hidden").write_text("")
    shown = adapted(few_shot)
    assert "2 files are not pictures and were skipped: notes.txt, list.csv" in shown.err


def test_a_query_that_is_in_the_support_is_no_evidence(few_shot: Command) -> None:
    assert (
        "6 query pictures are also support pictures" in adapted(few_shot, "--query", "support").err
    )


# Refused


def assert_refused(few_shot: Command, message: str, *options: str) -> None:
    before = sorted(few_shot.folder.rglob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bilevel.apps.few_shot.labelling.probabilities", None)  # refused before
        shown = adapt(few_shot, *options)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert sorted(few_shot.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--support", "absent"), "there is no folder absent"),
        (("--query", "absent"), "there is no folder absent"),
        (("--support", "model.pt"), "model.pt is a file: name a folder of pictures"),
        (("--query", "model.pt"), "model.pt is a file: name a folder of pictures"),
        (("--support", "support/red"), "support/red/0.png lies next to the class folders"),
        (("--shots", "3"), "3 pictures of each class are needed, but 'blue' has 2, 'green' has 2"),
        (("--shots", "0"), "--shots"),
        (
            ("--output", "support"),
            "the folder support is not empty: choose another, or use --force",
        ),
        (("--output", "model.pt"), "the output model.pt is a file"),
        (("--output", "/proc/labels"), "cannot write to /proc/labels"),
    ],
)
def test_wrong_arguments_are_refused(
    few_shot: Command, options: tuple[str, ...], message: str
) -> None:
    assert_refused(few_shot, message, *options)


def deep(file: Path) -> None:
    Image.fromarray(np.zeros((SIZE, SIZE), np.uint16)).save(file)


def animated(file: Path) -> None:
    frames = [Image.new("RGB", (SIZE, SIZE), colour) for colour in ("red", "blue")]
    frames[0].save(file, save_all=True, append_images=frames[1:])


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-300])


def vast(file: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(file)


_POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("where", ["support/red/1.png", "query/green/2.png"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.write_bytes(b""), "cannot be read as a picture"),
        (lambda f: f.write_text("no picture"), "cannot be read as a picture"),
        (truncated, "cannot be read as a picture"),
        (animated, "holds several pictures: save one of them in a file of its own"),
        (deep, "has more than 8 bits a channel (I;16): save it with 8"),
        (lambda f: (f.unlink(), f.symlink_to("nowhere")), "cannot be read: No such file"),
        (lambda f: (f.unlink(), f.symlink_to("/dev/zero")), "is a device: name a file"),
        (lambda f: (f.unlink(), os.mkfifo(f)), "is a pipe: name a file"),
        (lambda f: os.truncate(f, 2**40), "has 1,099,511,627,776 bytes, and at most 268,435,456"),
        (vast, "has 10,000×10,000 pixels, and at most 50,000,000 are read: save it smaller"),
        (lambda f: f.write_bytes(_POSTSCRIPT), "cannot be read as a picture: it is none of BMP"),
    ],
)
def test_a_bad_picture_is_refused_by_name(
    few_shot: Command, where: str, damage: Callable[[Path], Any], message: str
) -> None:
    damage(few_shot.folder / where)
    assert_refused(few_shot, f"{where} {message}")


def test_too_few_pictures_of_a_class_are_refused_by_name(few_shot: Command) -> None:
    (few_shot.folder / "support/green/0.png").rename(few_shot.folder / "support/green/0.txt")
    assert_refused(few_shot, "2 pictures of each class are needed, but 'green' has 1 (a picture's")
    (few_shot.folder / "support/none").mkdir()
    assert_refused(few_shot, "'green' has 1, 'none' has 0")
    assert_refused(few_shot, "'none' has 0", "--shots", "1")


def test_fewer_than_two_classes_are_refused(few_shot: Command) -> None:
    save_pictures(few_shot.folder / "one", {"red": 0}, each=2, seed=0)
    assert_refused(few_shot, "at least 2 classes; it has one, 'red'", "--support", "one")
    (few_shot.folder / "nothing").mkdir()
    assert_refused(few_shot, "at least 2 classes; it has none", "--support", "nothing")


def test_a_query_folder_without_pictures_is_refused(few_shot: Command) -> None:
    (few_shot.folder / "nothing/red").mkdir(parents=True)
    (few_shot.folder / "nothing/red/a.txt").write_text("")
    assert_refused(few_shot, "there are no pictures in nothing", "--query", "nothing")


def test_folders_of_classes_beside_others_are_refused(few_shot: Command) -> None:
    (few_shot.folder / "query/green").rename(few_shot.folder / "query/grene")
    assert_refused(
        few_shot, "'blue' is named after a class, but the folder 'grene' belongs to none"
    )
    (few_shot.folder / "query/grene").rename(few_shot.folder / "query/green")
    (few_shot.folder / "query/green/0.png").rename(few_shot.folder / "query/0.png")
    assert_refused(few_shot, "'blue' is named after a class, but the picture '0.png' belongs to")


def test_a_damaged_checkpoint_is_refused(few_shot: Command) -> None:
    (few_shot.folder / "model.pt").write_bytes(b"model")
    assert_refused(few_shot, "model.pt is damaged, or was not written by `bilevel few-shot train`")


def test_no_other_program_is_started_for_a_picture(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"{arguments} was started")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    (few_shot.folder / "query/red/1.png").write_bytes(_POSTSCRIPT)
    assert_refused(few_shot, "query/red/1.png cannot be read as a picture")


def test_an_animation_cut_short_anywhere_is_refused_without_a_stack(tmp_path: Path) -> None:
    file, random = tmp_path / "a.gif", np.random.default_rng(0)
    frames = [Image.fromarray(random.integers(256, size=(9, 9, 3), dtype=np.uint8)) for _ in "abc"]
    frames[0].save(file, save_all=True, append_images=frames[1:])
    whole, read, refused = file.read_bytes(), 0, 0
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        try:
            read += Reader((3, 9, 9)).read(file, "a").size == (9, 9)
        except UserError as error:
            refused += str(file) in str(error)
    assert read + refused == len(whole)  # some prefixes hold the first picture whole
    assert refused > len(whole) / 2
