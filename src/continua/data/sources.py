"""Official addresses, mirrors and MD5 sums. MD5 guards against damage in transit, not against forgery: that is what safe
unpacking (`fetch.py`) and the restricted reader (`pickles.py`) are for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """One file to download: addresses in the order to try them, its MD5, its size where published."""

    file: str
    addresses: tuple[str, ...]
    md5: str
    size: int | None = None
    folder: str = ""  # an archive: the folder it unpacks to; any other file: the folder it belongs in

    @property
    def is_archive(self) -> bool:
        return self.file.endswith((".tar.gz", ".zip"))


def _toronto(file: str, md5: str, size: int | None, folder: str) -> Remote:
    addresses = (f"https://www.cs.toronto.edu/~kriz/{file}", f"https://cave.cs.toronto.edu/kriz/{file}")
    return Remote(file, addresses, md5, size, folder)


def _idx(base: str, folder: str, sums: tuple[str, str, str, str]) -> tuple[Remote, ...]:
    files = (f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    return tuple(Remote(file, (base + file,), md5, folder=folder) for file, md5 in zip(files, sums, strict=True))


# The first layout of a set is the one fetched unless another is asked for.
REMOTES: dict[str, dict[str, tuple[Remote, ...]]] = {
    "cifar10": {
        "python": (_toronto("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071, "cifar-10-batches-py"),),
        "binary": (_toronto("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171, "cifar-10-batches-bin"),),
    },
    "cifar100": {
        "python": (_toronto("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", None, "cifar-100-python"),),
        "binary": (_toronto("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733, "cifar-100-binary"),),
    },
    "mnist": {
        "idx": _idx(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "mnist",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        )
    },
    "fashion_mnist": {
        "idx": _idx(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "fashion_mnist",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        )
    },
    "tiny_imagenet_200": {
        "jpeg": (
            Remote(
                "tiny-imagenet-200.zip",
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                "90528d7ca1a48142e341f4ef8d21d0de",
                248_100_043,
                "tiny-imagenet-200",
            ),
        )
    },
}
"""Where official data sets are fetched from: files with checksums, by set and layout."""

# MD5 of the contents of files on disk; of a .gz, of what it holds. Files not listed have no published sum.
CONTENTS_MD5: dict[str, dict[str, str]] = {
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
}
