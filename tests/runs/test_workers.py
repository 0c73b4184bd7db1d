"""Several runs at a time: the same results as one after the other, workers that die, and no process
that outlives its caller.
"""

import os
import signal
import subprocess
import sys
import threading

import distributed
import pandas as pd
import pytest
from processes import alive, children, eventually

from fedmuscle_lib import Settings, Store, run, run_all
from fedmuscle_lib.core import versions
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import python_path
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle.system import TABLES
from fedmuscle_lib.runs import Record, stored, workers
from fedmuscle_lib.runs.address import address_of

# a cluster takes ten seconds to start and to end, and its workers count operations
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("counted")]

TINY = {"users": (5, 6), "others": 1, "rounds": 2, "local_epochs": 1, "public_size": 32}
LONG = TINY | {"algorithm": "local", "rounds": 1000}


@pytest.fixture
def tiny(settings):
    return lambda **given: settings(**(TINY | given))


@pytest.fixture
def two_cores():
    with fixed_state(2):
        yield


def computing(caller):
    return children(caller, "spawn_main")


def quietly(wanted, store, **options):
    return run_all(wanted, progress=str, store=store, **options)


def assert_as_in_one_process(histories, tmp_path):
    for history in histories:
        alone = run(history.settings, progress=str, store=Store(tmp_path / "alone"))
        for name in TABLES:
            pd.testing.assert_frame_equal(
                getattr(history, name), getattr(alone, name), check_exact=True
            )


def test_workers_compute_what_this_process_computes(tiny, store, two_cores, tmp_path):
    """To the bit, in the order asked for, and each run once; ticks come in this thread."""
    local, blind = tiny(algorithm="local"), tiny(algorithm="local", public="coco")  # the same run
    wanted, ticks = [local, tiny(tau=((0.2, 0.3), (0.3, 0.2))), blind], []

    def listen(tick):
        assert threading.current_thread() is threading.main_thread()
        ticks.append((tick.address, tick.round))

    pooled = run_all(wanted, str, store, on_round=listen)
    assert sorted(ticks) == sorted((str(address_of(s)), k) for s in wanted[:2] for k in (1, 2))
    assert [history.settings for history in pooled] == wanted
    assert not computing(os.getpid())
    assert_as_in_one_process(pooled, tmp_path)


@pytest.mark.parametrize(
    ("cores", "runs", "given", "at_a_time"),
    [
        (4, 3, {}, 3),
        (4, 5, {"threads": 2}, 2),
        (4, 5, {"device": "cuda"}, 1),
    ],
)
def test_as_many_at_a_time_as_the_cores_and_the_device_bear(cores, runs, given, at_a_time):
    with fixed_state(cores):
        assert workers._affordable([Settings(**given)] * runs) == at_a_time


def test_an_error_is_told_as_in_this_process(tiny, store, two_cores, tmp_path):
    (tmp_path / "nowhere").mkdir()
    wrong = tiny(data_dir=tmp_path / "nowhere", users=(2, 3))
    with pytest.raises(DataError, match="nowhere.*client_1.json.*no such file"):
        quietly([wrong, tiny()], store)
    assert not computing(os.getpid())


def test_a_worker_that_is_killed_takes_only_its_unfinished_round(tiny, store, two_cores, tmp_path):
    wanted = [tiny(algorithm="local", rounds=12, seed=seed) for seed in (0, 1)]
    killed, ticks = [], []

    def kill_once(tick):
        ticks.append(tick)
        reached = {one.run: one.round for one in ticks}
        if len(reached) == 2 and min(reached.values()) >= 2 and not killed:
            killed.append(computing(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    histories = run_all(wanted, kill_once, store)
    assert killed and any(tick.resumed and tick.round >= 2 for tick in ticks)
    assert_as_in_one_process(histories, tmp_path)


def test_workers_that_die_over_a_run_again_and_again_are_told(tiny, store, two_cores, monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS_TO_RESTART", 20.0)
    ending = threading.Event()

    def kill():
        while not ending.wait(0.1):
            for pid in computing(os.getpid()):
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    try:
        with pytest.raises(ChildProcessError, match="local voc seed [01]: the process .* memory"):
            run_all(
                [tiny(**LONG), tiny(**LONG, seed=1)],
                lambda tick: killer.is_alive() or killer.start(),
                store,
            )
    finally:
        ending.set()


def test_a_library_that_was_edited_after_its_import_is_told(tiny, store, two_cores, monkeypatch):
    """A fresh worker would import the edited files, and its result would be stored as this
    process's.
    """
    monkeypatch.setattr(versions, "SOURCE", "as it was")
    with pytest.raises(ValueError, match="restart the caller"):
        quietly([tiny(algorithm="local"), tiny(algorithm="local", seed=1)], store)
    assert not any(entry.done for entry in store.entries())


CALLER = """from fedmuscle_lib import Settings, run_all
import sys, torch
torch.set_num_threads(2)
run_all([Settings.model_validate_json(one) for one in sys.argv[1:]], progress=str)"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_caller_and_finished_rounds_are_kept(tiny, store, tmp_path, sign):
    """The caller is a script without a guard."""
    wanted = [tiny(**LONG), tiny(**LONG, seed=1)]
    (tmp_path / "script.py").write_text(CALLER)
    caller = subprocess.Popen(
        [sys.executable, tmp_path / "script.py", *(one.model_dump_json() for one in wanted)],
        env=os.environ | {"PYTHONPATH": python_path()},
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # as a terminal makes
    )
    entries = [store.entry(address_of(one)) for one in wanted]

    def underway():  # after its second round the caller knows of the first
        return all(
            entry.checkpoint.exists() and entry.load_checkpoint()["finished_rounds"] > 1
            for entry in entries
        )

    assert eventually(underway, 300)
    started = computing(caller.pid)
    assert len(started) == 2
    if sign == signal.SIGINT:
        os.killpg(caller.pid, sign)
    else:
        os.kill(caller.pid, sign)
    said = caller.communicate(timeout=120)[1]
    assert eventually(lambda: not any(map(alive, started)), seconds=30)
    assert all(entry.load_checkpoint()["finished_rounds"] for entry in entries)
    if sign == signal.SIGINT:
        assert "Interrupted. 0 of 2 runs are stored. Kept of what was begun: local voc seed" in said


# --- over machines


@pytest.fixture
def cluster():
    """A Dask scheduler with a worker."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0
    ) as cluster:
        yield cluster


def test_a_scheduler_s_workers_give_the_same_results(tiny, store, cluster, tmp_path):
    wanted = [tiny(algorithm="local", seed=seed) for seed in (0, 1)]
    histories = quietly(wanted, store, scheduler=cluster.scheduler_address)
    assert_as_in_one_process(histories, tmp_path)


def test_a_worker_without_the_stores_disk_returns_the_run(tiny, store, cluster, tmp_path):
    one = tiny(algorithm="local", rounds=1)
    given = (str(address_of(one)), one.system, one.portable(), str(tmp_path / "elsewhere"))
    with distributed.Client(cluster, set_as_default=False) as client:
        content = client.submit(workers._work, "topic", *given, versions.SOURCE).result()
    assert Record.unpack(content).tables["metrics"].equals(quietly([one], store)[0].metrics)
    assert stored(one, store) and not (tmp_path / "elsewhere").exists()


def test_a_scheduler_that_is_not_there_is_named(tiny, store):
    with pytest.raises(ValueError, match="scheduler: tcp://127.0.0.1:9 can't be reached"):
        quietly([tiny()], store, scheduler="tcp://127.0.0.1:9")
