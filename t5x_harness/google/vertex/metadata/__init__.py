"""MetadataService: stores, schemas, artifacts, executions, contexts and their lineage."""
