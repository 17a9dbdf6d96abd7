"Tokenizers of subwords: cut and joined texts, and files that hold no tokenizer."
import pytest

from loflexmdm.support.tokenizers import read_tokenizer, subwords, train_subwords

pytest.importorskip("tokenizers")
TEXTS = ["low lower lowest", "new newer newest"] * 4


def test_subwords_come_from_merges():
    merges = train_subwords(TEXTS, 260)
    assert len(merges.split("\n")) == 4 and train_subwords(TEXTS, 256) == ""
    with pytest.raises(ValueError, match="size=255: must be at least 256"): train_subwords(TEXTS, 255)
    made = subwords(merges)
    assert len(made.tokens) == 260
    assert made.tokens[256:] == tuple("".join(line.split(" ")) for line in merges.split("\n"))
    assert list(made.tokens[:256]) == sorted(made.tokens[:256])
    for text in ("lower é\n", " new", "<s>"): assert made.join(made.cut(text)) == text
    assert len(made.cut("lowest")) < 6 and len(subwords("").cut("lowest")) == 6


def test_two_pairs_may_give_one_token():
    made = subwords("a b\nab c\nb c\na bc")
    assert len(made.tokens) == 256 + 3 and made.cut("abc") == ("abc",)
    with pytest.raises(ValueError, match="not the merges that training writes"): subwords("xy z")
    with pytest.raises(ValueError, match="token 'zz': not in the tokenizer"): made.join(["a", "zz"])


def test_files(tmp_path):
    made, path = subwords("l o\nlo w"), tmp_path / "tokenizer.json"
    made.inner.enable_truncation(2)
    made.inner.enable_padding(length=9)
    made.inner.save(str(path))
    made.inner.no_truncation(), made.inner.no_padding()
    found = read_tokenizer(path)
    assert found.tokens == made.tokens and found.cut("lowlow") == ("low", "low") and read_tokenizer(path) is found
    assert found.cut("lowlowlow") == ("low",) * 3 and found.cut("lw") == ("l", "w"), "neither cut off nor padded"
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a tokenizer file"): read_tokenizer(path)
    with pytest.raises(FileNotFoundError, match="no such file"): read_tokenizer(tmp_path / "none.json")
