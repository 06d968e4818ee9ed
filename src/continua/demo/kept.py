"""What was found out about the demo before anybody runs it: learning rates by a search, and accuracies over seeds.

`scripts/demo-search` makes results/checks/demo.json; the numbers here are those of that file, which a test compares.
"""

SEARCHED = 8
"""Epochs of each run of the search."""
SEARCH: dict[str, dict[float, float]] = {
    "dcn_ode": {0.004: 0.9626736111111112, 0.008: 0.9730902777777778, 0.016: 0.9678819444444444, 0.032: 0.9661458333333334},
    "odenet": {0.004: 0.9592013888888888, 0.008: 0.9444444444444445, 0.016: 0.9609375, 0.032: 0.9409722222222223},
    "resnet_blocks": {0.004: 0.9696180555555556, 0.008: 0.9791666666666666, 0.016: 0.9730902777777778, 0.032: 0.9704861111111112},
}
"""Accuracy on the fifth of the training images that was held out, by network and learning rate; the mean of four seeds."""
RATES: dict[str, float] = {"dcn_ode": 0.008, "odenet": 0.016, "resnet_blocks": 0.008}
"""The learning rate that was best there."""
SPREAD: dict[str, tuple[float, ...]] = {
    "dcn_ode": (0.9916434540389972, 0.9888579387186629, 0.9832869080779945, 0.9888579387186629, 0.9805013927576601, 0.9972144846796658),
    "odenet": (0.9860724233983287, 0.9832869080779945, 0.9860724233983287, 0.9888579387186629, 0.9860724233983287, 0.9777158774373259),
    "resnet_blocks": (
        0.9916434540389972,
        0.9860724233983287,
        0.9860724233983287,
        0.9944289693593314,
        0.9860724233983287,
        0.9888579387186629,
    ),
}
"""Test accuracy of the demo's recipe with seeds 0, 1, … at that rate."""
