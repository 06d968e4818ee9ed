"""`continua explore`: a local web page for looking into a continuous network.

What is computed lies beside this file and knows nothing of the page: an image (`image`), a network (`network`, `demo_networks`), what is
seen in depth (`trajectory`), in space and weight (`kernels`) and under changes (`changes`); `lens` asks it, once. `frame` and `panels`
show it, with `parts`.
"""

from continua.explore.server import HERE, PORT, serve

__all__ = ["HERE", "PORT", "serve"]
