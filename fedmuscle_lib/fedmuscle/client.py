"""One user. It owns its data and model; fit, represent, align and evaluate are what Algorithm 1 asks of it.

An algorithm speaks to a client in messages alone (``fedmuscle_lib.fedmuscle.messages``). A client sends only what it computes from
public data: representations and their similarities, predictions, labels. The server's ledger counts these. Local data and weights never
leave.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.core.tensors import like
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedmuscle.augmentation import View
from fedmuscle_lib.fedmuscle.messages import Aligned, Contrast, HardLabels, Labelling, Labels, LabelSpace, LocalTerm, Reply, Taught, Teacher
from fedmuscle_lib.fedmuscle.objectives import inverse_counts
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import FrozenStates, State, UserModel, linear_probe
from fedmuscle_lib.tasks import Classification, Task

REFERENCE_BATCH = 256  # public samples at once, where no step follows


@dataclass
class FlopMeter:
    """Floating-point operations by torch's counter, measured once a kind and shape of step and multiplied from then on.

    It counts matrix products and convolutions, and on a CPU not those inside fused attention (3 to 4 % of mini's models').

    Attributes:
        total: operations of training as written, in which every call passes through the whole backbone.
        done: operations that ran; frozen states are computed once (``fedmuscle_lib.models.frozen``).
    """

    total: int = 0
    done: int = 0
    _per_step: dict[tuple, int] = field(default_factory=dict)

    def run(self, key: tuple, step: Callable[[], Tensor]) -> Tensor:
        if key in self._per_step:
            result = step()
        else:
            with FlopCounterMode(display=False) as counter:
                result = step()
            self._per_step[key] = counter.get_total_flops()
        self.total += self._per_step[key]
        self.done += self._per_step[key]
        return result


class Client:
    """A user's side of Algorithm 1.

    Args:
        user: who it is.
        task: what it learns.
        model: theta^n.
        classes: ids of its classes, in the order of the outputs; users with the same task and classes share a label space.
        train: D^n.
        evaluation: held-out samples for the metric.
        public: the shared public set, as its model reads it: (n, 3, h, w) uint8 pictures, or (n, l) token ids of their captions.
        states: the frozen states of the run's samples, which its users share.
        batch_size: B, of local batches.
        lr, weight_decay: of AdamW.
        optimisers: whether local training and alignment have an AdamW each, since their gradients differ in scale, or one.
        address: prefix of every draw's address, such as the seed.
    """

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
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        optimisers: Literal["separate", "shared"] = "separate",
        address: tuple[object, ...],
    ) -> None:
        self.user, self.task, self.model, self.classes = user, task, model, classes
        self.train, self.evaluation, self.public, self._states = train, evaluation, public, states
        self.batch_size, self.address = batch_size, (*address, user.number)
        self.meter = FlopMeter()
        self._adamw: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "fused": True}
        self._optimisers = optimisers
        self._new_optimisers()
        self._epochs = 0
        self._pending: Tensor | None = None
        self._labels: Tensor | None = None
        self._start: dict[str, Tensor] | None = None
        self._forget_losses()

    def _new_optimisers(self) -> None:
        self._local = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], **self._adamw)
        if self._optimisers == "shared":  # a step of the alignment leaves the head alone: it has no gradient, and AdamW passes over it
            self._alignment = self._local
        else:
            self._alignment = torch.optim.AdamW(self.model.representation_parameters(), **self._adamw)

    @property
    def label_space(self) -> LabelSpace:
        """The label space that the client announces.

        Raises:
            ValueError: its task has no classes.
        """
        task = self._classification()
        return LabelSpace(f"{task.name} in {task.folder}" if task.own else task.name, self.classes)

    def _classification(self) -> Classification:
        if not isinstance(self.task, Classification):
            raise ValueError(f"user {self.user.number}: {self.task.name} has no label space that predictions could be exchanged in")
        return self.task

    def freeze_representation(self) -> None:
        """Train the head alone from here on (the control ``head_only``)."""
        self.model.freeze_representation()

    def fit_probe(self) -> None:
        """Freeze the representation, and put a linear layer fitted to the features of D^n in place of the head (the control ``probe``)."""
        self.freeze_representation()
        features = self.model.features(self._states.of(self.model, self.train.inputs).take(slice(None)))
        self.model.head = linear_probe(features, self.train.targets, self.task.loss, self.task.n_outputs(self.classes))
        self.model.head_on = "features"

    def prepare(self, public: bool = True) -> None:
        """Compute what training never changes of the samples, before the first round.

        Args:
            public: whether public samples will be read as they are, and not as views alone.
        """
        for inputs in (self.train.inputs, self.evaluation.inputs, *([self.public] if public else [])):
            if len(inputs):
                self.meter.done += self._states.of(self.model, inputs).bill()

    def _read(self, inputs: Tensor, rows: Tensor) -> State | Tensor:
        """What the model reads of ``inputs[rows]``, counting what this spares."""
        kept = self._states.of(self.model, inputs)
        self.meter.total += kept.flops * len(rows)
        return kept.take(rows)

    def keep_start(self) -> None:
        """Remember the weights as they are now, for :meth:`restart`."""
        self._start = {name: p.clone() for name, p in self.model.trainable_state().items()}

    def restart(self) -> None:
        """Begin training anew from the weights that :meth:`keep_start` kept, with new optimisers.

        Raises:
            RuntimeError: :meth:`keep_start` was not called.
        """
        if self._start is None:
            raise RuntimeError(f"user {self.user.number}: restart() before keep_start()")
        self._load(self._start)
        self._new_optimisers()

    def _load(self, weights: dict[str, Tensor]) -> None:
        ours = self.model.trainable_state()  # a name of a frozen weight's would change every model in this process that shares it
        for name in ours.keys() ^ weights.keys() or [name for name in ours if not like(weights[name], ours[name])]:
            raise ValueError(f"user {self.user.number}: {name!r} is not of this model")
        with torch.no_grad():
            for name, tensor in self.model.state_dict(keep_vars=True).items():
                if name in weights:
                    tensor.copy_(weights[name])

    # --- local data ----------------------------------------------------------------------------------------------------------

    def fit(self, epochs: int, term: LocalTerm | None = None) -> float:
        """LocalUpdate of Algorithm 1: ``epochs`` passes over D^n; returns the mean loss of the last pass (0 for none).

        Args:
            term: added to the task's loss, which is L^n of the paper.

        Raises:
            Diverged: a loss is not finite.
            ValueError: the model has no levels or the task no classes for ``term``, or it asks for a view of what is no picture.
        """
        return self._passes(epochs, len(self.train), lambda rows, step: self.fit_batch(rows, term, step))

    def fit_labelled(self, epochs: int, balanced: bool) -> float:
        """LocalUpdate on D^n and the public samples with a label together; without any, it is :meth:`fit`.

        Args:
            balanced: whether a decision's rarer outcomes among all of these labels weigh more (``objectives.inverse_counts``).

        Raises:
            Diverged: a loss is not finite.
        """
        if self._labels is None or not (self._labels >= 0).any():
            return self.fit(epochs)
        made_up = self._labels.to(self.public.device)
        rows = (made_up >= 0).any(1).nonzero().flatten()
        task, n = self._classification(), len(self.train)
        labels = torch.cat([task.labels(self.train.targets), made_up[rows].long()])
        weights = inverse_counts(labels, task.outcomes) if balanced else None

        def fit_batch(drawn: Tensor, step: int) -> Tensor:
            own, public = drawn[drawn < n], drawn[drawn >= n]
            inputs = [self._read(self.train.inputs, own)] if len(own) else []
            inputs += [self._read(self.public, rows[public - n])] if len(public) else []
            wanted = HardLabels(labels[torch.cat([own, public])], weights)
            return self.meter.run(
                ("fit labelled", len(own), len(public)),
                lambda: self._step(self._local, wanted.loss(task.decisions(torch.cat([self.model(part) for part in inputs])))),
            )

        return self._passes(epochs, len(labels), fit_batch)

    def _passes(self, epochs: int, n: int, fit_batch: Callable[[Tensor, int], Tensor]) -> float:
        """Passes over ``n`` samples; returns the mean loss of the last one (0 for none).

        Args:
            fit_batch: takes a step on some of the samples and returns its loss, given their numbers and how many steps were before it.
        """
        self.model.train()
        losses: list[float] = []
        for _ in range(epochs):
            parts = batches(n, self.batch_size, "local order", *self.address, self._epochs)
            losses = []
            for i, rows in enumerate(parts):
                losses.append(fit_batch(rows, self._epochs * len(parts) + i).item())
                if not math.isfinite(losses[-1]):
                    where = f"epoch {self._epochs + 1}, batch {i + 1}"
                    raise Diverged(f"user {self.user.number}: the local loss is not finite in {where}; is lr too large?")
            self._epochs += 1
        mean = sum(losses) / max(1, len(losses))
        self._local_loss = mean if losses else math.nan
        return mean

    def fit_batch(self, rows: Tensor, term: LocalTerm | None = None, step: int = 0) -> Tensor:
        """One step on the samples ``rows`` of D^n; returns the loss.

        Args:
            term: added to the task's loss.
            step: how many steps were before it; a ``Taught`` draws its public samples by it.
        """
        inputs, targets = self._read(self.train.inputs, rows), self.train.targets[rows]
        beside = self._on_public(term, step)

        def loss() -> Tensor:
            if isinstance(term, Contrast):
                outputs, levels = self.model.forward_with_levels(inputs)
                return self.task.loss(outputs, targets) + term.value(levels, *self._classification().alike(targets))
            own = self.task.loss(self.model(inputs), targets)
            return own if beside is None else own + beside[1]()

        key = ("fit", type(term), len(rows), None if beside is None else beside[0])
        return self.meter.run(key, lambda: self._step(self._local, loss()))

    def _on_public(self, term: LocalTerm | None, step: int) -> tuple[int, Callable[[], Tensor]] | None:
        """How many public samples ``term`` adds to a local step, and its loss of them; None where they have nothing to say."""
        if isinstance(term, Aligned):
            seen = self._read(self.public, term.rows)
            return len(term.rows), lambda: term.reply.loss(self.model.represent(seen))
        if isinstance(term, Taught):
            address = ("taught", *self.address)
            turn, position = divmod(step, len(batches(len(self.public), term.size, *address)))
            rows = batches(len(self.public), term.size, *address, turn)[position]
            labels = self._taught(rows, term.teacher, term.predicted.at(*self.address, step))
            self.model.train()
            if labels is not None:
                strong = self._seen(rows, term.trained.at(*self.address, step))
                return len(rows), lambda: labels.loss(self._classification().decisions(self.model(strong)))
        return None

    @staticmethod
    def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.detach()

    # --- public data ---------------------------------------------------------------------------------------------------------

    def represent(self, rows: Tensor, view: View | None = None) -> Tensor:
        """Z^n for a public batch, (b, d), detached. The pass that made it is kept, so that :meth:`align` needs no second one.

        Args:
            rows: of the public set.
            view: what the pictures are augmented by; there may be more of them afterwards.

        Raises:
            ValueError: a view of what is no picture.
        """
        self.model.train()
        inputs = self._seen(rows, view)
        self._pending = self.meter.run(("represent", len(rows), view is None), lambda: self.model.represent(inputs))
        return self._pending.detach()

    @torch.no_grad()
    def similarities(self, rows: Tensor) -> Tensor:
        """Z Z^T of public samples, (b, b), without a step to follow."""
        self.model.eval()
        z = self._over(rows, None, "reference", self.model.represent)
        return z @ z.T

    def _seen(self, rows: Tensor, view: View | None) -> State | Tensor:
        if view is None:
            return self._read(self.public, rows)
        if self.public.ndim != 4:
            raise ValueError(f"user {self.user.number} reads texts, of which there are no augmented views")
        return view(self.public[rows])

    def align(self, reply: Reply) -> float:
        """Update w^n by the loss of equation (5) on the batch last represented; returns its value.

        Raises:
            Diverged: the loss is not finite.
            RuntimeError: nothing was represented since the last alignment.
        """
        if self._pending is None:
            raise RuntimeError(f"user {self.user.number}: align() before represent()")
        anchor, self._pending = self._pending, None
        return self._public_step(("align", len(anchor)), lambda: self._step(self._alignment, reply.loss(anchor)))

    def fit_public(self, rows: Tensor, labels: Labels, view: View | None = None) -> float:
        """Take one step of all of theta^n by labels of a public batch; returns the loss.

        The loss is one of labels, as the local loss is, and shares its optimiser.

        Raises:
            Diverged: the loss is not finite.
        """
        self.model.train()
        inputs, decisions = self._seen(rows, view), self._classification().decisions
        step = lambda: self._step(self._local, labels.loss(decisions(self.model(inputs))))  # noqa: E731
        return self._public_step(("fit public", len(rows), view is None), step)

    def _public_step(self, key: tuple, step: Callable[[], Tensor]) -> float:
        loss = self.meter.run(key, step).item()
        self._public_batches += 1
        if not math.isfinite(loss):
            where = f"public batch {self._public_batches} of the round"
            raise Diverged(f"user {self.user.number}: the loss is not finite in {where}; is a temperature too small or lr too large?")
        self._public_losses.append(loss)
        return loss

    def fit_taught(self, rows: Tensor, teacher: Teacher, predicted: View | None = None, trained: View | None = None) -> float | None:
        """Take one step by labels that ``teacher`` makes from the client's own prediction; returns the loss, None without labels.

        Args:
            rows: of the public set.
            predicted: augments the images for the prediction, which stays with the client.
            trained: augments the images for the step.
        """
        labels = self._taught(rows, teacher, predicted)
        if labels is not None:
            return self.fit_public(rows, labels, trained)
        self._public_batches += 1
        return None

    def _taught(self, rows: Tensor, teacher: Teacher, view: View | None) -> Labels | None:
        """What the teacher makes of the client's prediction for a view of public samples."""
        return teacher.labels(rows, self._classification().decisions(self.predict(rows, view)))

    def label_public(self, rule: Labelling) -> Tensor:
        """Label the whole public set from the client's own predictions; keep the labels and return them: (n, k), -1 for none."""
        task = self._classification()
        log_p = task.decisions(self.predict_all())
        self._labels = rule.labels(log_p, task.certainty(log_p))
        return self._labels

    def keep_labels(self, labels: Tensor) -> None:
        """Keep labels of the whole public set in place of earlier ones: (n, k), outcomes of each decision, -1 for none."""
        self._labels = labels

    @torch.no_grad()
    def predict(self, rows: Tensor, view: View | None = None) -> Tensor:
        """The head's outputs for public pictures, (b, classes)."""
        self.model.eval()
        return self._over(rows, view, "predict", self.model)

    def _over(self, rows: Tensor, view: View | None, what: str, call: Callable[[State | Tensor], Tensor]) -> Tensor:
        """Call on public samples, part by part."""
        parts = rows.split(REFERENCE_BATCH)
        return torch.cat([self.meter.run((what, len(part), view is None), partial(call, self._seen(part, view))) for part in parts])

    @torch.no_grad()
    def predict_all(self) -> Tensor:
        """The head's outputs for the whole public set, (n, classes)."""
        return self.predict(torch.arange(len(self.public)))

    @torch.no_grad()
    def represent_all(self) -> Tensor:
        """Representations of the whole public set, (n, d), without a step to follow."""
        self.model.eval()
        return self._over(torch.arange(len(self.public)), None, "reference", self.model.represent)

    # --- measuring, and going on ---------------------------------------------------------------------------------------------

    def check_weights(self) -> None:
        """Raise ``Diverged`` if training left a weight that is not finite, as the last step can whose own loss was finite."""
        for name, p in self.model.trainable_state().items():
            if not torch.isfinite(p).all():
                raise Diverged(f"user {self.user.number}: {name} is not finite after training; is lr too large?")

    @torch.no_grad()
    def evaluate(self) -> float:
        """The task's metric on the evaluation samples.

        Raises:
            Diverged: outputs or the metric are not finite.
        """
        self.model.eval()
        kept, targets = self._states.of(self.model, self.evaluation.inputs), self.evaluation.targets
        parts = torch.arange(len(targets)).split(self.task.evaluation_batch)
        counts = reduce(torch.add, (self.task.count(self._outputs(kept.take(rows)), targets[rows]) for rows in parts))
        try:
            score = self.task.score(counts)
        except OverflowError:  # a perplexity is an exponential
            raise Diverged(f"user {self.user.number}: {self.task.metric} is too large for a number; is lr too large?") from None
        if not math.isfinite(score):
            raise Diverged(f"user {self.user.number}: {self.task.metric} is {score}")
        return score

    def _outputs(self, inputs: State | Tensor) -> Tensor:
        outputs = self.model(inputs)
        if not all(map(math.isfinite, torch.stack(outputs.aminmax()).tolist())):  # aminmax passes nan on
            raise Diverged(f"user {self.user.number}: outputs for evaluation samples are not finite; is lr too large?")
        return outputs

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Train inside as a copy would: afterwards weights, optimisers, epochs, losses and counted operations are what they were.

        The copy sees its local data in an order of its own.
        """
        state, losses, address = copy.deepcopy(self.state()), self._local_loss, self.address
        self.address = (*address, "aside")
        try:
            yield
        finally:
            self.restore(state)
            self._local_loss, self.address = losses, address

    def take_losses(self) -> dict[str, float]:
        """Return the mean losses since the last call, NaN where there were none.

        "local" is the mean over the last pass over D^n, "alignment" the mean over all steps on public data, by replies or labels.
        """
        losses = {"local": self._local_loss, "alignment": fmean(self._public_losses) if self._public_losses else math.nan}
        self._forget_losses()
        return losses

    def _forget_losses(self) -> None:
        self._local_loss = math.nan
        self._public_losses: list[float] = []
        self._public_batches = 0  # since the losses were taken, those without a step among them

    def state(self) -> dict[str, Any]:
        """Everything that training changed, as tensors and numbers; what :meth:`restore` takes."""
        return {
            "model": self.model.trainable_state(),
            "local": self._local.state_dict(),
            "alignment": self._alignment.state_dict(),
            "labels": self._labels,
            "epochs": self._epochs,
            "flops": (self.meter.total, self.meter.done),
        }

    def _resume(self, name: str, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Give an optimiser its state; torch would take any, and with moments of other shapes than the weights' the process may end."""
        before = _options(optimiser)
        optimiser.load_state_dict(state)
        fits = all(like(t, p) or t.ndim == 0 for p, own in optimiser.state.items() for t in own.values())
        if not fits or _options(optimiser) != before:
            raise ValueError(f"user {self.user.number}: the state of its {name} optimiser is none of this model's")

    def restore(self, state: dict[str, Any]) -> None:
        """Continue as if training had never stopped."""
        self._load(state["model"])
        for name, optimiser in (("local", self._local), ("alignment", self._alignment)):
            self._resume(name, optimiser, state[name])
        self._labels, self._epochs = state["labels"], state["epochs"]
        self.meter.total, self.meter.done = state["flops"]


def _options(optimiser: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Each group's learning rate and the like."""
    return [{name: value for name, value in group.items() if name != "params"} for group in optimiser.param_groups]
