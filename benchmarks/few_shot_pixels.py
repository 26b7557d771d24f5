"""The few-shot model that comes along, against logistic regression on raw pixels.

    BILEVEL_DATA=... python benchmarks/few_shot_pixels.py [--tasks 200] [--alone 40]

5-way 5-shot tasks of FC100's test classes, which neither training nor the choice of the model saw;
5 query images a class, the same tasks for all. Logistic regression has the C of four that is best
on these very tasks, which flatters it. "Alone" is how `bilevel few-shot adapt` asks: each query
picture beside the support pictures only, on the first of the tasks.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from bilevel.few_shot import Tasks
from sklearn.linear_model import LogisticRegression

from bilevel.apps.few_shot.checkpoint import SHIPPED, load
from bilevel.apps.few_shot.labelling import probabilities
from bilevel.apps.few_shot.learners import Formulation
from bilevel.datasets import load_images
from bilevel.models.heads.form import Shape

WAYS = SHOTS = QUERIES = 5
GRID = (1e-4, 1e-3, 1e-2, 1.0)


def shown(name: str, right: list[float]) -> None:
    interval = 1.96 * np.std(right) / math.sqrt(len(right))
    print(f"| {name} | {len(right)} | {np.mean(right):.2%} ± {interval:.2%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--alone", type=int, default=40)
    options = parser.parse_args()
    images = load_images("fc100").test
    tasks = Tasks(images, WAYS, SHOTS, QUERIES, seed=2**32)
    labels = np.repeat(np.arange(WAYS), SHOTS)
    places = [tasks.draw(i) for i in range(options.tasks)]
    pixels = images.images.reshape(len(images.labels), -1).astype(np.float32) / 127.5 - 1
    print("| model | tasks | accuracy |\n|---|---|---|")

    def regression(C: float) -> list[float]:
        return [
            LogisticRegression(C=C, max_iter=200)
            .fit(pixels[place[:25]], labels)
            .score(pixels[place[25:]], labels)
            for place in places
        ]

    best = max((regression(C) for C in GRID), key=np.mean)
    shown("logistic regression on raw pixels, best C", best)
    model = load(SHIPPED)
    made: Formulation = model.settings.formulate(Shape(WAYS, SHOTS, QUERIES), heads=1)
    each = torch.split(torch.arange(options.tasks), 1)
    algorithm = model.settings.make_algorithm()
    logits = made.adapted(tasks, algorithm, model.x, model.step, each)
    shown(
        "shipped model, query pictures of a task together",
        [float((found[0].argmax(1).numpy() == labels).mean()) for found in logits],
    )
    alone = []
    for place in places[: options.alone]:
        found = probabilities(model, images.images[place[:25]], images.images[place[25:]], SHOTS)
        alone.append(float((found.argmax(1) == labels).mean()))
    shown("shipped model, each query picture alone", alone)
    shown("logistic regression on the same tasks", best[: options.alone])


if __name__ == "__main__":
    main()
