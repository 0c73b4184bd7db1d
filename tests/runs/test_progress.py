"""What is shown while runs are computed: one bar, or a line for each finished run; and that all is
stored where it is.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel
from processes import eventually

from fedmuscle_lib import Settings, run_all
from fedmuscle_lib.runs import Interrupted, Tick
from fedmuscle_lib.runs.progress import showing

TICK = Tick("fedmuscle voc seed 0", 1, 3, 6, 0.5, 2.0, ((1, 40.0), (2, 50.0)), 7.0)


def test_a_bar_counts_the_rounds_of_all_missing_runs(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with showing(10, [Settings(rounds=3), Settings(rounds=3, seed=1)], None) as tell:
        for k in (1, 2, 3):
            tell(replace(TICK, round=k))
    last = capsys.readouterr().err.split("\r")[-1]
    assert (
        last.startswith("9 of 10 runs: ")
        and " 3/6 " in last
        and "fedmuscle voc seed 0: round 3/3" in last
    )


def test_where_nobody_watches_each_finished_run_is_a_line(capsys):
    with showing(12, [Settings(rounds=3)] * 10, None) as tell:
        for k in (1, 2, 3):
            tell(replace(TICK, round=k, seconds=14.4 * k))
    told = capsys.readouterr()
    assert (
        told.out.splitlines()
        == ["2 of 12 stored", "fedmuscle voc seed 0: finished in 43 s (3 of 12)"]
        and not told.err
    )


def test_where_all_is_stored_this_is_all_that_is_said(settings, store, capsys, monkeypatch):
    wanted = [settings(algorithm="local", users=(6,), rounds=1)]
    run_all(wanted, progress=str, store=store)
    for watched in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda watched=watched: watched)
        run_all(wanted, store=store)
        told = capsys.readouterr()
        assert told.out == "1 of 1 stored\n" and not told.err


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [
        ({}, "Interrupted. 7 of 10 runs are stored."),
        (
            {"one": 3, "other": 2},
            (
                "Interrupted. 8 of 10 runs are stored. Kept of what was begun: fedmuscle voc seed"
                " 0, 2 of 3 rounds."
            ),
        ),
        (
            {"one": 1, "other": 2},
            (
                "Kept of what was begun: fedmuscle voc seed 0, 1 of 3 rounds; fedmuscle voc seed 0,"
                " 2 of 3 rounds."
            ),
        ),
    ],
)
def test_an_interrupt_says_what_is_kept(rounds, kept):
    with (
        pytest.raises(Interrupted) as interrupt,
        showing(10, [Settings(rounds=3)] * 3, str) as tell,
    ):
        for address, last in rounds.items():
            for k in range(1, last + 1):
                tell(replace(TICK, round=k, address=address))
        raise KeyboardInterrupt
    assert kept in str(interrupt.value) and str(interrupt.value).endswith(
        " Run this again to go on from there."
    )


@pytest.mark.slow
def test_an_interrupted_cell_shows_that_and_no_traceback(settings, store):
    own = settings(algorithm="local", users=(6,), rounds=1000).model_dump(
        mode="json", include={"users", "rounds", "data_dir", "models_path"}
    )
    cell = (
        f"from fedmuscle_lib import report\nreport.run_arms({own}, ['local'], [0], ['voc'],"
        " controls=[])"
    )
    manager, client = start_new_kernel(
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    )
    try:
        client.execute(cell)
        assert eventually(lambda: list(store.root.glob("*/checkpoint.pt")), 300)
        manager.interrupt_kernel()
        while (message := client.get_iopub_msg(timeout=60))["msg_type"] != "error":
            pass
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    (line,) = message["content"]["traceback"]
    assert line.startswith(
        "Interrupted. 0 of 1 runs are stored. Kept of what was begun: local voc seed 0, "
    )
