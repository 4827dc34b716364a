"""Every rule and code of the project, from all rooms, and the pages that explain them."""
