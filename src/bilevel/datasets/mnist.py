"""MNIST: handwritten digits (LeCun, Bottou, Bengio & Haffner, 1998)."""

from bilevel.datasets.idx_images import IdxImages

mnist = IdxImages(
    name="mnist",
    train_rows=60_000,
    test_rows=10_000,
    features=28 * 28,
    class_names=tuple("0123456789"),
    source="https://ossci-datasets.s3.amazonaws.com/mnist/",
    licence="CC BY-SA 3.0",
    download_bytes=11_594_722,
    sha256=(
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
