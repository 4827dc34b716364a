"""Model Registry through unmodified SDKs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LIFE = """
    served = {"serving_container_image_uri": "gcr.io/my-project/serve:1"}
    first = ai.Model.upload(display_name=name, labels={"team": "nlp"}, **served)
    first.update(description="of a T5")
    second = ai.Model.upload(
        parent_model=first.resource_name, display_name=name, is_default_version=False,
        version_aliases=["candidate"], version_description="longer", **served)
    registry = ai.ModelRegistry(first)
    registry.add_version_aliases(["golden"], "1")
    registry.remove_version_aliases(["golden"], "1")
    registry.update_version("2", version_description="longest", labels={"step": "2000"})
    listed = ai.Model.list(filter=f'display_name="{name}"')
    found = {
        "names": [first.resource_name == second.resource_name, first.versioned_resource_name[-2:], second.version_id],
        "listed": [[each.resource_name == first.resource_name, each.version_id] for each in listed],
        "versions": [[each.version_id, sorted(each.version_aliases), each.version_description]
                     for each in registry.list_versions()],
        "candidate": dict(registry.get_model("candidate").labels),
        "description": ai.Model(first.resource_name).description,
    }
    registry.add_version_aliases(["default"], "2")
    registry.delete_version("1")
    found["left"] = [each.version_id for each in registry.list_versions()]
    ai.Model(first.resource_name).delete()
    found["gone"] = ai.Model.list(filter=f'display_name="{name}"')
    result = found
"""


@pytest.mark.parametrize("sdk", ["grpc", "rest"], indirect=True)
def test_a_models_life(sdk: Callable[..., Any]) -> None:
    assert sdk(LIFE) == {
        "names": [True, "@1", "2"],
        "listed": [[True, "1"]],
        "versions": [["1", ["default"], ""], ["2", ["candidate"], "longest"]],
        "candidate": {"team": "nlp", "step": "2000"},
        "description": "of a T5",
        "left": ["2"],
        "gone": [],
    }
