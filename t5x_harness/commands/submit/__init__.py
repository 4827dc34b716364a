"""``t5x-harness submit``: runs as Vertex AI jobs, checked before they are sent."""

from __future__ import annotations

from t5x_harness.commands.submit.arguments import EPILOG as EPILOG
from t5x_harness.commands.submit.arguments import add_arguments as add_arguments
from t5x_harness.commands.submit.command import main as main
