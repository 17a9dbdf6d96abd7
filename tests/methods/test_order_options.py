"Options of a learned order: readings at events, centred rates, plain rows."
import pytest
import torch

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.order_model import centre
from loflexmdm.process.states import Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abc")


def batch(*texts, prompt=""):
    return collate([prefix_example(prompt, t, VOCABULARY) for t in texts])


def model(**kwargs):
    torch.manual_seed(0)
    made = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(**(dict(size="nano", order_size="nano", max_length=12) | kwargs)))
    with torch.no_grad():
        for p in made.parameters(): p.add_(0.1 * torch.randn(p.shape))
    return made


def seeded(seed): return torch.Generator().manual_seed(seed)


def test_centred_rates_keep_their_differences():
    raw, free = torch.randn(4, 5), torch.rand(4, 5) < 0.6
    out = centre(raw, free)
    assert (out[~free] == 0).all() and out.sum(-1).abs().max() < 1e-5
    for r, o, f in zip(raw, out, free): torch.testing.assert_close(o[f].diff(), r[f].diff())


def test_a_centred_order_has_log_rates_of_mean_zero_before_the_bound():
    x1, found = batch("abca", "cb"), model(centre=True, b_range=1e6)
    log_b = found.schedule(x1)[0].log()
    assert max(abs(row[f].mean().item()) for row, f in zip(log_b, x1.free)) < 1e-3
    assert log_b[x1.free].std() > 1e-3


@pytest.mark.parametrize("options", [dict(readings="event"), dict(centre=True), dict(plain=0.5),
                                     dict(readings="event", centre=True, plain=0.25, unmask="trainable")])
def test_each_option_trains_both_networks(options):
    found = model(**options)
    terms = found.loss(batch(*["abca", "cb", "a", "bc"] * 4), seeded(0))
    terms.loss.backward()
    assert terms.loss.isfinite() and all(v.isfinite() for v in terms.metrics.values())
    assert found.order.insert.out.weight.grad.abs().max() > 0 and found.token.out.weight.grad.abs().max() > 0


def test_defaults_are_the_published_method():
    found, x1 = model(), batch(*["abca", "cb"] * 4)
    named = model(readings="clock", centre=False, plain=0.0)
    assert torch.equal(found.loss(x1, seeded(3)).loss, named.loss(x1, seeded(3)).loss)


@pytest.mark.parametrize("options, name", [(dict(plain=1.0), "plain"), (dict(plain=1.5), "plain"),
                                           (dict(readings="tokens"), "readings"), (dict(centre=2), "centre")])
def test_bad_options_are_refused(options, name):
    with pytest.raises(ValueError, match=name): LoFlexMDMConfig(**options)
