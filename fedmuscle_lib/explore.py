"""A small federation to play with: widgets choose its settings, and a curve of each user grows
while it is computed.

Whatever is chosen goes through :class:`Settings`. A finished run is stored like any other, so that
the same choice gives it at once.
"""

from __future__ import annotations

import html
import os
from io import BytesIO
from threading import Thread
from typing import Any

import ipywidgets
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib import plots, report
from fedmuscle_lib.data.public import PUBLIC_SETS, images_of
from fedmuscle_lib.fedmuscle.settings import Settings, parse
from fedmuscle_lib.fedmuscle.setups import SETUPS, User
from fedmuscle_lib.runs import History, Tick, run
from fedmuscle_lib.tasks import TASKS

_OWN = {"evaluate_every": 1}  # a curve has a point a round
_NUMBERS = {
    "others": "others, M",
    "tau": "τ",
    "tau_prime": "τ′",
    "rounds": "rounds",
    "seed": "seed",
}


def explore(live: bool | None = None, **given: Any) -> ipywidgets.VBox | Figure | None:
    """Run a federation; return widgets that show it and choose another or, outside JupyterLab,
    print what came of it and return its figure.

    Args:
        live: whether somebody can use widgets; by default, whether a Jupyter server started this
            kernel.
        given: settings of the first run, and of what the widgets don't choose.

    Raises:
        ValueError: settings that no run can have.
        What else ``run`` raises: only without widgets, which say it themselves.
    """
    explorer = Explorer(given)
    if live is None:
        live = "JPY_SESSION_NAME" in os.environ
    if live:
        explorer.start()
        return explorer.panel
    explorer.run()
    print(explorer.said)
    return explorer.figure


class Explorer:
    """The widgets, and what was run with them.

    Attributes:
        panel: all of them.
        controls: by setting, the widget that chooses it.
        models: by the paper's name of a model, the widget that chooses its checkpoint.
        said: one line: what is going on, what came of it, or why it can't be.
        figure: the users' curves so far; None before the first round.
        tried: a row a finished run: what was chosen, and Delta.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.said, self.tried = "", pd.DataFrame()
        self.figure: Figure | None = None
        self._given = _OWN | given
        shown = parse(self._given)
        self._curves: dict[str, pd.DataFrame] = {}  # by algorithm
        self._thread, self._stopping = Thread(), False
        self.controls, self.models = _controls(shown), _models(shown)
        self._go = ipywidgets.Button(description="Run", button_style="primary")
        self._stop = ipywidgets.Button(description="Stop", disabled=True)
        self._line, self._image, self._table = (
            ipywidgets.HTML(),
            ipywidgets.Image(format="png"),
            ipywidgets.HTML(),
        )
        users, public, *numbers = self.controls.values()
        choices = ipywidgets.HBox(
            [
                ipywidgets.VBox(column)
                for column in ([users, public], list(self.models.values()), numbers)
            ]
        )
        self.panel = ipywidgets.VBox(
            [choices, ipywidgets.HBox([self._go, self._stop]), self._line, self._image, self._table]
        )
        self._go.on_click(lambda _: self.start())
        self._stop.on_click(lambda _: self.stop())
        for control in (*self.controls.values(), *self.models.values()):
            control.observe(lambda _: self._check(), "value")

    def settings(self) -> Settings:
        """Settings that are chosen; raises ValueError, whose one line says why, if no run can have
        them.
        """
        chosen = {name: control.value for name, control in self.controls.items()}
        return parse(
            self._given
            | chosen
            | {"backbones": {name: control.value for name, control in self.models.items()}}
        )

    def start(self) -> None:
        """Run what is chosen in a thread, so that the widgets go on to answer; one run at a
        time.
        """
        if not self._thread.is_alive():
            self._thread = Thread(target=self._run_and_tell, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the run after its present round, which is kept."""
        self._stopping = True
        self._say("Stopping after this round ...")

    def run(self) -> None:
        """Compute or fetch local training and the chosen run, and draw them round by round.

        Raises:
            ValueError, and what else ``run`` raises. Interrupted: ``stop`` was called, or the
            kernel was interrupted; what is finished is kept.
        """
        chosen = self.settings()
        self._stopping, self._curves = False, {}
        arms = dict.fromkeys((report.BASELINE, chosen.algorithm))
        self._conclude([self._one(chosen.model_copy(update={"algorithm": name})) for name in arms])

    def _one(self, settings: Settings) -> History[Settings]:
        history = run(
            settings,
            progress=lambda tick: self._say(str(tick)),
            on_round=lambda tick: self._on_round(settings, tick),
        )
        metrics = history.metrics
        self._curves[settings.algorithm] = metrics[metrics.phase == report.HEADLINE]
        self._draw(settings)
        return history

    def _on_round(self, settings: Settings, tick: Tick) -> None:
        """Draw a round that was computed and kept; end the run there if that was asked for."""
        name = settings.algorithm
        self._curves[name] = pd.concat([self._curves.get(name), _points(settings, tick)])
        self._draw(settings)
        if self._stopping:
            raise KeyboardInterrupt

    def _draw(self, settings: Settings) -> None:
        rows = pd.concat(curve.assign(algorithm=name) for name, curve in self._curves.items())
        models = {model: name.partition(",")[0] for model, name in report.models(settings).items()}
        names = rows.replace({"model": models})[["model", "task", "metric"]].agg(", ".join, axis=1)
        names += rows.metric.map(lambda metric: "" if metric == "Perplexity" else " (%)")
        rows = rows.assign(panel="user " + rows.user.astype(str) + ": " + names, mean=rows.value)
        self.figure = plots.curve(rows, wrap=3)
        png = BytesIO()
        self.figure.savefig(png, format="png", dpi=100)
        self._image.value = png.getvalue()

    def _conclude(self, histories: list[History[Settings]]) -> None:
        """Say what Delta is, and add a row to the runs that were tried."""
        s = histories[-1].settings
        delta = report.deltas(report.ends(report.tidy(histories))).delta.iloc[-1]
        self._say(
            f"{report.label(s.algorithm)}, {s.rounds} rounds: Δ over local training {delta:+.1f} %,"
            " on one seed."
        )
        row = {
            "users": ", ".join(map(str, _numbers(s))),
            "models": ", ".join(dict.fromkeys(s.backbones[u.model] for u in s.members)),
        }
        row |= {name: str(getattr(s, name)) for name in ("public", *_NUMBERS)} | {
            "Δ (%)": f"{delta:+.1f}"
        }
        self.tried = pd.concat(
            [self.tried, pd.DataFrame([row])], ignore_index=True
        ).drop_duplicates(ignore_index=True)
        self._table.value = self.tried.to_html(index=False)

    def _run_and_tell(self) -> None:
        self._go.disabled, self._stop.disabled = True, False
        try:
            self.run()
        except (
            Exception,
            KeyboardInterrupt,
        ) as error:  # whatever it is, nobody else hears of it in this thread
            self._say(" ".join(str(error).split()) or type(error).__name__)
        finally:
            self._go.disabled, self._stop.disabled = False, True

    def _check(self) -> None:
        """Say what is wrong with what is chosen, unless a run is being told of."""
        if self._thread.is_alive():
            return
        try:
            self.settings()
            self._say("")
        except ValueError as error:
            self._say(str(error))

    def _say(self, line: str) -> None:
        self.said, self._line.value = line, html.escape(line)


def _controls(shown: Settings) -> dict[str, ipywidgets.ValueWidget]:
    """A widget a setting, with the value that it has; of a temperature that is no number there is
    none.
    """
    users = SETUPS[shown.setup]
    listed = ipywidgets.SelectMultiple(
        options=[(f"{user.number}: {user.model}, {user.task}", user.number) for user in users],
        value=_numbers(shown),
        rows=min(len(users), 10),
        description="users",
    )
    there = [name for name in PUBLIC_SETS if name == shown.public or _has_enough(shown, name)]
    controls = {
        "users": listed,
        "public": ipywidgets.Dropdown(options=there, value=shown.public, description="public set"),
    }
    for name, text in _NUMBERS.items():
        value = getattr(shown, name)
        if isinstance(value, int | float):
            kind = ipywidgets.FloatText if isinstance(value, float) else ipywidgets.IntText
            controls[name] = kind(
                value=value, description=text, step=0.05 if isinstance(value, float) else 1
            )
    return controls


def _has_enough(shown: Settings, public: str) -> bool:
    """Return whether a public set is there and holds as many images as are asked for."""
    folder = shown.data_dir / PUBLIC_SETS[public]
    return folder.is_dir() and len(images_of(folder)) >= shown.public_size


def _models(shown: Settings) -> dict[str, ipywidgets.Dropdown]:
    """For each model of the setup, what may stand in for it: the profile's checkpoints of users who
    read the same and have such a head.
    """
    everyone = [
        user for users in SETUPS.values() for user in users if user.model in shown.backbones
    ]
    models = {}
    for user in SETUPS[shown.setup]:
        fitting = [shown.backbones[one.model] for one in everyone if _kind(one) == _kind(user)]
        models[user.model] = ipywidgets.Dropdown(
            options=sorted(set(fitting)),
            value=shown.backbones.get(user.model),
            description=user.model,
            style={"description_width": "8em"},
        )
    return models


def _kind(user: User) -> tuple[str, str, bool]:
    pooled_by_cls = user.model.startswith("CLS")
    return TASKS[user.task].reads, TASKS[user.task].head, pooled_by_cls


def _numbers(settings: Settings) -> tuple[int, ...]:
    return tuple(user.number for user in settings.members)


def _points(settings: Settings, tick: Tick) -> pd.DataFrame:
    """The users' metrics of a round that was just computed, as a history has them."""
    value = {int(number): value for number, value in tick.metrics}
    return pd.DataFrame(
        {
            "round": tick.round,
            "user": u.number,
            "model": u.model,
            "task": u.task,
            "metric": TASKS[u.task].metric,
            "value": value[u.number],
        }
        for u in settings.members
    )
