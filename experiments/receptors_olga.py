"""Sequences and exact probabilities of immune receptors, line by line: runs in an environment with the package olga.

OLGA (GPLv3) is used as an external program: this file imports it and nothing of this package, and
`experiments/receptors.py` starts it. Standard input has one JSON list per line; each is answered by a line.

["draw", n, least, most]: `n` productive sequences of `least` to `most` residues.
["p", template, ...]: probability of each template; X is any residue, a first X means C and a last one F, V or W, the
residues of productive sequences."""
import json
import sys
from pathlib import Path

import numpy as np
import olga
import olga.generation_probability as probability
import olga.load_model as models
import olga.sequence_generation as generation
from olga.performance.fast_pgen import FastPgen

FILES = "model_params.txt", "model_marginals.txt", "V_gene_CDR3_anchors.csv", "J_gene_CDR3_anchors.csv"


class Law:
    "One of the models that come with the package, such as human_T_beta."
    def __init__(self, name: str):
        folder = Path(olga.__file__).parent / "default_models" / name
        params, marginals, v, j = (str(folder / file) for file in FILES)
        with_d = name.endswith(("beta", "heavy"))
        genomic = models.GenomicDataVDJ() if with_d else models.GenomicDataVJ()
        genomic.load_igor_genomic_data(params, v, j)
        model = models.GenerativeModelVDJ() if with_d else models.GenerativeModelVJ()
        model.load_and_process_igor_model(marginals)
        kinds = ("GenerationProbabilityVDJ", "SequenceGenerationVDJ")
        if not with_d: kinds = tuple(kind.replace("VDJ", "VJ") for kind in kinds)
        self.exact = FastPgen(getattr(probability, kinds[0])(model, genomic))  # 15 times as fast, equal to 5e-16
        self.sampler = getattr(generation, kinds[1])(model, genomic)

    def draw(self, n: int, least: int, most: int) -> list[str]:
        "Draw productive sequences."
        found = []
        while len(found) < n:
            sequence = self.sampler.gen_rnd_prod_CDR3()[1]
            if least <= len(sequence) <= most: found.append(sequence)
        return found

    def p(self, template: str) -> float:
        "Probability of a template."
        if template.startswith("X"): template = "C" + template[1:]
        ends = "FVW" if template.endswith("X") else template[-1:]
        return float(sum(self.exact.compute_aa_CDR3_pgen(template[:-1] + end, print_warnings=False) for end in ends))


def main(name: str, seed: str):
    np.random.seed(int(seed))
    law = Law(name)
    for line in sys.stdin:
        what, *values = json.loads(line)
        answer = law.draw(*values) if what == "draw" else [law.p(template) for template in values]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__": main(*sys.argv[1:])
