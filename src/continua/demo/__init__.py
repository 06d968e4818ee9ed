"""The main job on the data set that comes along: `continua demo` trains, compares and looks into three small networks, on one page."""

__all__: list[str] = []
