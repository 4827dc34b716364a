"""Every rule and code of the project, whatever room it is found in, and the pages that explain them."""
