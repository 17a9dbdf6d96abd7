"Toy parts of another package: a task, a network, a method, a sampler and a channel."
