"""DiscreteCQL and DoubleDQN of d3rlpy, on one thread of the processor."""

from time import process_time

import d3rlpy
import numpy as np
import structlog
import torch

ALGORITHMS = {"cql": d3rlpy.algos.DiscreteCQLConfig, "double-dqn": d3rlpy.algos.DoubleDQNConfig}
SETTINGS = {
    "defaults": {},  # learning rate 6.25e-5, and targets that are updated every 8,000 steps: made for Atari
    "tutorial": {"learning_rate": 2.5e-4, "target_update_interval": 100},  # those of d3rlpy's tutorial on CartPole
}


def trained(log, world, seed, budgets, algorithm, settings):
    """Yield (steps, policy, CPU seconds so far) for each number of gradient steps in ``budgets``, multiples of the smallest.

    d3rlpy ignores the last row of an episode that was cut off, whose next state it does not know.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # only warnings
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    started, paused = process_time(), 0.0
    last = np.append(log["episode"][1:] != log["episode"][:-1], True)
    dataset = d3rlpy.dataset.MDPDataset(
        np.asarray(log["states"], dtype=np.float32),
        log["actions"],
        np.asarray(log["rewards"], dtype=np.float32),
        log["terminated"].astype(np.float32),
        timeouts=(last & ~log["terminated"]).astype(np.float32),
        action_size=world.n_actions,
    )
    learner = ALGORITHMS[algorithm](gamma=world.discount, **SETTINGS[settings]).create(device="cpu:0")
    epochs = learner.fitter(
        dataset,
        n_steps=max(budgets),
        n_steps_per_epoch=min(budgets),
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    for epoch, _ in epochs:
        if (steps := epoch * min(budgets)) in budgets:
            seconds = process_time() - started - paused
            before = process_time()
            yield steps, lambda states: learner.predict(states.astype(np.float32)), seconds
            paused += process_time() - before
