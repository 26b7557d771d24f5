"""Fashion-MNIST: pictures of clothes in MNIST's format (Xiao, Rasul & Vollgraf, 2017)."""

from bilevel.datasets.idx_images import IdxImages

_CLOTHES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"

fashion_mnist = IdxImages(
    name="fashion-mnist",
    train_rows=60_000,
    test_rows=10_000,
    features=28 * 28,
    class_names=tuple(_CLOTHES.split(", ")),
    source="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    licence="MIT",
    download_bytes=30_878_645,
    sha256=(  # of the files whose md5 sums its authors publish
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
