"Molecular data: sources, cleaning, prepared data sets, matched pairs."
