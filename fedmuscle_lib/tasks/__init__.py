"""The users' tasks: where the data lies and how it is read, the local loss, and the metric of the
paper's tables.

A new task is one module here and one row of ``TASKS``.
"""

from __future__ import annotations

from fedmuscle_lib.tasks.multi_label import MultiLabelClassification
from fedmuscle_lib.tasks.segmentation import SemanticSegmentation
from fedmuscle_lib.tasks.single_label import (
    ImageClassification,
    SingleLabelClassification,
    TextClassification,
)
from fedmuscle_lib.tasks.task import Classification, Head, Task
from fedmuscle_lib.tasks.text_generation import TextGeneration

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        ImageClassification("IC10", folder="IC/CIFAR10", n_classes=10),
        ImageClassification("IC100", folder="IC/CIFAR100", n_classes=100),
        ImageClassification("ICF", folder="IC/FOOD101", n_classes=101),
        ImageClassification("ICC", folder="IC/CALTECH101", n_classes=101),
        MultiLabelClassification("MLC", folder="MLC_setup"),
        SemanticSegmentation("SS", folder="semseg_setup"),
        TextClassification("TC", folder="TC/yahoo_qa", n_classes=10),
        TextGeneration("TG", folder="TC/ag_news"),
    )
}


def direction(metric: str) -> int:
    """+1 if a larger value of the metric is better, -1 if a smaller one is."""
    return (
        -1 if any(task.metric == metric and task.lower_is_better for task in TASKS.values()) else 1
    )
