"""`continua explore`: a local web page for looking into a continuous network.

What is computed lies beside this file and knows nothing of the page: an image (`image`), a network (`network`, `first_use`), what is seen
in depth, space and weight, under changes and side by side (`depth`, `space`, `weight`, `perturb`, `compare`). `panels` shows it.
"""

from continua.explore.server import HERE, PORT, serve

__all__ = ["HERE", "PORT", "serve"]
