"""Which settings are best? scikit-learn's GridSearchCV over the parts of a learner, with folds of whole episodes.

A learner is an estimator: the parameters of its parts have names such as ``evaluator__n_trees``, and ``score`` estimates the
value of its policy on held-out episodes (`capi.offline.fitted_value`). Rows of an episode are dependent, so folds must not split
one; `EpisodeKFold` ensures this. The model of the chain is known, so the true loss of each policy can be printed, too.
"""

from sklearn.model_selection import GridSearchCV

from capi import CAPI, EpisodeKFold
from capi.domains import ChainWalk
from capi.evaluators import FittedQ
from capi.policy_spaces import Trees
from capi.simulation import sample_episodes

domain = ChainWalk(variant=2, discount=0.9)
batch = sample_episodes(None, domain, n_episodes=150, max_steps=20, random_state=0)

learner = CAPI(FittedQ(n_trees=10), Trees(), discount=0.9, n_iterations=30, random_state=0)
grid = {"space__max_depth": [1, 3], "evaluator__min_samples_leaf": [5, 100]}
search = GridSearchCV(learner, grid, cv=EpisodeKFold(3, shuffle=True, random_state=0)).fit(batch)

for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    depth, leaf = settings["space__max_depth"], settings["evaluator__min_samples_leaf"]
    loss = domain.mdp.performance_loss(learner.set_params(**settings).fit(batch).policy_)
    print(f"depth {depth}, at least {leaf:>3} rows per leaf: score {score:.3f}, true loss {loss:.3f}")
print("chosen:", search.best_params_)
print(search.best_estimator_.policy_.rules())
