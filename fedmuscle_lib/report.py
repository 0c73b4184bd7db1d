"""From runs to tables: Delta beside the paper's cells, what the seeds allow one to say, and what it cost.

Standard deviations are over seeds with ddof = 0, because the paper's are: each of the 172 distinct cells of Tables 1 and 7 is the mean and
the population standard deviation of three values with one decimal, while only 86 of them could be sample standard deviations.
Intervals are 95 % Student t intervals over seeds (ddof = 1). A single seed has neither: both are NaN.

Every function takes the ``phase`` of a round that it reads: "after_alignment", the literal end of Algorithm 1, or "after_local".
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import permutations
from math import comb, factorial
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import kendalltau, permutation_test, rankdata, spearmanr
from scipy.stats import t as student

from fedmuscle_lib import algorithms
from fedmuscle_lib.data import PUBLIC_SETS
from fedmuscle_lib.experiment import PHASES, History, Phase
from fedmuscle_lib.muscle.wire import paper_cost_gb, reply_nbytes
from fedmuscle_lib.randomness import batches
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.setups import SETUPS
from fedmuscle_lib.tasks import TASKS, direction

BASELINE = "local"
CONFIDENCE = 0.95
USER = ["public", "user", "model", "task", "metric"]
TABLE_COLUMNS = [*USER, "algorithm", "mean", "std", "n_seeds", "paper_mean", "paper_std"]
DELTA_COLUMNS = ["public", "algorithm", "delta", "delta_std", "paper_delta"]
INTERVAL_COLUMNS = ["n_seeds", "ci_low", "ci_high"]
ORIGINS = ("the paper's algorithms", "controls and ours")

# Where runs find the paper's cells; Tables 1 and 7 agree on those that both have.
PAPER = ("table1", "table7", "table2")
_PAPER_SETUP = {"table1": "setup1", "table7": "setup1", "table2": "setup2", "table9": "setup2"}
# They name public sets as the datasets' authors do, Table 7 the objective where we name the algorithm, and Table 9 no temperature.
_PAPER_PUBLIC = {"Pascal VOC": "voc", "COCO": "coco", "CIFAR-100": "cifar100", "Flickr30K": "flickr30k"}
_PAPER_ALGORITHM = {"table7": {"muscle": "fedmuscle"}, "table9": {"fedmuscle": "fedmuscle, τ(SS, TC) = 100"}}
# What the paper leaves open; the settings' descriptions say why ours is what it is.
_NOT_STATED = {"head_hidden", "head_on", "pooled_stages", "lora_alpha", "lora_targets", "weight_decay", "options", "backbones", "precision"}
# Settings that say what is compared, where things lie and how they travel, rather than how the paper's numbers came about.
_NO_DEPARTURE = {"algorithm", "public", "profile", "seed", "data_dir", "models_path", "device", "threads", "reply", "evaluate_every"}
_NO_DEPARTURE |= {"root_train_image_folder", "root_val_image_folder"}


# --- the paper ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def paper_table(*names: str) -> pd.DataFrame:
    """A table of the paper, such as "table7", or the union of several, with this project's names of setups, public sets and algorithms."""
    tables = []
    for name in names:
        with resources.files("fedmuscle_lib").joinpath("paper_tables", f"{name}.csv").open(encoding="utf8") as file:
            about = name.partition("_")[0]
            table = pd.read_csv(file).replace({"public": _PAPER_PUBLIC, "algorithm": _PAPER_ALGORITHM.get(about, {})})
            tables.append(table.assign(setup=_PAPER_SETUP.get(about)))
    return pd.concat(tables).drop_duplicates(ignore_index=True)


def paper_gains(*names: str) -> pd.DataFrame:
    """The paper's cells as improvements over local training in the same table: setup, ``USER``, algorithm, gain (per cent)."""
    gains = pd.concat(relative(paper_table(name).rename(columns={"mean": "value"})) for name in names)
    return gains.rename(columns={"value": "gain"})[["setup", *USER, "algorithm", "gain"]].drop_duplicates(ignore_index=True)


def paper_deltas(name: str) -> pd.DataFrame:
    """Delta as a table of the paper prints it, and as its cells give it: public, algorithm, printed, of_cells (per cent)."""
    printed = paper_table(f"{name}_delta").rename(columns={"delta_paper": "printed"})[["public", "algorithm", "printed"]]
    of_cells = paper_gains(name).groupby(["public", "algorithm"], sort=False).gain.mean().rename("of_cells")
    return printed.merge(of_cells.reset_index())


# --- what was run ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm(History):
    """A run that stands in tables and figures beside others of its algorithm.

    Attributes:
        setting: what tells it from them, such as "M = 5"; its name there is "<algorithm>, <setting>".
    """

    setting: str


def as_arm(histories: Iterable[History], setting: str) -> list[History]:
    """``histories`` as arms: in every column ``algorithm`` they are called "<algorithm>, <setting>"."""
    return [Arm(**vars(history) | {"setting": setting}) for history in histories]


def arm(history: History) -> str:
    """The name under which a run stands in tables and figures: its algorithm's, unless :func:`as_arm` gave it another."""
    return f"{history.settings.algorithm}, {history.setting}" if isinstance(history, Arm) else history.settings.algorithm


def algorithm_of(arm: str) -> str:
    """The algorithm of an arm, by the arm's name."""
    return arm.partition(", ")[0]


def _baseline(arm: str, arms: Iterable[str]) -> str:
    """What an arm's Delta is over: local training under the same setting if that is an arm too, else local training."""
    own = BASELINE + arm.removeprefix(algorithm_of(arm))
    return own if own in set(arms) else BASELINE


def departures(histories: Sequence[History]) -> pd.DataFrame:
    """What differs from the paper's values, or is not stated there and not our default: setting, ours, paper.

    Where only some arms differ, they are named behind the value.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for history in histories:
        settings = history.settings
        for name, field in Settings.model_fields.items():
            ours, paper = getattr(settings, name), field.get_default(call_default_factory=True)
            if name == "train_samples":
                ours = settings.own_train_samples
                paper = {user.task: user.train_samples for user in SETUPS[settings.setup] if user.task in ours}
            if name not in {"setup", *_NO_DEPARTURE} and ours != paper:  # a table's note names the setup
                row = name, _listed(ours), "not stated" if name in _NOT_STATED else _listed(paper)
                found.setdefault(row, []).append(arm(history))
    rows = []
    for (name, ours, paper), arms in found.items():
        which = "" if len(arms) == len(histories) else f" ({'; '.join(dict.fromkeys(arms))})"
        rows.append({"setting": name, "ours": ours + which, "paper": paper})
    return pd.DataFrame(rows, columns=["setting", "ours", "paper"])


def _listed(value: Any) -> str:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


# --- what was measured -------------------------------------------------------------------------------------------------------


def scores(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """The last round's metrics: public, user, model, task, metric, algorithm, seed, value (per cent).

    A run that never looks at public data counts for every public set that the others were run on.

    Raises:
        ValueError: runs that can't stand in one table: of different users or test data, or two of one arm, public set and seed.
    """
    return _rows(histories, [history.final(phase) for history in histories]).drop(columns=["round", "phase"])


def _rows(histories: Sequence[History], metrics: Iterable[pd.DataFrame]) -> pd.DataFrame:
    _refuse_unlike(histories)
    sighted = {h.settings.public: None for h in histories if not _blind(h)}  # a dict keeps the order
    parts = []
    for history, rows in zip(histories, metrics, strict=True):
        s = history.settings
        for public in list(sighted) if _blind(history) and sighted else [s.public]:
            parts.append(rows.assign(public=public, algorithm=arm(history), seed=s.seed))
    together = pd.concat(parts, ignore_index=True).drop_duplicates()
    key = ["public", "user", "algorithm", "seed", "round", "phase"]
    if (twice := together[together.duplicated(key)]).size:
        row = twice.iloc[0]
        what = f"{row.algorithm} on {row.public} with seed {row.seed}"
        raise ValueError(f"two different runs of {what}: a table holds one of them, or names the other by as_arm")
    return together[[*USER, "algorithm", "seed", "round", "phase", "value"]]


def _blind(history: History) -> bool:
    return "public" in algorithms.get(history.settings.algorithm).ignores


def _refuse_unlike(histories: Sequence[History]) -> None:
    if not histories:
        raise ValueError("no runs to report on")
    for name in ("profile", "setup", "users", "evaluate_on"):
        values = {getattr(history.settings, name) for history in histories}
        if len(values) > 1:
            raise ValueError(f"runs with different {name} don't stand in one table: {sorted(map(str, values))}")


def over_seeds(rows: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    """Per group of ``by``: mean, std, n_seeds, ci_low, ci_high of ``column``. A NaN among the values makes them all NaN."""
    groups = rows.groupby(by, sort=False)[column]
    out = pd.DataFrame({"mean": groups.mean(skipna=False), "std": groups.std(ddof=0, skipna=False), "n_seeds": groups.size()})
    half = student.ppf((1 + CONFIDENCE) / 2, out.n_seeds - 1) * groups.sem(skipna=False)  # NaN without a degree of freedom
    out["std"] = out["std"].where(out.n_seeds > 1)
    return out.assign(ci_low=out["mean"] - half, ci_high=out["mean"] + half).reset_index()


def table(histories: Sequence[History], phase: Phase = "after_alignment", paper: Sequence[str] = PAPER) -> pd.DataFrame:
    """``TABLE_COLUMNS``: a user's metric under each algorithm, in per cent, beside the cell of the tables ``paper`` that have one."""
    ours = over_seeds(scores(histories, phase), [*USER, "algorithm"], "value")
    theirs = paper_table(*paper).rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return _beside(ours, theirs[["setup", "public", "algorithm", "user", "paper_mean", "paper_std"]], histories)[TABLE_COLUMNS]


def _beside(ours: pd.DataFrame, paper: pd.DataFrame, histories: Sequence[History]) -> pd.DataFrame:
    """``ours`` with what the paper has to the same keys: NaN in another setup, and where it is about users who did not take part."""
    settings = histories[0].settings
    all_took_part = len(settings.members) == len(SETUPS[settings.setup])
    known = (paper.setup == settings.setup) & ("user" in paper or all_took_part)
    return ours.merge(paper[known].drop(columns="setup"), how="left")


def trivial(histories: Sequence[History]) -> pd.DataFrame:
    """What an answer that looks at no input would reach, whatever the algorithm: user, model, task, metric, mean, std, n_seeds.

    It is made from the training targets that the seed drew, such as the most frequent class (``Task.trivial``).
    """
    _refuse_unlike(histories)
    parts = []
    for history in histories:
        reached = {int(user): value for user, value in history.provenance["trivial"].items()}  # a stored run's keys are strings
        rows = history.final()
        parts.append(rows.assign(seed=history.settings.seed, value=rows.user.map(reached)))
    user = USER[1:]
    values = pd.concat(parts)[[*user, "seed", "value"]].drop_duplicates()
    return over_seeds(values, user, "value").drop(columns=["ci_low", "ci_high"])


# --- Delta -------------------------------------------------------------------------------------------------------------------


def relative(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with ``value`` as the improvement over the same seed's local training, in per cent of it; NaN where that is 0.

    An improvement is a larger metric, or a smaller one where lower is better, as perplexity. An arm is compared with the local
    training that has its setting, where that is an arm too.

    Raises:
        ValueError: a seed or public set has no local run.
    """
    key = ["public", "user", "seed", "round", "phase"]
    key = [name for name in key if name in rows]
    arms = rows.algorithm.unique()
    local = rows.loc[rows.algorithm.map(algorithm_of) == BASELINE, [*key, "algorithm", "value"]]
    local = local.rename(columns={"algorithm": "baseline", "value": "local"})
    baselines = rows.assign(baseline=rows.algorithm.map({name: _baseline(name, arms) for name in arms}))
    paired = baselines.merge(local, on=[*key, "baseline"], how="left")
    if (alone := paired[paired.local.isna()]).size:
        row = alone.iloc[0]
        raise ValueError(f"{row.algorithm} on {row.public} with seed {row.seed} has no run of local training to compare with")
    sign = paired.metric.map(direction)
    value = 100 * (sign * paired.value - sign * paired.local) / paired.local.where(paired.local != 0)
    return paired.assign(value=value).drop(columns=["baseline", "local"])


def delta_by_seed(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta of Section 6.1 for each run: public, algorithm, seed, delta (per cent): the mean over users of :func:`relative`."""
    return _over_users(relative(scores(histories, phase)), ["public", "algorithm"])


def _over_users(gains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Delta of each seed: the mean over the users that ``by`` leaves together; NaN if one of theirs is."""
    return gains.groupby([*by, "seed"], sort=False).value.mean(skipna=False).rename("delta").reset_index()


def _delta(gains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """``by``, delta, delta_std, n_seeds, ci_low, ci_high."""
    return over_seeds(_over_users(gains, by), by, "delta").rename(columns={"mean": "delta", "std": "delta_std"})


def delta(histories: Sequence[History], phase: Phase = "after_alignment", paper: Sequence[str] = PAPER) -> pd.DataFrame:
    """``DELTA_COLUMNS`` and ``INTERVAL_COLUMNS``: Delta over seeds in per cent, beside what the tables ``paper`` print.

    The paper's is NaN unless all of its users took part.
    """
    ours = _delta(relative(scores(histories, phase)), ["public", "algorithm"])
    theirs = paper_table(*(f"{name}_delta" for name in paper)).rename(columns={"delta_paper": "paper_delta"})
    return _beside(ours, theirs[["setup", "public", "algorithm", "paper_delta"]], histories)[DELTA_COLUMNS + INTERVAL_COLUMNS]


def delta_by_task(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta over the users of one task, for each of them: public, task, algorithm, delta, delta_std, n_seeds, ci_low, ci_high."""
    return _delta(relative(scores(histories, phase)), ["public", "task", "algorithm"])


def curve(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta as training goes on: public, algorithm, round, delta, delta_std, n_seeds, ci_low, ci_high."""
    rows = _rows(histories, [history.metrics for history in histories])
    return _delta(relative(rows[rows.phase == phase]), ["public", "algorithm", "round"])


# --- comparisons paired over seeds -------------------------------------------------------------------------------------------


def per_user_difference(histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment") -> pd.DataFrame:
    """Metric of ``a`` minus that of ``b`` on the same seeds, for each user.

    Returns:
        public, user, model, task, metric, difference (percentage points), std, n_seeds, ci_low, ci_high.

    Raises:
        ValueError: the two have no seed and public set in common.
    """
    return _difference(scores(histories, phase), a, b, USER, "value")


def gain_difference(
    histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment", paper: Sequence[str] = PAPER
) -> pd.DataFrame:
    """Improvement of ``a`` over local training, in per cent, minus that of ``b`` on the same seeds, for each user.

    Returns:
        public, user, model, task, metric, difference (percentage points), std, n_seeds, ci_low, ci_high, paper_difference: the same of the
        tables ``paper``, where each gain is over local training in its own table, so that ``a`` and ``b`` may stand in two.
    """
    ours = _difference(relative(scores(histories, phase)), a, b, USER, "value")
    theirs = paper_gains(*paper).pivot(index=["setup", "public", "user"], columns="algorithm", values="gain").reindex(columns=[a, b])
    return _beside(ours, (theirs[a] - theirs[b]).rename("paper_difference").reset_index(), histories)


def over_baseline(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """:func:`per_user_difference` of every algorithm from local training, one after the other, with a column ``algorithm``."""
    arms = list(dict.fromkeys(map(arm, histories)))
    return _each_minus(per_user_difference, histories, {name: _baseline(name, arms) for name in arms}, phase)


def _each_minus(
    difference: Callable[..., pd.DataFrame], histories: Sequence[History], references: dict[str, str], phase: Phase
) -> pd.DataFrame:
    pairs = [(name, reference) for name, reference in references.items() if name != reference]
    return pd.concat([difference(histories, *pair, phase).assign(algorithm=pair[0]) for pair in pairs], ignore_index=True)


def delta_difference(histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta of ``a`` minus that of ``b`` on the same seeds: public, difference (percentage points), std, n_seeds, ci_low, ci_high."""
    return _difference(delta_by_seed(histories, phase), a, b, ["public"], "delta")


def delta_over(histories: Sequence[History], reference: str, phase: Phase = "after_alignment") -> pd.DataFrame:
    """:func:`delta_difference` of every algorithm from ``reference``, one after the other, with a column ``algorithm``."""
    return _each_minus(delta_difference, histories, dict.fromkeys(map(arm, histories), reference), phase)


def _difference(rows: pd.DataFrame, a: str, b: str, by: list[str], column: str) -> pd.DataFrame:
    """``by``, difference (of ``column``, paired over seeds), std, n_seeds, ci_low, ci_high."""
    key = [*by, "seed"]
    first, second = (rows[rows.algorithm == name].set_index(key)[column] for name in (a, b))
    difference = (first - second.reindex(first.index)).loc[first.index.intersection(second.index)]
    if difference.empty:
        raise ValueError(f"{a} and {b} have no run with the same seed and public set")
    rows = difference.rename("difference").reset_index()
    return over_seeds(rows, by, "difference").rename(columns={"mean": "difference"})


# --- the order of the algorithms ---------------------------------------------------------------------------------------------


def rank_agreement(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """For each public set, whether Delta orders the algorithms as in the paper: those that it has a Delta for, local training at 0 too.

    Returns:
        public, n_algorithms, rho (Spearman's), rho_p, tau (Kendall's tau-b), tau_p, n_seeds, rho_lowest and rho_highest (over single
        seeds that every algorithm was run on; NaN for fewer than two). The p-values are two-sided, of our order having nothing to do
        with the paper's: ``rho_p`` by permutation, all of them for up to nine algorithms, ``tau_p`` exact unless there are ties.
        All of it is NaN where there is no order: fewer than two algorithms, or one and the same Delta for all.
    """
    by_seed = delta_by_seed(histories, phase)
    rows = []
    for public, both in _beside_papers_delta(histories, phase):
        single = by_seed[by_seed.public == public].pivot(index="algorithm", columns="seed", values="delta").loc[both.index]
        rhos = pd.Series([_rho(deltas, both.paper_delta) for _, deltas in single.dropna(axis="columns").items()], dtype=float)
        lowest, highest = (rhos.min(), rhos.max()) if len(rhos) > 1 else (float("nan"), float("nan"))
        rows.append(
            {"public": public, "n_algorithms": len(both)}
            | _rank_correlation(both.delta, both.paper_delta)
            | {"n_seeds": len(rhos), "rho_lowest": lowest, "rho_highest": highest}
        )
    return pd.DataFrame(rows)


def _beside_papers_delta(histories: Sequence[History], phase: Phase) -> Iterable[tuple[str, pd.DataFrame]]:
    """For each public set, by algorithm, the rows of :func:`delta` that have both."""
    for public, rows in delta(histories, phase).set_index("algorithm").groupby("public", sort=False):
        yield public, rows.dropna(subset=["delta", "paper_delta"])


def _rank_correlation(ours: pd.Series, paper: pd.Series) -> dict[str, float]:
    """rho, rho_p, tau and tau_p as :func:`rank_agreement` describes them."""
    rho = _rho(ours, paper)
    if pd.isna(rho):
        return dict.fromkeys(("rho", "rho_p", "tau", "tau_p"), float("nan"))
    ranks = rankdata(paper)
    # the scalar product of the ranks orders permutations as rho does, and is far faster
    permuted = permutation_test(
        (rankdata(ours),), lambda x, axis: (x * ranks).sum(axis=axis), permutation_type="pairings", n_resamples=factorial(9), rng=0
    )
    tau = kendalltau(ours, paper)
    return {"rho": rho, "rho_p": permuted.pvalue, "tau": tau.statistic, "tau_p": tau.pvalue}


def _rho(ours: pd.Series, paper: pd.Series) -> float:
    """Spearman's; NaN where one side puts nothing in order."""
    return spearmanr(ours, paper).statistic if min(ours.nunique(), paper.nunique()) > 1 else float("nan")


# --- costs -------------------------------------------------------------------------------------------------------------------


def costs(histories: Sequence[History]) -> pd.DataFrame:
    """What a run of each algorithm cost, mean over its runs.

    Returns:
        algorithm, runs, uplink_bytes and downlink_bytes (per user and round), tflop (of all users, the whole run), seconds,
        peak_memory_mib (of the process that ran it, with whatever it had run before).
    """
    rows = []
    for history in histories:
        costs, facts = history.costs, history.provenance
        rows.append(
            {
                "algorithm": arm(history),
                "uplink_bytes": costs.uplink_bytes.mean(),
                "downlink_bytes": costs.downlink_bytes.mean(),
                "tflop": costs.flops.sum() / 1e12,
                "seconds": facts["seconds"],
                "peak_memory_mib": facts["peak_memory_bytes"] / 2**20,
            }
        )
    groups = pd.DataFrame(rows).groupby("algorithm", sort=False)
    means = groups.mean()
    means.insert(0, "runs", groups.size())
    return means.reset_index()


def relative_costs(histories: Sequence[History]) -> pd.DataFrame:
    """:func:`costs` as ratios, beside the paper's, for each algorithm.

    Returns:
        algorithm; flop_over_local (counted, of all users and rounds); paper_flop_over_local (of Table 1's TeraFLOPS); seconds_over_local;
        uplink_mb and downlink_mb (10^6 bytes per user and round); bytes_over_fedmuscle (both ways; local training sends none).

    Raises:
        ValueError: no run of local training or of FedMuscle to divide by.
    """
    ours = costs(histories)
    if lacking := {BASELINE, "fedmuscle"} - set(ours.algorithm):
        raise ValueError(f"relative costs need a run of {' and of '.join(sorted(lacking))}")
    rows = _beside(ours, paper_table("table1_teraflops"), histories).set_index("algorithm")
    over_local = rows[["tflop", "teraflops", "seconds"]] / rows.loc[BASELINE, ["tflop", "teraflops", "seconds"]]
    both_ways = rows.uplink_bytes + rows.downlink_bytes
    return pd.DataFrame(
        {
            "flop_over_local": over_local.tflop,
            "paper_flop_over_local": over_local.teraflops,
            "seconds_over_local": over_local.seconds,
            "uplink_mb": rows.uplink_bytes / 1e6,
            "downlink_mb": rows.downlink_bytes / 1e6,
            "bytes_over_fedmuscle": both_ways / both_ways["fedmuscle"],
        }
    ).reset_index()


def ledger(settings: Settings, members: Iterable[int] = range(1, 6)) -> pd.DataFrame:
    """Bytes per user and round, up and down together, of the three replies, in float32, beside Table 5.

    Returns:
        M, dense_mb, factored_mb, gradient_mb (10^6 bytes, at the settings' B, d and public set), paper_formula_gb (2^30 bytes; Table
        5's column as (2 B d + B^M (2 d + 1/8)) bytes a batch, with B = 20, d = 256, 5000 samples and 16 bits, which gives its printed
        digits), paper_table5_gb.
    """
    printed = paper_table("table5").set_index("M").cost_per_round_gb
    sizes = [len(rows) for rows in batches(settings.public_size, settings.batch_size, "ledger")] * settings.cl_epochs
    rows = []
    for m in members:
        row: dict[str, float] = {"M": m}
        for kind in ("dense", "factored", "gradient"):
            down = sum(reply_nbytes(kind, b, settings.proj_dim, m) for b in sizes)
            row[f"{kind}_mb"] = (down + sum(4 * b * settings.proj_dim for b in sizes)) / 1e6
        rows.append(row | {"paper_formula_gb": paper_cost_gb(m), "paper_table5_gb": printed.get(m, float("nan"))})
    return pd.DataFrame(rows)


def replies(histories: Sequence[History]) -> pd.DataFrame:
    """Runs that differ in ``reply`` alone: reply, largest_difference (points, of any metric of any round from the first run's), and
    uplink_bytes and downlink_bytes per user and round."""
    first = histories[0].metrics.value
    return pd.DataFrame(
        {
            "reply": history.settings.reply,
            "largest_difference": (history.metrics.value - first).abs().max(),
            "uplink_bytes": history.costs.uplink_bytes.mean(),
            "downlink_bytes": history.costs.downlink_bytes.mean(),
        }
        for history in histories
    )


# --- files -------------------------------------------------------------------------------------------------------------------


def results_folder(name: str, profile: str, output: str = "") -> Path:
    """``<output>/<profile>/<name>``, made if need be; without ``output`` below the repository's ``figures``."""
    folder = Path(output or Path(__file__).parents[1] / "figures") / profile / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(histories: Sequence[History], folder: Path, paper: Sequence[str] = PAPER, others: Sequence[History] = ()) -> None:
    """Both phases' tables, the costs and the departures from the paper, as CSV files, and where they come from.

    ``table.csv`` and ``delta.csv`` are the end of Algorithm 1; ``*_after_local.csv`` stand before the last alignment.
    ``provenance.json`` holds the command that makes the folder, the machine, the versions and every run, also of ``others``, which
    the folder's other files are about.
    """
    for phase in PHASES:
        suffix = "" if phase == "after_alignment" else f"_{phase}"
        save(table(histories, phase, paper), folder / f"table{suffix}.csv")
        save(delta_by_task(histories, phase), folder / f"delta_by_task{suffix}.csv")
        deltas = delta(histories, phase, paper)
        save(deltas[DELTA_COLUMNS], folder / f"delta{suffix}.csv")
        save(deltas[["public", "algorithm", *INTERVAL_COLUMNS]], folder / f"delta_interval{suffix}.csv")
    save(costs(histories), folder / "costs.csv")
    save(departures(histories), folder / "departures.csv")
    (folder / "provenance.json").write_text(json.dumps(provenance([*histories, *others], folder.name), indent=1) + "\n")


def provenance(histories: Sequence[History], notebook: str) -> dict[str, Any]:
    """The command that repeats the runs and, for each of them, what it was, how long it took and on what.

    The settings in which runs differ stand with each of them; the command has the first one's.
    """
    seeds = ",".join(map(str, sorted({history.settings.seed for history in histories})))
    s = histories[0].settings
    usual = Settings(profile=s.profile).model_dump(mode="json")
    own = [history.settings.model_dump(mode="json") for history in histories]
    differing = [name for name in usual if name not in ("algorithm", "public", "seed") and any(o[name] != own[0][name] for o in own)]
    changed = {name: value for name, value in own[0].items() if name not in _NO_DEPARTURE and value != usual[name]}
    overrides = "".join(" -p " + shlex.quote(f"{name}={json.dumps(value)}") for name, value in changed.items())
    changing = ("seconds", "finished", "peak_memory_bytes")
    facts = [{name: value for name, value in h.provenance.items() if name not in (*changing, "settings", "trivial")} for h in histories]
    runs = [
        {"algorithm": arm(h), "public": h.settings.public, "seed": h.settings.seed}
        | {name: o[name] for name in differing}
        | {name: h.provenance[name] for name in changing}
        for h, o in zip(histories, own, strict=True)
    ]
    return {
        "command": f"python -m fedmuscle_lib reproduce {notebook} --profile {s.profile} --seeds {seeds}{overrides}",
        "made_with": [fact for i, fact in enumerate(facts) if fact not in facts[:i]],
        "data": data_manifests(histories),
        "runs": runs,
    }


def data_manifests(histories: Sequence[History]) -> dict[str, dict[str, Any]]:
    """By folder below ``data_dir``, what the manifests that ``data_prep`` left with the users' data and the public sets say.

    None for the embedded world, which is the same everywhere.
    """
    folders = {TASKS[user.task].folder for h in histories for user in h.settings.members}
    folders |= {PUBLIC_SETS[h.settings.public] for h in histories if not _blind(h)}
    found = {}
    for folder in sorted(folders):
        path = histories[0].settings.data_dir / folder / "manifest.json"
        if path.exists():
            manifest = json.loads(path.read_text())
            found[folder] = {name: manifest.get(name) for name in ("dataset", "official", "counts", "sizes")}
    return found


def save(frame: pd.DataFrame, path: Path) -> None:
    """A CSV file without index; four decimals are more than any metric here has."""
    frame.round(4).to_csv(path, index=False)


# --- for reading -------------------------------------------------------------------------------------------------------------


def side_by_side(table: pd.DataFrame, delta: pd.DataFrame, trivial: pd.DataFrame | None = None) -> pd.DataFrame:
    """Tidy tables as the paper prints them: a row a user and one for Delta, a column an algorithm, "ours | paper" in a cell.

    The columns have two levels: the paper's algorithms come first, controls and ours after them, and last what :func:`trivial` gives.
    """
    users = table.assign(cell=[_cell(r.mean_, r.std_, r.paper_mean, r.paper_std) for r in _named(table)])
    wide = users.pivot_table(index=USER, columns="algorithm", values="cell", aggfunc="first", sort=False)
    blocks = []
    for public, block in wide.groupby(level="public", sort=False):
        deltas = delta[delta.public == public].set_index("algorithm")
        last = pd.DataFrame(
            [[_delta_cell(deltas.loc[name]) if name in deltas.index else "" for name in wide.columns]],
            index=pd.MultiIndex.from_tuples([(public, "", "", "", "Δ (%)")], names=USER),
            columns=wide.columns,
        )
        blocks.append(pd.concat([block, last]))
    whole = pd.concat(blocks).fillna("")[sorted(wide.columns, key=added)]
    whole = whole.set_axis(pd.MultiIndex.from_tuples([(ORIGINS[added(name)], label(name)) for name in whole]), axis="columns")
    if trivial is not None:
        cells = {r.user: _with_std(r.mean_, r.std_) for r in _named(trivial)}
        whole["no input", "Trivial answer"] = [cells.get(user, "") for user in whole.index.get_level_values("user")]
    return whole


def _named(table: pd.DataFrame) -> Iterable:
    # "mean" and "std" are methods of a row, not its fields
    return table.rename(columns={"mean": "mean_", "std": "std_"}).itertuples()


def _cell(mean: float, std: float, paper_mean: float, paper_std: float) -> str:
    ours = _with_std(mean, std)
    return ours if pd.isna(paper_mean) else f"{ours} | {_with_std(paper_mean, paper_std, digits=2)}"


def _with_std(mean: float, std: float, digits: int = 1) -> str:
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if pd.notna(std) else "")


def _delta_cell(row: pd.Series) -> str:
    ours, theirs = _with_interval(row.delta, row.ci_low, row.ci_high), row.get("paper_delta")
    return ours if pd.isna(theirs) else f"{ours} | {theirs:+.2f}"


def by_public(rows: pd.DataFrame, column: str = "difference") -> pd.DataFrame:
    """A row an algorithm and a column a public set, with ``column`` of ``rows`` and its interval in a cell."""
    return _wide(rows, column, ["algorithm"], "public").rename_axis(index=None)


def by_task(rows: pd.DataFrame, column: str = "delta") -> pd.DataFrame:
    """A row a public set and algorithm and a column a task, with ``column`` of ``rows`` and its interval in a cell."""
    return _wide(rows, column, ["public", "algorithm"], "task")


def _wide(rows: pd.DataFrame, column: str, index: list[str], across: str) -> pd.DataFrame:
    cells = rows.assign(cell=[_with_interval(*cell) for cell in rows[[column, "ci_low", "ci_high"]].to_numpy()])
    wide = cells.pivot_table(index=index, columns=across, values="cell", aggfunc="first", sort=False)
    return wide.rename(index=label, level="algorithm").rename_axis(columns=None)


def _with_interval(value: float, low: float, high: float) -> str:
    if pd.isna(value):
        return "undefined: a local metric is 0"
    return f"{value:+.2f}" + (f" {interval(low, high)}" if pd.notna(low) else "")


def added(arm: str) -> bool:
    """Whether the paper does not have the arm's algorithm: it is a control, or ours."""
    algorithm = algorithm_of(arm)
    return algorithm in algorithms.names() and algorithms.get(algorithm).source != "the paper"


def label(arm: str) -> str:
    """The arm's name for legends and headings."""
    algorithm = algorithm_of(arm)
    return algorithms.get(algorithm).label + arm.removeprefix(algorithm) if algorithm in algorithms.names() else arm


def interval(low: float, high: float) -> str:
    """Such as [+1.02, +2.50]."""
    return f"[{low:+.2f}, {high:+.2f}]"


def note(histories: Sequence[History]) -> str:
    """A Markdown line under a table: whose numbers these are, and what stands behind ± and brackets."""
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    spread = (
        f"± is the standard deviation over {len(seeds)} seeds (ddof = 0, as in the paper), brackets the 95 % t interval."
        if len(seeds) > 1
        else "One seed: there is no ± and no interval, and a difference may be chance."
    )
    subsets = sorted({f"`{m['dataset']}`" for m in data_manifests(histories).values() if m["official"] is False})
    parts = f" Of {', '.join(subsets)} a subset or another edition than the official one is used." if subsets else ""
    seeds = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"Ours | the paper's. Profile `{s.profile}`, {s.setup}, {seeds}.{parts} {spread}"


def compared(histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment") -> str:
    """Markdown sentences, one a public set: by how much Delta of ``a`` exceeds that of ``b``, and whether the seeds can tell."""
    return "\n".join(f"- `{public}`: {sentence}" for public, sentence in _compared(histories, a, b, phase).items())


def _compared(histories: Sequence[History], a: str, b: str, phase: Phase) -> dict[str, str]:
    paper = delta(histories, phase).set_index(["algorithm", "public"]).paper_delta
    sentences = {}
    for row in delta_difference(histories, a, b, phase).itertuples():
        theirs = paper[a, row.public] - paper[b, row.public]
        quoted = "" if pd.isna(theirs) else f" The paper's is {theirs:+.2f}."
        sentences[row.public] = f"Δ({label(a)}) − Δ({label(b)}) = **{row.difference:+.2f}** points{_verdict(row)}{quoted}"
    return sentences


def displaced(histories: Sequence[History], most: int = 3, phase: Phase = "after_alignment") -> str:
    """Markdown, an item a public set: how many pairs of algorithms Delta orders otherwise than in the paper, and ``most`` of them.

    First come those whose distance in places differs most from the paper's.
    """
    items = []
    for public, both in _beside_papers_delta(histories, phase):
        here, there = (both[column].rank(ascending=False, method="min").astype(int) for column in ("delta", "paper_delta"))
        turned = [(a, b) for a, b in permutations(both.index, 2) if here[a] < here[b] and there[a] > there[b]]
        turned.sort(key=lambda pair: here[pair[1]] - here[pair[0]] + there[pair[0]] - there[pair[1]], reverse=True)
        of = f"{len(turned)} of the {comb(len(both), 2)} pairs of algorithms that the paper has a Δ for"
        items.append(f"- `{public}`: {of} stand the other way round than there.")
        for a, b in turned[:most]:
            first, second = (f"{label(name)} (place {here[name]}, there {there[name]})" for name in (a, b))
            items.append(f"  - {first} before {second}: {_compared(histories, a, b, phase)[public]}")
    return "\n".join(items)


def cost_order(histories: Sequence[History]) -> str:
    """A Markdown sentence: whether counted computation orders the algorithms of Table 1 as its TeraFLOPS do."""
    both = relative_costs(histories).dropna(subset="paper_flop_over_local")
    agreement = _rank_correlation(both.flop_over_local, both.paper_flop_over_local)
    if pd.isna(agreement["rho"]):
        return "There is no order of computation to compare with the paper's."
    return (
        f"The {len(both)} algorithms of Table 1, ordered by their computation here, stand as in the paper "
        f"with Spearman's ρ = **{agreement['rho']:+.2f}** (p = {agreement['rho_p']:.2g})."
    )


def against_target(histories: Sequence[History], algorithm: str, targets: dict[str, float], phase: Phase = "after_alignment") -> str:
    """Markdown sentences, one a public set: whether Delta reached what was aimed at before any reported seed was run."""
    deltas = delta(histories, phase).set_index(["public", "algorithm"])
    lines = []
    for public, target in targets.items():
        if (public, algorithm) in deltas.index:
            row = deltas.loc[(public, algorithm)]
            spread = "one seed, no interval" if pd.isna(row.ci_low) else f"95 % interval {interval(row.ci_low, row.ci_high)}"
            verdict = "**not reached**" if row.delta <= target else "reached"
            if row.delta > target >= row.ci_low:
                verdict += " on average, but not by the whole interval"
            lines.append(f"- `{public}`: aimed at Δ > {target:g} %, measured {row.delta:+.2f} % ({spread}): {verdict}")
    return "\n".join(lines)


def _verdict(row: tuple) -> str:
    if pd.isna(row.difference):
        return ": undefined, since a metric of local training is 0."
    if pd.isna(row.ci_low):
        return "; without an interval this can't be told from chance."
    told = "clear of 0" if _sign(row) else "which includes 0"
    return f", 95 % interval {interval(row.ci_low, row.ci_high)}, {told}."


def _sign(row: tuple) -> int:
    """+1 or -1 where the interval lies on one side of 0, else 0 (no interval: 0)."""
    return int(row.ci_low > 0) - int(row.ci_high < 0)


def users_told_apart(histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment") -> str:
    """A Markdown sentence: for how many users, and which, ``a`` is better or worse than ``b`` by the paired intervals."""
    rows = per_user_difference(histories, a, b, phase)
    if rows.ci_low.isna().all():
        better = [row.user for row in rows.itertuples() if direction(row.metric) * row.difference > 0]
        return (
            f"On its one seed {label(a)} is better than {label(b)} for {len(better)} of {len(rows)} users{_list(better)}; "
            "how much of that is chance one seed can't say."
        )
    better, worse = ([row.user for row in rows.itertuples() if direction(row.metric) * _sign(row) == sign] for sign in (1, -1))
    return (
        f"{label(a)} is better than {label(b)} for {len(better)} of {len(rows)} users{_list(better)} "
        f"and worse for {len(worse)}{_list(worse)}, "
        f"with the 95 % interval of the paired difference excluding 0; for the other {len(rows) - len(better) - len(worse)} it includes 0."
    )


def _list(users: list[int]) -> str:
    return f" (user{'s' * (len(users) > 1)} {', '.join(map(str, users))})" if users else ""
