"""Several runs at a time: the same results as one after the other, workers that die, and no process
that outlives its caller.
"""

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from functools import partial

import distributed
import pandas as pd
import pytest
from processes import alive, children, eventually

from fedmuscle_lib import Settings, Store, run, run_all
from fedmuscle_lib.core import versions
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle.system import TABLES
from fedmuscle_lib.runs import Damaged, stored, workers
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.compute import StoringListener
from fedmuscle_lib.runs.store import unpacked

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


def clusters(caller):
    return children(caller, "runs/cluster.py")


def computing(caller):
    return [worker for cluster in clusters(caller) for worker in children(cluster, "spawn_main")]


def quietly(wanted, store, **options):
    return run_all(wanted, progress=str, store=store, **options)


# --- results


def test_a_listener_is_called_here_whoever_computes(tiny, store, two_cores):
    heard = []

    def listen(tick):
        assert threading.current_thread() is threading.main_thread()
        heard.append((os.getpid(), tick.address, tick.round))

    wanted = [tiny(algorithm="local", seed=seed) for seed in (0, 1)]
    quietly(wanted, store, on_round=listen)
    assert sorted(heard) == sorted(
        (os.getpid(), str(address_of(one)), round) for one in wanted for round in (1, 2)
    )


class Elsewhere:
    """Holds a run, as another process would that computes it, until it has heard of another run's
    last round.
    """

    def __init__(self, run, store):
        self.ticks, self._hold = [], ExitStack()
        self._hold.enter_context(store.entry(address_of(run)).lock())

    def progress(self, tick):
        assert threading.current_thread() is threading.main_thread()
        self.ticks.append(tick)
        if tick.round == tick.rounds:
            self._hold.close()


def test_workers_compute_what_this_process_computes(tiny, store, two_cores, tmp_path):
    """To the bit, in the order asked for, and each run once, though another process holds one of
    them for a while.
    """
    local, blind = tiny(algorithm="local"), tiny(algorithm="local", public="coco")  # the same run
    wanted = [local, tiny(tau=((0.2, 0.3), (0.3, 0.2))), tiny(seed=1), blind]
    elsewhere = Elsewhere(local, store)
    pooled = run_all(wanted, elsewhere.progress, store)
    assert sorted((tick.run, tick.round) for tick in elsewhere.ticks) == [
        (f"{name} voc seed {seed}", k)
        for name, seed in (("fedmuscle", 0), ("fedmuscle", 1), ("local", 0))
        for k in (1, 2)
    ]
    assert elsewhere.ticks[0].run != "local voc seed 0"
    assert [history.settings for history in pooled] == wanted
    assert not clusters(os.getpid())

    for history in pooled:
        alone = run(history.settings, progress=str, store=Store(tmp_path / "alone"))
        for name in TABLES:
            pd.testing.assert_frame_equal(
                getattr(history, name), getattr(alone, name), check_exact=True
            )
        differing = {
            name for name, value in history.provenance.items() if value != alone.provenance[name]
        }
        assert differing <= {"finished", "seconds", "peak_memory_bytes"}


def test_a_run_that_another_process_computes_is_put_off(tiny, store):
    first, second = tiny(algorithm="local"), tiny(algorithm="head_only")
    elsewhere = Elsewhere(first, store)
    run_all([first, second], elsewhere.progress, store)
    assert [tick.run.split()[0] for tick in elsewhere.ticks] == ["head_only"] * 2 + ["local"] * 2


@pytest.mark.parametrize(
    ("cores", "runs", "given", "at_a_time"),
    [
        (1, 5, {}, 1),
        (4, 5, {}, 4),
        (4, 3, {}, 3),
        (4, 5, {"threads": 2}, 2),
        (4, 5, {"threads": 8}, 1),
        (4, 5, {"device": "cuda"}, 1),
        (4, 0, {}, 0),
    ],
)
def test_as_many_at_a_time_as_the_cores_and_the_device_bear(cores, runs, given, at_a_time):
    with fixed_state(cores):
        assert workers._affordable([Settings(**given)] * runs) == at_a_time


def test_a_script_without_a_guard_may_ask_for_several_runs(tiny, store, tmp_path):
    """As a notebook does: the workers never import the program that asks."""
    script = tmp_path / "script.py"
    wanted = [tiny(algorithm="local", seed=seed).model_dump_json() for seed in (0, 1)]
    script.write_text(
        "from fedmuscle_lib import Settings, run_all\nimport torch; torch.set_num_threads(2);"
        " print('begun')\nprint(len(run_all([Settings.model_validate_json(one) for one in"
        f" {wanted!r}], progress=str)))\n"
    )
    path = os.pathsep.join(
        filter(None, [str(versions.PACKAGE.parent), os.environ.get("PYTHONPATH")])
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.stdout.split() == ["begun", "2"], done.stderr
    assert all(stored(Settings.model_validate_json(one), store) for one in wanted)


# --- errors


def test_an_error_is_told_as_in_this_process_and_what_was_finished_stays(
    tiny, store, two_cores, tmp_path
):
    good = [tiny(algorithm="head_only", rounds=1), tiny(algorithm="head_only", rounds=1, seed=1)]
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(DataError, match="nowhere.*client_1.json.*no such file"):
        quietly([*good, tiny(data_dir=tmp_path / "nowhere", users=(2, 3))], store)
    assert any(stored(one, store) for one in good)
    assert not clusters(os.getpid())


def test_a_full_disk_is_told_by_its_parts(tiny, store, two_cores, monkeypatch):
    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="checkpoint.pt") as caught:
        quietly([tiny(algorithm="local"), tiny(algorithm="local", seed=1)], store)
    assert caught.value.errno == errno.ENOSPC


def test_a_worker_that_is_killed_takes_only_its_unfinished_round(tiny, store, two_cores, tmp_path):
    """The call goes on with new workers, and gives what an undisturbed one gives."""
    wanted = [tiny(algorithm="local", rounds=12, seed=seed) for seed in (0, 1)]
    reached, killed = {}, []

    def kill_once(tick):
        reached[tick.address] = tick.round
        if len(reached) == len(wanted) and min(reached.values()) >= 4 and not killed:
            killed.extend(computing(os.getpid())[:1])
            os.kill(killed[0], signal.SIGKILL)

    ticks = []
    histories = run_all(wanted, lambda tick: (ticks.append(tick), kill_once(tick)), store)
    assert killed and any(tick.resumed and tick.round >= 3 for tick in ticks)
    for history in histories:
        pd.testing.assert_frame_equal(
            history.metrics,
            run(history.settings, progress=str, store=Store(tmp_path / "alone")).metrics,
            check_exact=True,
        )


def test_workers_that_die_over_a_run_again_and_again_are_told(tiny, store, two_cores, monkeypatch):
    """As when memory runs out: killed before a round is finished."""
    asked = []

    def kill(listener):
        asked.append(listener)
        for pid in computing(os.getpid()):
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(StoringListener, "last", kill)
    with pytest.raises(
        ChildProcessError,
        match=(
            "local voc seed [01]: the process .* ended 3 times .* as happens when memory runs out"
        ),
    ):
        quietly([tiny(**LONG), tiny(**LONG, seed=1)], store)
    assert 3 <= len(asked) <= 6 and not clusters(os.getpid())


def test_workers_that_can_not_even_start_are_told(tiny, store, two_cores, monkeypatch):
    ending = threading.Event()

    def kill():
        while not ending.wait(0.1):
            for pid in computing(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def look(listener):
        if not ending.is_set() and not killer.is_alive():
            killer.start()

    killer = threading.Thread(target=kill)
    monkeypatch.setattr(StoringListener, "last", look)
    monkeypatch.setattr(workers, "_SECONDS_WITHOUT_WORKERS", 5)
    try:
        with pytest.raises(
            ChildProcessError, match="worker processes end as soon as they are started"
        ):
            quietly([tiny(**LONG), tiny(**LONG, seed=1)], store)
    finally:
        ending.set()


def test_a_machine_without_room_for_workers_is_told_in_one_line(
    tiny, store, two_cores, monkeypatch, tmp_path, capfd
):
    full = tmp_path / "full.py"
    full.write_text(
        "import runpy, tempfile\n"
        "def full(*_, **__): raise OSError(28, 'No space left on device', '/dev/shm')\n"
        "tempfile.mkdtemp = full\n"
        f"runpy.run_path({str(workers._CLUSTER)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(workers, "_CLUSTER", full)
    with pytest.raises(
        ChildProcessError,
        match=(
            r"^no workers .*No space left on device: '/dev/shm'.*OMP_NUM_THREADS=1 computes one run"
        ),
    ):
        quietly([tiny(), tiny(seed=1)], store)
    assert "Traceback" not in capfd.readouterr().err


def test_a_scheduler_that_is_gone_is_told(tiny, store, two_cores):
    def kill(tick):
        for cluster in clusters(
            os.getpid()
        ):  # none on a further tick of the same batch of messages
            os.kill(cluster, signal.SIGKILL)

    with pytest.raises(ChildProcessError, match="the scheduler of the workers is gone"):
        run_all([tiny(**LONG), tiny(**LONG, seed=1)], kill, store)


def test_a_library_that_was_edited_after_its_import_is_told(tiny, store, two_cores, monkeypatch):
    """A fresh worker would import the edited files, and its result would be stored as this
    process's.
    """
    monkeypatch.setattr(versions, "SOURCE", "as it was")
    with pytest.raises(ValueError, match="restart this process"):
        quietly([tiny(algorithm="local"), tiny(algorithm="local", seed=1)], store)
    assert not any(entry.done for entry in store.entries())


def test_a_result_that_is_lost_after_it_was_stored_is_told_and_not_left_out(tiny, store):
    """As when somebody clears the store meanwhile: a list shorter than what was asked for would be
    paired with the wrong settings.
    """
    wanted = [tiny(algorithm="local"), tiny(algorithm="head_only")]
    quietly(wanted[:1], store)

    def lose(tick):
        if tick.round == tick.rounds:
            store.entry(address_of(wanted[0])).delete()

    with pytest.raises(Damaged, match="local voc seed 0: its result in .* was lost or damaged"):
        run_all(wanted, lose, store)


# --- the end of the caller


CALLER = """from fedmuscle_lib import Settings, run_all
import sys, torch
torch.set_num_threads(2)
run_all([Settings.model_validate_json(one) for one in sys.argv[1:]], progress=str)"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_caller_and_finished_rounds_are_kept(tiny, store, sign):
    wanted = [tiny(**LONG), tiny(**LONG, seed=1)]
    path = os.pathsep.join(
        filter(None, [str(versions.PACKAGE.parent), os.environ.get("PYTHONPATH")])
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, *(one.model_dump_json() for one in wanted)],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # as a terminal makes
    )
    assert eventually(lambda: len(list(store.root.glob("*/checkpoint.pt"))) == 2, 300)
    started = [*clusters(caller.pid), *computing(caller.pid)]
    assert len(started) == 3
    os.killpg(caller.pid, sign)
    said = caller.communicate(timeout=120)[1]
    assert caller.returncode == (-sign if sign == signal.SIGKILL else 1)
    assert eventually(lambda: not any(map(alive, started)), seconds=5)
    assert all(
        unpacked(store.entry(address_of(one)).load_checkpoint())["finished_rounds"]
        for one in wanted
    )
    if sign == signal.SIGINT:
        assert (
            "Interrupted. 0 of 2 runs are stored. Kept of what was begun: local voc seed " in said
        )
        assert said.count("Traceback") == 1  # the caller's own


def test_nobody_without_the_keys_reaches_the_workers():
    """Who reaches them can run code."""
    with workers._cluster(1) as (address, security):
        with distributed.Client(address, security=security, set_as_default=False) as client:
            assert client.submit(os.getpid).result() == computing(os.getpid())[0]
        for other in (distributed.Security.temporary(), None):
            with pytest.raises((OSError, ValueError, TypeError)):
                distributed.Client(address, security=other, timeout=2, set_as_default=False)
    assert address.startswith("tls://127.0.0.1:") and not clusters(os.getpid())


# --- over machines


@pytest.fixture
def cluster():
    """A Dask scheduler with two worker processes on this machine."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield (
            cluster.scheduler_address,
            partial(client.run, os.getpid),
            cluster.scheduler.extensions["queues"].queues,
        )


def test_a_scheduler_s_workers_give_the_same_results_though_one_is_killed(
    tiny, store, cluster, tmp_path
):
    scheduler, pids, kept = cluster
    wanted = [tiny(algorithm="local", rounds=12, seed=seed) for seed in (0, 1)] + [tiny()]
    killed = []

    def kill_once(tick):
        if tick.round == 4 and not killed:
            killed.append(next(iter(pids().values())))
            os.kill(killed[0], signal.SIGKILL)

    ticks = []
    histories = run_all(
        wanted, lambda tick: (ticks.append(tick), kill_once(tick)), store, scheduler=scheduler
    )
    assert all(queue.empty() for queue in kept.values())  # the scheduler keeps no checkpoint
    assert killed and {tick.run for tick in ticks} == {
        "local voc seed 0",
        "local voc seed 1",
        "fedmuscle voc seed 0",
    }
    for history in histories:
        alone = run(history.settings, progress=str, store=Store(tmp_path / "alone"))
        pd.testing.assert_frame_equal(history.metrics, alone.metrics, check_exact=True)


def test_a_scheduler_that_is_not_there_is_named(tiny, store):
    with pytest.raises(ValueError, match="scheduler: tcp://127.0.0.1:9 can't be reached"):
        quietly([tiny()], store, scheduler="tcp://127.0.0.1:9")
