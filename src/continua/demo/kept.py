"""What was found out about the demo before anybody runs it: learning rates by a search, and accuracies over seeds.

`scripts/demo-search` makes results/checks/demo.json; the numbers here are those of that file, which a test compares.
"""

SEARCHED = 8
"""Epochs of each run of the search."""
SEARCH: dict[str, dict[float, float]] = {
    "dcn_ode": {0.004: 0.9635416666666667, 0.008: 0.9756944444444444, 0.016: 0.9722222222222222, 0.032: 0.96875},
    "odenet": {0.004: 0.9565972222222223, 0.008: 0.9392361111111112, 0.016: 0.96875, 0.032: 0.9548611111111112},
    "resnet_blocks": {0.004: 0.9635416666666666, 0.008: 0.9791666666666667, 0.016: 0.9739583333333334, 0.032: 0.9722222222222223},
}
"""Accuracy on the fifth of the training images that was held out, by network and learning rate; the mean of two seeds."""
RATES: dict[str, float] = {
    "dcn_ode": 0.008,
    "odenet": 0.016,
    "resnet_blocks": 0.008,
}
"""The learning rate that was best there."""
SPREAD: dict[str, tuple[float, ...]] = {
    "dcn_ode": (0.9777158774373259, 0.9637883008356546, 0.9554317548746518, 0.9860724233983287, 0.9693593314763231, 0.9749303621169917),
    "odenet": (0.9610027855153204, 0.9805013927576601, 0.9693593314763231, 0.9888579387186629, 0.9721448467966574, 0.9749303621169917),
    "resnet_blocks": (
        0.9860724233983287,
        0.9888579387186629,
        0.9777158774373259,
        0.9888579387186629,
        0.9749303621169917,
        0.9832869080779945,
    ),
}
"""Test accuracy of the demo's recipe with seeds 0, 1, … at that rate."""
