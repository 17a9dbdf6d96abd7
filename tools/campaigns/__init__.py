"Attacks on files and commands, counted: kills, full disks, flipped bits, fuzzed inputs. `make campaign` runs them."
