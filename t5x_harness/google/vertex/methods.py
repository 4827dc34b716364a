"""The emulated methods of Vertex AI, each with the function that answers it."""

from collections.abc import Mapping

from t5x_harness.google.vertex import models
from t5x_harness.google.vertex.jobs import pipelines
from t5x_harness.google.vertex.jobs.methods import Jobs
from t5x_harness.google.vertex.messages import standard
from t5x_harness.google.vertex.messages.names import verb_of
from t5x_harness.google.vertex.metadata import nodes, stores
from t5x_harness.google.vertex.services import Method
from t5x_harness.google.vertex.tensorboard import data, tensorboards
from t5x_harness.google.vertex.wire.rpc_table import rpc_table


def methods_of(jobs: Jobs) -> Mapping[str, Method]:
    """Returns the methods by their names without a version.

    Standard methods without a separate function follow the common rules.
    """
    methods: dict[str, Method] = {rpc.name: standard.run_standard for rpc in rpc_table().values() if verb_of(rpc)}
    for kind in ("CustomJob", "HyperparameterTuningJob"):
        methods |= {
            f"JobService.Get{kind}": jobs.get,
            f"JobService.List{kind}s": jobs.list,
            f"JobService.Cancel{kind}": jobs.cancel,
            f"JobService.Delete{kind}": jobs.delete,
        }
    for kind in ("Artifact", "Execution", "Context"):
        methods |= {
            f"MetadataService.Create{kind}": nodes.create,
            f"MetadataService.Get{kind}": nodes.get,
            f"MetadataService.List{kind}s": nodes.list_nodes,
            f"MetadataService.Update{kind}": nodes.update,
            f"MetadataService.Delete{kind}": nodes.delete,
            f"MetadataService.Purge{kind}s": nodes.purge,
        }
    return methods | {
        "JobService.CreateCustomJob": jobs.create_custom_job,
        "JobService.CreateHyperparameterTuningJob": jobs.create_tuning_job,
        "PipelineService.CreateTrainingPipeline": pipelines.create,
        "PipelineService.GetTrainingPipeline": pipelines.get,
        "PipelineService.ListTrainingPipelines": pipelines.list_pipelines,
        "PipelineService.CancelTrainingPipeline": pipelines.cancel,
        "PipelineService.DeleteTrainingPipeline": pipelines.delete,
        "ModelService.UploadModel": models.upload,
        "ModelService.GetModel": pipelines.after_pipelines(models.get),
        "ModelService.ListModels": pipelines.after_pipelines(models.list_models),
        "ModelService.UpdateModel": models.update,
        "ModelService.DeleteModel": models.delete,
        "ModelService.ListModelVersions": pipelines.after_pipelines(models.list_versions),
        "ModelService.MergeVersionAliases": models.merge_aliases,
        "ModelService.DeleteModelVersion": models.delete_version,
        "MetadataService.CreateMetadataStore": stores.create_store,
        "MetadataService.CreateMetadataSchema": stores.create_schema,
        "MetadataService.ListMetadataSchemas": nodes.list_nodes,
        "MetadataService.QueryArtifactLineageSubgraph": nodes.query_artifact,
        "MetadataService.AddExecutionEvents": nodes.add_events,
        "MetadataService.QueryExecutionInputsAndOutputs": nodes.query_execution,
        "MetadataService.AddContextArtifactsAndExecutions": nodes.add_members,
        "MetadataService.AddContextChildren": nodes.add_children,
        "MetadataService.RemoveContextChildren": nodes.remove_children,
        "MetadataService.QueryContextLineageSubgraph": nodes.query_context,
        "TensorboardService.CreateTensorboard": tensorboards.create,
        "TensorboardService.GetTensorboard": tensorboards.get,
        "TensorboardService.ListTensorboards": tensorboards.list_tensorboards,
        "TensorboardService.UpdateTensorboard": tensorboards.update,
        "TensorboardService.ReadTensorboardUsage": data.read_usage,
        "TensorboardService.ReadTensorboardSize": data.read_size,
        "TensorboardService.CreateTensorboardExperiment": tensorboards.create_experiment,
        "TensorboardService.WriteTensorboardExperimentData": data.write_experiment,
        "TensorboardService.CreateTensorboardRun": tensorboards.create_run,
        "TensorboardService.BatchCreateTensorboardRuns": tensorboards.batch_create_runs,
        "TensorboardService.UpdateTensorboardRun": tensorboards.update_run,
        "TensorboardService.DeleteTensorboardRun": tensorboards.delete,
        "TensorboardService.WriteTensorboardRunData": data.write_run,
        "TensorboardService.CreateTensorboardTimeSeries": tensorboards.create_time_series,
        "TensorboardService.BatchCreateTensorboardTimeSeries": tensorboards.batch_create_time_series,
        "TensorboardService.UpdateTensorboardTimeSeries": tensorboards.update_time_series,
        "TensorboardService.DeleteTensorboardTimeSeries": tensorboards.delete,
        "TensorboardService.ReadTensorboardTimeSeriesData": data.read,
        "TensorboardService.BatchReadTensorboardTimeSeriesData": data.batch_read,
        "TensorboardService.ExportTensorboardTimeSeriesData": data.export,
        "TensorboardService.ReadTensorboardBlobData": data.read_blobs,
        "Operations.GetOperation": standard.get_operation,
        "Operations.ListOperations": standard.list_operations,
        "Operations.WaitOperation": standard.get_operation,
        "Operations.CancelOperation": standard.cancel_operation,
        "Operations.DeleteOperation": standard.delete_operation,
        "Projects.GetProject": standard.get_project,
    }
