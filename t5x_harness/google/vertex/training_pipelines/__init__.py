"""PipelineService, as far as it trains: a TrainingPipeline of a custom task, which is a custom job and its state.

It is what the SDK's ``CustomTrainingJob``, ``CustomPythonPackageTrainingJob`` and ``CustomContainerTrainingJob`` make.
Uploading models, and datasets, are other services.
"""
