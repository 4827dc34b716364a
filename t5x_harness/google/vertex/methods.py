"""The emulated methods of Vertex AI, each with the function that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from t5x_harness.google.vertex import common_methods as common
from t5x_harness.google.vertex.jobs import pipelines
from t5x_harness.google.vertex.jobs.methods import Jobs
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata import contexts, lineage, nodes, stores
from t5x_harness.google.vertex.models import registry
from t5x_harness.google.vertex.services import Method
from t5x_harness.google.vertex.tensorboard import reading, runs, tensorboards, writing
from t5x_harness.google.vertex.tensorboard.points import Points


def methods_of(jobs: Jobs, points: Points) -> Mapping[str, Method]:
    """Returns the methods by their names without a version."""
    return {
        "JobService.CreateCustomJob": jobs.custom.create,
        "JobService.GetCustomJob": jobs.get,
        "JobService.ListCustomJobs": jobs.list,
        "JobService.CancelCustomJob": jobs.cancel,
        "JobService.DeleteCustomJob": jobs.delete,
        "JobService.CreateHyperparameterTuningJob": jobs.tuning.create,
        "JobService.GetHyperparameterTuningJob": jobs.get,
        "JobService.ListHyperparameterTuningJobs": jobs.list,
        "JobService.CancelHyperparameterTuningJob": jobs.cancel,
        "JobService.DeleteHyperparameterTuningJob": jobs.delete,
        "PipelineService.CreateTrainingPipeline": pipelines.create,
        "PipelineService.GetTrainingPipeline": pipelines.get,
        "PipelineService.ListTrainingPipelines": pipelines.list_pipelines,
        "PipelineService.CancelTrainingPipeline": pipelines.cancel,
        "PipelineService.DeleteTrainingPipeline": pipelines.delete,
        "ModelService.UploadModel": registry.upload,
        "ModelService.GetModel": pipelines.after_pipelines(registry.get),
        "ModelService.ListModels": pipelines.after_pipelines(registry.list_models),
        "ModelService.UpdateModel": registry.update,
        "ModelService.DeleteModel": registry.delete,
        "ModelService.ListModelVersions": pipelines.after_pipelines(registry.list_versions),
        "ModelService.MergeVersionAliases": registry.merge_aliases,
        "ModelService.DeleteModelVersion": registry.delete_version,
        "MetadataService.CreateMetadataStore": stores.create_store,
        "MetadataService.GetMetadataStore": run_standard,
        "MetadataService.ListMetadataStores": run_standard,
        "MetadataService.DeleteMetadataStore": run_standard,
        "MetadataService.CreateMetadataSchema": stores.create_schema,
        "MetadataService.GetMetadataSchema": run_standard,
        "MetadataService.ListMetadataSchemas": stores.list_schemas,
        "MetadataService.CreateArtifact": nodes.create,
        "MetadataService.GetArtifact": nodes.get,
        "MetadataService.ListArtifacts": nodes.list_nodes,
        "MetadataService.UpdateArtifact": nodes.update,
        "MetadataService.DeleteArtifact": nodes.delete,
        "MetadataService.PurgeArtifacts": nodes.purge,
        "MetadataService.QueryArtifactLineageSubgraph": lineage.query_artifact,
        "MetadataService.CreateExecution": nodes.create,
        "MetadataService.GetExecution": nodes.get,
        "MetadataService.ListExecutions": nodes.list_nodes,
        "MetadataService.UpdateExecution": nodes.update,
        "MetadataService.DeleteExecution": nodes.delete,
        "MetadataService.PurgeExecutions": nodes.purge,
        "MetadataService.AddExecutionEvents": lineage.add_events,
        "MetadataService.QueryExecutionInputsAndOutputs": lineage.query_execution,
        "MetadataService.CreateContext": nodes.create,
        "MetadataService.GetContext": nodes.get,
        "MetadataService.ListContexts": nodes.list_nodes,
        "MetadataService.UpdateContext": nodes.update,
        "MetadataService.DeleteContext": nodes.delete,
        "MetadataService.PurgeContexts": nodes.purge,
        "MetadataService.AddContextArtifactsAndExecutions": contexts.add_members,
        "MetadataService.AddContextChildren": contexts.add_children,
        "MetadataService.RemoveContextChildren": contexts.remove_children,
        "MetadataService.QueryContextLineageSubgraph": lineage.query_context,
        "TensorboardService.CreateTensorboard": tensorboards.create,
        "TensorboardService.GetTensorboard": tensorboards.get,
        "TensorboardService.ListTensorboards": tensorboards.list_tensorboards,
        "TensorboardService.UpdateTensorboard": tensorboards.update,
        "TensorboardService.DeleteTensorboard": run_standard,
        "TensorboardService.ReadTensorboardUsage": reading.read_usage,
        "TensorboardService.ReadTensorboardSize": partial(reading.read_size, points),
        "TensorboardService.CreateTensorboardExperiment": tensorboards.create_experiment,
        "TensorboardService.GetTensorboardExperiment": run_standard,
        "TensorboardService.ListTensorboardExperiments": run_standard,
        "TensorboardService.UpdateTensorboardExperiment": run_standard,
        "TensorboardService.DeleteTensorboardExperiment": tensorboards.delete_experiment,
        "TensorboardService.WriteTensorboardExperimentData": partial(writing.write_experiment, points),
        "TensorboardService.CreateTensorboardRun": runs.create_run,
        "TensorboardService.BatchCreateTensorboardRuns": runs.batch_create_runs,
        "TensorboardService.GetTensorboardRun": run_standard,
        "TensorboardService.ListTensorboardRuns": run_standard,
        "TensorboardService.UpdateTensorboardRun": runs.update_run,
        "TensorboardService.DeleteTensorboardRun": runs.delete_run,
        "TensorboardService.WriteTensorboardRunData": partial(writing.write_run, points),
        "TensorboardService.CreateTensorboardTimeSeries": runs.create_time_series,
        "TensorboardService.BatchCreateTensorboardTimeSeries": runs.batch_create_time_series,
        "TensorboardService.GetTensorboardTimeSeries": run_standard,
        "TensorboardService.ListTensorboardTimeSeries": run_standard,
        "TensorboardService.UpdateTensorboardTimeSeries": runs.update_time_series,
        "TensorboardService.DeleteTensorboardTimeSeries": runs.delete_time_series,
        "TensorboardService.ReadTensorboardTimeSeriesData": partial(reading.read, points),
        "TensorboardService.BatchReadTensorboardTimeSeriesData": partial(reading.batch_read, points),
        "TensorboardService.ExportTensorboardTimeSeriesData": partial(reading.export, points),
        "TensorboardService.ReadTensorboardBlobData": reading.read_blobs,
        "Operations.GetOperation": common.get_operation,
        "Operations.ListOperations": common.list_operations,
        "Operations.WaitOperation": common.wait_operation,
        "Operations.CancelOperation": common.cancel_operation,
        "Operations.DeleteOperation": common.delete_operation,
        "Projects.GetProject": common.get_project,
    }
