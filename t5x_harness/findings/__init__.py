"""Rules, their codes and pages, what is silenced, and the text that findings are written in."""
