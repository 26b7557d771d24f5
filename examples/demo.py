"""Wrong labels in a table: scikit-learn's digits, after replacing 30 % of their labels.

Writes the digits to a CSV file, runs `bilevel clean` on it as you would in a terminal, and compares
what it flagged with the truth. `make demo` runs this program.

What to change: the share of labels that are replaced, and how many rows are trusted.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import bilevel

OUT = Path("out/demo")
CLEANED = OUT / "cleaned"


def main() -> None:
    digits = bilevel.datasets.load("digits")
    X, y = digits.train
    trusted = np.arange(len(y)) < 300
    noisy, _, wrong = bilevel.datasets.corrupt(y[~trusted], 0.3, classes=10, seed=0)

    OUT.mkdir(parents=True, exist_ok=True)
    pixels = [f"pixel_{j}" for j in range(X.shape[1])]
    for name, rows, labels in (("train", X[~trusted], noisy), ("trusted", X[trusted], y[trusted])):
        pd.DataFrame(rows, columns=pixels).assign(digit=labels).to_csv(
            OUT / f"{name}.csv", index=False
        )

    command = ["clean", str(OUT / "train.csv"), "--trusted", str(OUT / "trusted.csv")]
    command += ["--label", "digit", "--output", str(CLEANED), "--force"]
    print("$ bilevel", *command)
    subprocess.run([sys.executable, "-m", "bilevel", *command], check=True)

    found = pd.read_csv(CLEANED / "labels.csv")
    caught = int((found.flagged & wrong).sum())
    print(f"\nThe truth, which the command did not know: {int(wrong.sum())} labels were wrong.")
    print(f"{caught} of them were flagged, and {int(found.flagged.sum()) - caught} right ones.")
    print(f"ROC-AUC of the suspicion: {roc_auc_score(wrong, found.suspicion):.3f}")


if __name__ == "__main__":
    main()
