"""``python -m t5x_harness``: the command ``t5x-harness``, where scripts are not on the path."""

import sys

from t5x_harness.commands.main import main

sys.exit(main())
