"""``creamfl``: one run of a federation of image, text and pair clients."""

from __future__ import annotations

from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs import History, run


def command(settings: Settings) -> None:
    """Run one federation of CreamFL's kind, or fetch it if it was run before, and print the
    server's recalls.
    """
    show(run(settings))


def show(history: History[Settings]) -> None:
    """Print the last round's recalls by gallery, beside chance, and the run's costs."""
    rows = history.final().rename(columns={"value": "recall"})
    table = rows.pivot(index="gallery", columns=["direction", "k"], values=["recall", "chance"])
    print(f"{history.settings.title}: the server's R@k in % after round {history.settings.rounds}")
    print(table.stack(level=0).to_string(float_format="%.1f"))
    sent = history.costs[history.costs.kind != "server"]
    up, down = sent.uplink_bytes.mean() / 1e6, sent.downlink_bytes.mean() / 1e6
    cost = f"{up:.2f} MB up, {down:.2f} MB down" if len(sent) else "no client took part"
    print(f"\nper client and round: {cost}; {history.provenance['seconds']:.0f} s in all")
    if history.remark:
        print(history.remark)
