"Gradient estimators, by enumeration over every tuple of samples."
from itertools import product

import pytest
import torch

from loflexmdm.process.matching import advantages, leave_one_out, reinforce


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
