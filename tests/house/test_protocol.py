"What every method does, whatever it is: each registered one, in each variant of its settings, plug-ins included."
import inspect
import pickle

import pytest
import torch
from registered import CASES, SECONDS, VOCABULARY, build, can_edit, can_sample, clean, complete, data_for, draw, made
from registered import registered, rewrite, seeded, spoilt, within

from loflexmdm.cli.descriptions import describe_files
from loflexmdm.cli.info import describe_model
from loflexmdm.models.saved import load_method, save_method

every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def plug_ins(monkeypatch): registered(monkeypatch)


def weights(method) -> list[torch.Tensor]: return [p.detach().clone() for p in method.parameters()]


@every_case
def test_one_step_of_training(case):
    method = build(case).train()
    batch, before = data_for(method, clean("a|bc", "a|", "a|dabc")), weights(method)
    loss = method.loss(batch, seeded(0)).loss
    loss.backward()
    torch.optim.SGD(method.parameters(), 0.01).step()
    assert loss.isfinite() and all(p.isfinite().all() for p in method.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(method.parameters(), before))


@every_case
def test_the_loss_depends_on_its_generator_alone(case):
    method, batch, found = build(case).train(), clean("a|bc", "a|", "a|dabc"), []
    for state in 1, 2:
        torch.manual_seed(state)
        found.append(method.loss(data_for(method, batch), seeded(0)).loss.item())
    assert found[0] == found[1]


@every_case
def test_a_saved_model_and_a_pickled_one_give_the_same_samples(case, tmp_path):
    method = build(case)
    save_method(method, tmp_path / "model")
    expected = made(method, 6, seed=0, record=True)
    for other in load_method(tmp_path / "model"), pickle.loads(pickle.dumps(method)):
        again = made(other, 6, seed=0, record=True)
        assert again == expected and again.trajectories == expected.trajectories


@every_case
def test_the_files_of_a_saved_model_describe_it(case, tmp_path):
    "As `info` prints it without torch; a mixture of orders is left to the model."
    save_method(build(case), tmp_path / "model")
    told, name = describe_model(str(tmp_path / "model")), str(tmp_path / "model")
    assert describe_files(name) == (None if "orders: " in told else told.removesuffix("\n"))


@every_case
def test_the_score_of_sequences_is_a_bound_per_row(case):
    method = build(case)
    batch = data_for(method, clean("a|bc", "a|", "a|dabc"))
    mean, error = method.nll_bound(batch, 4, seeded(1))
    assert mean.shape == error.shape == (3,) and mean.isfinite().all() and (error >= 0).all()


@every_case
@pytest.mark.parametrize("nothing", [clean("a|", "ab|"), complete("ab", "a", "abcd")], ids=["end", "complete"])
def test_a_batch_with_nothing_to_generate(case, nothing):
    "Its score and loss are finite, or sequences without a gap for a source are refused."
    method = build(case)
    batch = data_for(method, nothing)
    try:
        mean, error = method.nll_bound(batch, 3, seeded(2))
        loss = method.loss(batch, seeded(3)).loss
    except ValueError as refused:
        assert "no open gap" in str(refused) and not nothing.open.any()
        return
    assert mean.shape == error.shape == (len(batch.tokens),) and mean.isfinite().all() and error.isfinite().all()
    assert loss.isfinite()
    if loss.requires_grad: loss.backward()
    assert all(p.grad.isfinite().all() for p in method.parameters() if p.grad is not None)


@every_case
def test_a_batch_of_no_rows_is_refused(case):
    method = build(case)
    nothing = data_for(method, clean("a|bc")).rows(slice(0, 0))
    for call in method.loss, method.nll_bound:
        for batch in nothing, nothing.trim():
            with pytest.raises(ValueError, match="^batch: no rows; give at least one sequence$"): call(batch)
    # the names of arguments are those of each method
    name = list(inspect.signature(method.loss).parameters)[0]
    with pytest.raises(ValueError, match="no rows"): method.loss(**{name: nothing})


@every_case
@pytest.mark.parametrize("value", [float("nan"), 1e30], ids=str)
def test_weights_that_are_not_numbers_or_far_too_large_end_in_one_line(case, value):
    "Larger ones may leave finite rates, where layers are normalised."
    for fill in (lambda p: torch.full_like(p, value)), (lambda p: p * value):
        method = spoilt(case, fill)
        with within(SECONDS):
            try: samples = made(method, 6, seed=0)
            except ValueError as error: assert len(str(error).splitlines()) == 1
            else: assert value == value and len(samples) == 6


@every_case
def test_no_result_is_longer_than_max_length(case):
    method, found = build(case, shake=1.0), []
    for most in 2, 5: found += short(method, most)
    assert found and all(len(tokens) < most for most, samples in found for tokens in samples.sequences)


def short(method, most: int) -> list:
    "Samples and edits of at most that many tokens, and how many."
    found = []
    if can_sample(method): found.append((most, draw(method, n=20, seed=0, max_length=most)))
    if can_edit(method): found.append((most, rewrite(method, [["a"], ["b"]], n=10, seed=0, max_length=most)))
    return found


@every_case
def test_no_prompts_are_refused(case):
    method = build(case)
    for way in draw, rewrite:
        with pytest.raises(ValueError): way(method, [], n=1)


@every_case
@pytest.mark.slow
def test_a_row_depends_on_its_own_seed_and_prompt_alone(case):
    method = build(case).double()
    whole = made(method, 6, seed=0)
    for size in 1, 4:
        parts = made(method, 6, seed=0, batch_size=size)
        assert parts.sequences == whole.sequences and parts.free == whole.free

    # the others start from something else
    prompts, others = [["a"], ["b", "c"], ["d"]], [["c", "a", "b"], ["b", "c"], ["b"]]
    way = draw if can_sample(method) else rewrite
    one, two = (way(method, p, n=1, seed=4).sequences for p in (prompts, others))
    assert one[1] == two[1]


@every_case
def test_half_precision_samples(case):
    samples = made(build(case).to(torch.bfloat16), 6, seed=0)
    ids = {t for tokens in samples.sequences for t in tokens}
    assert len(samples) == 6 and ids <= set(VOCABULARY.encode(VOCABULARY.ordinary))


@every_case
def test_kept_tokens_stay_where_a_method_edits(case):
    method = build(case)
    if not can_edit(method): return
    samples = rewrite(method, [list("abc")], [[True, False, True]], n=12, seed=0)
    kept = VOCABULARY.encode(["a", "c"])
    for ids, free in zip(samples.sequences, samples.free): assert [t for t, f in zip(ids, free) if not f] == kept
