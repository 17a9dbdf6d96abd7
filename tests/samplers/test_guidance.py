"Conditions in vocabularies, training and prompts; every method once with guidance; the chain that guidance makes."
import contextlib
import io

import pytest
import torch
from registered import of_package
import torch.nn.functional as F
from torch import Tensor

from loflexmdm.cli import main
from loflexmdm.exact.ctmc import as_batch
from loflexmdm.methods.base import method_class
from loflexmdm.methods.sampling import edit_sequences, generate
from loflexmdm.process.alignments import Corrupted
from loflexmdm.process.conditions import hide_conditions, holds_condition, without_conditions
from loflexmdm.process.intensities import Intensities, as_tensors
from loflexmdm.process.states import ANY, Pair, Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers.guidance import SCHEMES, Guidance, Guided, _log_softmax, _powers, guide
from loflexmdm.support import registries
from loflexmdm.support.notebook import seeded
from loflexmdm.support.statistics import z_count
from loflexmdm.tasks.base import task_from
from loflexmdm.tasks.brackets import balanced_strings, depth
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import recipe_from
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary([*"ab", "<c:1>", "<c:2>", ANY])
NEVER = (5, 6, 7)  # ids of the conditions and ANY
METHODS = tuple(of_package(registries.METHODS.all()))


def test_where_no_token_is_possible_no_logarithm_is_nan():
    never = torch.tensor([[-torch.inf, -torch.inf], [-torch.inf, 3.0]])
    assert _log_softmax(never).tolist() == [[-torch.inf, -torch.inf], [-torch.inf, 0.0]]


def random_model(name, vocabulary=VOCABULARY, **options):
    torch.manual_seed(0)
    cls = method_class(name)
    method = cls(vocabulary, cls.first_config(**options)).eval()
    with torch.no_grad():
        for p in method.parameters(): p.add_(0.1 * torch.randn_like(p))
    return method


def test_conditions_stand_at_the_end_of_a_vocabulary():
    assert VOCABULARY.ordinary == ("a", "b") and VOCABULARY.conditions == ("<c:1>", "<c:2>")
    assert Vocabulary(["<c:1>", "a"]).conditions == () and Vocabulary(["<c:1>", "a"]).ordinary == ("<c:1>", "a")
    for tokens in (["<c:1>", "a", ANY], ["a", ANY, "<c:1>"]):
        with pytest.raises(ValueError, match="must be the last"): Vocabulary(tokens)


def test_conditions_are_hidden_in_the_share_of_rows_that_is_asked_for():
    x = collate([prefix_example(["<c:1>", "a", "<c:2>"], "ab", VOCABULARY)] * 4000)
    hidden = hide_conditions(x, VOCABULARY, 0.25, seeded(0)).tokens == NEVER[-1]
    assert torch.equal(hidden[:, 1], hidden[:, 3]) and not hidden[:, [0, 2, 4, 5]].any()
    count = int(hidden[:, 1].sum())
    assert abs(z_count(count, 4000, 0.25)) < 4 < abs(z_count(count, 4000, 0.3))
    assert not holds_condition(without_conditions(x, VOCABULARY), VOCABULARY).any()


def test_nothing_is_drawn_without_conditions():
    x, generator = as_batch([[3, 4]]), seeded(0)
    before = generator.get_state()
    assert hide_conditions(x, Vocabulary("ab"), 0.5, generator) is x
    assert hide_conditions(x, VOCABULARY, 0.0, generator) is x
    assert torch.equal(generator.get_state(), before)


def test_pairs_lose_the_conditions_of_both_sequences():
    pair = Pair(prefix_example(["<c:1>"], "a", VOCABULARY), prefix_example(["<c:1>"], "bb", VOCABULARY))
    both = hide_conditions(collate([pair] * 100), VOCABULARY, 0.5, seeded(1))
    assert torch.equal(both.x0.tokens[:, 1], both.x1.tokens[:, 1]) and len(both.x1.tokens[:, 1].unique()) == 2


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.slow
def test_every_method_samples_with_guidance_and_writes_no_condition(name):
    method = random_model(name)
    run = lambda **options: generate(method, [["<c:1>"], ["<c:2>"]], 40, generator=seeded(2), **options)
    plain, zero = run(), run(guidance=0.0, guidance_scheme="weighted")
    assert plain == zero
    for scheme in SCHEMES:
        made = run(guidance=20.0, guidance_scheme=scheme)
        assert made.sequences != plain.sequences and made.row_evaluations % 2 == 0
        assert not {t for s in made.sequences for t in s[1:]} & set(NEVER)


def written_logits(method, x) -> list[Tensor]:
    "Logits of what a method may write next."
    with torch.no_grad():
        if hasattr(method, "read_prompts"): return [method.token_logits(method.read_prompts(x), torch.ones(1).long())]
        out = method.intensities(x, tau=torch.ones(1))
    return [as_tensors(v) for v in (out.logits, out.insert_logits) if v is not None]


@pytest.mark.parametrize("name", METHODS)
def test_no_head_gives_a_condition_a_probability(name):
    method = random_model(name)
    x = method.begin(collate([parse_prompt(["<c:1>"], VOCABULARY)]), 8, [0])
    for logits in written_logits(method, x):
        own = F.one_hot(x.tokens, logits.shape[-1]).bool() & (logits.dim() == 3)  # is not replaced by itself
        assert (logits[..., NEVER] == -torch.inf).all() and (logits.isfinite() | own)[..., 3:5].all()
        assert (logits.isfinite() | own)[..., 8:].all()  # the blank, or the end


@pytest.mark.parametrize("name", METHODS)
def test_training_with_conditions_is_finite(name):
    batch = collate([prefix_example(["<c:1>"], "ab", VOCABULARY), prefix_example([ANY], "b", VOCABULARY)])
    method = random_model(name).train()
    loss = method.loss(batch, seeded(3)).loss
    loss.backward()
    assert loss.isfinite() and all(p.grad.isfinite().all() for p in method.parameters() if p.grad is not None)


def test_sources_of_edits_hold_no_conditions():
    for coupling in ("uniform", "corrupted"):
        method = random_model("editflow", coupling=coupling, tokens=4)
        x1 = collate([prefix_example(["<c:2>"], "abab", VOCABULARY)] * 200)
        x0 = method.pairs(x1, seeded(4)).x0
        assert not (x0.free & (x0.tokens >= 5)).any() and (x0.tokens[:, 1] == 6).all()
    task = task_from(dict(kind="repair", settings='kinds = 1, max_pairs = 2, condition = "depth"', errors=2))
    assert isinstance(task.errors, Corrupted) and task.errors.size == 5


@pytest.mark.slow
def test_editing_takes_guidance():
    method = random_model("editflow", coupling="corrupted")
    texts, keep = [["<c:1>", "a", "b"]] * 20, [[True, False, False]] * 20
    run = lambda **options: edit_sequences(method, texts, keep, generator=seeded(5), **options)
    assert run() == run(guidance=0.0) and run().sequences != run(guidance=3.0).sequences
    assert all(s[0] == 5 and not set(s[1:]) & set(NEVER) for s in run(guidance=3.0).sequences)


def test_both_answers_come_from_one_call_and_are_mixed_in_double_precision():
    calls, table = [], torch.randn(8, 8, generator=seeded(6))
    def ask(x, tau):
        calls.append(len(x.tokens))
        rate = table[x.tokens, x.tokens[:, 1:2]].exp() * tau[:, None]
        return Intensities(insert=rate, unmask=rate, logits=rate[..., None] * table[0])
    x, tau = collate([prefix_example([c], "ab", VOCABULARY) for c in ("<c:1>", "<c:2>")]), torch.tensor([0.5, 2.0])
    for scheme in SCHEMES:
        found = Guided(ask, VOCABULARY, 1.0, scheme)(x, tau)
        pair = [ask(v, tau).map(Tensor.double) for v in (x, without_conditions(x, VOCABULARY))]
        wanted = guide(*pair, 2.0 if scheme == "weighted" else 1.0, scheme, x)
        for name in ("insert", "unmask", "logits"):
            assert getattr(found, name).dtype == torch.float64
            torch.testing.assert_close(getattr(found, name), getattr(wanted, name))
    assert calls == [4, 2, 2] * len(SCHEMES)


def test_rates_by_token_are_guided_within_rates_and_distributions():
    g = lambda: Intensities(unmask=torch.rand(1, 2, generator=r), logits=torch.randn(1, 2, 5, generator=r), speed=speed)
    r, speed = seeded(7), torch.rand(1, 2, 5, generator=seeded(8)) + 0.1
    one, other = g(), g()
    found, without = guide(one, other, 1.5), guide(one._replace(speed=None), other._replace(speed=None), 1.5)
    assert found.speed is None
    assert torch.equal(found.unmask, without.unmask) and torch.equal(found.logits, without.logits)
    with pytest.raises(ValueError, match="speed"): guide(one, other._replace(speed=speed + 1), 1.5)


def test_autoregressive_guidance_is_the_tilted_law_of_the_next_token():
    method = random_model("ar")
    x = collate([prefix_example(["<c:1>"], "ab", VOCABULARY)])
    with torch.no_grad():
        p, q = (method.intensities(v).logits.double().softmax(-1) for v in (x, without_conditions(x, VOCABULARY)))
        found = Guided(lambda v, tau: method.intensities(v), VOCABULARY, 0.5)(x, torch.zeros(1)).logits.softmax(-1)
    wanted = (p**1.5 * q**-0.5).nan_to_num(0.0, posinf=0.0)
    torch.testing.assert_close(found, wanted / wanted.sum(-1, keepdim=True), rtol=1e-5, atol=1e-7)  # networks: float32


@pytest.mark.parametrize("options, message", [
    (dict(guidance=-1.0), "guidance=-1.0: must not be negative"),
    (dict(guidance=float("nan")), "guidance=nan"),
    (dict(guidance=float("inf")), "guidance=inf"),
    (dict(guidance=1.0, guidance_scheme="strong"), "guidance_scheme='strong': choose one of naive, fixed, weighted"),
    (dict(guidance=1.0, prompts=[["<c:1>"], ["a"]]), "prompt 1 holds no condition"),
    (dict(guidance=1.0, prompts=None), "prompt 0 holds no condition"),
    (dict(guidance=1.0, prompts=[[ANY]]), "prompt 0 holds no condition"),
])
def test_what_cannot_be_asked_for(options, message):
    with pytest.raises(ValueError, match=message): generate(random_model("mdm"), **dict(prompts=[["<c:1>"]]) | options)


def test_a_vocabulary_without_conditions_takes_no_guidance():
    method = random_model("mdm", Vocabulary("ab"))
    with pytest.raises(ValueError, match="has no conditions"): generate(method, n=2, guidance=1.0)
    assert Guidance(method.vocabulary).guide(print) is print


def test_the_trainer_hides_conditions_and_draws_the_same_states(tmp_path):
    data = [prefix_example(["<c:1>"], "ab", VOCABULARY)] * 8
    seen = {}
    for p in (0.0, 0.5, 1.0):
        method = random_model("mdm")
        trainer = Trainer(method, data, TrainConfig(steps=1, batch_size=64, drop_condition=p, compile=False),
                          tmp_path / str(p), progress=False)
        batch = collate(data * 8)
        seen[p] = int((trainer.drop_conditions(batch, 0).tokens[:, 1] == NEVER[-1]).sum())
    assert seen[0.0] == 0 and 16 < seen[0.5] < 48 and seen[1.0] == 64


def test_brackets_by_depth():
    task = task_from(dict(kind="brackets", max_pairs=3, condition="depth"))
    assert task.vocabulary.conditions == ("<depth:1>", "<depth:2>", "<depth:3>") and task.max_length == 8
    example = task.dataset("test")[0]
    string = task.vocabulary.decode(example.tokens[2:])
    assert task.prompts("test", 1) == [[f"<depth:{depth(string)}>"]] and example.fixed[:3] == [True, True, False]
    assert task.correct(["<depth:1>"], "()()") and not task.correct(["<depth:2>"], "()()") and task.correct([ANY], "()")
    assert {depth(s) for s in balanced_strings(3, 2)} == {1, 2, 3} and depth("") == 0
    assert task_from(dict(kind="brackets")).prompts() is None
    assert task.prompt("<depth:2> ( ...") == ["<depth:2>", "(", ...]


def test_molecules_by_rings(tmp_path):
    smiles = ["CCO", "CCCN", "c1ccccc1CCO", "C1CCCCC1CN", "c1ccc2ccccc2c1", "c1ccc(-c2ccccc2)cc1", "CCOC(C)=O",
              "CC(C)N", "c1ccncc1CO", "C1CC1CCO", "O=C1CCCN1CCO", "CCN(CC)CC"]
    (tmp_path / "some.smi").write_text("\n".join(smiles))
    task = task_from(dict(kind="molecules", source=str(tmp_path / "some.smi"), condition="rings", test_share=0.2,
                          valid_share=0.2))
    again = task_from(task.as_dict())
    assert again.config.bounds == task.bounds_text and again.vocabulary == task.vocabulary
    first, last = task.vocabulary.conditions[0], task.vocabulary.conditions[-1]
    assert task.classes_of(["CCO", "c1ccc2ccccc2c1"]) == [first, last]
    example, prompt = task.dataset("train")[0], task.prompts("test", 3)
    assert task.vocabulary.tokens[example.tokens[1]] in task.vocabulary.conditions and len(prompt) == 3
    assert task.prompt(first) == [first] and task.prompt("*CC")[0] == ANY and task.prompt(f"{last} *CC")[0] == last
    with pytest.raises(ValueError, match="increasing"): task_from(dict(kind="molecules", bounds="2 1"))


@pytest.mark.slow
def test_the_command_line_samples_with_guidance(tmp_path):
    task = dict(kind="brackets", max_pairs=2, condition="depth")
    train = dict(steps=2, batch_size=4, warmup=1)
    recipe = recipe_from(dict(task=task, model=dict(method="mdm", size="nano"), train=train))
    recipe.trainer(tmp_path / "run", progress=False).fit().save(tmp_path / "model")
    def call(*more):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(["sample", str(tmp_path / "model"), "-n", "4", "--device", "cpu", *more])
        return code, out.getvalue(), err.getvalue()
    code, out, _ = call("--guidance", "2", "--prompt-text", "<depth:2>")
    assert code == 0 and len(out.splitlines()) == 4
    assert all(line.startswith("<depth:2> =>") for line in out.splitlines())
    code, _, err = call("--guidance", "-1")
    assert code == 2 and "guidance=-1.0: must not be negative" in err and "Traceback" not in err


def test_powers_of_the_schemes_sum_to_1_and_no_other_has_any():
    assert [_powers(scheme, 3.0) for scheme in SCHEMES] == [(4.0, -3.0), (4.0, -3.0), (3.0, -2.0)]
    with pytest.raises(ValueError, match="scheme='wighted': choose one of naive,"): _powers("wighted", 1)
