"""Fashion-MNIST: pictures of clothes in MNIST's format (Xiao, Rasul & Vollgraf, 2017)."""

from bilevel.datasets.idx_images import IdxImages

_CLOTHES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"

fashion_mnist = IdxImages(
    name="fashion-mnist",
    train_rows=60_000,
    test_rows=10_000,
    features=28 * 28,
    class_names=tuple(_CLOTHES.split(", ")),
    source="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    licence="MIT",
    download_bytes=30_878_645,
    checksums={  # its authors publish md5 sums
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)
