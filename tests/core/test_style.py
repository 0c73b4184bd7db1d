"""The house's theme."""

import matplotlib.pyplot as plt

from fedmuscle_lib.core.style import housed, save


@housed
def line():
    figure, ax = plt.subplots()
    ax.plot([0, 1], [1, 0], label="a")
    ax.set(title="title", xlabel="x (s)")
    figure.legend()
    return figure


def test_a_readers_matplotlibrc_changes_no_figure(tmp_path):
    usual = save(line(), tmp_path / "usual", "line").read_bytes()
    odd = {"text.usetex": True, "lines.linewidth": 9, "figure.dpi": 300, "savefig.dpi": 50}
    with plt.rc_context({**odd, "svg.fonttype": "none", "axes.facecolor": "red"}):
        assert save(line(), tmp_path / "odd", "line").read_bytes() == usual
