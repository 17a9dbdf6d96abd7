"Token distributions that are computed where they are read: which columns, what is kept, and gradients."
import pytest
import torch

from loflexmdm.process.intensities import Intensities, TokenLaws

LOGITS = torch.arange(12.0).view(2, 3, 2)  # two rows of three columns
WHERE = torch.tensor([[True, False, True], [False, True, False]])


def counted(*known) -> tuple[TokenLaws, list[int]]:
    "Laws that return what they know, and how many columns each call has computed."
    asked = []

    def law(found):
        asked.append(len(found))
        return found
    return TokenLaws(law, *known), asked


def test_only_the_columns_that_are_read_are_computed():
    laws, asked = counted(LOGITS)
    assert laws.at(WHERE).tolist() == LOGITS[WHERE].tolist() and asked == [3]
    assert laws.at_index(torch.tensor([5, 0])).tolist() == [[10, 11], [0, 1]] and asked == [3, 2]
    assert laws.dense().equal(LOGITS) and laws.shape == (2, 3, 2)


def test_what_is_kept_serves_reads_of_its_columns_alone():
    laws, asked = counted(LOGITS)
    assert laws.at(WHERE, keep=True).tolist() == laws.at(WHERE).tolist() and asked == [3]
    assert laws.at_index(torch.tensor([4, 2, 0])).tolist() == [[8, 9], [4, 5], [0, 1]] and asked == [3]
    assert laws.at_index(torch.tensor([4, 1])).tolist() == [[8, 9], [2, 3]] and asked == [3, 2]
    assert laws.select(WHERE)[0].tolist() == [0, 2, 4]
    assert laws.at(~WHERE).equal(LOGITS[~WHERE]) and asked == [3, 2, 3], "another choice is not the one that is kept"
    assert laws.at(WHERE).equal(LOGITS[WHERE]) and asked == [3, 2, 3]


def test_rearranged_columns_forget_what_is_kept():
    laws, asked = counted(LOGITS)
    laws.at(WHERE, keep=True)
    turned = laws.columns(lambda number: number.flip(1))
    assert turned.at(WHERE).equal(LOGITS.flip(1)[WHERE]) and turned.at(~WHERE).equal(LOGITS.flip(1)[~WHERE])
    assert turned.dense().equal(LOGITS.flip(1)) and asked == [3, 3, 3, 6]
    assert turned.columns(lambda number: number[1:]).dense().equal(LOGITS.flip(1)[1:]) and laws.dense().equal(LOGITS)


def test_keys_that_name_columns_compute_these_alone():
    laws, asked = counted(LOGITS)
    row, column = torch.tensor([1, 0]), torch.tensor([2, 1])
    assert laws[row, column].equal(LOGITS[row, column]) and laws[row].equal(LOGITS[row]) and asked == [2, 6]
    assert laws[WHERE].equal(LOGITS[WHERE]) and asked == [2, 6, 3]
    assert laws[row, column, row].equal(LOGITS[row, column, row]) and laws[0, 1].equal(LOGITS[0, 1])
    assert laws[:, 1:].equal(LOGITS[:, 1:]) and laws[torch.tensor([False, True])].equal(LOGITS[1:])
    assert laws.nothing().shape == (0, 2)


def test_a_law_that_follows_gets_the_logits_before_it_first():
    later = TokenLaws.of(LOGITS).then(lambda logits, more: logits - 2 * more, torch.ones(2, 3, 1))
    assert later.dense().equal(LOGITS - 2)
    assert later.at(WHERE).equal(LOGITS[WHERE] - 2)
    assert later.columns(lambda number: number[[1, 0]]).dense().equal(LOGITS[[1, 0]] - 2)
    assert TokenLaws.of(later) is later


@pytest.mark.parametrize("made, read", [(True, True), (True, False), (False, True), (False, False)])
def test_gradients_need_to_be_on_when_a_law_is_made_and_when_it_is_read(made, read):
    weight = torch.ones((), requires_grad=True)
    with torch.set_grad_enabled(made): laws = TokenLaws(lambda known: weight * known, LOGITS)
    with torch.set_grad_enabled(read): assert laws.dense().requires_grad == (made and read)


def test_rates_are_replaced_by_channel():
    one, two, three = (torch.full((1, 2), float(k)) for k in (1, 2, 3))
    out = Intensities(insert=one, others=dict(swap=one, turn=one)).with_rates(dict(insert=two, unmask=three, swap=two))
    assert out.insert is two and out.unmask is three and out.others == dict(swap=two, turn=one)
    assert out.rate("turn") is one and out.rate("unmask") is three and out.rate("none") is None
    assert Intensities(insert=one).with_rates(dict(delete=two)).others is None
