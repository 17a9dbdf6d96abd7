"How a molecule is written: bracket SAFE, other notations, fragments."
