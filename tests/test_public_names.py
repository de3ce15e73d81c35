"""All public names are documented, and all names in the documents exist."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import capi

ROOT = Path(__file__).parent.parent
PACKAGES = [
    "capi",
    "capi.evaluators",
    "capi.policy_spaces",
    "capi.baselines",
    "capi.domains",
    "capi.trees",
    "capi.features",
    "capi.offline",
    "capi.report",
    "capi.selection",
    "capi.theory",
]
MODULES = [
    "capi.loss",
    "capi.policies",
    "capi.types",
    "capi.testing",
    "capi.errors",
    "capi.features.kernels",
    "capi.policy_spaces.rules",
]


def public_names():
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            yield package, name
    for module in MODULES:
        for name, thing in vars(importlib.import_module(module)).items():
            home = str(getattr(thing, "__module__", None))
            if not name.startswith("_") and (home == module or home.startswith(f"{module}.")):
                yield module, name


@pytest.mark.parametrize(("module", "name"), list(public_names()), ids=".".join)
def test_each_public_name_is_documented(module, name):
    thing = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(thing), f"{module}.{name} has no docstring"
    section = (ROOT / "docs" / "api.md").read_text().split(f"## `{module}`\n")[1].split("\n## ")[0]
    assert f"`{name}`" in section, f"docs/api.md does not list {name} under {module}"


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, n in public_names() if m in PACKAGES], ids=".".join)
def test_each_public_class_explains_all_its_parameters(module, name):
    thing = getattr(importlib.import_module(module), name)
    if not callable(thing):  # a list of names
        return
    own = [p for p in inspect.signature(thing).parameters if p not in ("schema", "training")]
    for parameter in own:
        assert re.search(rf"^\s*(\w+, )*{parameter}(, \w+)* : ", thing.__doc__, re.MULTILINE), f"{name}: {parameter}"


def test_the_version_is_the_same_everywhere():
    assert f'version = "{capi.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"\nversion: {capi.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    released = re.findall(r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == capi.__version__


def test_workflows_call_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    called = [line.split() for path in workflows for line in re.findall(r"- run: make (.+)", path.read_text())]
    assert len(called) >= 5
    for words in called:
        assert {word for word in words if "=" not in word} <= targets


def test_names_of_the_package_are_listed_and_found():
    assert set(capi.__all__) <= set(dir(capi))
    assert capi.loss.greedy is importlib.import_module("capi.loss").greedy
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        capi.nothing  # noqa: B018


def resolve(dotted):
    """Import the longest module prefix of ``dotted`` and follow the remaining attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise ImportError(dotted)


DOCUMENTS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_in_the_documents_exist(document):
    for quoted in re.findall(r"`([^`\n]+)`", document.read_text()):
        if re.fullmatch(r"capi(\.\w+)+", quoted) and quoted != "capi.toml":  # a file
            resolve(quoted)
        elif re.fullmatch(r"(tests|examples|benchmarks|docs|src)/[\w/.-]+(::\w+)?", quoted):
            path, _, test = quoted.partition("::")
            assert (ROOT / path).exists(), quoted
            assert not test or f"def {test}(" in (ROOT / path).read_text(), quoted


def tables_of(text):
    """Return the tables of a Markdown text: for each row, its cells by the names of the columns."""
    found, columns = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = None
        elif columns is None:
            columns = cells
            found.append([])
        elif not set(line) <= set("|-: "):
            found[-1].append(dict(zip(columns, cells, strict=True)))
    return found


PAPER_MAP = ROOT / "docs" / "paper-map.md"


def test_every_row_of_the_paper_map_has_a_home_and_a_test_or_a_reason():
    tables = tables_of(PAPER_MAP.read_text())
    rows = [row for table in tables for row in table]
    assert sum("tested by" in row for row in rows) > 100
    assert sum("why" in row for row in rows) > 5
    for row in rows:
        if "tested by" in row:
            assert re.match(r"(`tests/[\w/.]+(::\w+)?`(, )?)+$", row["tested by"]), row
            assert "`" in (row.get("here") or row.get("`capi reproduce`")), row
        if "why" in row:
            assert len(row["why"]) > 20, row


@pytest.mark.parametrize(
    "statement",
    [
        *(rf"\({i}\)" for i in range(1, 13)),
        *(rf"Fig\. {i}\b" for i in range(1, 8)),
        r"Algorithm CAPI",
        r"Assumption",
        r"Loss\(pi; rho\)",
        r"greedy policy error",
        r"concentrability c\(",
        r"C\(K, s\)",
        r"Theorem 1$",
        r"Theorem 2$",
        r"Lemma 1",
        r"Bernstein's inequality",
        r"Theorem 3\.3 of Bartlett",
        r"Proposition on r\*",
        r"footnote: several maximisers",
        r"footnote: an optimisation error",
        r"footnote: convex Pi",
    ],
)
def test_the_paper_map_names_every_numbered_statement(statement):
    names = [next(iter(row.values())) for table in tables_of(PAPER_MAP.read_text()) for row in table]
    assert any(re.search(statement, name) for name in names)


def test_links_between_documents_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(
            r"\]\((?!https?:|mailto:)([^)\s]+)\)", re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
        ):
            path, _, anchor = target.partition("#")
            there = (document.parent / path).resolve() if path else document
            assert there.exists(), (document.name, target)
            if anchor and there.suffix == ".md":
                headings = re.findall(r"^#+ (.+)$", there.read_text(), flags=re.M)
                slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in slugs, (document.name, target)


PROMISED = {
    "capi": "CAPI Transitions FiniteMDP load_policy",
    "capi.evaluators": "Exact Rollouts RolloutsWithCritic LSTDQ BellmanResidual LassoTD FittedQ BoostedQ KernelFittedQ Pessimistic TD GTD GTD2 TDC",
    "capi.policy_spaces": "Unrestricted Partition Thresholds Trees Forests OptimalTrees Neighbors LocalAverages Linear KernelPolicies Classifier Constrained",
    "capi.baselines": "ValueIteration PolicyIteration FittedQIteration RFQI LSPI DPI DPICritic CPI PSDP",
    "capi.domains": "ChainWalk HIV MountainCar CartPole FrozenLake InventoryManagement TrafficIntersection SystemAdministrator MachineMaintenance Navigation Blackjack TigerAndAntelope TicTacToe",
    "capi.trees": "ExtraTreesRegressor",
    "capi.datasets": "hiv_table load_hiv_batch",
    "capi.offline": "evaluate compare cross_evaluate",
    "capi.testing": "check_evaluator check_policy_space check_policy check_domain",
}


@pytest.mark.parametrize("module", PROMISED)
def test_promised_names_stay_where_they_are(module):
    for name in PROMISED[module].split():
        assert getattr(importlib.import_module(module), name) is not None
    if module != "capi":
        assert getattr(capi, module.removeprefix("capi.")) is importlib.import_module(module)
