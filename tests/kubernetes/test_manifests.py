"""Every field of the manifests is one that the API has, and they say what the launchers need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from spawnlaunch.cli.flags import Request
from spawnlaunch.cli.parsing import parse
from tests.support.late import Late
from tests.support.launching import ROOT

DIRECTORY = ROOT / "kubernetes"
models = Late("kubeflow_trainer_api.models")
KINDS = {
    "Service": "IoK8sApiCoreV1Service",
    "Job": "IoK8sApiBatchV1Job",
    "JobSet": "JobsetV1alpha2JobSet",
}
MANIFESTS = sorted(DIRECTORY.glob("*.yaml"))
name_of = lambda path: path.name  # noqa: E731


def documents(path: Path) -> dict[str, Any]:
    """What a manifest makes, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


def job(path: Path) -> dict[str, Any]:
    made = documents(path)
    if "JobSet" in made:
        (replicated,) = made["JobSet"]["spec"]["replicatedJobs"]
        return dict(replicated["template"]["spec"])
    return dict(made["Job"]["spec"])


def asked(path: Path) -> Request:
    """By what stands behind `python -m spawnlaunch`."""
    (container,) = job(path)["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "spawnlaunch"]
    *flags, script = container["args"]
    assert script == "train.py"
    return parse(flags, {}, "python")


@pytest.mark.full
@pytest.mark.parametrize("path", MANIFESTS, ids=name_of)
def test_every_field_is_one_of_the_api(path: Path) -> None:
    """A field that the API does not know is dropped."""
    for kind, made in documents(path).items():
        more = {**made, "spec": {**made["spec"], "parallelisms": 4}}
        for each in (made, more):
            assert getattr(models, KINDS[kind]).from_dict(each).to_dict() == made


@pytest.mark.parametrize("path", MANIFESTS, ids=name_of)
def test_as_many_pods_as_launchers_are_expected(path: Path) -> None:
    request = asked(path)
    assert request.nnodes is not None
    launchers = request.nnodes.most + request.spares
    assert job(path)["completions"] == job(path)["parallelism"] == launchers


@pytest.mark.parametrize("path", MANIFESTS, ids=name_of)
def test_the_endpoint_is_the_name_of_pod_0(path: Path) -> None:
    made, request = documents(path), asked(path)
    assert request.rdzv_endpoint is not None
    if "JobSet" in made:  # JOBSET-REPLICATED-JOBINDEX-PODINDEX.SUBDOMAIN
        name = made["JobSet"]["metadata"]["name"]
        (replicated,) = made["JobSet"]["spec"]["replicatedJobs"]
        expected = f"{name}-{replicated['name']}-0-0.{name}"
    else:
        pods = made["Job"]["spec"]["template"]["spec"]
        assert pods["subdomain"] == made["Service"]["metadata"]["name"]
        selector = made["Service"]["spec"]["selector"]["batch.kubernetes.io/job-name"]
        assert selector == made["Job"]["metadata"]["name"]
        expected = f"{selector}-0.{pods['subdomain']}"
    assert request.rdzv_endpoint.host == expected


@pytest.mark.parametrize("path", MANIFESTS, ids=name_of)
def test_pods_are_made_anew_for_losses_and_not_for_failures(path: Path) -> None:
    """What podFailurePolicy may say, and what it means, needs restartPolicy Never."""
    assert job(path)["template"]["spec"]["restartPolicy"] == "Never"
    _, fails = job(path)["podFailurePolicy"]["rules"]
    assert fails["onExitCodes"]["values"] == [69, 128 + 9, 128 + 15]


def test_the_readme_has_each_manifest() -> None:
    text = (DIRECTORY / "README.md").read_text()
    assert set(re.findall(r"\]\((\S+\.yaml)\)", text)) == {path.name for path in MANIFESTS}
