"Where molecules come from: sources, cleaning, prepared data sets, matched pairs."
