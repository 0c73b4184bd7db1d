"""Several runs at a time: the same results as one after the other, and no process that outlives its caller."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pandas as pd
import pytest
from processes import alive, children, eventually

from fedmuscle_lib import Settings, experiment, pool, run, run_all
from fedmuscle_lib.pickles import DataError

SMALL = {"users": (5, 6), "others": 1, "rounds": 2, "local_epochs": 1, "public_size": 32, "evaluate_every": 1}
LONG = SMALL | {"algorithm": "local", "rounds": 1000}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def settings(mini_world, runs):
    return lambda **given: Settings(**(SMALL | {"data_dir": mini_world, "models_path": mini_world / "models"} | given))


@pytest.fixture
def two_cores():
    with experiment.torch_threads(2):
        yield


def workers(caller):
    return children(caller, "fedmuscle_lib.pool")


# --- results -----------------------------------------------------------------------------------------------------------------


class Elsewhere:
    """Holds a run, as another process would that computes it, until it has heard of another run's last round."""

    def __init__(self, run):
        self.lines, self._hold = [], ExitStack()
        self._hold.enter_context(experiment.entry_of(run).lock())

    def progress(self, line):
        assert threading.current_thread() is threading.main_thread()
        self.lines.append(line)
        if "round 2/2" in line:
            self._hold.close()


def test_workers_compute_what_this_process_computes(settings, runs, two_cores, monkeypatch, tmp_path):
    """To the bit, in the order asked for, and each run once, though another process holds one of them for a while."""
    local, blind = settings(algorithm="local"), settings(algorithm="local", public="coco")  # the same run
    wanted = [local, settings(tau=((0.2, 0.3), (0.3, 0.2))), blind]
    elsewhere = Elsewhere(local)
    pooled = run_all(wanted, elsewhere.progress)
    assert [line.split(",")[0] for line in elsewhere.lines] == [
        f"{name} voc seed 0: round {k}/2" for name in ("fedmuscle", "local") for k in (1, 2)
    ]
    assert [history.settings for history in pooled] == wanted
    assert not workers(os.getpid())

    monkeypatch.setattr(experiment, "RUNS", tmp_path / "alone")
    for history in pooled:
        alone = run(history.settings)
        pd.testing.assert_frame_equal(history.metrics, alone.metrics, check_exact=True)
        pd.testing.assert_frame_equal(history.costs, alone.costs, check_exact=True)
        differing = {name for name, value in history.provenance.items() if value != alone.provenance[name]}
        assert differing <= {"finished", "seconds", "peak_memory_bytes"}


def test_a_run_that_another_process_computes_is_put_off(settings):
    first, second = settings(algorithm="local"), settings(algorithm="head_only")
    elsewhere = Elsewhere(first)
    run_all([first, second], elsewhere.progress)
    assert [line.split()[0] for line in elsewhere.lines] == ["head_only"] * 2 + ["local"] * 2


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
    with experiment.torch_threads(cores):
        assert pool._affordable([Settings(**given)] * runs) == at_a_time


# --- errors ------------------------------------------------------------------------------------------------------------------


def test_an_error_is_told_as_in_this_process_and_what_was_finished_stays(settings, two_cores, tmp_path):
    good = [settings(algorithm="head_only", rounds=1), settings(algorithm="head_only", rounds=1, seed=1)]
    with pytest.raises(DataError, match="nowhere.*client_1.json.*no such file") as caught:
        run_all([*good, settings(data_dir=tmp_path / "nowhere", users=(2, 3))])
    assert "in _read" in caught.value.__notes__[0]
    assert any(map(experiment.stored, good))
    assert not workers(os.getpid())


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (DataError("client_0.pkl: no such file"), DataError, "client_0.pkl: no such file"),
        (FileNotFoundError("vit-small: no checkpoint"), FileNotFoundError, "vit-small: no checkpoint"),
        (OSError(errno.ENOSPC, "No space left on device", Path("x.csv")), OSError, "[Errno 28] No space left on device: 'x.csv'"),
        (PermissionError(errno.EACCES, "Permission denied"), PermissionError, "[Errno 13] Permission denied"),
        (UnicodeDecodeError("utf8", b"\xff", 0, 1, "no"), ValueError, "'utf8' codec can't decode byte 0xff in position 0: no"),
        (KeyError("client"), RuntimeError, "KeyError: 'client'"),
    ],
)
def test_errors_keep_their_kind_and_their_text(error, kind, text):
    again = pool._rebuilt(*json.loads(json.dumps(pool._described(error))))
    assert type(again) is kind and str(again) == text


def test_a_worker_that_is_killed_is_told(settings, runs, two_cores):
    def kill():
        for pid in eventually(lambda: workers(os.getpid())):
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ChildProcessError, match="local voc seed [01]: .* SIGKILL, as happens when memory runs out"):
        run_all([settings(**LONG), settings(**LONG, seed=1)])
    killer.join()
    assert not workers(os.getpid())


# --- the end of the caller ---------------------------------------------------------------------------------------------------


def call(wanted):
    os.setpgid(0, 0)  # a group of its own, as a terminal makes
    with suppress(KeyboardInterrupt):
        run_all(wanted)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_caller_and_nothing_is_lost(settings, runs, two_cores, capfd, sign):
    wanted = [settings(**LONG), settings(**LONG, seed=1)]
    caller = multiprocessing.get_context("fork").Process(target=call, args=(wanted,))  # which has imported torch already
    caller.start()
    assert eventually(lambda: len(list(runs.glob("*/checkpoint.pt"))) == 2)
    computing = workers(caller.pid)
    assert len(computing) == 2
    os.killpg(caller.pid, sign)
    caller.join(10)
    assert caller.exitcode == (0 if sign == signal.SIGINT else -sign)
    assert eventually(lambda: not any(map(alive, computing)), seconds=5)
    assert all(experiment.entry_of(one).load_checkpoint()["finished_rounds"] for one in wanted)
    assert "Traceback" not in capfd.readouterr().err
