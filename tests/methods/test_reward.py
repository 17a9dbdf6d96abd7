"Tuning towards a reward: generations of every method that has them, prompts that stay, and refusals."
import copy

import pytest
import torch

from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.methods.ordered_masks import OrderedMasks, OrderedMasksConfig
from loflexmdm.methods.reward import RewardTuner, tilt_loss
from loflexmdm.process.states import Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abc")
KINDS = {
    "ar": (Autoregressive, AutoregressiveConfig(size="nano", max_length=8)),
    "insertion": (OrderedInsertion, OrderedInsertionConfig(size="nano", order_size="nano", max_length=8)),
    "masks": (OrderedMasks, OrderedMasksConfig(size="nano", order_size="nano", max_length=8)),
}


def batch(*texts): return collate([prefix_example(*t.split("|"), VOCABULARY) for t in texts])


def model(kind: str):
    torch.manual_seed(0)
    cls, config = KINDS[kind]
    return cls(VOCABULARY, config).double().eval()


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_raises_the_gap_between_good_and_bad(kind):
    "The prompt is given in both; what is rewarded becomes likelier than what is not."
    tuner, x1 = RewardTuner(model(kind), lr=1e-2), batch("a|bc", "a|cb")
    drawn = tuner.prior.draw_generation(x1, torch.Generator().manual_seed(0))
    gap = lambda: tuner.method.generation_log_prob(x1, drawn).detach().diff().neg().item()
    before = gap()
    for step in range(30): tuner.step(x1, torch.tensor([2.0, 0.0]), torch.Generator().manual_seed(step))
    assert gap() > before + 0.5
    torch.testing.assert_close(tuner.prior.state_dict(), model(kind).state_dict(), rtol=0, atol=0)  # it stays as it was
    frozen = tuner.prior.generation_log_prob(x1, drawn)
    torch.testing.assert_close(frozen, model(kind).generation_log_prob(x1, drawn), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_optimum_nothing_moves(kind):
    "Without a reward the model is its own optimum: the loss is 0 and so is its gradient."
    method = model(kind)
    tuner = RewardTuner(method, lr=1e-2)
    before = copy.deepcopy(method.state_dict())
    assert tuner.step(batch("|abc", "|b", "|ca"), torch.zeros(3), torch.Generator().manual_seed(0)) < 1e-20
    gradients = [p.grad.abs().max() for p in method.parameters() if p.grad is not None]
    assert max(gradients) < 1e-12 and before.keys() == method.state_dict().keys()


def test_a_constant_is_no_reward():
    log_p = torch.tensor([-3.0, -5.0, -4.0], dtype=torch.float64)
    loss = tilt_loss(log_p, log_p - 1, torch.full((3,), 7.0, dtype=torch.float64))
    assert loss.item() == 0
    torch.testing.assert_close(tilt_loss(log_p, 0 * log_p, 0 * log_p), 0.5 * log_p.var())


def test_what_is_refused():
    tuner = RewardTuner(model("ar"))
    with pytest.raises(ValueError, match="at least 2"): tuner.step(batch("|ab"), torch.ones(1))
    with pytest.raises(ValueError, match="reward: 1 are not finite"):
        tuner.step(batch("|ab", "|b"), torch.tensor([0.0, torch.inf]))
