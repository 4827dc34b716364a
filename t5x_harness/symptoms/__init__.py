"""What logs of jobs on several hosts say that the jobs died of: a table of texts, and a reader of logs."""
