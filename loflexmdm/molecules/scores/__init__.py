"Scores of molecules: metrics, benchmarks, objectives."
