"""The network of the published checkpoints against in- and outputs of the authors' code, and the importer.

The authors' files are large and not part of the package. Where they are not at hand, files of the same formats with
random weights are made, and their outputs computed by numpy (`published_files`), which agrees with the authors'."""
import json
import re
from pathlib import Path

import published_files
import pytest
import torch
from safetensors.torch import load_file, save_file

from loflexmdm import load
from loflexmdm.cli import main
from loflexmdm.methods.published import PublishedConfig, PublishedLoFlexMDM
from loflexmdm.methods.sampling import generate
from loflexmdm.models.import_published import PUBLISHED, check_padding, import_published
from loflexmdm.models.import_published import read_parts, token_names
from loflexmdm.models.saved import save_method
from loflexmdm.networks.published import PublishedRateHead, rate_exponent
from loflexmdm.process.states import BOS, MASK, PAD, PartialSequences, Vocabulary, collate
from loflexmdm.process.states import parse_prompt

GOLDEN = Path(__file__).parents[3] / "shared" / "reference_golden"
SAFE_TOKENIZER = GOLDEN.parent / "data" / "safe_tokenizer.json"
needs_golden = pytest.mark.skipif(
    not (GOLDEN / "README.json").exists(), reason="in- and outputs of the authors' code are not at hand"
)
NAMES = ("star_generator", "star_aux", "shared_generator", "shared_aux")
HEADS = dict(heads=4, order_heads=4)


class Files:
    "A directory with the files of the authors, or with such as were made."
    def __init__(self, place: Path): self.place = place
    def weights(self, name): return self.place / f"{name}.weights.safetensors"
    def golden(self, name): return load_file(self.place / f"{name}.io.safetensors")

    def imported(self, name):
        "The model that has the network `name`, and whether that is its order model."
        weights = self.weights
        if name.startswith("star"):
            order = weights("star_aux") if name.endswith("aux") else None
            return import_published(weights("star_generator"), "star", order_file=order, order_min_rate=1.01, **HEADS)
        order = weights("shared_aux_heads") if name.endswith("aux") else None
        return import_published(weights("shared_generator"), "safe", order_file=order, **HEADS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    published_files.write_all(place := tmp_path_factory.mktemp("made"))
    return Files(place)


@pytest.fixture(params=["made", pytest.param("authors", marks=needs_golden)])
def files(request, made): return made if request.param == "made" else Files(GOLDEN)


def our_ids(model, ids, kind):
    "Ids of the file as ours."
    s, n = PUBLISHED[kind], len(model.vocabulary)
    first = [s.pad, s.mask, s.eos]
    order = first + [i for i in range(n) if i not in first]
    return torch.tensor([order.index(i) for i in range(n)])[ids], order


def differences(files, name):
    "Largest difference per tensor between the authors' outputs and ours, at columns that are kept."
    model, io = files.imported(name), files.golden(name)
    ids, order = our_ids(model, io["input_ids"], "star" if name.startswith("star") else "safe")
    own = model.order if name.endswith("aux") else None
    trunk, hidden = (own.trunk or model.backbone) if own else model.backbone, []
    hooks = [block.register_forward_hook(lambda m, args, out: hidden.append(out)) for block in trunk.blocks]
    with torch.no_grad():
        h, cond = trunk(ids, io["t"])
        found = dict(cond=cond) | {f"hidden_{i}": v for i, v in enumerate(hidden)}
        c, low = model.config, model.config.order_min_rate if own else model.config.min_rate
        rate = lambda head: rate_exponent(head(h, cond), c.link, low, c.max_rate)
        found["b_ins"] = rate(own.insert if own else model.insert)
        if own: found["b_unmask_head"] = rate(own.unmask)
        else: found |= dict(b_unmask_head=rate(unmask_head(files, name, model)), vocab_logits=model.token(h, cond))
    for hook in hooks: hook.remove()
    kept, out = io["attention_mask"], {}
    for key, value in found.items():
        expected = io[key][..., order] if key == "vocab_logits" else io[key]
        if value.shape[:2] == kept.shape: value, expected = value[kept], expected[kept]
        out[key] = float((value - expected).abs().max())
    return out


def unmask_head(files, name, model):
    "The head that the model drops, as it replaces its rate by 1."
    head = PublishedRateHead(model.config.trunk)
    heads = read_parts(files.weights(name)).heads
    head.load_state_dict({k.removeprefix("unmask."): v for k, v in heads.items() if k.startswith("unmask.")})
    return head


@pytest.mark.parametrize("name", NAMES)
def test_forward_pass_is_the_authors(files, name):
    found = differences(files, name)
    assert max(found.values()) < 1e-5, found
    assert len(found) == (5 if name.endswith("aux") else 6)


@pytest.mark.parametrize("name", NAMES)
def test_hazards_are_the_authors(files, name):
    "In float32, in which 1 - t^a near t = 1 has few digits: computed as the authors do, relative to 1e-5."
    io = files.golden(name)
    t = io["t"][:, None]
    kept = io["attention_mask"]
    for a in (1, 2):
        shape = a * t ** (a - 1) / (1 - t**a)
        torch.testing.assert_close((io["b_ins"] * shape)[kept], io[f"hazard_ins_a{a}"][kept], rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ("star_generator", "shared_generator"))
def test_intensities_are_at_our_columns(files, name):
    model, io = files.imported(name), files.golden(name)
    ids, order = our_ids(model, io["input_ids"], "star" if name.startswith("star") else "safe")
    n = io["attention_mask"].sum(-1)
    assert bool((ids.gather(1, n[:, None] - 1) == BOS).all()), "every row ends in [EOS]"
    tokens = torch.cat([torch.full((len(ids), 1), BOS), ids], -1).scatter(1, n[:, None], PAD)[:, :-1]
    x = PartialSequences(tokens, tokens == BOS, tokens == PAD)
    with torch.no_grad(): found = model.intensities(x, io["t"])
    kept = io["attention_mask"]
    torch.testing.assert_close(found.insert[kept], io["b_ins"][kept], atol=1e-5, rtol=1e-5)
    generated = ~model.never
    law, expected = found.logits[:, 1:][kept[:, 1:]], io["vocab_logits"][..., order][:, :-1][kept[:, 1:]]
    torch.testing.assert_close(law[:, generated], expected[:, generated], atol=1e-5, rtol=1e-5)
    assert bool(law[:, ~generated].isneginf().all()) and int((~generated).sum()) >= 5


def test_flexmdm_inserts_at_the_rates_of_its_counts(made):
    "The baseline of the same authors: tokens that a gap still misses, and the same trunk and token head."
    model, io = import_published(made.weights("flexmdm_generator"), "safe", heads=4), made.golden("flexmdm_generator")
    ids, order = our_ids(model, io["input_ids"], "safe")
    n, kept = io["attention_mask"].sum(-1), io["attention_mask"]
    tokens = torch.cat([torch.full((len(ids), 1), BOS), ids], -1).scatter(1, n[:, None], PAD)[:, :-1]
    x = PartialSequences(tokens, tokens == BOS, tokens == PAD)
    with torch.no_grad(): found = model.intensities(x, io["t"])
    torch.testing.assert_close(found.insert[kept], io["gap"][kept], atol=1e-4, rtol=1e-5)
    law, expected = found.logits[:, 1:][kept[:, 1:]], io["vocab_logits"][..., order][:, :-1][kept[:, 1:]]
    torch.testing.assert_close(law[:, ~model.never], expected[:, ~model.never], atol=1e-5, rtol=1e-5)
    assert model.order is None and len(generate(model, n=3, seed=0, max_length=20)) == 3
    with pytest.raises(ValueError, match="has no order model"):
        import_published(made.weights("flexmdm_generator"), "safe", order_file=made.weights("star_aux"), heads=4)


@pytest.mark.parametrize("name", ("star_aux", "shared_aux"))
def test_order_rates_are_at_our_columns(files, name):
    "Their column i is our column i + 1; their [EOS], the last, is our start token, which has none."
    model, io = files.imported(name), files.golden(name)
    ids, _ = our_ids(model, io["input_ids"], "star" if name.startswith("star") else "safe")
    n = io["attention_mask"].sum(-1)
    tokens = torch.cat([torch.full((len(ids), 1), BOS), ids], -1).scatter(1, n[:, None], PAD)[:, :-1]
    x = PartialSequences(tokens, tokens == BOS, tokens == PAD)
    with torch.no_grad(): insert, unmask = model.order_rates(x, io["t"])
    for row, length in enumerate(n.tolist()):
        for found, key in ((insert, "b_ins"), (unmask, "b_unmask_head")):
            expected = io[key][row, :length - 1]
            torch.testing.assert_close(found[row, 1:length], expected, atol=1e-5, rtol=1e-5)


def test_order_rates_see_the_time(files):
    model = files.imported("star_aux")
    assert model.config.order == "separate" and model.config.order_rotary == 8 and model.config.rotary == 16
    x = collate([parse_prompt(["1", "2", "3"], model.vocabulary)])
    early, late = (model.order_rates(x, torch.tensor([t]))[0] for t in (0.1, 0.9))
    assert early.shape == x.tokens.shape and float((early - late).detach().abs().max()) > 1e-3
    assert files.imported("shared_aux").config.order == "shared"


def test_from_the_shell(files, tmp_path, capsys):
    weights = files.weights
    out = str(tmp_path / "made")
    line = ["import", str(weights("star_generator")), "--as", "star", "--heads", "4", "--out", out]
    assert main([*line, "--order-file", str(weights("star_aux")), "--order-heads", "4"]) == 0
    assert "63 tokens" in capsys.readouterr().out
    model = load(out)
    assert model.vocabulary.tokens[3:8] == ("[CLS]", "[BOS]", "[SEP]", "[UNK]", "0") and model.method.order is not None
    made = model.sample([["3", "5", "[BOS]"]], n=3, seed=0, max_length=12)
    assert all(model.vocabulary.decode(ids[:3]) == ["3", "5", "[BOS]"] for ids in made.sequences)
    assert not {"[CLS]", "[SEP]", "[UNK]"} & {t for ids in made.sequences for t in model.vocabulary.decode(ids)}
    assert main(["info", out]) == 0


@pytest.mark.parametrize(
    "file, options, message",
    [
        ("star_generator", "--as star", "heads=12: must divide the width 64"),
        ("star_generator", "--as star --heads 8", "rotary=16: must be even and at most width/heads = 8"),
        ("star_generator", "--as safe --heads 4", "pad=3: its row of the embedding must be zero.*row 0 of 63"),
        ("star_generator", "--as star --heads 4 --mask 0", "must be different"),
        ("star_generator", "--as star --heads 4 --eos 63", "eos=63: must lie in 0..62"),
        ("star_generator", "--as star --heads 4 --min-rate 200", "max_rate=100.0: must exceed min_rate=200.0"),
        ("star_aux", "--as star --heads 4", "holds only an order model"),
        ("shared_aux_heads", "--as safe --heads 4", "holds only an order model"),
        ("shared_generator", "--as safe --heads 4 --order-file {star}", "holds no order model"),
    ],
)
def test_options_that_do_not_fit(files, file, options, message, tmp_path, capsys):
    out = tmp_path / "made"
    options = options.format(star=files.weights("star_generator"))
    assert main(["import", str(files.weights(file)), *options.split(), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert re.search(message, said) and said.count("\n") == 1 and not out.exists()


@pytest.mark.parametrize("made_here", [True, pytest.param(False, marks=pytest.mark.skipif(
    not SAFE_TOKENIZER.exists(), reason="the tokenizer file of bracket SAFE is not at hand"
))])
def test_names_of_bracket_safe(made_here, tmp_path):
    file = tmp_path / "tokenizer.json" if made_here else SAFE_TOKENIZER
    if made_here: published_files.write_tokenizer(file)
    names = token_names("safe", PUBLISHED["safe"], 1882, file)
    assert names[:6] == ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "#"] and names[-2:] == ["<", ">"]
    with pytest.raises(ValueError, match="has 1880 tokens, the model 63"):
        token_names("safe", PUBLISHED["safe"], 63, file)


@needs_golden
@pytest.mark.parametrize("name", NAMES)
def test_numpy_agrees_with_the_authors(name):
    "So what it says of made files is what the authors' code would say."
    io, kind = Files(GOLDEN).golden(name), published_files.KINDS[name.split("_")[0]]
    w = published_files.from_authors(GOLDEN, name)
    least = 1.01 if name.endswith("aux") else 0.0
    kept = io["attention_mask"]
    for key, value in published_files.outputs(w, io["input_ids"], io["t"], kind.pad, kind.link, least).items():
        found, expected = torch.from_numpy(value).float(), io[key]
        if key != "cond": found, expected = found[kept], expected[kept]
        tight = dict(rtol=1e-5, atol=0) if key.startswith("hazard") else dict(rtol=0, atol=1e-5)
        torch.testing.assert_close(found, expected, **tight)


@pytest.mark.parametrize("rows", [(0, 5), (5,), ()])
def test_padding_is_the_only_row_of_zeros(rows):
    embedding = torch.ones(9, 4)
    embedding[list(rows)] = 0
    with pytest.raises(ValueError, match="pad=0: its row of the embedding must be zero, and no other"):
        check_padding(embedding, 0, "file")
    embedding[:] = 1
    embedding[0] = 0
    check_padding(embedding, 0, "file")


def test_a_tokenizer_without_a_vocabulary(tmp_path):
    for text in ("[]", '{"model": 3}', '{"model": {"vocab": {"a": 1}}}', '{"model": {"vocab": {"a": []}}}'):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(ValueError, match="holds no vocabulary"):
            token_names("safe", PUBLISHED["safe"], 9, tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "tensors, message",
    [
        ({"bert.encoder.weight": 1}, "not a checkpoint of LoFlexMDM"),
        ({"len_pred.linear.weight": 1}, "a distribution of lengths"),
        ({"len_pred.proj2.bias": 1, "b_ins_theta_head.proj2.bias": 1}, "both b_ins_theta_head and len_pred"),
        ({"b_ins_theta_head.bin_centers": 1}, "discretised"),
        ({"b_ins_theta_head.proj2.bias": 1}, "token.weight .by its name here. is missing"),
    ],
)
def test_other_families(tensors, message, tmp_path):
    save_file({k: torch.zeros(n) for k, n in tensors.items()}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=message): import_published(tmp_path / "x.safetensors", "safe")


def test_files_that_are_none(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"not one")
    with pytest.raises(ValueError, match="damaged weights file"): import_published(tmp_path / "x.safetensors", "safe")
    with pytest.raises(FileNotFoundError): import_published(tmp_path / "y.safetensors", "safe")
    with pytest.raises(FileNotFoundError): import_published(tmp_path, "safe")
    (tmp_path / "x.ckpt").write_bytes(b"")
    with pytest.raises(ValueError, match="must be a .safetensors file"): import_published(tmp_path / "x.ckpt", "safe")


def test_saved_and_loaded_again(tmp_path):
    order = dict(order="separate", order_heads=2, order_rotary=4)
    sizes = PublishedConfig(width=16, heads=2, rotary=8, cond=4, hidden=16, **order)
    torch.manual_seed(0)
    model = PublishedLoFlexMDM(Vocabulary("ab"), sizes).eval()
    save_method(model, tmp_path / "model")
    again = load(tmp_path / "model")
    x = collate([parse_prompt(["a", "<mask>", ...], model.vocabulary)])
    t = torch.tensor([0.5])
    assert torch.equal(model.intensities(x, t).insert, again.method.intensities(x, t).insert)
    assert all(torch.equal(a, b) for a, b in zip(model.order_rates(x, t), again.method.order_rates(x, t), strict=True))
    assert json.loads((tmp_path / "model" / "config.json").read_text())["method"] == "published"
    assert x.tokens[0, 2] == MASK
