"""``run(settings) -> History``: compute a run once and read it afterwards.

An interrupted run is resumed after its last round.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedmuscle_lib.core.files import user_path
from fedmuscle_lib.runs.address import Address, address_of
from fedmuscle_lib.runs.history import History, Origin
from fedmuscle_lib.runs.loop import train
from fedmuscle_lib.runs.progress import showing
from fedmuscle_lib.runs.settings import RunSettings, S
from fedmuscle_lib.runs.store import Store, default_store
from fedmuscle_lib.runs.system import Progress, Tick, system_of


class NotStored(LookupError):
    """Runs are missing, and the environment says that none is to be computed."""


def run(
    settings: S,
    progress: Progress | None = None,
    wait: bool = True,
    store: Store | None = None,
    save_models: str | Path | None = None,
    on_round: Progress | None = None,
) -> History[S]:
    """Compute or fetch one run.

    Args:
        settings: what to run; their class says of which system.
        progress: called with a ``Tick`` after every round; by default a bar or a line shows them.
        wait: for another process that is computing this run; then its result is fetched.
        store: where runs are kept; by default ``default_store()``.
        save_models: folder that the trained models are written to. A run that is stored is computed
            again for it, and compared.
        on_round: called with the ``Tick`` of every round that this call computes, after its
            checkpoint is kept and beside ``progress``. It runs in this process and thread. An error
            in it is logged, and the run goes on; an interrupt ends the run as any other.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged, or the store can't be
            written; the message names the file.
        NotOurs: something else lies in the place of the models to be saved.
        Diverged: a local loss, or what a party sends, is no longer finite; the message names the
            party.
        Busy: ``wait`` is false and another process is computing this run.
        NotStored: FEDMUSCLE_COMPUTE is 0 and the run is not stored, or its result was lost after it
            was stored.
        ValueError: models are to be saved and the system keeps none, or a stored run that is
            computed again for them has other metrics.
    """
    if save_models is not None:
        if not system_of(settings).keeps_models:
            raise ValueError(f"runs of {settings.system} keep no models")
        save_models = user_path(save_models, "save_models")
        system_of(settings).claim(settings, save_models)
        # a folder that can't be made is refused before the run, not after it
        save_models.mkdir(parents=True, exist_ok=True)
    store, address = store or default_store(), address_of(settings)
    found = history_at(address, settings, store)
    if found and save_models is None:
        return found
    refuse_to_compute([settings])
    with showing(1, [settings], progress, on_round) as tell:
        computed = not found and compute_here(address, settings, store, tell, save_models, wait)
        history = fetched(address, settings, store)
        if save_models is not None and not computed:
            _compute_again(address, history, tell, save_models)
    return history


def _compute_again(address: Address, found: History[S], tell: Progress, models: Path) -> None:
    """Compute a stored run once more, for its models.

    Raises:
        ValueError: its metrics are not those that are stored, so that the models are not that
            run's.
    """
    with TemporaryDirectory() as empty:
        again = Store(Path(empty))
        compute_here(address, found.settings, again, tell, models=models)
        metrics = fetched(address, found.settings, again).metrics
    if not metrics.equals(found.metrics):
        raise ValueError(
            f"{found.settings.title}: computed again for its models, its metrics are not those of"
            f" the {found.origin} run ({found.provenance.get('processor')}); the models in {models}"
            " are those of this machine"
        )


def fetched(address: Address, settings: S, store: Store) -> History[S]:
    """A run that has just been found or computed; raises NotStored if it is there no more."""
    history = history_at(address, settings, store)
    if history is None:
        raise NotStored(
            f"{settings.title}: its result in {store.root} was lost after it was stored"
        )
    return history


def stored(settings: S, store: Store | None = None) -> History[S] | None:
    """The finished run, if there is one, computed here or shipped; computes nothing."""
    return history_at(address_of(settings), settings, store or default_store())


def history_at(address: Address, settings: S, store: Store) -> History[S] | None:
    """:func:`stored`, for who knows the address already."""
    found = store.find(address)
    if found is None:
        return None
    record, entry, caveats = found
    origin: Origin = "shipped" if entry.shipped else "computed"
    return History(
        settings, **record.tables, provenance=record.provenance, origin=origin, caveats=caveats
    )


def refuse_to_compute(missing: Sequence[RunSettings]) -> None:
    """Raise ``NotStored`` where the environment says that nothing is to be computed."""
    if missing and not may_compute():
        many = f"{len(missing)} runs are not stored, the first of them"
        raise NotStored(
            f"{many if len(missing) > 1 else 'A run is not stored:'} {missing[0].title}"
        )


def may_compute() -> bool:
    """Return whether a run that is not stored may be computed; the environment can say no."""
    return os.environ.get("FEDMUSCLE_COMPUTE") != "0"


def compute_here(
    address: Address,
    settings: RunSettings,
    store: Store,
    tell: Progress,
    models: Path | None = None,
    wait: bool = True,
) -> bool:
    """Compute the run in this process and store it, unless another process has done so in the
    meantime; return whether it was computed.

    Raises:
        Busy: ``wait`` is false and another process is computing it.
    """
    entry = store.entry(address)
    with entry.lock(wait):
        if store.find(address) is not None:
            return False

        def of_this_run(tick: Tick) -> None:
            tell(replace(tick, address=entry.address))

        entry.save(train(settings, of_this_run, entry, models).pack())
        return True
