"Fragment prompts: the published ones, bad input, the containment check, and what decoded samples keep."
import csv
import json
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path

import forks
import pytest
from rdkit import Chem
from rdkit.Chem.Scaffolds.MurckoScaffold import GetScaffoldForMol

from loflexmdm.molecules.notation.bracket_safe import decode, to_bracket_safe, tokenize
from loflexmdm.molecules.notation.fragments import DRUGS, FRAGMENT_TASKS, attach_points
from loflexmdm.molecules.notation.fragments import contains_fragment, demo_cases, draw_fragment
from loflexmdm.molecules.notation.fragments import ends_aromaticity, fragment_prompt, fragment_task
from loflexmdm.molecules.notation.fragments import fragments_of, parse_fragment, plain_points
from loflexmdm.molecules.notation.fragments import point_candidates, prompt_tokens
from loflexmdm.molecules.notation.fragments import scaffold_with_points
from loflexmdm.molecules.notation.fragments import without_points
from loflexmdm.process.states import Vocabulary

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from fragment_benchmark import read_benchmark  # noqa: E402

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "genmol_fragments.csv").exists(), reason="the published benchmark files are not at hand"
)


def reference(): return json.loads((DATA / "fragment_prompts_reference.json").read_text())


def pieces(prompt):
    "Fragments of a prompt as molecules with open points, whatever their order and numbers."
    return Counter(Chem.CanonSmiles(re.sub(r"<%?\d+>", "(*)", p)) for p in prompt.rstrip(".").split("."))


def joined(prompt): return decode(prompt.rstrip("."), open_points=True).smiles


@needs_data
def test_published_prompts():
    for r in reference():
        ours = fragment_prompt(r["fragment"], r["task"], keep_stereo=r["task"] == "linker_design")
        assert ours.endswith(".") and pieces(ours) == pieces(r["prompt"]) and joined(ours) == joined(r["prompt"]), r


@needs_data
def test_benchmark_file():
    cases = read_benchmark(DATA / "genmol_fragments.csv")
    assert len(cases) == 40 and Counter(c.task for c in cases) == dict.fromkeys(FRAGMENT_TASKS, 10)
    with open(DATA / "genmol_fragments.csv") as f: rows = {r["name"]: r for r in csv.DictReader(f)}
    for c in cases:
        assert contains_fragment(c.smiles, rows[c.name][c.task])  # points included where the file has any
        assert contains_fragment(c.smiles, without_points(c.fragment))
        assert "*" in c.fragment and "@" not in c.prompt()
        assert [int(k) for k in dict.fromkeys(re.findall(r"<%?(\d+)>", c.prompt()))] == list(
            range(1, len(set(re.findall(r"<%?(\d+)>", c.prompt()))) + 1)
        )


@needs_data
def test_our_slicing_gives_the_published_scaffolds():
    "Scaffolds and cores of the ten drugs, which nobody told us the rule of."
    with open(DATA / "genmol_fragments.csv") as f: rows = list(csv.DictReader(f))
    bare = lambda s: Chem.CanonSmiles(re.sub(r"\[\d+\*\]", "*", s))
    for r in rows:
        ours = fragments_of(r["smiles"])
        assert bare(ours["scaffold_decoration"]) == bare(r["scaffold_decoration"])
        assert Chem.CanonSmiles(ours["superstructure_generation"]) == Chem.CanonSmiles(r["superstructure_generation"])


@pytest.mark.parametrize(
    "fragment, task, message",
    [
        ("c1ccccc1", "motif_extension", "needs an attachment point"),
        ("c1ccccc1", "scaffold_decoration", "needs an attachment point"),
        ("*CC.CC", "linker_design", "each fragment"),
        ("*CC", "linker_design", "takes 2 fragments, this is 1"),
        ("*C.*C.*C", "linker_design", "this is 3"),
        ("*C.*N", "motif_extension", "takes 1 fragment, this is 2"),
        ("CC.CC", "superstructure_generation", "takes 1 fragment, this is 2"),
        ("", "motif_extension", "empty"),
        ("*C1CC", "motif_extension", "not a SMILES"),
        ("*C(C)(C)(C)C", "motif_extension", "valence"),
        ("*1CC1", "motif_extension", "hang on exactly one atom"),
        ("*", "motif_extension", "hang on"),
        ("**", "", "hang on"),
        ("*C", "growing", "choose one of linker_design"),
        ("FC(F)(F)F", "superstructure_generation", "too few hydrogens"),
    ],
)
def test_bad_fragments(fragment, task, message):
    with pytest.raises(ValueError, match=message): fragment_prompt(fragment, task)


def test_bad_points():
    with pytest.raises(ValueError, match="points=0"): attach_points("CC", points=0)
    with pytest.raises(ValueError, match="3 attachment"): attach_points("CC", points=3)


def test_task_guessed():
    assert [fragment_task(f) for f in ("*C.*N", "*CN", "CN")] == [
        "linker_design",
        "motif_extension",
        "superstructure_generation",
    ]
    assert fragment_prompt("*CCO") == fragment_prompt("*CCO", "motif_extension")


def test_stereo_only_on_request():
    fragment = "*[C@H](N)CO"
    assert "@" not in fragment_prompt(fragment) and "@" in (kept := fragment_prompt(fragment, keep_stereo=True))
    smiles = decode(kept + "C<1>").smiles
    assert smiles == Chem.CanonSmiles("C[C@H](N)CO") and contains_fragment(smiles, "*[C@@H](N)CO")


def test_ten_and_more_points():
    fragment = "*c1c(*)c(*)c2c(*)c(*)c(*)c(*)c2c1-c1c(*)c(*)c(*)c(*)c1*"
    prompt = fragment_prompt(fragment)
    rest = ".".join(f"C{k}" for k, n in Counter(re.findall(r"<%?\d+>", prompt)).items() if n == 1)
    assert "<%10>" in prompt and contains_fragment(decode(prompt + rest).smiles, fragment)


def test_points_of_a_core_do_not_depend_on_its_spelling():
    core = "c1nc(-c2cnn(C3CNC3)c2)c2cc[nH]c2n1"
    spelled = Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(core), 20, randomSeed=1)
    assert len({attach_points(s, seed=5, points=2) for s in spelled}) == 1
    assert len({attach_points(core, seed) for seed in range(60)}) == len(point_candidates(core)) == 9
    assert all(without_points(attach_points(core, seed, 3)) == Chem.CanonSmiles(core) for seed in range(5))


@pytest.mark.slow
def test_same_for_every_hash_seed():
    shown = "print([(c.fragment, c.prompt()) for c in demo_cases(3)])"
    code = f"from loflexmdm.molecules.notation.fragments import *; {shown}"
    started = forks.start(["-c", code], env=os.environ | dict(PYTHONHASHSEED="1"))
    forked = forks.run(["-c", code])  # with the seed of the server, another one each time
    assert started.returncode == 0 and started.stdout == forked.stdout and len(started.stdout) > 1000


@pytest.mark.parametrize(
    "smiles, fragment, truth",
    [
        ("CCCO", "*CC", True), ("CC(C)CO", "*CCC", False), ("CC=O", "*CC", False), ("C1CC1", "*CCC*", True),
        ("CCC", "*CCC*", False), ("c1ccccc1", "*C=C*", True), ("C1CCCCC1", "*C=C*", False), ("CCNCC", "*CC.*CC", True),
        ("CCN", "*CC.*CC", False), ("COC", "*C.*C", True), ("CO", "*C.*O", True), ("CC=CC", "C=*", False),
        ("c1ccc2ccccc2c1", "*c1ccccc1*", True), ("O=C1C=CC(=O)C=C1", "*c1ccc(*)cc1", False), ("CCO", "CC", True),
        ("CCO", "CN", False), ("Cc1ccccc1", "c1ccccc1", True), ("*CC", "*CC", False), ("[2H]CC", "*CC", False),
        ("[13CH3]CO", "*CC", True), (None, "*CC", False), ("", "*CC", False), ("C1CC", "*CC", False),
        ("Cn1c2nnc1C2", "*c1nnc(*)n1C", False), ("Cn1c2nnc1CC2", "*c1nnc(*)n1C", True), ("CN1CC1", "*CN(*)C", False),
        ("CN1CCC1", "*CN(*)C", True), ("C1CC1", "*CC*", False), ("c1ccc2c(c1)OCO2", "*Oc1ccccc1O*", False),
        ("CNC", "*C.*C", True), ("CNCCC1CC1", "*CC*.*C", True),
        ("C[C@H](N)O", "*[C@@H](N)O", True), ("CS(C)=O", "*S(*)*", False), ("CS(C)=O", "*=S(*)*", True),
    ],
)
def test_contains(smiles, fragment, truth): assert contains_fragment(smiles, fragment) is truth


def test_contains_refuses_what_is_no_fragment():
    for bad in ("C1CC", "", "*1CC1"):
        with pytest.raises(ValueError): contains_fragment(None, bad)


def completion(prompt, rng, tokens):
    opened = [k for k, n in Counter(re.findall(r"<%?\d+>", prompt)).items() if n == 1]
    body = [rng.choice(tokens) for _ in range(rng.randint(1, 4))]
    for k in opened: body.insert(rng.randint(1, len(body)), rng.choice(["", "", "", "="]) + k)
    return prompt + "".join(body)


@pytest.mark.slow
def test_decoded_samples_keep_their_fragment():
    """Random text behind every demo prompt: what decodes keeps the fragment, unless a bond symbol stands before an
    attachment, a ring of it is no longer aromatic, or one atom hangs on two of its points."""
    rng, seen = random.Random(0), Counter()
    for case in demo_cases():
        prompt = case.prompt()
        for text in (
            completion(prompt, rng, ["C", "N", "O", "C(C)", "C=C", "S", ".", "=", "<1>", "<2>"]) for _ in range(150)
        ):
            if not (smiles := decode(text).smiles): continue
            rest = text[len(prompt):]
            if contains_fragment(smiles, case.fragment): why = "kept"
            elif "=<" in rest: why = "symbol"
            elif ends_aromaticity(prompt, text): why = "aromaticity"
            else: why = "one atom" if "><" in rest else "otherwise"  # two attachments of an atom
            seen[why] += 1
    assert seen["otherwise"] == 0 and seen["kept"] > 200 and seen["symbol"] > 10, seen
    assert seen["aromaticity"] > 0 and seen["one atom"] > 10, seen


def test_samples_without_their_fragment_are_noticed():
    "The check behind the benchmark fails when the prompt does not end in a dot."
    text = fragment_prompt("*CO")[:-1] + "C.C<1>"
    assert decode(text).smiles and not contains_fragment(decode(text).smiles, "*CO")


def test_drugs_and_their_fragments():
    for name, smiles in DRUGS.items():
        for seed in range(5):
            found = fragments_of(smiles, seed)
            assert set(found) == set(FRAGMENT_TASKS) and found == fragments_of(Chem.CanonSmiles(smiles), seed)
            assert all(contains_fragment(smiles, f) for f in found.values()), name
        assert without_points(scaffold_with_points(Chem.MolFromSmiles(smiles))) == Chem.MolToSmiles(
            GetScaffoldForMol(Chem.MolFromSmiles(smiles))
        )
    assert len({tuple(fragments_of(DRUGS["imatinib"], seed).values()) for seed in range(10)}) > 3


def test_nothing_fits():
    assert fragments_of("C") == {} and set(fragments_of("c1ccccc1")) == {"superstructure_generation"}
    with pytest.raises(ValueError, match="not a SMILES"): fragments_of("C1")


HEADER = "name,smiles," + ",".join(FRAGMENT_TASKS) + "\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no column"),
        (
            "name,smiles\n",
            (
                "no column linker_design, motif_extension, scaffold_decoration, superstructure_generation; "
                "there are name, smiles"
            ),
        ),
        (HEADER, "no fragment in it"),
        (HEADER + "a,CC,,*C1,,\n", "line 2, motif_extension: .*not a SMILES"),
        (HEADER + "a,CC,,*C,,\nb,CC,*C,,,\n", "line 3, linker_design: .*takes 2"),
        (HEADER + "a,C1,,*C,,\n", "line 2, motif_extension: .*C1"),
        (HEADER + "a\n", "no fragment"),
    ],
)
def test_damaged_benchmark(tmp_path, text, message):
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(ValueError, match=message): read_benchmark(tmp_path / "b.csv")


def test_own_benchmark(tmp_path):
    (tmp_path / "b.csv").write_text(HEADER + "toluene,Cc1ccccc1,,*c1ccccc1,,c1ccccc1\n")
    motif, core = read_benchmark(tmp_path / "b.csv", seed=1, points=2)
    assert (motif.name, motif.fragment, motif.prompt()) == ("toluene", "*c1ccccc1", "c1ccc<1>cc1.")
    assert core.fragment.count("*") == 2


def test_unknown_tokens():
    vocabulary = Vocabulary(["c", "1", ".", "<1>", "C"])
    assert "".join(prompt_tokens("c1ccc<1>cc1.", vocabulary)) == "c1ccc<1>cc1."
    with pytest.raises(ValueError, match="lacks <2> Br"): prompt_tokens(fragment_prompt("*c1ccc(Br)c(*)c1"), vocabulary)
    pieces = Vocabulary(["c", "1", ".", "<", ">", "%10"])
    assert prompt_tokens("c1ccc<1>cc1.", pieces) == [*"c1ccc<1>cc1."]


def test_picture():
    plt = pytest.importorskip("matplotlib.pyplot")
    for case in demo_cases()[:4]: assert case.name in draw_fragment(case).get_title()
    with pytest.raises(ValueError, match="does not contain"): draw_fragment(demo_cases()[0], "CCO")
    plt.close("all")


def test_whole_prompts_tokenize():
    for case in demo_cases(): assert "".join(tokenize(case.prompt())) == case.prompt()
    assert to_bracket_safe("*CC") == fragment_prompt("*CC").rstrip(".")


def test_an_imine_loses_its_point_without_a_hydrogen():
    "A hydrogen kept to say E or Z would not be found again as a substructure."
    smiles = "C/[NH+]=C(/NCCc1ncc(C)s1)N[C@@H]1C[C@@H](C)N(c2ccccc2)C1"
    found = fragments_of(smiles)
    assert "[H]" not in "".join(found.values())
    assert all(contains_fragment(smiles, without_points(f)) for f in found.values())
    assert without_points("*/N=C/c1ccccc1") == "N=Cc1ccccc1"


SPELLINGS = [
    "*c1ccncc1|*CCO", "[R1]c1ccncc1.[R2]CCO", "[R1]c1ccncc1|OCC[R1]", "[*:1]c1ccncc1|[*:2]CCO",
    "[1*]c1ccncc1.C([R#])CO",
    "[R]c1ccncc1|C(O)C[R]",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_other_programs_points_and_separators_mean_the_same(text):
    plain = "*c1ccncc1.*CCO"
    assert fragment_prompt(text) == fragment_prompt(plain) and fragment_task(text) == "linker_design"
    assert Chem.MolToSmiles(parse_fragment(text)) == Chem.CanonSmiles(plain)
    assert plain_points(plain_points(text)) == plain_points(text) and parse_fragment(plain_points(text))
    assert contains_fragment("OCCCc1ccncc1", text) == contains_fragment("OCCCc1ccncc1", plain)


def test_elements_and_texts_with_gaps_stay_as_they_are():
    for text in ("[Rb]CC", "[Ru]", "C[Rh]", "[R1]C...", "CC...|"): assert plain_points(text) == text


@pytest.mark.parametrize("text, problem", [
    ("R1c1ccccc1", "or [R1]"), ("*CC||*CN", "between two fragments"), ("*CC | *CN", "without blanks"),
    ("[X1]CC", "are *, [*:1] or [R1]"), ("[R1]1CC1", "exactly one atom"), ("[R1][R2]", "exactly one atom"),
    ("[R1]C|[R2]N|[R3]O", "takes 2 fragments, this is 3"), ("[R1]CC|CN", "on each fragment"),
])
def test_wrong_points_are_refused_with_what_is_right(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)): fragment_prompt(text)
