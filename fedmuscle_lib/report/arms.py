"""The arms of a table: a run stands there under the name of its algorithm, or as one setting of it beside others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from fedmuscle_lib import algorithms
from fedmuscle_lib.experiment import PHASES, Phase
from fedmuscle_lib.runs import History

__all__ = [
    "AUTHORS",
    "BASELINE",
    "HEADLINE",
    "OTHER_MOMENT",
    "PHASES",
    "TUNED",
    "TUNED_BASELINE",
    "Arm",
    "History",
    "Phase",
    "added",
    "algorithm_of",
    "arm",
    "as_arm",
    "baseline_of",
    "is_blind",
    "label",
    "setting_of",
]

# The moment of the last round that tables, figures and Delta stand at unless they say another. The paper does not say when it evaluates;
# this is the literal end of Algorithm 1.
HEADLINE: Phase = "after_alignment"
(OTHER_MOMENT,) = (phase for phase in PHASES if phase != HEADLINE)
BASELINE = "local"
TUNED = "tuned"  # the setting of arms whose hyper-parameters were chosen on the validation split, for local training
TUNED_BASELINE = f"{BASELINE}, {TUNED}"
AUTHORS = "authors' values"  # the setting of arms whose own options are not what the profile tuned, but their authors'


@dataclass(frozen=True, kw_only=True)
class Arm(History):
    """A run that stands in tables and figures beside others of its algorithm.

    Attributes:
        setting: what distinguishes it from them, such as "M = 5"; its name in tables is "<algorithm>, <setting>".
    """

    setting: str


def as_arm(histories: Iterable[History], setting: str) -> list[History]:
    """``histories`` as arms: in every column ``algorithm`` they are called "<algorithm>, <setting>"."""
    names = [field.name for field in fields(History)]
    return [Arm(**{name: getattr(history, name) for name in names}, setting=setting) for history in histories]


def arm(history: History) -> str:
    """The name of a run in tables and figures: that of its algorithm, unless :func:`as_arm` gave it another."""
    return f"{history.settings.algorithm}, {history.setting}" if isinstance(history, Arm) else history.settings.algorithm


def algorithm_of(arm: str) -> str:
    """The algorithm of an arm, by the arm's name."""
    return arm.partition(", ")[0]


def setting_of(arm: str) -> str:
    """The setting by which the arm differs from others of its algorithm, by the arm's name; empty if it has none."""
    return arm.partition(", ")[2]


def baseline_of(arm: str, arms: Iterable[str]) -> str:
    """The arm that ``arm`` is compared with: local training under the same setting if ``arms`` has it, else local training.

    A tuned arm is compared with local training as it is, like all others; Delta over tuned local training is a column of its own.
    """
    own = BASELINE + arm.removeprefix(algorithm_of(arm))
    return own if own in set(arms) and own != TUNED_BASELINE else BASELINE


def is_blind(arm: str) -> bool:
    """Whether the arm's algorithm never looks at public data, so that one run of it counts for every public set."""
    return "public" in algorithms.get(algorithm_of(arm)).ignores


def added(arm: str) -> bool:
    """Whether the paper does not have the arm: its algorithm is a control, or ours, or it is tuned."""
    algorithm = algorithm_of(arm)
    return setting_of(arm) == TUNED or algorithm in algorithms.names() and algorithms.get(algorithm).source != "the paper"


def label(arm: str) -> str:
    """The arm's name for legends and headings."""
    algorithm = algorithm_of(arm)
    return algorithms.get(algorithm).label + arm.removeprefix(algorithm) if algorithm in algorithms.names() else arm
