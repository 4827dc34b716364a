"""Resources through unmodified SDKs, over gRPC and REST, through the proxy and by ``api_endpoint``; scripts as jobs."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from client_process import ClientError
from sdk_client import both_transports

from t5x_harness.google.session import EmulatedCloud

Sdk = Callable[..., Any]

LIFE = """
    made = ai.Tensorboard.create(display_name=name, labels={"team": "text"})
    found = ai.Tensorboard.list(filter=f'display_name="{name}" AND labels.team=text')
    made.update(display_name=f"{name}-new", labels={"team": "speech"})
    changed = ai.Tensorboard(made.resource_name)
    made.delete()
    result = [
        made.resource_name,
        [each.resource_name for each in found],
        [changed.display_name, dict(changed.labels)],
        [each.resource_name for each in ai.Tensorboard.list(filter=f'display_name:"{name}*"')],
    ]
"""


@pytest.mark.parametrize(("sdk", "by_endpoint"), [("grpc", False), ("rest", False), ("rest", True)], indirect=["sdk"])
def test_a_resources_life_through_the_proxy_and_by_an_endpoint_without_tls(
    sdk: Sdk, by_endpoint: bool, fake_gcs_server: EmulatedCloud
) -> None:
    name = sdk("result = name")
    if by_endpoint:
        sdk('init(api_endpoint=endpoint, api_transport="rest")', endpoint=fake_gcs_server.endpoints.url)
    resource, found, changed, left = sdk(LIFE, name=name)
    assert resource.startswith("projects/100000000000/locations/us-central1/tensorboards/")
    assert found == [resource]
    assert changed == [f"{name}-new", {"team": "speech"}]
    assert left == []


def test_a_project_has_one_number_in_every_api(sdk: Sdk) -> None:
    """The SDK compares the numbers, and does not trust a bucket of another project."""
    code = """
        import logging, pathlib
        from google.cloud import storage
        from google.cloud.aiplatform.utils import gcs_utils, resource_manager_utils
        said = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())
        logging.getLogger("google.cloud.aiplatform.utils.gcs_utils").addHandler(handler)
        file = pathlib.Path.home() / name
        file.write_text("x")
        numbers = {}
        for project in ("t5x-harness", name):
            init(project=project)
            ai.initializer.global_config._staging_bucket = None
            for _ in range(2):  # the bucket that the SDK makes, and then finds
                staged = gcs_utils.stage_local_data_in_gcs(str(file))
            client = storage.Client(project=project)
            bucket = client.get_bucket(staged.split("/")[2])
            gcs_utils.create_gcs_bucket_for_pipeline_artifacts_if_it_does_not_exist(
                output_artifacts_gcs_dir=f"gs://{bucket.name}/out", project=project, location="us-central1")
            bucket.labels = {"a": "b"}
            bucket.update()
            board = ai.Tensorboard.create(display_name=name)
            number = resource_manager_utils.get_project_number(project)
            numbers[project] = len({str(number), str(bucket.project_number), board.resource_name.split("/")[1]})
            bucket.delete(force=True)
        result = [numbers[name], numbers["t5x-harness"], [text for text in said if "squatting" in text]]
    """
    assert sdk(code) == [1, 1, []]


def test_an_init_without_a_project_finds_the_sessions(sdk: Sdk) -> None:
    code = """
        ai.initializer.global_config.__init__()
        ai.init(location="us-central1")
        result = ai.initializer.global_config.project
    """
    assert sdk(code) == "t5x-harness"


@both_transports
def test_errors_are_the_classes_that_users_catch(sdk: Sdk) -> None:
    code = """
        result = {}
        def note(what, function):
            try:
                function()
            except exceptions.GoogleAPICallError as error:
                told = [type(error).__name__, error.message.rpartition("enum-encoding%3Dint: ")[2]]
                for detail in error.details:
                    if isinstance(detail, dict):
                        told += [each["field"] for each in detail.get("fieldViolations", ())]
                    else:
                        told += [each.field for each in getattr(detail, "field_violations", ())]
                result[what] = told
        note("missing", lambda: ai.Tensorboard("1"))
        note("filter", lambda: ai.Tensorboard.list(filter="colour=red"))
        note("unknown", lambda: ai.Endpoint.list())
        note("job", lambda: ai.CustomJob.get("1"))
        client = ai.Tensorboard.create(display_name=name).api_client
        note("locations", lambda: client.list_locations({"name": "projects/t5x-harness"}))
        parent = "projects/t5x-harness/locations/us-central1"
        note("field", lambda: client.list_tensorboards(request={"parent": parent, "page_size": -1}))
    """
    errors = sdk(code)
    is_grpc = sdk("result = ai.initializer.global_config._api_transport") == "grpc"
    kind = "InvalidArgument" if is_grpc else "BadRequest"
    not_emulated = "MethodNotImplemented" if is_grpc else "Forbidden"  # over HTTP, clients would retry after a 501
    name = "projects/100000000000/locations/us-central1/tensorboards/1"
    assert errors["missing"] == ["NotFound", f"The requested resource {name} was not found."]
    assert errors["filter"] == [kind, "Invalid filter: there is no field colour"]
    assert errors["unknown"][0] == not_emulated
    assert errors["unknown"][1].startswith(
        "t5x-harness does not emulate EndpointService.ListEndpoints; of Vertex AI it "
    )
    assert errors["job"][0] == "NotFound"
    message = "List of found errors:\t1.Field: page_size; Message: -1 is negative\t"
    assert errors["field"] == [kind, message, "page_size"]
    assert errors["locations"][0] == not_emulated
    assert "t5x-harness does not emulate Locations.ListLocations; of Vertex AI it has " in errors["locations"][1]


@both_transports
def test_a_host_serves_its_own_region(sdk: Sdk) -> None:
    code = """
        from google.cloud import aiplatform_v1
        transport = ai.initializer.global_config._api_transport
        def ask(host, location):
            client = aiplatform_v1.TensorboardServiceClient(transport=transport, client_options={"api_endpoint": host})
            try:
                client.list_tensorboards(parent=f"projects/t5x-harness/locations/{location}")
            except exceptions.GoogleAPICallError as error:
                return error.message.rpartition("enum-encoding%3Dint: ")[2]
        result = [
            ask("us-central1-aiplatform.googleapis.com", "us-central1"),
            ask("europe-west4-aiplatform.googleapis.com", "us-central1"),
            ask("aiplatform.googleapis.com", "europe-west4"),
        ]
    """
    message = (
        "List of found errors:\t1.Field: parent; Message: The provided location ID doesn't match the endpoint. "
        "The valid location ID is `{}`.\t"
    )
    assert sdk(code) == [None, message.format("europe-west4"), message.format("us-central1")]


@both_transports
def test_clients_of_v1beta1_see_the_same_resources(sdk: Sdk) -> None:
    code = """
        from google.cloud import aiplatform_v1beta1 as beta
        transport = ai.initializer.global_config._api_transport
        host = {"api_endpoint": "us-central1-aiplatform.googleapis.com"}
        client = beta.TensorboardServiceClient(transport=transport, client_options=host)
        parent = "projects/t5x-harness/locations/us-central1"
        operation = client.create_tensorboard(parent=parent, tensorboard=beta.Tensorboard(display_name=name))
        made = operation.result(timeout=60)
        result = [type(made).__module__.split(".")[2], type(operation.metadata).__name__, made.display_name,
                  ai.Tensorboard(made.name).display_name]
        client.delete_tensorboard(name=made.name).result(timeout=60)
    """
    name = sdk("result = name")
    assert sdk(code, name=name) == ["aiplatform_v1beta1", "CreateTensorboardOperationMetadata", name, name]


@pytest.mark.parametrize("credentials", ["AnonymousCredentials()", 'Credentials("fake")'])
def test_a_stranger_is_told_what_to_do(sdk: Sdk, credentials: str) -> None:
    code = f"""
        from google.auth.credentials import AnonymousCredentials
        from google.oauth2.credentials import Credentials
        init(credentials={credentials})
        ai.Tensorboard.list()
    """
    with pytest.raises(ClientError, match="t5x-harness takes only those of its own session") as caught:
        sdk(code)
    assert caught.value.kind == "Unauthenticated"


RUN = """
    import pathlib, time
    from google.cloud import storage
    bucket = storage.Client().create_bucket(name)
    init(staging_bucket=f"gs://{name}")
    script = pathlib.Path.home() / f"{name}.py"
    script.write_text(
        "import os, pathlib, sys, numpy\\n"
        "path = os.environ['AIP_MODEL_DIR'].replace('gs://', '/gcs/')\\n"
        "pathlib.Path(path).mkdir(parents=True)\\n"
        "pathlib.Path(path, 'seen').write_text(f'{numpy.__version__} {sys.argv[1:]} {__name__}')\\n"
    )
    job = ai.CustomJob.from_local_script(
        display_name=name, script_path=str(script), container_uri=image, requirements=requirements,
        args=["--steps=1"], base_output_dir=f"gs://{name}/out")
    job.submit()
    while job.state.name in ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING"):
        time.sleep(0.05)  # job.run() would look every five seconds
    seen = bucket.blob("out/model/seen")
    result = [job.state.name, seen.download_as_text() if seen.exists() else job.error.message]
"""


@pytest.mark.parametrize("image", ["gcr.io/p/t5x:1", "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest"])
def test_a_script_runs_in_a_container_of_its_own_and_in_a_prebuilt_one(sdk: Sdk, image: str) -> None:
    assert sdk(RUN, image=image, requirements=["numpy>=1.20"]) == [
        "JOB_STATE_SUCCEEDED",
        f"{version('numpy')} ['--steps=1'] __main__",
    ]


MODELS_LIFE = """
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


@both_transports
def test_a_models_life(sdk: Sdk) -> None:
    assert sdk(MODELS_LIFE) == {
        "names": [True, "@1", "2"],
        "listed": [[True, "1"]],
        "versions": [["1", ["default"], ""], ["2", ["candidate"], "longest"]],
        "candidate": {"team": "nlp", "step": "2000"},
        "description": "of a T5",
        "left": ["2"],
        "gone": [],
    }
