"""How much a file may ask for before it is refused: one table, each line with the environment variable that raises it.

A file from anywhere can ask for more than a machine has: an image of a few bytes for gigabytes of pixels, a recipe for a network of a
trillion numbers. What is asked for is held against these limits before it is made. They are far above honest use.
"""

import os
from dataclasses import dataclass

from continua.errors import ConfigError


@dataclass(frozen=True)
class Limit:
    """A number that must not be exceeded, what it counts, and the environment variable that sets another one."""

    default: int
    unit: str
    variable: str

    @property
    def value(self) -> int:
        """The number as it is now: of the environment, where it says one."""
        said = os.environ.get(self.variable)
        if not said:
            return self.default
        try:
            value = int(float(said))
        except (ValueError, OverflowError):
            value = 0
        if value < 1:
            raise ConfigError(f"{self.variable} is {said!r}; expected a whole number of at least 1, such as {self.default} (the default)")
        return value

    def exceeded(self, amount: "int | float") -> bool:
        return amount > self.value

    def advice(self) -> str:
        """What a person who means it can do."""
        return f"the limit is {self.value:,} {self.unit}; {self.variable}=NUMBER raises it"


PIXELS = Limit(89_478_485, "pixels", "CONTINUA_MAX_PIXELS")
"""Of an image, decoded and after it was resized; 256 MB as RGB. Pillow itself warns from here on."""
PARAMETERS = Limit(1_000_000_000, "numbers", "CONTINUA_MAX_PARAMETERS")
"""Numbers that a network holds: 4 GB in float32."""
TENSORS = Limit(20_000, "tensors", "CONTINUA_MAX_TENSORS")
"""Tensors that are made to build a network: the deepest network of the papers makes 1,257."""
ORDER = Limit(32, "derivatives", "CONTINUA_MAX_ORDER")
"""The highest derivative of an N-jet."""
STEPS = Limit(100_000, "steps", "CONTINUA_MAX_STEPS")
"""Fixed steps of one solve, of a state or of weights."""
STAGES = Limit(1_000, "stages", "CONTINUA_MAX_STAGES")
"""Stages of one Runge–Kutta step, and time-steps of one period, of a Runge–Kutta network."""
CELLS = Limit(10_000, "cells", "CONTINUA_MAX_CELLS")
"""Trainings of one sweep."""
DOWNLOAD = Limit(20_000_000_000, "bytes", "CONTINUA_MAX_DOWNLOAD")
"""Bytes of one file that is fetched and whose size is not published."""
UNPACKED = Limit(50_000_000_000, "bytes", "CONTINUA_MAX_UNPACKED")
"""Bytes that an archive holds."""
STATE_BYTES = Limit(8_000_000_000, "bytes", "CONTINUA_MAX_STATE")
"""Of a file of weights or a checkpoint, which is read whole: a sparse file claims terabytes and costs whoever sends it nothing."""
YAML_BYTES = Limit(256_000, "bytes", "CONTINUA_MAX_YAML")
"""Of a recipe or a sweep file."""
JSON_BYTES = Limit(256_000_000, "bytes", "CONTINUA_MAX_JSON")
"""Of a file of JSON, or of lines of it."""
