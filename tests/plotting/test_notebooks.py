"""What notebooks show: parameters, facts and rules, with nothing that a table could smuggle in."""

from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np

from capi import CAPI, Transitions
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact, FittedQ
from capi.policies import Constant, Described
from capi.policy_spaces import Thresholds, Trees
from capi.testing import random_batch

HOSTILE = "<script>alert('x')</script>&\"<b>"
ALLOWED = {"div", "b", "table", "tr", "td", "pre", "details", "summary"}


class Page(HTMLParser):
    """Collects the text, and refuses tags that were left open or do not belong."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED, tag
        assert all(name == "style" and "url" not in value for name, value in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}\n"


def batch_with(names, labels):
    batch = random_batch()
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated)
    return Transitions(*columns, feature_names=names, action_labels=labels)


@dataclass(frozen=True)
class Hostile:
    """Settings whose repr is HTML."""

    name: str = HOSTILE

    def evaluate(self, *args, **kwargs): ...


def test_a_learner_shows_its_parameters_and_its_rules():
    learner = CAPI(FittedQ(n_trees=7), Trees(max_depth=2), 0.9, 2, random_state=0)
    before = Page(learner._repr_html_()).text
    for word in ("CAPI", "not fitted", "FittedQ", "n_trees", "7", "max_depth", "discount", "0.9"):
        assert word in before
    after = Page(learner.fit(random_batch())._repr_html_()).text
    assert "fitted, 2 rounds" in after
    assert learner.policy_.rules() in after


def test_a_batch_shows_its_summary():
    batch = batch_with(["age", "dose"], ["no", "a", "b"])
    text = Page(batch._repr_html_()).text
    for word in (f"{len(batch)} rows, 2 features, 3 actions", "age, dose", "episodes", "rewards"):
        assert word in text


def test_a_policy_shows_its_rules_or_what_it_is():
    mdp = ChainWalk(variant=2).mdp
    policy = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), 0.99, 5).fit().policy_
    assert "if state <= 11.5: right" in Page(policy._repr_html_()).text
    assert "Constant(action=1, n_actions=2)" in Page(Constant(1, n_actions=2)._repr_html_()).text


def test_names_from_tables_are_escaped():
    batch = batch_with([HOSTILE, "x"], [HOSTILE, "a", "b"])
    learner = CAPI(FittedQ(n_trees=3), Trees(max_depth=2), 0.9, 1, random_state=0).fit(batch)
    for shown in (batch, learner, learner.policy_):
        html = shown._repr_html_()
        assert "<script" not in html
        assert "&lt;script&gt;" in html
        assert HOSTILE in Page(html).text


def test_parameters_are_escaped_and_shortened():
    learner = CAPI(Hostile(), np.arange(1000), HOSTILE, keep="x" * 1000)
    html = learner._repr_html_()
    assert "<script" not in html
    assert repr(HOSTILE) in Page(html).text
    assert "x" * 201 not in html


@dataclass(frozen=True, eq=False)
class Printed(Described):
    """A policy with rules of so many lines, or with none that it could print."""

    n_lines: int

    def rules(self):
        if not self.n_lines:
            raise InvalidInputError("states must be given.")
        return "\n".join(f"line {i}" for i in range(self.n_lines))


def test_a_policy_that_cannot_be_printed_alone_is_named():
    text = Page(Printed(0)._repr_html_()).text
    assert "Printed(n_lines=0)" in text


def test_long_rules_are_cut():
    text = Page(Printed(100)._repr_html_()).text
    assert "line 39\n... 60 more lines: print(policy.rules())" in text
    assert "line 40" not in text
    assert "more lines" not in Page(Printed(40)._repr_html_()).text
