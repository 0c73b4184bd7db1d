"""The public data sets of the paper: where their archives are, how large, their checksums, counts and terms.

Checksums are those that torchvision and the COCO tools check against; where none was found of the whole file (fastai's are of its
first MiB), the entry has None, and the size and the counts tell the official archive from another edition. Hugging Face ``datasets``
would not serve: it fetches its own conversions from its own host and reads neither the official archives nor a folder of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class SourceError(Exception):
    """An archive can't be had, is damaged, or lacks what was asked for; the message names it and says what to do."""


@dataclass(frozen=True)
class Archive:
    """A file that a data set is distributed as.

    Attributes:
        bytes: the official size, or None where it is not known.
        md5: the official checksum, or None where none is published.
        bulk: its content is fetched file by file instead when the archive isn't at hand.
    """

    name: str
    url: str
    bytes: int | None
    md5: str | None = None
    bulk: bool = False


@dataclass(frozen=True)
class Entry:
    """A data set.

    Attributes:
        counts: what the official archives hold, by the names that a run's own counts have.
        takes: options beyond the common ones that its command has a use for.
    """

    name: str
    title: str
    home: str
    terms: str
    archives: tuple[Archive, ...]
    counts: dict[str, int]
    takes: frozenset[str] = field(default_factory=frozenset)


_USERS = frozenset({"clients", "train_size", "pool", "val", "test"})
_COCO = "http://images.cocodataset.org"
_NLP = "https://s3.amazonaws.com/fast-ai-nlp"  # the files of Zhang et al. (2015); their own host is a web drive
_FLICKR = "http://shannon.cs.illinois.edu/DenotationGraph"
_CIFAR_TERMS = "No licence is stated; the authors ask to cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009)."

CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "cifar10",
            "CIFAR-10: the IC10 users, and a public set.",
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            _CIFAR_TERMS,
            (
                Archive(
                    "cifar-10-python.tar.gz",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                    170498071,
                    "c58f30108f718f92721af3b95e74349a",
                ),
            ),
            {"train": 50000, "test": 10000},
            _USERS | {"alpha", "public"},
        ),
        Entry(
            "cifar100",
            "CIFAR-100: the IC100 users, and a public set.",
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            _CIFAR_TERMS,
            (
                Archive(
                    "cifar-100-python.tar.gz",
                    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                    169001437,
                    "eb9058c3a382ffc7106e4002c42a8d85",
                ),
            ),
            {"train": 50000, "test": 10000},
            _USERS | {"alpha", "public"},
        ),
        Entry(
            "coco",
            "COCO 2017: the MLC and SS users, and a public set; images are fetched one by one.",
            "https://cocodataset.org/#termsofuse",
            "Annotations: CC BY 4.0. The images are Flickr's, under Flickr's terms and each image's own licence (in the JSON files).",
            (
                Archive(
                    "annotations_trainval2017.zip",
                    f"{_COCO}/annotations/annotations_trainval2017.zip",
                    252907541,
                    "f4bbac642086de4f52a3fdda2de5fa2c",
                ),
                Archive("train2017.zip", f"{_COCO}/zips/train2017.zip", 19336861798, "cced6f7f71b7629ddf16f17bbcfab6b2", bulk=True),
                Archive("val2017.zip", f"{_COCO}/zips/val2017.zip", 815585330, "442b8da7639aecaf257c1dceb8ba8c80", bulk=True),
            ),
            {"train": 118287, "test": 5000},
            _USERS - {"clients"} | {"public", "size", "parts", "skip_missing"},
        ),
        Entry(
            "voc",
            "Pascal VOC 2012: a public set, MLC users with --clients, SS users with --parts.",
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/",
            "The images are Flickr's, under Flickr's terms of use, as the home page says.",
            (
                Archive(
                    "VOCtrainval_11-May-2012.tar",
                    "https://thor.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
                    1999639040,
                    "6cd6e144f989b92b3379bac3b3de84fd",
                ),
            ),
            {"images": 17125, "masks": 2913},
            _USERS | {"public", "size", "parts"},
        ),
        Entry(
            "flickr30k",
            "Flickr30k: the public set of images and captions for Setup2.",
            f"{_FLICKR}/",
            "For non-commercial research and education; the images are Flickr's, under Flickr's terms of use. The images are given out "
            "after a form on the home page: where the address below answers no more, fill it in and pass --archives FOLDER.",
            (
                Archive("flickr30k-images.tar.gz", f"{_FLICKR}/data/flickr30k-images.tar.gz", None),
                Archive("flickr30k.tar.gz", f"{_FLICKR}/data/flickr30k.tar.gz", None),
            ),
            {"images": 31783},
            frozenset({"public", "size"}),
        ),
        Entry(
            "yahoo",
            "Yahoo! Answers topics: the TC users.",
            "https://webscope.sandbox.yahoo.com",
            "Yahoo! Webscope L6: for non-commercial academic research, under Yahoo's terms; cite Zhang, Zhao and LeCun (2015).",
            (Archive("yahoo_answers_csv.tar.gz", f"{_NLP}/yahoo_answers_csv.tgz", 319476345),),
            {"train": 1400000, "test": 60000},
            _USERS | {"alpha"},
        ),
        Entry(
            "ag-news",
            "AG's News: further TC users.",
            "http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
            "For non-commercial research; cite Zhang, Zhao and LeCun (2015).",
            (Archive("ag_news_csv.tar.gz", f"{_NLP}/ag_news_csv.tgz", 11784419),),
            {"train": 120000, "test": 7600},
            _USERS | {"alpha"},
        ),
        Entry(
            "food101",
            "Food-101: the ICF users of the non-IID setups.",
            "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
            "The images are Foodspotting's; use beyond scientific fair use must be negotiated with their owners.",
            (
                Archive(
                    "food-101.tar.gz", "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz", 4996278331, "85eeb15f3717b99a5da872d97d918f87"
                ),
            ),
            {"train": 75750, "test": 25250, "classes": 101},
            _USERS | {"alpha", "size"},
        ),
        Entry(
            "caltech101",
            "Caltech-101: the ICC users of the non-IID setups.",
            "https://data.caltech.edu/records/mzrjq-6wc02",
            "CC BY 4.0; cite Li, Andreeto, Ranzato and Perona, Caltech 101 (2022).",
            (
                Archive(
                    "caltech-101.zip",
                    "https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",
                    137414764,
                    "3138e1922a9193bfa496528edbbc45d0",
                ),
            ),
            {"images": 8677, "classes": 101},
            _USERS | {"alpha", "size"},
        ),
        Entry(
            "tiny-imagenet",
            "Tiny ImageNet: images to pretrain small backbones on.",
            "http://cs231n.stanford.edu/",
            "ImageNet's terms of access: non-commercial research and education (https://image-net.org/download).",
            (
                Archive(
                    "tiny-imagenet-200.zip",
                    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    248100043,
                    "90528d7ca1a48142e341f4ef8d21d0de",
                ),
            ),
            {"train": 100000, "val": 10000, "classes": 200},
        ),
    )
}
