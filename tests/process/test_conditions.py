"Conditions of a prompt that are hidden: which tokens they are, of which rows, and how often."
import torch

from loflexmdm.process.conditions import hide_conditions, holds_condition, without_conditions
from loflexmdm.process.states import Pairs, Vocabulary, collate, prefix_example
from loflexmdm.support.random_numbers import seeded

VOCABULARY = Vocabulary(["a", "b", "<c:low>", "<c:high>", "<any>"])
X = collate([prefix_example(["<c:low>", "a"], ["b"], VOCABULARY), prefix_example(["<c:high>"], ["a"], VOCABULARY),
             prefix_example(["<any>"], ["b"], VOCABULARY)])


def texts(x) -> list[str]: return [" ".join(VOCABULARY.tokens[i] for i in row if i > 2) for row in x.tokens.tolist()]


def test_which_tokens_are_conditions():
    assert holds_condition(X, VOCABULARY).nonzero().tolist() == [[0, 1], [1, 1]]
    assert texts(without_conditions(X, VOCABULARY)) == ["<any> a b", "<any> a", "<any> b"]
    assert texts(without_conditions(X, VOCABULARY, torch.tensor([False, True, True]))) == ["<c:low> a b", "<any> a",
        "<any> b"]


def test_hidden_with_their_probability_and_in_both_sequences_of_a_pair():
    many = X.rows([0] * 4000)
    hidden = hide_conditions(many, VOCABULARY, .3, seeded(0)).tokens[:, 1] == VOCABULARY.index["<any>"]
    assert abs(hidden.float().mean() - .3) < 4 * (.21 / 4000) ** .5
    pair = hide_conditions(Pairs(many, X.rows([1] * 4000)), VOCABULARY, .3, seeded(0))
    assert all(torch.equal(x.tokens[:, 1] == VOCABULARY.index["<any>"], hidden) for x in pair)
    assert texts(hide_conditions(X, VOCABULARY, 1.0)) == texts(without_conditions(X, VOCABULARY))


def test_nothing_to_hide_draws_nothing():
    plain, generator = Vocabulary("ab"), seeded(0)
    before = generator.get_state()
    assert hide_conditions(X, VOCABULARY, 0.0, generator) is X
    x = collate([prefix_example("a", "b", plain)])
    assert hide_conditions(x, plain, .5, generator) is x and generator.get_state().equal(before)
