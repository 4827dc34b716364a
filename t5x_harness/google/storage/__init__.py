"""Cloud Storage without HTTP: buckets and objects in a folder, with Google's names, generations and preconditions."""
