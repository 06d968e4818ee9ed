"""The habits of the project agree with each other: workflow, hooks, templates, Makefile, pyproject.toml."""

import importlib
import io
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def workflow() -> dict[str, Any]:
    return yaml.safe_load(read(".github/workflows/checks.yml"))


def commands(job: str) -> list[str]:
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def recipe_of(target: str) -> list[str]:
    """The lines that the Makefile runs for a target."""
    block = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", read("Makefile"), flags=re.M)
    assert block is not None, f"no target {target}"
    return [line.strip() for line in block[1].splitlines()]


def test_the_workflow_runs_what_must_pass_before_a_change_lands() -> None:
    assert ".ci/run" in commands("everything")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_workflow_tests_every_python_that_the_package_says_it_supports() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    said = [match[1] for line in project["classifiers"] if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))]
    assert workflow()["jobs"]["test"]["strategy"]["matrix"]["python"] == said
    assert commands("test") == ["make test"]
    assert project["requires-python"] == f">={said[0]}"


def test_the_wheel_is_tried_by_the_workflow_and_before_a_change_lands() -> None:
    assert commands("wheel") == ["scripts/try-wheel --fresh"]
    assert recipe_of("wheel") == ["scripts/try-wheel"]
    assert re.search(r"^make .*\bwheel\b", read(".ci/run"), flags=re.M)
    assert os.access(ROOT / "scripts" / "try-wheel", os.X_OK)


def test_the_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = [hook for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    tools = [hook["entry"].replace(".venv/bin/python", "$(PY)").replace(" --force-exclude", "") for hook in hooks]
    assert tools == [line.replace(" --check .", "").removesuffix(" .") for line in recipe_of("lint")]
    pins = {line.partition("==")[0] for line in read("constraints.txt").splitlines()}
    assert {"ruff", "basedpyright"} <= pins


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name)
def test_an_issue_template_has_what_the_platform_asks_for(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.name == "config.yml":
        assert isinstance(form["blank_issues_enabled"], bool)
        return
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names)


def test_a_report_of_a_mistake_comes_with_the_machine_it_happened_on() -> None:
    form = yaml.safe_load(read(".github/ISSUE_TEMPLATE/bug.yml"))
    doctor = next(field for field in form["body"] if field.get("id") == "doctor")
    assert "continua doctor" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"]


def test_nobody_is_invented() -> None:
    """The authors are the contributors, here and in the citation; no address is given where there is none."""
    authors = tomllib.loads(read("pyproject.toml"))["project"]["authors"]
    assert authors == [{"name": "Continua contributors"}]
    assert yaml.safe_load(read("CITATION.cff"))["authors"] == authors
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"):
        assert not re.search(r"[\w.]+@[\w-]+\.\w+", read(name)), name


def test_the_type_checker_of_a_user_sees_our_types() -> None:
    assert (ROOT / "src" / "continua" / "py.typed").is_file()


# --- what a wheel is made of ---------------------------------------------------------------------------------------------


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module(name)


def test_the_build_backend_is_pinned() -> None:
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", wanted) for wanted in tomllib.loads(read("pyproject.toml"))["build-system"]["requires"])


def test_every_pinned_package_has_hashes_by_which_it_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = dict(re.findall(r"^([\w.-]+)==([^\s+]+)\S*(?: ; .*)? \\\n    --hash=sha256:[0-9a-f]{64}", read("hashes.txt"), re.MULTILINE))
    assert hashed == script("bill_of_materials", monkeypatch).pinned(ROOT / "constraints.txt"), "run scripts/hashes.py"
    assert 'torch==2.13.0+cpu ; sys_platform == "linux"' in read("hashes.txt"), "PyPI's build needs packages of CUDA that nobody pinned"
    assert "--require-hashes" in read("Makefile")
    assert "make hashed" in read(".ci/run")
    backend = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]
    assert [wanted for wanted in backend if wanted not in read("constraints.txt").splitlines()] == [], (
        "what builds the wheel has hashes too"
    )


@pytest.mark.parametrize(
    ("file", "name", "version"),
    [
        ("torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl", "torch", "2.13.0"),
        ("PyYAML-6.0.2.tar.gz", "pyyaml", "6.0.2"),
        ("jupyter_client-8.6.3-py3-none-any.whl", "jupyter-client", "8.6.3"),
        ("jaxtyping-0.3.2.tar.gz", "jax", None),
    ],
)
def test_the_version_of_a_file_in_the_registry(file: str, name: str, version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert script("hashes", monkeypatch).version_of(file, name) == version


def test_the_bill_of_materials_names_every_dependency_with_its_pin_and_is_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("bill_of_materials", monkeypatch)
    bill = module.bill_of_materials(ROOT)
    asked = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]]
    listed = {component["name"]: component.get("version") for component in bill["components"]}
    assert set(asked) < set(listed)
    assert all(listed[name] for name in asked), "a dependency is not pinned"
    assert bill == module.bill_of_materials(ROOT)


def test_the_audit_says_which_pins_have_advisories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    audit = script("audit", monkeypatch)
    answer = {"results": [{}, {"vulns": [{"id": "GHSA-1"}]}]}
    monkeypatch.setattr(audit.urllib.request, "urlopen", lambda request, timeout: io.BytesIO(json.dumps(answer).encode()))
    assert audit.known_vulnerabilities({"a": "1", "b": "2"}) == {"b==2": ["GHSA-1"]}
    with pytest.raises(ValueError, match="2 answers to 1 questions"):
        audit.known_vulnerabilities({"a": "1"})
