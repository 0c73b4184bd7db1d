"""Whatever the caller has told torch, what is computed in ``fixed_state`` is the same, and the
caller's state comes back.
"""

from __future__ import annotations

import pytest
import torch
from hostile.callers import CALLERS, numbers, right

from fedmuscle_lib.core.torch_state import fixed_state


@pytest.mark.parametrize("caller", CALLERS)
def test_numbers_are_the_same_and_the_callers_state_comes_back(caller):
    with CALLERS[caller]():
        before = _state()
        with fixed_state(1):
            found = numbers()
        assert _state() == before
    assert all(torch.equal(found[name], right()[name]) for name in right())
    assert found["denormal"] > 0


def test_the_callers_state_comes_back_after_an_error():
    before = _state()
    with pytest.raises(ZeroDivisionError), torch.autocast("cpu", torch.bfloat16), fixed_state(1):
        raise ZeroDivisionError
    assert _state() == before


def _state() -> tuple:
    a = torch.ones(2, 2, device="cpu", dtype=torch.float32)
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._get_fp32_precision_getter("mkldnn", "matmul"),
        torch._C._get_fp32_precision_getter("mkldnn", "conv"),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        (a @ a).dtype,
        float(torch.tensor([1e-310], dtype=torch.float64, device="cpu") * 0.5),
    )
