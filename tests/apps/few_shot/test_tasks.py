"""Tasks: what a task holds, and that its number alone decides it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bilevel.few_shot import Tasks

from bilevel.apps.few_shot.tasks import ENDLESS
from bilevel.datasets import ImageClasses, Images
from bilevel.models.heads.form import Shape

CLASSES, EACH = 8, 9


def numbered(first: int = 0, classes: int = CLASSES) -> Images:
    """Images whose every pixel is their number, in shuffled order."""
    order = np.random.default_rng(0).permutation(classes * EACH)
    pixels = np.broadcast_to((first + order)[:, None, None, None], (len(order), 3, 2, 1))
    names = tuple(f"{first}-{c}" for c in range(classes))
    return Images(pixels.astype(np.uint8).copy(), order // EACH, names)


def numbers(tasks: Tasks, *rows: int) -> np.ndarray:
    """The images of tasks, by their numbers: (tasks, images)."""
    data = tasks.rows(torch.tensor(rows))
    assert (data == data[:, :, :1, :1, :1]).all()
    return ((data[:, :, 0, 0, 0].double() + 1) * 127.5).round().long().numpy()


def made(**changes: object) -> Tasks:
    return Tasks(numbered(), **{"ways": 4, "shots": 2, "queries": 3, **changes})


def test_a_task_holds_distinct_images_of_distinct_classes_support_first_class_by_class():
    for task in numbers(made(), *range(200)):
        support, query = task[:8].reshape(4, 2) // EACH, task[8:].reshape(4, 3) // EACH
        assert (support == support[:, :1]).all()
        assert (query == support[:, :1]).all()
        assert len(set(support[:, 0])) == 4
        assert len(set(task)) == 20


def test_labels_follow_the_order_of_the_images():
    shape = Shape(ways=3, shots=2, queries=4)
    assert shape.support == 6
    assert shape.support_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert shape.query_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_the_same_number_is_the_same_task_in_any_order_and_batch():
    tasks = made()
    alone = numbers(tasks, 5)[0]
    assert (numbers(tasks, 9, 5, 0)[1] == alone).all()
    assert (numbers(tasks, 5, 5)[1] == alone).all()
    assert (numbers(made(), 5)[0] == alone).all()
    assert (numbers(made(count=6), 5)[0] == alone).all()
    everyone = made(count=6).rows(None)
    assert torch.equal(everyone, made().rows(torch.arange(6)))


def test_other_numbers_and_other_seeds_are_other_tasks():
    first = {tuple(task) for task in numbers(made(), *range(100))}
    second = {tuple(task) for task in numbers(made(seed=1), *range(100))}
    assert len(first) == len(second) == 100
    assert not first & second


def test_numbers_may_be_as_large_as_a_run_is_long():
    far = ENDLESS - 1
    assert len(made()) == ENDLESS
    assert (numbers(made(), far) == numbers(made(), far)).all()
    assert (numbers(made(), far) != numbers(made(), far - 1)).any()


def test_every_class_and_image_is_drawn_about_equally_often():
    drawn = np.bincount(numbers(made(), *range(700)).ravel(), minlength=CLASSES * EACH)
    expected = 700 * 20 / (CLASSES * EACH)
    assert abs(drawn / expected - 1).max() < 0.25
    by_class = drawn.reshape(CLASSES, EACH).sum(1)
    assert abs(by_class / by_class.mean() - 1).max() < 0.1


def test_a_class_may_stand_at_any_place_in_its_task():
    places = [{task[2 * w] // EACH for task in numbers(made(), *range(200))} for w in range(4)]
    assert places == [set(range(CLASSES))] * 4


def test_an_image_may_be_support_in_one_task_and_query_in_another():
    drawn = numbers(made(), *range(200))
    assert set(drawn[:, :8].ravel()) == set(drawn[:, 8:].ravel()) == set(range(CLASSES * EACH))


def test_all_classes_and_all_images_can_be_used():
    tasks = made(ways=CLASSES, shots=EACH - 1, queries=1)
    assert sorted(numbers(tasks, 3)[0]) == list(range(CLASSES * EACH))


def test_tasks_of_one_split_hold_no_class_of_another():
    splits = ImageClasses("numbered", numbered(0, 4), numbered(36, 4), numbered(72, 4))
    for split, first in ((splits.train, 0), (splits.validation, 36), (splits.test, 72)):
        tasks = Tasks(split, ways=3, shots=2, queries=2)
        drawn = numbers(tasks, *range(50))
        assert drawn.min() >= first
        assert drawn.max() < first + 36


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_are_scaled_from_bytes_to_minus_one_to_one(dtype):
    pixels = np.arange(256, dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    pixels[..., 1], pixels[..., 2] = 0, 255
    images = Images(pixels, np.arange(256) // 128, ("a", "b"))
    data = Tasks(images, ways=2, shots=1, queries=127, dtype=dtype).rows(torch.tensor([0]))
    assert data.dtype == dtype
    assert data.shape == (1, 256, 3, 1, 1)
    values = data[0, :, 0].flatten().sort().values
    assert torch.allclose(values, torch.linspace(-1, 1, 256, dtype=dtype), atol=1e-6)
    assert data[0, :, 1].eq(-1).all()
    assert data[0, :, 2].eq(1).all()


def test_height_and_width_stay_as_they_were():
    image = np.arange(6, dtype=np.uint8).reshape(3, 2, 1)
    images = Images(np.stack([image] * 4), np.array([0, 0, 1, 1]), ("a", "b"))
    tasks = Tasks(images, ways=2, shots=1, queries=1)
    assert tasks.image_shape == (1, 3, 2)
    shown = (tasks.rows(torch.tensor([0]))[0, 0, 0].double() + 1) * 127.5
    assert torch.equal(shown.round().long(), torch.arange(6).reshape(3, 2))


def test_the_images_are_not_written_to():
    images = numbered()
    before = images.images.copy()
    images.images.flags.writeable = images.labels.flags.writeable = False
    Tasks(images, ways=2, shots=1, queries=1).rows(torch.tensor([0])).add_(1)
    assert (images.images == before).all()


def test_a_batch_carries_the_numbers_of_its_tasks():
    batch = made().batch(torch.tensor([7, 2]))
    assert batch.index.tolist() == [7, 2]
    assert batch.data.shape == (2, 20, 1, 3, 2)
