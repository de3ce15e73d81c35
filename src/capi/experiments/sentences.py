"""What the paper's experimental sections and appendix say, sentence by sentence in our words, and which claims judge it.

A sentence without claims describes the set-up or gives a reason; it says what was done here instead of a verdict. Remarks on verdicts that contain
results are functions of the claims, so that they follow from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from capi.experiments.comparison import Verdict, number_text, verdict_of
from capi.experiments.experiment import Claim


@dataclass(frozen=True)
class Sentence:
    """A sentence of the paper, paraphrased."""

    says: str
    claims: tuple[str, ...] = ()  # patterns of the names of claims that judge it together
    ours: str = ""  # what was done here, what was chosen, or what the verdict means
    remark: Callable[[Mapping[str, Claim]], str] | None = None  # on the results, from the claims that judge it


@dataclass(frozen=True)
class Judgement:
    """A sentence, the claims that judge it, and the verdict: None for a sentence that is not judged."""

    sentence: Sentence
    claims: Mapping[str, Claim]
    verdict: Verdict | None

    @property
    def ours(self) -> str:
        """Return what was done here, or the remarks on the verdict."""
        remark = self.sentence.remark(self.claims) if self.sentence.remark else ""
        return " ".join(filter(None, (self.sentence.ours, remark)))


def judgements(experiment: str, claims: Mapping[str, Claim]) -> list[Judgement]:
    """Return the verdict on each sentence about an experiment; without sentences, each claim is one."""
    found = []
    for sentence in SENTENCES.get(experiment) or [Sentence(c.statement, (name,)) for name, c in claims.items()]:
        judging = {
            name: claim for name, claim in claims.items() if any(fnmatchcase(name, each) for each in sentence.claims)
        }
        verdict = verdict_of(claim.verdict for claim in judging.values()) if sentence.claims else None
        found.append(Judgement(sentence, judging, verdict))
    return found


def _by_case(claims: Mapping[str, Claim], claim: str, key: str, inner: str | None = None) -> str:
    """Return a number of a claim by the case in its name, "0 (success 0.9), 1.34 (success 0.7)"; empty without runs."""
    found = []
    for name, one in claims.items():
        value = one.numbers.get(key) if name.endswith(f"/{claim}") else None
        value = value.get(inner) if inner is not None and isinstance(value, dict) else value
        if value is not None:
            found.append(f"{number_text(value)} ({name.split('/')[-2].replace('-', ' ')})")
    return ", ".join(found)


def _least_loss(claims: Mapping[str, Claim]) -> str:
    found = _by_case(claims, "optimal-policy-outside-space", "least_loss_in_space")
    return found and f"Depends on the success probability: the least loss in the space is {found}."


def _of_value_iteration(claims: Mapping[str, Claim]) -> str:
    ends = [_by_case(claims, "capi-ends-below-vi", "loss_at_the_end", method) for method in ("capi", "vi")]
    return ends[0] and f"At the end CAPI loses {ends[0]} and value iteration {ends[1]}."


def _from_all_right(claims: Mapping[str, Claim]) -> str:
    key = "first_iteration_at_level"
    found = [_by_case(claims, "capi-faster-than-pi", key, each) for each in ("capi", "pi", "pi_from_all_right")]
    return found[0] and (
        "Depends on the first policy. The first iteration at the level of CAPI's loss: "
        f"CAPI from all left {found[0]}, policy iteration from all left {found[1]}, from all right {found[2]}."
    )


def _by_solving(claims: Mapping[str, Claim]) -> str:
    found = _by_case(claims, "pi-costs-considerably-more", "seconds_by_solving_pi_to_capi")
    told = "Policy iteration is charged by sweeps."
    return told + (
        f" If it solves 200 linear equations directly, an iteration takes {found} times as long as one of CAPI."
        if found
        else ""
    )


def _of_zero_one(claims: Mapping[str, Claim]) -> str:
    found = [_by_case(claims, "zero-one-loss-is-poor", key) for key in ("zero_one", "least_loss_in_space")]
    return (
        found[0]
        and f"Depends on the success probability: the 0/1 loss gives {found[0]}, the best policy in the space {found[1]}."
    )


def _by_reading(claims: Mapping[str, Claim]) -> str:
    return (
        "By reading of lambda: "
        + ", ".join(f"{name.partition('/')[0]} {one.verdict}" for name, one in claims.items())
        + "."
    )


def _pairs(claims: Mapping[str, Claim]) -> str:
    of = next(
        (one.numbers for one in claims.values() if "pairs" in one.numbers), {"pairs": 0, "on_the_same_processor": 0}
    )
    return f"{of['on_the_same_processor']} of {of['pairs']} pairs of runs come from the same kind of processor."


CHAIN = (
    Sentence(
        "The gap-weighted loss can be significantly better than a pure value-based method and than the 0/1 loss.",
        ("variant-1/*/capi-faster-than-vi", "variant-1/*/capi-ends-below-vi", "variant-1/*/zero-one-loss-is-poor"),
        "Two readings of better than value iteration: sooner at the level that CAPI reaches, and a smaller loss at the end.",
        _of_value_iteration,
    ),
    Sentence(
        "200 states; reward 1 in states 10 to 15 and 0.1 in states 180 to 190 for both actions; discount 0.99; based on Lagoudakis and Parr.",
        ours="As stated. The success probability is not stated: 0.9 (Lagoudakis and Parr, slips go the other way) and 0.7 are run.",
    ),
    Sentence(
        "The model is known; states are weighted uniformly; one sweep of evaluation per iteration.",
        ours="As stated. Not stated, chosen: Q before the first sweep 0, first policy all left, ties to the lowest action, reward of the "
        "state before the step, loss from uniform starts. Other starts, ties and rewards are in the records.",
    ),
    Sentence(
        "So CAPI queries the model about as often as value iteration.",
        ("variant-1/*/capi-costs-as-much-as-vi",),
    ),
    Sentence(
        "The policy space has all policies with one threshold, a small part of all policies.",
        ours="As stated: 400 pairs of a threshold and an order of actions, of 2^200 policies.",
    ),
    Sentence(
        "Variant 1 is designed so that the optimal policy is not in the space.",
        ("variant-1/*/optimal-policy-outside-space",),
        remark=_least_loss,
    ),
    Sentence("The loss of CAPI converges to the least loss in the space.", ("variant-1/*/capi-reaches-best-of-space",)),
    Sentence("It gets there considerably faster than value iteration.", ("variant-1/*/capi-faster-than-vi",)),
    Sentence(
        "It gets there considerably faster than policy iteration.",
        ("variant-1/*/capi-faster-than-pi",),
        remark=_from_all_right,
    ),
    Sentence(
        "The reason is that CAPI searches a much smaller space.",
        ours="A reason, not tested on its own; `theory` compares small and unrestricted spaces (claims `regularities`).",
    ),
    Sentence(
        "CAPI and value iteration cost about the same in time; policy iteration costs considerably more.",
        ("variant-1/*/capi-costs-as-much-as-vi", "variant-1/*/pi-costs-considerably-more"),
        remark=_by_solving,
    ),
    Sentence(
        "With the 0/1 loss and the exact optimal values the result is quite poor.",
        ("variant-1/*/zero-one-loss-is-poor",),
        remark=_of_zero_one,
    ),
    Sentence(
        "Because it fits many states with small gaps and errs in fewer states with large gaps.",
        ("variant-1/*/zero-one-errs-where-gaps-are-large",),
    ),
    Sentence(
        "Variant 2, without the reward in states 180 to 190: the optimal policy is in the space.",
        ("variant-2/*/optimal-policy-in-space",),
    ),
    Sentence(
        "There CAPI and policy iteration lose nothing after the fourth iteration.",
        ("variant-2/*/zero-from-iteration-4",),
    ),
    Sentence(
        "There CAPI costs about as much as value iteration and much less than policy iteration.",
        ("variant-2/*/capi-costs-as-much-as-vi", "variant-2/*/pi-costs-considerably-more"),
    ),
    Sentence("There the 0/1 loss with the optimal values loses nothing.", ("variant-2/*/zero-one-loss-is-zero",)),
)

HIV = (
    Sentence(
        "HIV treatment has six state variables and is considered difficult; drugs of two kinds have side effects, so interruptions are scheduled.",
        ours="Background. `capi.domains.HIV` has the model of Adams and others, with the four combinations of two drugs as actions.",
    ),
    Sentence(
        "Parameters, data collection and evaluation follow Ernst and others.",
        ours="Ten rounds of 30 patients, 200 decisions each, 15 % exploration from the second round on. Not stated, chosen: log10 states, "
        "reward of the state before the step, discount 0.98, 400 iterations; methods with their own rounds (`own`) or one batch (`shared`).",
    ),
    Sentence(
        "Tree-FQI has an ensemble of 30 extra trees; Tree-CAPI is the same with a second ensemble of 30 for the policy.",
        ours="As stated, but trees are kept for ten sweeps, which is faster; `own-new-trees` grows them in every sweep.",
    ),
    Sentence(
        "Policy trees minimise the gap-weighted loss, and the trees of an ensemble vote.", ours="As stated: `Forests`."
    ),
    Sentence(
        "A larger smallest node that may split means a simpler model: eta_v = 50 for values, eta_pi from 2 to 2,000 for policies.",
        ours="As stated, all ten values; `own-eta_v-5` has smaller value trees.",
    ),
    Sentence(
        "5,000 days from the unhealthy state, one standard error, 50 runs.",
        ours="As stated, with the seeds that are listed below; intervals are those of paired differences.",
    ),
    Sentence(
        "Restricting the policies can have a dramatic impact on the return.",
        ("*/capi-better-with-small-nodes", "*/poor-with-large-nodes"),
    ),
    Sentence(
        "For eta_pi from 2 to 100 Tree-CAPI is better than Tree-FQI.",
        ("*/capi-better-with-small-nodes",),
    ),
    Sentence("The return increases by up to 24 %.", ("*/gain-of-about-24-percent",)),
    Sentence("An overly restricted space leads to poor performance.", ("*/poor-with-large-nodes",)),
    Sentence(
        "The right complexity depends, among others, on the number of transitions.",
        ("own/best-size-depends-on-the-number-of-transitions",),
        "Judged by the rounds of one run, which have 6,000 to 60,000 transitions.",
    ),
    Sentence(
        "And on the difficulty of the problem.",
        ("own/best-size-depends-on-the-difficulty",),
        "Not tested: it needs problems of graded difficulty, each with all values of eta_pi.",
    ),
    Sentence(
        "The policy of CAPI outperforms a purely value-based approach in quality (Section 7).",
        ("*/capi-better-with-small-nodes",),
        "On HIV; on the other problems below.",
    ),
    Sentence(
        "CAPI can adjust the complexity; the greedy policy is the case without restrictions.",
        ours="A property of the method: `Unrestricted` gives the greedy policy (tested).",
    ),
)

MOUNTAIN_CAR = (
    Sentence(
        "CAPI is flexible and can be competitive, with other methods in each problem.", ours="Judged by what follows."
    ),
    Sentence(
        "RFQI is the value-based method; KNN-CAPI evaluates with one iteration of it and chooses actions by the kappa nearest states.",
        ours="As stated: `RFQI`, `KernelFittedQ(n_sweeps=1)`, `Neighbors`.",
    ),
    Sentence(
        "The gap-weighted loss over neighbours, the regret over neighbours and the largest sum of values give the same rule, for any number of actions; other local averages are possible.",
        ours="An identity, tested; other local averages are `LocalAverages`.",
    ),
    Sentence(
        "Dynamics and reward as in Sutton and Barto, discount 0.98; uniform starts, random actions, at most 100 steps; tests of at most 200 steps.",
        ours="As stated. Not stated, chosen: 200 to 5,000 samples, 100 iterations, states scaled to the unit square, 300 uniform test starts.",
    ),
    Sentence(
        "Gaussian kernel with sigma^2 = 0.01, lambda = 0.01 / n, a sparse dictionary; parameters were not optimised; 50 runs.",
        ours="Whether lambda multiplies a mean or a sum of squares is not stated, so both are run: `mean-loss` (ridge 0.01) and `sum-loss` "
        "(ridge 0.01 / n). Dictionary threshold 0.001.",
    ),
    Sentence(
        "Both methods learn to reach the goal in fewer than 60 steps from a few thousand samples or fewer.",
        ("*/both-learn-a-reasonable-policy",),
        remark=_by_reading,
    ),
    Sentence(
        "kappa = 75 was selected by the experiment with different kappas.",
        ("*/the-chosen-kappa-is-a-good-one",),
        "Judged by whether it is near the best kappa here, which is selected on half of the seeds and compared on the other half.",
    ),
    Sentence("With kappa = 75, KNN-CAPI is better than RFQI.", ("*/capi-leads", "*/capi-is-reasonable-more-often")),
    Sentence("Especially with few samples.", ("*/capi-leads-most-with-few-samples",)),
    Sentence(
        "Because it uses the regularity of policies, which RFQI cannot.",
        ours="A reason, not tested on its own; `theory` varies both regularities (claims `regularities`).",
    ),
    Sentence(
        "With few samples kappa makes a big difference.",
        ("*/kappa-makes-a-big-difference-with-few-samples",),
        "Best and worst kappa are selected on half of the seeds and compared on the other half.",
    ),
    Sentence("With many samples it has a noticeable effect.", ("*/kappa-makes-a-difference-with-many-samples",)),
    Sentence("There is an optimal kappa between the extremes.", ("*/kappa-has-an-optimum",)),
    Sentence(
        "Choosing it is a problem of model selection, which the paper leaves open.",
        ours="`capi.selection.choose` does it from the batch.",
    ),
)

POLE = (
    Sentence(
        "Good performance is possible with simple policies.",
        ours="Background from other work. `readable` compares trees of depth 1 to 6 with forests.",
    ),
    Sentence(
        "Tree-FQI has 30 trees with eta_v = 20; Tree-CAPI evaluates with the same trees and has 30 policy trees with eta_pi 20 or 500.",
        ours="As stated, with one forest per action, kept for ten sweeps (`new-trees` grows them in every sweep). Not stated, chosen: reward "
        "-1 on failure, discount 0.99, 36 degrees, starts near balance, 300 iterations.",
    ),
    Sentence(
        "Tree-DPI: single rollouts of at most 50 steps, 5 iterations, eta_pi 20, 100 or 500, as many transitions as Tree-CAPI.",
        ours="As stated. Not stated, chosen: rollouts start in uniform states.",
    ),
    Sentence(
        "Tests of 3,000 steps, 50 runs.",
        ours="As stated, with the seeds that are listed below. The track is not mentioned, so it is run without a limit and with 2.4 m.",
    ),
    Sentence(
        "Tree-CAPI clearly outperforms Tree-FQI.",
        ("*/capi-leads-at-all-sizes",),
        "All numbers of samples and both values of eta_pi count, those at which Tree-FQI solves the problem, too: there no method can lead.",
    ),
    Sentence(
        "Especially with few samples.",
        ("*/capi-leads-with-few-samples", "*/capi-leads-most-with-few-samples"),
        "Two readings: it leads there, and by more than elsewhere.",
    ),
    Sentence("And if eta_pi is not very large.", ("*/simple-policies-suffice-less-if-too-simple",)),
    Sentence(
        "With more than 15,000 samples Tree-CAPI solves the problem with every eta_pi, in all runs.",
        ("*/capi-solves-it-with-many-samples",),
    ),
    Sentence("Results are more stable.", ("*/capi-is-more-stable",), "All numbers of samples count."),
    Sentence(
        "Tree-DPI differs from Tree-CAPI in the evaluation alone, so it exploits regularities of policies alone.",
        ours="A property of the methods: rollouts do not generalise over states. Here Tree-DPI also draws new states in each of its five rounds, and "
        "its rounds are fewer than those of Tree-CAPI. `theory` varies both regularities (claims `regularities`).",
    ),
    Sentence(
        "Both Tree-CAPI and Tree-FQI need dramatically fewer samples than Tree-DPI.",
        ("*/rollouts-need-more-samples", "*/rollouts-need-more-samples-than-fqi"),
        "Judged with the same number of samples, for every size of policy trees.",
    ),
    Sentence(
        "Tree-DPI 500 needs about 3 x 10^7 samples for what Tree-CAPI 20 reaches with 10^4 and Tree-FQI with 3 x 10^4.",
        ("*/rollouts-need-thousands-of-times-as-many",),
    ),
    Sentence(
        "So regularity of values helps, especially with few samples.",
        ("*/rollouts-need-more-samples", "*/rollouts-lag-most-with-few-samples"),
    ),
    Sentence(
        "CAPI outperforms a rollout-based algorithm, and needs orders of magnitude fewer samples (Sections 6 and 7).",
        ("*/rollouts-need-more-samples", "*/rollouts-need-thousands-of-times-as-many"),
    ),
    Sentence(
        "CAPI outperforms a purely value-based approach in quality and sample efficiency (Section 7).",
        ("*/capi-leads-at-all-sizes", "*/capi-needs-fewer-samples"),
        "On the pole. Sample efficiency is judged by whether Tree-CAPI 20 is as good with the next smaller number of samples.",
    ),
    Sentence(
        "Tree-CAPI costs more computation than Tree-DPI.",
        ("new-trees/capi-costs-more-than-rollouts",),
        "With as many samples, and with new trees on both sides.",
        _pairs,
    ),
    Sentence(
        "CAPI might be more expensive than a value-based approach (Section 7).",
        ("new-trees/learning-costs-more",),
        "With new trees on both sides.",
        _pairs,
    ),
    Sentence(
        "Learning costs Tree-CAPI almost twice as much as Tree-FQI (Section 7).",
        ("new-trees/learning-costs-about-twice-as-much",),
        "With new trees on both sides; counted as about twice between 1.5 and 3 times.",
        _pairs,
    ),
    Sentence(
        "A decision costs almost the same (Section 7).",
        ("new-trees/decisions-cost-the-same",),
        "Counted as almost the same between half and twice the time.",
        _pairs,
    ),
    Sentence(
        "Which method is better depends on the cost of samples and of computation; CAPI is a powerful choice where samples are expensive and computation "
        "can be done offline (also Section 7).",
        ours="A conclusion from the sentences on samples and on computation above, not tested on its own.",
    ),
)

SENTENCES: Mapping[str, tuple[Sentence, ...]] = {"chain": CHAIN, "hiv": HIV, "mountain-car": MOUNTAIN_CAR, "pole": POLE}
