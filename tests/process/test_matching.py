"""Rate matching: the batched loss against sums over all states, the bounds against exact likelihoods, and the gradient
estimators by enumeration over every tuple of samples."""
from itertools import product

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, aligned_batch, aligned_log_probs, as_batch, evaluate
from loflexmdm.exact.ctmc import final_law, locate, path_bounds, path_terms, uniform_logits
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.matching import LossTerms, advantages, bregman, leave_one_out, match_terms
from loflexmdm.process.matching import planner_weights, reinforce, target_rates
from loflexmdm.process.states import CLEAN, DROPPED, MASKED, Vocabulary, collate, contract
from loflexmdm.process.states import prefix_example


def normal(generator, *shape): return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_law(probs, seed):
    g = torch.Generator().manual_seed(seed)
    def b(sequence): return torch.exp(.6 * normal(g, len(sequence)))
    return ToyLaw.of(probs, b_in=b, b_um=b)


def random_model(law, seed):
    "A table for every partial sequence; insertions die out, so that generation ends."
    g, shape = torch.Generator().manual_seed(seed), (len(law.space.partial), law.b_in.shape[1] + 1)
    insert, unmask, logits = (
        normal(g, *shape).exp(),
        normal(g, *shape).mul(0.4).exp(),
        normal(g, *shape, len(law.vocabulary)),
    )
    def model(x, tau):
        i = locate(law.space, x)
        return Intensities(
            insert[i] * torch.exp(-0.7 * tau)[:, None] * x.open,
            unmask[i] * x.masked,
            logits[i] + uniform_logits(law.vocabulary),
        )
    return model


def test_bregman():
    u, v = torch.tensor([0., .5, 1., 3.], dtype=torch.float64), torch.tensor([.7, .5, 2., 1.], dtype=torch.float64)
    value = bregman(u, v)
    torch.testing.assert_close(value[1:], (u * (u / v).log() - u + v)[1:])
    assert value[0] == v[0] and value[1] == 0 and (value >= 0).all()


def test_bregman_has_gradients_at_zero():
    u, v = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    assert all(g.isfinite().all() for g in torch.autograd.grad(bregman(u, v).sum(), (u, v)))


def test_rows():
    out = Intensities(torch.arange(6.).view(3, 2), None, torch.zeros(3, 2, 4)).rows(torch.tensor([2, 0]))
    assert out.insert.tolist() == [[4, 5], [0, 1]] and out.unmask is None and out.logits.shape == (2, 2, 4)


@pytest.mark.parametrize("seed", range(3))
def test_batched_terms_are_the_sums_over_events(seed):
    law = random_law({"aab": .4, "ba": .3, "b": .3}, seed)
    x1, state, b_in, b_um = aligned_batch(law)
    x, tau = contract(x1, state), torch.tensor([.6], dtype=torch.float64)
    model = random_model(law, seed)
    terms = match_terms(target_rates(x1, state, x, b_in, b_um), model(x, tau.expand(len(state))), x)
    exact = path_terms(law, evaluate(model, law.space, tau))
    torch.testing.assert_close(terms.loss, exact.paper[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(terms.tight, exact.tight[0], rtol=1e-10, atol=1e-10)
    assert (terms.gap - terms.gap_tight).min() > -1e-12 and (terms.gap - terms.gap_tight).max() > .1


def test_targets_of_one_state():
    vocabulary = Vocabulary("abc")
    x1 = collate([prefix_example("a", "bca", vocabulary)])  # columns: start, a (prompt), b, c, a
    state = torch.tensor([[CLEAN, CLEAN, DROPPED, MASKED, DROPPED]])
    b_in, b_um = torch.tensor([[9., 9., 2., 3., 5.]]), torch.tensor([[9., 9., 7., 8., 6.]])
    x = contract(x1, state)
    target = target_rates(x1, state, x, b_in, b_um)
    assert target.gap.tolist() == [[0, 2, 5]]
    torch.testing.assert_close(target.gap_log, torch.tensor([[0., 2., 5.]]) * torch.tensor([[1., 2., 5.]]).log())
    assert target.unmask.tolist() == [[0, 0, 8]] and target.token[0, 2] == vocabulary.index["c"]


def test_prompts_cost_nothing_and_nothing_is_nan():
    vocabulary = Vocabulary("ab")
    x1 = collate([prefix_example("ab", "", vocabulary), prefix_example("", "ab", vocabulary)])
    state = torch.where(x1.free, MASKED, CLEAN)
    x = contract(x1, state)
    b = torch.ones(x1.tokens.shape, requires_grad=True)
    logits = torch.zeros(*x.tokens.shape, len(vocabulary))
    # the first prompt holds a token the model thinks impossible
    logits[..., :3], logits[0, :, 3] = -torch.inf, -torch.inf
    model = Intensities(torch.full(x.tokens.shape, .5) * x.open, torch.ones(x.tokens.shape) * x.masked, logits)
    terms = match_terms(target_rates(x1, state, x, b, b), model, x)
    assert terms.loss[0].item() == pytest.approx(.5)  # one open gap
    assert terms.token[1].item() == pytest.approx(2 * torch.log(torch.tensor(2.)).item())
    for value in (terms.loss, terms.tight):
        assert torch.autograd.grad(value.sum(), b, retain_graph=True)[0].isfinite().all()


@pytest.mark.parametrize("seed", range(2))
def test_both_bounds_hold_for_every_sequence(seed):
    strings = ["".join(s) for n in range(4) for s in product("ab", repeat=n)]
    law = random_law({s: 1 / len(strings) for s in strings}, seed)
    model = random_model(law, seed)
    nll = -final_law(law.space, model, tau_max=80.).probs[law.clean].log()
    bounds = path_bounds(law, model)
    assert (bounds.tight - nll)[1:].min() > 1e-4 and (bounds.paper - bounds.tight)[3:].min() > 1e-4
    torch.testing.assert_close(bounds.tight[0], nll[0], rtol=1e-6, atol=0)  # the empty sequence has one path


def test_the_minimiser_is_the_projected_rate():
    law = random_law({"aab": .4, "ba": .3, "b": .3}, 5)
    x1, state, b_in, b_um = aligned_batch(law)
    x, tau = contract(x1, state), torch.full((len(state),), .7, dtype=torch.float64)
    best = law.oracle()(x, tau)
    weight = (aligned_log_probs(law, tau[:1])[0] + law.probs.log()[law.space.row]).exp()
    groups = torch.nn.functional.one_hot(law.space.seen).double()
    offsets = [torch.zeros(groups.shape[1], *v.shape[1:], dtype=torch.float64, requires_grad=True) for v in best[:3]]
    moved = [torch.einsum("zx,x...->z...", groups, o) for o in offsets]  # one table entry per partial sequence
    model = Intensities(
        best.insert.clamp_min(1e-300) * moved[0].exp(), best.unmask * moved[1].exp(), best.logits + moved[2]
    )
    value = weight @ match_terms(target_rates(x1, state, x, b_in, b_um), model, x).loss
    for slope in torch.autograd.grad(value, offsets): assert slope.abs().max() < 1e-12


def test_loss_terms():
    assert LossTerms(torch.ones(()), {"gap": 1.}).metrics == {"gap": 1.}
    assert as_batch([()]).tokens.shape == (1, 1)


# ---- gradients through the drawn states

@pytest.fixture
def problem():
    "Five states with probabilities and losses that both depend on the parameter."
    g = torch.Generator().manual_seed(0)
    phi = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_()
    mix = torch.randn(5, 5, generator=g, dtype=torch.float64)
    return phi, (mix @ phi).sin() + 2, torch.log_softmax(phi, 0)


def mean_gradient(estimator, problem, k):
    phi, losses, log_p = problem
    total = 0.
    for pick in product(range(5), repeat=k):
        pick = torch.tensor(pick)
        weight = log_p[pick].sum().exp().detach()
        total = total + weight * estimator(losses[pick, None], log_p[pick, None]).squeeze(0)
    return torch.autograd.grad(total, phi, retain_graph=True)[0]


def exact_gradient(problem):
    phi, losses, log_p = problem
    return torch.autograd.grad(log_p.exp() @ losses, phi, retain_graph=True)[0]


@pytest.mark.parametrize("k", (2, 3, 4))
def test_leave_one_out_is_unbiased(problem, k):
    torch.testing.assert_close(
        mean_gradient(leave_one_out, problem, k), exact_gradient(problem), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("baseline", (0., 1.7))
@pytest.mark.parametrize("k", (1, 2))
def test_reinforce_is_unbiased(problem, k, baseline):
    got = mean_gradient(lambda l, lp: reinforce(l, lp, baseline), problem, k)
    torch.testing.assert_close(got, exact_gradient(problem), rtol=1e-10, atol=1e-12)


def test_without_a_part_it_is_biased(problem):
    for wrong in (lambda l, lp: leave_one_out(l.detach(), lp), lambda l, lp: leave_one_out(l, lp.detach())):
        assert (mean_gradient(wrong, problem, 2) - exact_gradient(problem)).abs().max() > 1e-2


def test_two_samples_are_the_papers_form(problem):
    phi, losses, log_p = problem
    ours = leave_one_out(losses[[0, 3], None], log_p[[0, 3], None])[0]
    papers = ((losses[0] - losses[3]).detach() * (log_p[0] - log_p[3]) + losses[0] + losses[3]) / 2
    torch.testing.assert_close(*(torch.autograd.grad(v, phi, retain_graph=True)[0] for v in (ours, papers)))


def test_advantages():
    losses = torch.tensor([[1., 4.], [3., 4.], [8., 4.]], requires_grad=True)
    torch.testing.assert_close(advantages(losses), torch.tensor([[-4.5, 0.], [-1.5, 0.], [6., 0.]]))
    assert not advantages(losses).requires_grad


def test_bad_calls():
    with pytest.raises(ValueError, match="at least 2"): advantages(torch.ones(1, 3))
    for estimator in (leave_one_out, reinforce):
        with pytest.raises(ValueError, match="log_probs has shape"): estimator(torch.ones(2, 3), torch.ones(2))


def test_weights_of_a_planner():
    "One, and at masks alpha times their softmax of log k / tau more; a row without masks has ones."
    p = torch.tensor([[0.5, 0.2, 0.8], [0.1, 0.9, 0.3]], dtype=torch.float64, requires_grad=True)
    masked = torch.tensor([[True, False, True], [False, False, False]])
    w = planner_weights(p.log(), masked, 2.0, 0.5)
    share = 0.5**2 / (0.5**2 + 0.8**2)
    assert w[0].tolist() == pytest.approx([1 + 2 * share, 1, 3 - 2 * share]) and w[1].tolist() == [1, 1, 1]
    assert not w.requires_grad and planner_weights(p.log(), masked, 0.0)[0].tolist() == [1, 1, 1]
    assert planner_weights(p.log(), masked, 1.0)[0, 0].item() == pytest.approx(1 + 0.5 / 1.3)
    with pytest.raises(ValueError, match="alpha=-1"): planner_weights(p.log(), masked, -1)
    with pytest.raises(ValueError, match="tau=0"): planner_weights(p.log(), masked, 1.0, 0)
