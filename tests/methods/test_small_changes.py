"Formulas and boundaries where a small change of the code would go unnoticed."
import inspect
import math

import pytest
import torch

from loflexmdm.exact.ctmc import as_batch
from loflexmdm.methods import sampling
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig, FEWEST
from loflexmdm.methods.base import by_length
from loflexmdm.methods.edit_flows import EditFlow, EditFlowConfig, beside
from loflexmdm.methods.flexmdm import schedule_of
from loflexmdm.methods.ordered_edits import OrderedEdits, OrderedEditsConfig
from loflexmdm.methods.planner_bounds import _log_weights
from loflexmdm.methods.sampling import encode_prompts
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import MASK, Vocabulary
from loflexmdm.samplers import Limits, Planner, fitting_samplers, simulate
from loflexmdm.support.notebook import seeded
from loflexmdm.support.registries import METHODS

pytestmark = pytest.mark.usefixtures("pico")


def randn(*shape, seed=0): return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def test_a_schedule_of_flexmdm_starts_at_exactly_zero_and_ends_at_exactly_one():
    with pytest.raises(ValueError, match="from 0 to 1"): schedule_of("shifted:1e-17")  # ends at 1, starts above 0
    for name in ("linear", "cosine", "power:0.5", "polynomial:3"):
        assert schedule_of(name).kappa(torch.tensor([0.0, 1.0])).tolist() == [0, 1]


def test_sources_of_an_edit_flow_must_fit_beside_the_start_token():
    EditFlowConfig(coupling="uniform", tokens=7, max_length=8)
    with pytest.raises(ValueError, match="tokens=8"): EditFlowConfig(coupling="uniform", tokens=8, max_length=8)


@torch.no_grad()
def test_what_is_kept_is_of_as_many_columns_as_were_read():
    "Keys and values are used for rows of one column more; for rows as long as they were, or two longer, all is read."
    torch.manual_seed(0)
    vocabulary = Vocabulary("abcdef")
    model = Autoregressive(vocabulary, AutoregressiveConfig(size="pico", max_length=12)).double().eval()
    for p in model.parameters(): p.add_(0.3 * randn(*p.shape, seed=p.numel()))
    first = as_batch([[4]])
    for then in ([5], [4, 3], [5, 3, 4]):
        x = as_batch([then])
        out, kept = model.read(x, None, model.read(first, None)[1])
        torch.testing.assert_close(out.logits, model.read(x, None)[0].logits)
        assert kept.lengths.tolist() == [1 + len(then)]
    # what is of another row is not noticed: whoever moves rows moves what is kept of them
    other = as_batch([[5, 3]])
    out, _ = model.read(other, None, model.read(first, None)[1])
    assert (out.logits - model.read(other, None)[0].logits)[..., 3:].abs().max() > 1e-6


@pytest.mark.parametrize("softness", [0.25, 2.0])
def test_a_soft_planner_draws_positions_by_a_power_of_the_confidence(softness):
    "Gumbel noise over `softness`: probabilities in proportion to confidence^(1/softness)."
    x, tokens = as_batch([(MASK, 3, MASK, MASK)]), torch.tensor([[2, 3, 3, 4, 5]])
    out = Intensities(unmask=x.masked.double(), logits=randn(1, 5, 6))
    planners = [Planner(confidence="sampled", softness=s) for s in (1.0, softness)]
    sharp, soft = (_log_weights(planner, out, x, tokens) for planner in planners)
    assert (sharp == -math.inf).tolist() == [[True, False, True, False, False]]
    torch.testing.assert_close(soft, sharp / softness)
    expected = torch.softmax(out.logits, -1)[0, [1, 3, 4], [3, 4, 5]].log()
    torch.testing.assert_close(sharp[0, [1, 3, 4]], expected)


@torch.no_grad()
def test_one_token_has_no_other_to_be_replaced_by():
    for tokens, some in (("a", False), ("ab", True)):
        method = EditFlow(Vocabulary(tokens), EditFlowConfig(size="pico", max_length=8, coupling="pairs"))
        x = as_batch([[3, 3]])
        x = x._replace(fixed=torch.zeros_like(x.fixed).index_fill(1, torch.tensor([0]), True))
        rates = method.intensities(x, tau=torch.tensor([0.5])).substitute
        assert bool((rates > 0).any()) == some


@torch.no_grad()
def test_memory_has_a_quarter_of_its_room_to_spare():
    method = Autoregressive(Vocabulary("ab"), AutoregressiveConfig(size="pico", max_length=64)).eval()
    for first, room in ((12, FEWEST), (40, 42 + 42 // 4 + 8)):  # as a 42nd column, the start included, was read
        kept = None
        for n in range(first, first + 3): _, kept = method.read(as_batch([[3] * n]), None, kept)
        assert kept.columns == room


def test_rows_of_similar_length_are_evaluated_together():
    x, seen = as_batch([[3] * n for n in (1, 9, 2, 8)]), []
    def rates(x, tau):
        seen.append(x.lengths.tolist())
        return Intensities(unmask=x.valid.double() * tau[:, None])
    for groups, lengths in ((1, [[2, 10, 3, 9]]), (2, [[2, 3], [9, 10]])):
        seen.clear()
        out = by_length(rates, x, torch.arange(1.0, 5.0).double(), groups)
        assert seen == lengths and out.unmask.sum(-1).tolist() == [2, 20, 9, 36]


def test_padding_beside_a_source_is_neither_fixed_nor_open():
    joined = beside(as_batch([[3], [3, 4]]), as_batch([[4], [4, 4, 4]]))
    assert not joined.fixed[~joined.valid].any() and joined.closed[~joined.valid].all()
    assert joined.lengths.tolist() == [4, 7] and not joined.valid[0, 4:].any()


def test_as_many_sequences_as_are_allowed(monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_MAX_ROWS", "6")
    assert len(encode_prompts([[], []], 3, Vocabulary("ab"), 8).tokens) == 6
    with pytest.raises(ValueError, match="sequences: 8 sequences; at most 6"):
        encode_prompts([[], []], 4, Vocabulary("ab"), 8)


def test_nats_per_token_count_the_end():
    method = Autoregressive(Vocabulary("ab"), AutoregressiveConfig(size="pico", max_length=8)).eval()
    terms = method.loss(as_batch([[], []]), seeded(0))
    torch.testing.assert_close(terms.metrics["per_token"].double(), terms.loss.detach().double())


@pytest.mark.parametrize("name", [n for n in METHODS.names() if "(test)" not in n])  # not those of other tests
def test_a_bound_takes_64_states_unless_told_otherwise(name):
    assert inspect.signature(METHODS[name].nll_bound).parameters["samples"].default == 64


ALONE = [kind for name, kind in fitting_samplers(("insert",)).items() if "(test)" not in name]  # not other tests'


@pytest.mark.parametrize("kind", ALONE)
def test_every_sampler_counts_the_insertions_that_it_gives_up(kind):
    "Of two rows that would grow at once, each to its end; of two that stay as they are, none."
    for rate, rows in ((50.0, 2), (0.0, 0)):
        def out(x, tau, rate=rate):
            return Intensities(torch.full(x.tokens.shape, rate), logits=torch.zeros(*x.tokens.shape, 6))
        samples = simulate(out, as_batch([[3], [3, 4]]), kind(), range(2), Limits(9.0, 5, channels=("insert",)))
        assert samples.overflowing == rows and (samples.overflow >= rows if rows else samples.overflow == 0)
        assert [len(s) for s in samples.sequences] == ([4, 4] if rows else [1, 2])


def test_a_clock_of_events_ends_after_every_token_has_come_changed_and_gone():
    model = OrderedEdits(Vocabulary("ab"), OrderedEditsConfig(size="nano", max_length=8))
    assert model.tau_max == 24


VOCABULARY = Vocabulary("abc")


@pytest.mark.parametrize("sequence", ["ab", 7, {"a"}])
def test_sources_are_lists_of_tokens(sequence):
    with pytest.raises(ValueError, match="must be a list of tokens"):
        sampling.encode_sources([sequence], [[False, False]], None, VOCABULARY, 8)


@pytest.mark.parametrize("name", ["loflexmdm", "flexmdm", "mdm", "genmd4", "papl", "editflow", "ar"])
def test_sequences_are_at_most_256_long_unless_the_model_says_more(name):
    assert METHODS[name].Config().max_length == 256
