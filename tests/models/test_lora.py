import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from fedmuscle_lib.models.lora import Merged, adapt

SMALL, LARGE = (
    (6, 9, 5, 4),
    (
        64,
        90,
        50,
        70,
    ),
)  # widths of layers whose gradients go by the whole weight, and by the rank


def _network(*, merged: bool, widths: tuple[int, ...] = SMALL) -> nn.Sequential:
    torch.manual_seed(0)
    first, second, third, last = widths
    layers = (
        nn.Linear(first, second),
        nn.ReLU(),
        Conv1D(third, second),
        nn.ReLU(),
        nn.Linear(third, last, bias=False),
    )
    network = nn.Sequential(*layers).double()
    adapt(network, ["0", "2", "4"], rank=3, alpha=6, merged=merged)
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    return network.double()


def _merged(network: nn.Module) -> list[str]:
    return [name for name, layer in network.named_modules() if isinstance(layer, Merged)]


def _step(network: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Outputs, and gradients of the inputs and of what is trained."""
    outputs = network(inputs)
    trained = [p for p in network.parameters() if p.requires_grad]
    return [outputs, *torch.autograd.grad(outputs.square().sum(), [inputs, *trained])]


@pytest.mark.parametrize("shape", [(7,), (2, 5)], ids=["rows", "tokens"])
@pytest.mark.parametrize("widths", [SMALL, LARGE], ids=["small", "large"])
def test_one_product_gives_the_values_and_gradients_of_peft(widths, shape):
    ours, pefts = _network(merged=True, widths=widths), _network(merged=False, widths=widths)
    assert _merged(ours) == ["0", "2", "4"] and not _merged(pefts)
    torch.testing.assert_close(ours.state_dict(), pefts.state_dict(), rtol=0, atol=0)

    inputs = torch.randn(*shape, widths[0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(_step(ours, inputs), _step(pefts, inputs), rtol=1e-11, atol=1e-11)


def test_inputs_without_a_gradient_get_none():
    ours, pefts = _network(merged=True, widths=LARGE), _network(merged=False, widths=LARGE)
    inputs = torch.randn(7, LARGE[0], dtype=torch.float64)
    for network in (ours, pefts):
        network(inputs).square().sum().backward()
    for mine, theirs in zip(ours.parameters(), pefts.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-11, atol=1e-11)


def test_adapters_that_are_switched_off_change_nothing():
    network = _network(merged=True)
    plain = nn.Sequential(
        *(layer.get_base_layer() if isinstance(layer, Merged) else layer for layer in network)
    )
    for layer in network:
        if isinstance(layer, Merged):
            layer.enable_adapters(False)
    inputs = torch.ones(1, 6, dtype=torch.float64)
    torch.testing.assert_close(network(inputs), plain(inputs), rtol=0, atol=0)
