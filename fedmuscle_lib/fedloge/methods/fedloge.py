"""FedLoGe (Xiao et al., 2024): a backbone trained on a fixed classifier, a shared and a private
head on top, and realigned heads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.fedloge.etf import fixed_classifier, sparse_etf
from fedmuscle_lib.fedloge.methods.method import Heads, Method, Visit, added, affine
from fedmuscle_lib.fedloge.realign import global_realignment, local_realignment


class FedLoGe(Method):
    """Step 1 trains three things on each batch, h being its features before the step:

        the backbone by cross-entropy of SSE-C(h), a classifier that is never trained; the shared
        head g by cross-entropy of g(h), and the private head l of the client likewise, both without
        a gradient for h.

    Backbone and g are averaged over the participants, l never leaves its client. SSE-C follows from
    the seed, so it does not travel.

    Step 2 realigns heads and trains nothing, so each evaluation has both steps. The global model
    predicts by "sse_c", "shared" (g) or "realigned" (rows of g at one norm). A client predicts by
    "local" (l), "local + shared" (what the authors' logs hold), "local + realigned" (their code;
    rows of g at the norms of l), "shared + realigned" (their README) or a global head, "sse_c" or
    "shared".

    The README masks absent classes in the shared head itself, which spoils it for the clients
    after; here nothing shared is changed.
    """

    name, label = "fedloge", "FedLoGe"
    own_heads = True
    realignments = (
        ("global", "shared", "realigned", "the authors' code and README"),
        ("personal", "local + shared", "local + realigned", "the authors' code"),
        ("personal", "local + shared", "shared + realigned", "the authors' README"),
    )

    class Options(Method.Options):
        sparsity: float = Field(
            0.6,
            ge=0,
            lt=1,
            description="Share of SSE-C's entries that are 0. A constant of the authors' code.",
        )
        norm: float = Field(
            0.1, gt=0, description="nu, norm of SSE-C's rows. A constant of the authors' code."
        )
        etf_lr: float = Field(
            1e-4, gt=0, description="Of Adam, which fits SSE-C. A constant of the authors' code."
        )
        etf_steps: int = Field(
            10_000,
            ge=0,
            le=1_000_000,
            description="Of Adam, which fits SSE-C. A constant of the authors' code.",
        )
        etf_bias: bool = Field(
            True,
            description=(
                "Whether SSE-C has a random bias, or 0. The authors' code leaves nn.Linear's; their"
                " README is silent."
            ),
        )
        realigned_norm: float = Field(
            1.7,
            gt=0,
            description="Of the realigned global head's rows. A constant of the authors' code.",
        )

    @cached_property
    def sse_c(self) -> nn.Linear:
        """The fixed classifier, which every party makes from the seed."""
        o, seed = self.options, self.problem.seed
        draws = generator("SSE-C", seed)
        weight = sparse_etf(
            self.dim,
            self.problem.classes,
            draws,
            sparsity=o.sparsity,
            norm=o.norm,
            lr=o.etf_lr,
            steps=o.etf_steps,
        )
        return fixed_classifier(weight, o.etf_bias, generator("SSE-C bias", seed)).to(
            self.problem.device
        )

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        h = visit.shared["backbone"](x)
        heads = (visit.shared["head"], visit.private["head"])
        return cross_entropy(self.sse_c(h), y) + sum(
            cross_entropy(head(h.detach()), y) for head in heads
        )

    def global_heads(self, shared: nn.ModuleDict) -> Heads:
        g: Any = shared["head"]
        realigned = affine(global_realignment(g.weight, self.options.realigned_norm), g.bias)
        return {"sse_c": self.sse_c, "shared": g, "realigned": realigned}

    def personal_heads(self, visit: Visit) -> Heads:
        heads: Any = visit.shared["head"], visit.private["head"]
        g, l = heads
        realigned = affine(local_realignment(g.weight, l.weight), g.bias)
        return {
            "local": l,
            "local + shared": added(l, g),
            "local + realigned": added(l, realigned),
            "shared + realigned": added(g, realigned),
            "sse_c": self.sse_c,
            "shared": g,
        }
