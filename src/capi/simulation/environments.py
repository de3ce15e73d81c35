"""The domains of `capi.domains` as Gymnasium environments: importing this module registers them.

>>> import gymnasium
>>> import capi.simulation.environments
>>> gymnasium.make("capi/HIV-v0").observation_space.shape
(6,)

``gymnasium.make("capi.simulation.environments:capi/HIV-v0")`` needs no import. The ids are capi/HIV-v0, capi/CartPole-v0,
capi/ChainWalk-v0 and capi/MountainCar-v0; ``make`` passes further arguments to the domain.
"""

from capi.simulation.gymnasium import register

register()
