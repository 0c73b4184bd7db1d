"""One client: its data and private modules.

It trains by a method and evaluates; an update that the ledger counts is all that leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from fedmuscle_lib.core.training import check_finite
from fedmuscle_lib.fedloge.evaluation import TestSet, finite
from fedmuscle_lib.fedloge.methods.method import Method, Recipe, Visit
from fedmuscle_lib.fedloge.preprocessing import LocalData
from fedmuscle_lib.fedloge.realign import masked
from fedmuscle_lib.fedloge.server import Tensors


class Client:
    """A client's side of a round.

    Args:
        data: its training samples.
        local_test: (n,), rows of the test set that are its own.
        method: what it trains by.
        workspace: modules of the method's shared kind. Every visit begins by overwriting all of
            them, so that the clients of one process may have one in common.
        recipe: of local training.
    """

    def __init__(
        self,
        data: LocalData,
        local_test: Tensor,
        method: Method,
        workspace: nn.ModuleDict,
        recipe: Recipe,
    ) -> None:
        self.data, self.local_test, self.method, self.recipe = data, local_test, method, recipe
        self.number, self._workspace = data.client, workspace
        self._private = method.private(data.client).to(method.problem.device)
        self.loss = float("nan")

    def train(self, received: Tensors, round: int) -> Tensors:
        """Train from what the server sent and return what is sent back; :attr:`loss` is then the
        mean loss of the last epoch.

        Raises:
            Diverged: the loss or a weight is not finite; the message names the client.
        """
        visit = self._visit(received, round)
        visit.shared.train()
        visit.private.train()
        self.loss = self.method.train(visit)
        for modules in (visit.shared, visit.private):
            check_finite(f"client {self.number}", modules.state_dict(), f" in round {round + 1}")
        return {name: tensor.clone() for name, tensor in visit.shared.state_dict().items()}

    @torch.no_grad()
    def evaluate(
        self, received: Tensors, round: int, test: TestSet, common: Tensor
    ) -> Iterator[tuple[str, bool, str, float]]:
        """Yield head, whether absent classes are masked, group of classes and accuracy in per cent
        of the client's own model.

        It is tested on its local test. A class is absent if that has no sample of it, as in the
        authors' evaluation: the mask knows the test's labels.

        Args:
            received: what the server sends.
            round: number of finished rounds.
            test: the whole test set.
            common: (n, d), features of the whole test set by the received backbone; the client
                reads its own rows of them, unless its backbone is another.

        Raises:
            Diverged: logits are not finite; the message names the client and the head.
        """
        visit, rows = self._visit(received, round), self.local_test
        backbone = self.method.personal_backbone(visit)
        shared = backbone is visit.shared["backbone"]
        features = common[rows] if shared else test.features(backbone, rows)
        present = test.labels[rows].bincount(minlength=test.classes) > 0
        for name, head in self.method.personal_heads(visit).items():
            logits = finite(f"client {self.number}", name, head(features))
            for is_masked, seen in ((False, logits), (True, masked(logits, present))):
                for group, value in test.accuracies(seen, rows).items():
                    yield name, is_masked, group, value

    def state(self) -> dict[str, Tensor]:
        """Tensors of the private modules by name; what :meth:`restore` takes."""
        return {name: tensor.clone() for name, tensor in self._private.state_dict().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on with what :meth:`state` gave."""
        self._private.load_state_dict(state)

    def _visit(self, received: Tensors, round: int) -> Visit:
        self._workspace.load_state_dict(received)
        return Visit(self._workspace, self._private, received, self.data, self.recipe, round)
