"What is measured of molecules: metrics, benchmarks, objectives."
