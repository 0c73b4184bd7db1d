"""From runs to tables: Delta beside the paper's cells, what the seeds allow one to say, and what it cost.

Standard deviations are over seeds with ddof = 0, because the paper's are: each of the 172 distinct cells of Tables 1 and 7 is the mean and
the population standard deviation of three values with one decimal, while only 86 of them could be sample standard deviations.
Intervals are 95 % Student t intervals over seeds (ddof = 1). A single seed has neither: both are NaN.

Every function takes the ``phase`` of a round that it reads: "after_alignment", the literal end of Algorithm 1, or "after_local".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
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
from fedmuscle_lib.experiment import PHASES, History, Phase
from fedmuscle_lib.muscle.wire import paper_cost_gb, reply_nbytes
from fedmuscle_lib.randomness import batches
from fedmuscle_lib.settings import PUBLIC_SETS, Settings
from fedmuscle_lib.setups import SETUPS
from fedmuscle_lib.tasks import TASKS, direction

BASELINE = "local"
CONFIDENCE = 0.95
USER = ["public", "user", "model", "task", "metric"]
TABLE_COLUMNS = [*USER, "algorithm", "mean", "std", "n_seeds", "paper_mean", "paper_std"]
DELTA_COLUMNS = ["public", "algorithm", "delta", "delta_std", "paper_delta"]
INTERVAL_COLUMNS = ["n_seeds", "ci_low", "ci_high"]
ORIGINS = ("the paper's algorithms", "controls and ours")

# Both are about Setup1, and agree on the cells that both have.
_PAPER_CELLS = ("table1", "table7")
_PAPER_DELTAS = ("table1_delta", "table7_delta")
# They name public sets as the datasets' authors do, and Table 7 the objective where we name the algorithm.
_PAPER_SETUP = "setup1"
_PAPER_PUBLIC = {"Pascal VOC": "voc", "COCO": "coco", "CIFAR-100": "cifar100"}
_PAPER_ALGORITHM = {"muscle": "fedmuscle"}
# What the paper leaves open; the settings' descriptions say why ours is what it is.
_NOT_STATED = {"head_hidden", "head_on", "lora_alpha", "lora_targets", "weight_decay", "options", "backbones", "precision"}
# Settings that say what is compared, where things lie and how they travel, rather than how the paper's numbers came about.
_NO_DEPARTURE = {"algorithm", "public", "profile", "seed", "data_dir", "models_path", "device", "threads", "reply", "evaluate_every"}
_NO_DEPARTURE |= {"root_train_image_folder", "root_val_image_folder"}


# --- the paper ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def paper_table(*names: str) -> pd.DataFrame:
    """A table of the paper, such as "table7", or the union of several, with this project's names of public sets and algorithms."""
    tables = []
    for name in names:
        with resources.files("fedmuscle_lib").joinpath("paper_tables", f"{name}.csv").open(encoding="utf8") as file:
            tables.append(pd.read_csv(file).replace({"public": _PAPER_PUBLIC, "algorithm": _PAPER_ALGORITHM}))
    return pd.concat(tables).drop_duplicates(ignore_index=True)


def departures(settings: Settings) -> pd.DataFrame:
    """What differs from the paper's values, or is not stated there and not our default: setting, ours, paper."""
    rows = []
    for name, field in type(settings).model_fields.items():
        ours, paper = getattr(settings, name), field.get_default(call_default_factory=True)
        if name == "train_samples":
            ours = settings.own_train_samples
            paper = {user.task: user.train_samples for user in SETUPS[settings.setup] if user.task in ours}
        if name not in _NO_DEPARTURE and ours != paper:
            rows.append({"setting": name, "ours": _listed(ours), "paper": "not stated" if name in _NOT_STATED else _listed(paper)})
    return pd.DataFrame(rows, columns=["setting", "ours", "paper"])


def _listed(value: Any) -> str:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


# --- what was measured -------------------------------------------------------------------------------------------------------


def scores(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """The last round's metrics: public, user, model, task, metric, algorithm, seed, value (per cent).

    A run that never looks at public data counts for every public set that the others were run on.

    Raises:
        ValueError: runs that can't stand in one table: of different users or test data, or two of one algorithm, public set and seed.
    """
    return _rows(histories, [history.final(phase) for history in histories]).drop(columns=["round", "phase"])


def _rows(histories: Sequence[History], metrics: Iterable[pd.DataFrame]) -> pd.DataFrame:
    _refuse_unlike(histories)
    sighted = {h.settings.public: None for h in histories if not _blind(h)}  # a dict keeps the order
    parts = []
    for history, rows in zip(histories, metrics, strict=True):
        s = history.settings
        for public in list(sighted) if _blind(history) and sighted else [s.public]:
            parts.append(rows.assign(public=public, algorithm=s.algorithm, seed=s.seed))
    together = pd.concat(parts, ignore_index=True).drop_duplicates()
    key = ["public", "user", "algorithm", "seed", "round", "phase"]
    if (twice := together[together.duplicated(key)]).size:
        row = twice.iloc[0]
        raise ValueError(f"two different runs of {row.algorithm} on {row.public} with seed {row.seed}: a table holds one of them")
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


def table(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """``TABLE_COLUMNS``: a user's metric under each algorithm, in per cent, beside the paper's cell where Table 1 or 7 has one."""
    ours = over_seeds(scores(histories, phase), [*USER, "algorithm"], "value")
    paper = paper_table(*_PAPER_CELLS).rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return _beside(ours, paper[["public", "algorithm", "user", "paper_mean", "paper_std"]], histories)[TABLE_COLUMNS]


def _beside(ours: pd.DataFrame, paper: pd.DataFrame, histories: Sequence[History]) -> pd.DataFrame:
    """``ours`` with what the paper has to the same keys: NaN in another setup, and where it is about users who did not take part."""
    settings = histories[0].settings
    all_took_part = len(settings.members) == len(SETUPS[settings.setup])
    if settings.setup != _PAPER_SETUP or not ("user" in paper or all_took_part):
        paper = paper[:0]
    return ours.merge(paper, how="left")


# --- Delta -------------------------------------------------------------------------------------------------------------------


def relative(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with ``value`` as the improvement over the same seed's local training, in per cent of it; NaN where that is 0.

    An improvement is a larger metric, or a smaller one where lower is better, as perplexity.

    Raises:
        ValueError: a seed or public set has no local run.
    """
    key = ["public", "user", "seed", "round", "phase"]
    key = [name for name in key if name in rows]
    local = rows.loc[rows.algorithm == BASELINE, [*key, "value"]].rename(columns={"value": "local"})
    paired = rows.merge(local, on=key, how="left")
    if (alone := paired[paired.local.isna()]).size:
        row = alone.iloc[0]
        raise ValueError(f"{row.algorithm} on {row.public} with seed {row.seed} has no run of local training to compare with")
    value = 100 * paired.metric.map(direction) * (paired.value - paired.local) / paired.local.where(paired.local != 0)
    return paired.assign(value=value).drop(columns="local")


def delta_by_seed(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta of Section 6.1 for each run: public, algorithm, seed, delta (per cent): the mean over users of :func:`relative`."""
    gains = relative(scores(histories, phase))
    return gains.groupby(["public", "algorithm", "seed"], sort=False).value.mean(skipna=False).rename("delta").reset_index()


def delta(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """``DELTA_COLUMNS`` and ``INTERVAL_COLUMNS``: Delta over seeds in per cent, beside the paper's where all of its users took part."""
    ours = over_seeds(delta_by_seed(histories, phase), ["public", "algorithm"], "delta")
    ours = ours.rename(columns={"mean": "delta", "std": "delta_std"})
    paper = paper_table(*_PAPER_DELTAS).rename(columns={"delta_paper": "paper_delta"})
    return _beside(ours, paper[["public", "algorithm", "paper_delta"]], histories)[DELTA_COLUMNS + INTERVAL_COLUMNS]


def curve(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta as training goes on: public, algorithm, round, delta, delta_std, n_seeds, ci_low, ci_high."""
    rows = _rows(histories, [history.metrics for history in histories])
    rows = relative(rows[rows.phase == phase])
    by_seed = rows.groupby(["public", "algorithm", "seed", "round"], sort=False).value.mean(skipna=False).rename("delta").reset_index()
    ours = over_seeds(by_seed, ["public", "algorithm", "round"], "delta")
    return ours.rename(columns={"mean": "delta", "std": "delta_std"})


# --- comparisons paired over seeds -------------------------------------------------------------------------------------------


def per_user_difference(histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment") -> pd.DataFrame:
    """Metric of ``a`` minus that of ``b`` on the same seeds, for each user.

    Returns:
        public, user, model, task, metric, difference (percentage points), std, n_seeds, ci_low, ci_high.

    Raises:
        ValueError: the two have no seed and public set in common.
    """
    rows = scores(histories, phase)
    return over_seeds(_paired(rows, a, b, USER, "value"), USER, "difference").rename(columns={"mean": "difference"})


def over_baseline(histories: Sequence[History], phase: Phase = "after_alignment") -> pd.DataFrame:
    """:func:`per_user_difference` of every algorithm from local training, one after the other, with a column ``algorithm``."""
    return _each_minus(per_user_difference, histories, BASELINE, phase)


def _each_minus(difference: Callable[..., pd.DataFrame], histories: Sequence[History], reference: str, phase: Phase) -> pd.DataFrame:
    names = [name for name in dict.fromkeys(history.settings.algorithm for history in histories) if name != reference]
    return pd.concat([difference(histories, name, reference, phase).assign(algorithm=name) for name in names], ignore_index=True)


def delta_difference(histories: Sequence[History], a: str, b: str, phase: Phase = "after_alignment") -> pd.DataFrame:
    """Delta of ``a`` minus that of ``b`` on the same seeds: public, difference (percentage points), std, n_seeds, ci_low, ci_high."""
    rows = delta_by_seed(histories, phase)
    return over_seeds(_paired(rows, a, b, ["public"], "delta"), ["public"], "difference").rename(columns={"mean": "difference"})


def delta_over(histories: Sequence[History], reference: str, phase: Phase = "after_alignment") -> pd.DataFrame:
    """:func:`delta_difference` of every algorithm from ``reference``, one after the other, with a column ``algorithm``."""
    return _each_minus(delta_difference, histories, reference, phase)


def _paired(rows: pd.DataFrame, a: str, b: str, by: list[str], column: str) -> pd.DataFrame:
    key = [*by, "seed"]
    first, second = (rows[rows.algorithm == name].set_index(key)[column] for name in (a, b))
    difference = (first - second.reindex(first.index)).loc[first.index.intersection(second.index)]
    if difference.empty:
        raise ValueError(f"{a} and {b} have no run with the same seed and public set")
    return difference.rename("difference").reset_index()


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
                "algorithm": history.settings.algorithm,
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


def write(histories: Sequence[History], folder: Path) -> None:
    """Both phases' tables, the costs and the departures from the paper, as CSV files, and where they come from.

    ``table.csv`` and ``delta.csv`` are the end of Algorithm 1; ``*_after_local.csv`` stand before the last alignment.
    ``provenance.json`` holds the command that makes the folder, the machine, the versions and every run.
    """
    for phase in PHASES:
        suffix = "" if phase == "after_alignment" else f"_{phase}"
        save(table(histories, phase), folder / f"table{suffix}.csv")
        deltas = delta(histories, phase)
        save(deltas[DELTA_COLUMNS], folder / f"delta{suffix}.csv")
        save(deltas[["public", "algorithm", *INTERVAL_COLUMNS]], folder / f"delta_interval{suffix}.csv")
    save(costs(histories), folder / "costs.csv")
    save(departures(histories[0].settings), folder / "departures.csv")
    (folder / "provenance.json").write_text(json.dumps(provenance(histories, folder.name), indent=1) + "\n")


def provenance(histories: Sequence[History], notebook: str) -> dict[str, Any]:
    """The command that repeats the runs and, for each of them, what it was, how long it took and on what."""
    seeds = ",".join(map(str, sorted({history.settings.seed for history in histories})))
    s = histories[0].settings
    usual = Settings(profile=s.profile)
    own = {name: value for name, value in s.model_dump(mode="json").items() if name not in _NO_DEPARTURE}
    changed = {name: value for name, value in own.items() if value != usual.model_dump(mode="json")[name]}
    overrides = "".join(f" -p {name}={json.dumps(value)}" for name, value in changed.items())
    changing = ("seconds", "finished", "peak_memory_bytes")
    facts = [{name: value for name, value in h.provenance.items() if name not in (*changing, "settings", "trivial")} for h in histories]
    runs = [
        {"algorithm": h.settings.algorithm, "public": h.settings.public, "seed": h.settings.seed}
        | {name: h.provenance[name] for name in changing}
        for h in histories
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


def side_by_side(table: pd.DataFrame, delta: pd.DataFrame) -> pd.DataFrame:
    """Tidy tables as the paper prints them: a row a user and one for Delta, a column an algorithm, "ours | paper" in a cell.

    The columns have two levels: the paper's algorithms come first, controls and ours after them.
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
    return whole.set_axis(pd.MultiIndex.from_tuples([(ORIGINS[added(name)], label(name)) for name in whole]), axis="columns")


def _named(table: pd.DataFrame) -> Iterable:
    # "mean" and "std" are methods of a row, not its fields
    return table.rename(columns={"mean": "mean_", "std": "std_"}).itertuples()


def _cell(mean: float, std: float, paper_mean: float, paper_std: float) -> str:
    ours = f"{mean:.1f}" + (f" ± {std:.1f}" if pd.notna(std) else "")
    return ours if pd.isna(paper_mean) else f"{ours} | {paper_mean:.2f} ± {paper_std:.2f}"


def _delta_cell(row: pd.Series) -> str:
    ours = _with_interval(row.delta, row.ci_low, row.ci_high)
    return ours if pd.isna(row.paper_delta) else f"{ours} | {row.paper_delta:+.2f}"


def by_public(rows: pd.DataFrame, column: str = "difference") -> pd.DataFrame:
    """A row an algorithm and a column a public set, with ``column`` of ``rows`` and its interval in a cell."""
    cells = rows.assign(cell=[_with_interval(*cell) for cell in rows[[column, "ci_low", "ci_high"]].to_numpy()])
    wide = cells.pivot_table(index="algorithm", columns="public", values="cell", aggfunc="first", sort=False)
    return wide.rename(index=label).rename_axis(index=None, columns=None)


def _with_interval(value: float, low: float, high: float) -> str:
    if pd.isna(value):
        return "undefined: a local metric is 0"
    return f"{value:+.2f}" + (f" {interval(low, high)}" if pd.notna(low) else "")


def added(algorithm: str) -> bool:
    """Whether the paper does not have the algorithm: it is a control, or ours."""
    return algorithm in algorithms.names() and algorithms.get(algorithm).source != "the paper"


def label(algorithm: str) -> str:
    """The algorithm's name for legends and headings."""
    return algorithms.get(algorithm).label if algorithm in algorithms.names() else algorithm


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
        higher = [row.user for row in rows.itertuples() if row.difference > 0]
        return (
            f"On its one seed {label(a)} is above {label(b)} for {len(higher)} of {len(rows)} users{_list(higher)}; "
            "how much of that is chance one seed can't say."
        )
    better, worse = ([row.user for row in rows.itertuples() if _sign(row) == sign] for sign in (1, -1))
    return (
        f"{label(a)} is above {label(b)} for {len(better)} of {len(rows)} users{_list(better)} "
        f"and below it for {len(worse)}{_list(worse)}, "
        f"with the 95 % interval of the paired difference excluding 0; for the other {len(rows) - len(better) - len(worse)} it includes 0."
    )


def _list(users: list[int]) -> str:
    return f" (user{'s' * (len(users) > 1)} {', '.join(map(str, users))})" if users else ""
