"""Brain-Score's `BrainModel` over networks that are continuous in depth: time bins are answered by h(t) itself.

    brain = ContinuousBrain(net, {"V1": 0, "V2": 1, "IT": 2}, tau=20.0, latency=50.0)
    brain.start_recording("V1", time_bins=[(50, 60), (60, 70), (70, 170)])
    recordings = brain.look_at(stimuli)               # NeuroidAssembly (presentation, neuroid, time_bin)

Depth is read as time: block b wakes `latency` ms after the image and τ ms for each unit of depth before it; t is then
t0 + (ms − wake) / τ until t1, where the state stays. Before a block wakes its units do what they do on a grey screen. `record` gives the
same numbers as a tensor, without Brain-Score; `look_at` needs brainscore_core (an environment of its own: it asks for NumPy < 2).
"""

from continua.compat.brainscore.brain import ContinuousBrain

__all__ = ["ContinuousBrain"]
