"""One user. It owns its data and model; fit, represent, align and evaluate are what Algorithm 1
asks of it.

An algorithm speaks to a client in values that can travel. What only one algorithm asks of a client
is code in that algorithm's file, which it hands over (``Client.do``, ``Client.fit``) and which is
built on the client's primitives. A client sends only what it computes from public data:
representations and their similarities, predictions, labels. The server's ledger counts these. Local
data and weights never leave; of the former ``directed`` tells a decision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from statistics import fmean
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.randomness import batches, permutation, seeded
from fedmuscle_lib.core.training import FlopMeter, check_finite, put_weights
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedmuscle.augmentation import View
from fedmuscle_lib.fedmuscle.messages import LabelSpace, Reply
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import FrozenStates, State, UserModel
from fedmuscle_lib.tasks import Classification, Task

T = TypeVar("T")
REFERENCE_BATCH = 256  # public samples at once, where no step follows
# of a client, beside its state, what training a copy of it leaves as it was
_ASIDE = ("address", "train", "evaluation", "_round", "_drawn", "_local_loss", "_public_losses")


class Client:
    """A user's side of Algorithm 1.

    Args:
        user: who it is.
        task: what it learns.
        model: theta^n.
        classes: ids of its classes, in the order of the outputs; users with the same task and
            classes share a label space.
        train: D^n.
        evaluation: held-out samples for the metric.
        public: the shared public set, as its model reads it: (n, 3, h, w) uint8 images, or (n, l)
            token ids of their captions.
        states: the frozen states of the run's samples, which its users share.
        settings: of the run, as its algorithm may read them.
        optimisers: the setting; "separate" where the algorithm ignores it.

    Attributes:
        start: by name, what training changes, as it was before any.
        kept: by name, what an algorithm's own code keeps here from round to round; a part of the
            client's state.
    """

    _public_losses: list[float]  # of this round's steps on public data

    def __init__(
        self,
        user: User,
        task: Task,
        model: UserModel,
        classes: tuple[int, ...],
        train: Samples,
        evaluation: Samples,
        public: Tensor,
        states: FrozenStates,
        settings: Any,
        optimisers: Literal["separate", "shared", "each_round"],
    ) -> None:
        self.user, self.task, self.model, self.classes = user, task, model, classes
        self.train, self.evaluation, self.public, self._states = train, evaluation, public, states
        self.kept: dict[str, Tensor] = {}
        self.batch_size = settings.batch_size
        self.address: tuple[object, ...] = (settings.seed, user.number)
        self.meter, self._optimisers = FlopMeter(), optimisers
        self._adamw: dict[str, Any] = {
            "lr": settings.of(user, "lr"),
            "weight_decay": settings.weight_decay,
            "fused": True,
        }
        pictures = isinstance(task, Classification) and task.reads == "images"
        self._augments = pictures and settings.augmentation == "weak"
        frozen = settings.projection == "frozen"
        self._untrained = set(model.projection.parameters()) if frozen else set()
        self._new_optimisers()
        self._epochs = 0
        self._pending: Tensor | None = None
        self.start = {name: p.clone() for name, p in model.trainable_state().items()}
        self._forget_losses()
        self.begin_round(0)

    def _new_optimisers(self) -> None:
        self._local = torch.optim.AdamW(
            self._trained(p for p in self.model.parameters() if p.requires_grad), **self._adamw
        )
        # a step of the alignment leaves the head alone: it has no gradient, and AdamW passes over
        # it
        if self._optimisers == "shared":
            self._alignment = self._local
        else:
            self._alignment = torch.optim.AdamW(
                self._trained(self.model.representation_parameters()), **self._adamw
            )

    def _trained(self, parameters: Iterable[Parameter]) -> list[Parameter]:
        return [p for p in parameters if p not in self._untrained]

    def begin_round(self, round: int) -> None:
        """Begin the round's draws, and make new optimisers where every round has its own."""
        self._round, self._drawn = round, 0
        if self._optimisers == "each_round":
            self._new_optimisers()

    @property
    def label_space(self) -> LabelSpace:
        """The label space that the client announces; raises ValueError if its task has no
        classes.
        """
        task = self.classification
        return LabelSpace(f"{task.name} in {task.folder}" if task.own else task.name, self.classes)

    def prepare(self, public: bool = True) -> None:
        """Compute what training never changes of the samples, before the first round.

        Args:
            public: whether public samples will be read as they are, and not as views alone.
        """
        for inputs in (
            self.train.inputs,
            self.evaluation.inputs,
            *([self.public] if public else []),
        ):
            if len(inputs):
                self.meter.done += self._states.of(self.model, inputs).bill()

    def restart(self) -> None:
        """Begin training anew from the weights before any training, with new optimisers."""
        self._load(self.start)
        self._new_optimisers()

    def _load(self, weights: dict[str, Tensor]) -> None:
        # a frozen weight's name would change every model in this process that shares it
        put_weights(f"user {self.user.number}", self.model, self.model.trainable_state(), weights)

    # --- what an algorithm asks for

    def fit(
        self, epochs: int, step: Callable[[Client, Tensor, int], Tensor] | None = None
    ) -> float:
        """LocalUpdate of Algorithm 1: ``epochs`` passes over D^n; returns the mean loss of the last
        pass (0 for none).

        Args:
            step: an algorithm's own in place of :meth:`fit_batch`: of the client, rows of D^n and
                the number of steps before it.

        Raises:
            Diverged: a loss is not finite.
        """
        return self.passes(
            epochs, len(self.train), self.fit_batch if step is None else partial(step, self)
        )

    def do(self, part: Callable[[Client], T]) -> T:
        """Run an algorithm's own part beside the model and the data; what it returns is what leaves
        the client.
        """
        return part(self)

    def represent(self, rows: Tensor, view: View | None = None) -> Tensor:
        """Z^n for a public batch, (b, d), detached. The pass that made it is kept, so that
        :meth:`align` needs no second one.

        Args:
            rows: of the public set.
            view: what the images are augmented by; there may be more of them afterwards.

        Raises:
            ValueError: a view of what is no image.
        """
        self.model.train()
        inputs = self.public_inputs(rows, view)
        with self._dropout():
            self._pending = self.meter.run(
                ("represent", len(rows), view is None), lambda: self.model.represent(inputs)
            )
        return self._pending.detach()

    def align(self, reply: Reply) -> float:
        """Update w^n by the loss of equation (5) on the batch last represented; returns its value.

        Raises:
            Diverged: the loss is not finite.
            RuntimeError: nothing was represented since the last alignment.
        """
        if self._pending is None:
            raise RuntimeError(f"user {self.user.number}: align() before represent()")
        anchor, self._pending = self._pending, None
        return self._public_step(
            self._alignment, ("align", len(anchor)), lambda: reply.loss(anchor)
        )

    # --- what an algorithm's own code is built on
    # ------------------------------------------------------------------------------ A key says of
    # what kind and shape a step is: steps of equal keys have equal numbers of operations.

    @property
    def classification(self) -> Classification:
        """The client's task; raises ValueError if it has no classes."""
        if not isinstance(self.task, Classification):
            raise ValueError(
                f"user {self.user.number}: {self.task.name} has no label space that predictions"
                " could be exchanged in"
            )
        return self.task

    def read(self, inputs: Tensor, rows: Tensor) -> State | Tensor:
        """Return ``inputs[rows]`` as the model reads them, counting what this spares."""
        kept = self._states.of(self.model, inputs)
        self.meter.total += kept.flops * len(rows)
        return kept.take(rows)

    def public_inputs(self, rows: Tensor, view: View | None = None) -> State | Tensor:
        """Return public samples as the model reads them; raises ValueError for a view of what is no
        image.
        """
        if view is None:
            return self.read(self.public, rows)
        if self.public.ndim != 4:
            raise ValueError(
                f"user {self.user.number} reads texts, of which there are no augmented views"
            )
        return view(self.public[rows])

    def own(self, rows: Tensor) -> State | Tensor:
        """Return samples of D^n as the model reads them in local training."""
        if not self._augments:
            return self.read(self.train.inputs, rows)
        address = ("local", *self.address, self._epochs, *rows.tolist())
        return View("weak", address)(self.train.inputs[rows])

    def local_loss(self, rows: Tensor) -> Callable[[], Tensor]:
        """L^n on samples of D^n, to be computed within a step."""
        inputs, targets = self.own(rows), self.train.targets[rows]
        return lambda: self.task.loss(self.model(inputs), targets)

    def fit_batch(self, rows: Tensor, number: int = 0) -> Tensor:
        """One step on the samples ``rows`` of D^n; returns the loss."""
        return self.step(("fit", len(rows)), self.local_loss(rows))

    def step(self, key: tuple, loss: Callable[[], Tensor]) -> Tensor:
        """Take a step of all of theta^n by the optimiser of local training; returns the loss."""
        return self._step(self._local, key, loss)

    def step_on_public(self, key: tuple, loss: Callable[[], Tensor]) -> float:
        """The same for a loss on public data, which counts among these; raises ``Diverged`` if it
        is not finite.
        """
        return self._public_step(self._local, key, loss)

    @torch.no_grad()
    def over_public(
        self,
        call: Callable[[State | Tensor], Tensor],
        rows: Tensor | None = None,
        view: View | None = None,
    ) -> Tensor:
        """Call the model or one of its methods on public samples, all by default, part by part and
        without a step to follow.
        """
        self.model.eval()
        parts = (torch.arange(len(self.public)) if rows is None else rows).split(REFERENCE_BATCH)
        return torch.cat(
            [
                self.meter.run(
                    (call, len(part), view is None), partial(call, self.public_inputs(part, view))
                )
                for part in parts
            ]
        )

    def passes(self, epochs: int, n: int, fit_batch: Callable[[Tensor, int], Tensor]) -> float:
        """Passes over ``n`` samples; returns the mean loss of the last one (0 for none).

        Args:
            fit_batch: takes a step on some of the samples and returns its loss, given their numbers
                and how many steps were before it.

        Raises:
            Diverged: a loss is not finite.
        """
        losses: list[float] = []
        for _ in range(epochs):
            parts = batches(n, self.batch_size, "local order", *self.address, self._epochs)
            losses = []
            for i, rows in enumerate(parts):
                loss = fit_batch(rows, self._epochs * len(parts) + i)
                losses.append(self._value(loss, f"epoch {self._epochs + 1}, batch {i + 1}"))
            self._epochs += 1
        mean = sum(losses) / max(1, len(losses))
        self._local_loss = mean if losses else math.nan
        return mean

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        """Give the pass inside draws that depend on no other draw."""
        if not self.model.drops:
            yield
            return
        with seeded("dropout", *self.address, self._round, self._drawn):
            self._drawn += 1
            yield

    def _step(
        self, optimiser: torch.optim.Optimizer, key: tuple, loss: Callable[[], Tensor]
    ) -> Tensor:
        if not self.model.training:
            self.model.train()

        def once() -> Tensor:
            with self._dropout():
                value = loss()
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
            return value.detach()

        return self.meter.run(key, once)

    def _public_step(
        self, optimiser: torch.optim.Optimizer, key: tuple, loss: Callable[[], Tensor]
    ) -> float:
        number = len(self._public_losses) + 1
        value = self._value(self._step(optimiser, key, loss), f"public batch {number} of the round")
        self._public_losses.append(value)
        return value

    def _value(self, loss: Tensor, where: str) -> float:
        """A loss as a number; raises Diverged if it is not finite."""
        if not math.isfinite(value := loss.item()):
            raise Diverged(
                f"user {self.user.number}: the loss is not finite in {where}; is lr or an option"
                " too large, or a temperature too small?"
            )
        return value

    # --- measuring, and going on

    def check_weights(self) -> None:
        """Raise ``Diverged`` if training left a weight that is not finite, as the last step can
        whose own loss was finite.
        """
        check_finite(f"user {self.user.number}", self.model.trainable_state())

    @torch.no_grad()
    def evaluate(self) -> float:
        """The task's metric on the evaluation samples; raises Diverged if it is not finite."""
        self.model.eval()
        kept, targets = self._states.of(self.model, self.evaluation.inputs), self.evaluation.targets
        parts = torch.arange(len(targets)).split(self.task.evaluation_batch)
        counts = reduce(
            torch.add,
            (self.task.count(self.model(kept.take(rows)), targets[rows]) for rows in parts),
        )
        try:
            score = self.task.score(counts)
        except OverflowError:  # a perplexity is an exponential
            raise Diverged(
                f"user {self.user.number}: {self.task.metric} is too large for a number; is lr or"
                " an option too large?"
            ) from None
        if not math.isfinite(score):
            raise Diverged(f"user {self.user.number}: {self.task.metric} is {score}")
        return score

    @contextmanager
    def as_copy(self) -> Iterator[None]:
        """Train inside as a copy would: afterwards weights, optimisers, epochs, data, losses and
        counted operations are what they were.

        The copy sees its local data in an order of its own.
        """
        state, before = copy.deepcopy(self.state()), {name: vars(self)[name] for name in _ASIDE}
        self.address = (*self.address, "aside")
        self._forget_losses()
        try:
            yield
        finally:
            self.restore(state)
            vars(self).update(before)

    @contextmanager
    def holding_out(self, fold: int, folds: int) -> Iterator[None]:
        """Begin anew inside, as a copy that trains without one of ``folds`` parts of D^n and is
        evaluated on it. Its operations count.
        """
        own, order = self.train, permutation(len(self.train), "held out", *self.address)
        held = order.tensor_split(folds)[fold]
        with self.as_copy():
            self.train, self.evaluation = own.take(order[~torch.isin(order, held)]), own.take(held)
            self.restart()
            yield
            counted = self.meter.total, self.meter.done
        self.meter.total, self.meter.done = counted

    def take_losses(self) -> dict[str, float]:
        """Return the mean losses since the last call, NaN where there were none.

        "local" is the mean over the last pass over D^n, "alignment" the mean over all steps on
        public data, by replies or labels.
        """
        losses = {
            "local": self._local_loss,
            "alignment": fmean(self._public_losses) if self._public_losses else math.nan,
        }
        self._forget_losses()
        return losses

    def _forget_losses(self) -> None:
        self._local_loss = math.nan
        self._public_losses = []

    def state(self) -> dict[str, Any]:
        """Everything that training changed, as tensors and numbers; what :meth:`restore` takes."""
        return {
            "model": self.model.trainable_state(),
            "local": self._local.state_dict(),
            "alignment": self._alignment.state_dict(),
            "kept": self.kept,
            "epochs": self._epochs,
            "flops": (self.meter.total, self.meter.done),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue as if training had never stopped."""
        self._load(state["model"])
        for name, optimiser in (("local", self._local), ("alignment", self._alignment)):
            optimiser.load_state_dict(state[name])
        self.kept, self._epochs = state["kept"], state["epochs"]
        self.meter.total, self.meter.done = state["flops"]
