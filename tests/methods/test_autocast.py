"Training and sampling while networks compute in bfloat16, for every method and every variant of its settings."
from dataclasses import fields, replace

import pytest
import torch
from registered import CASES, FIRST, build, clean, data_for, made, seeded

LONG = 80  # tokens: more than columns attend together in a network of whole generations


def gradients(method, batch, bfloat16: bool) -> torch.Tensor:
    "The loss, and all gradients, one after the other."
    method.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16): loss = method.loss(batch, seeded(0)).loss
    loss.backward()
    grads = [p.grad.flatten() for p in method.parameters() if p.grad is not None]
    return torch.cat([loss.detach()[None], *grads])


@pytest.mark.parametrize("case", CASES)
def test_sampling_in_bfloat16(case):
    "The samples are sequences, as those in float32 are."
    method = build(case)
    with torch.autocast("cpu", torch.bfloat16): samples = made(method, 3, seed=0)
    assert len(samples) == 3 and all(2 <= token < len(method.vocabulary) for row in samples.sequences for token in row)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("case", FIRST)
def test_a_step_in_bfloat16_is_near_that_in_float32(case, long):
    method = build(case, shake=0.1)
    if "max_length" in {f.name for f in fields(method.config)}:
        method = type(method)(method.vocabulary, replace(method.config, max_length=LONG + 8)).train()
    batch = data_for(method, clean("|" + "abcd" * (LONG // 4), "a|bcda") if long else clean("|abcdab", "a|bcda"))
    whole, found = (gradients(method, batch, bfloat16) for bfloat16 in (False, True))
    assert (found - whole).norm() < 0.1 * whole.norm()
