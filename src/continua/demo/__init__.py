"""The main job on the bundled data set: `continua demo` trains, compares and looks into three small networks, on one page."""

from continua.demo.run import demo

__all__ = [
    "demo",
]
