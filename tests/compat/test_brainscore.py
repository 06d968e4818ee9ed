"""A network as a subject of Brain-Score: its bins are means of h(t), and its assemblies are what the interface asks for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from continua import ConfigError, create_model
from continua.compat.brainscore import ContinuousBrain

SOLVER = dict(method="rk4", steps=2)


def brain(**options) -> ContinuousBrain:
    torch.manual_seed(0)
    net = create_model("dcn_ode", channels=(4, 6), norm_groups=2, solver=SOLVER)
    return ContinuousBrain(net, {"V1": 0, "IT": 1}, tau=20.0, latency=50.0, size=12, **options)


def pictures(count: int = 3) -> torch.Tensor:
    return torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"stimulus {place}.png" for place in range(3)]
    for path, picture in zip(paths, pictures(), strict=True):
        Image.fromarray((255 * picture).byte().permute(1, 2, 0).numpy()).save(path)
    return [str(path) for path in paths]


@torch.no_grad()
def test_a_short_bin_is_the_state_at_its_time() -> None:
    """Block 1 wakes at 50 ms and goes through its depth of 2 in 40 ms; block 2 follows at 90 ms."""
    subject = brain()
    assert (subject.wakes(0), subject.wakes(1)) == (50.0, 90.0)
    read = subject.record(pictures(), "V1", [(59.999, 60.001), (89.999, 90.001)])
    torch.testing.assert_close(read[:, 0], subject.net.states(pictures(), 0, [0.5])[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(read[:, 1], subject.net.states(pictures(), 0)[-1], rtol=1e-3, atol=1e-3)
    later = subject.record(pictures(), "IT", [(110.0, 110.002)])
    torch.testing.assert_close(later[:, 0], subject.net.states(pictures(), 1, [1.0])[0], rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_long_bin_is_the_mean_over_it() -> None:
    subject = brain()
    (wide,) = subject.record(pictures(1), "V1", [(50, 90)])[0]
    fine = subject.net.states(pictures(1), 0, torch.linspace(0, 2, 81))[:, 0]
    mean = torch.trapezoid(fine, dx=1 / 80, dim=0)
    assert float((wide - mean).norm() / (fine[-1] - fine[0]).norm()) < 0.01


@torch.no_grad()
def test_before_it_wakes_and_after_its_end_a_block_rests() -> None:
    subject = brain()
    early, late, later = subject.record(pictures(), "V1", [(0, 40), (100, 120), (120, 300)]).unbind(1)
    grey = subject.net.states(torch.full((1, 3, 12, 12), 0.5), 0)[-1]
    torch.testing.assert_close(early, grey.expand_as(early))
    torch.testing.assert_close(late, later)
    torch.testing.assert_close(late, subject.net.states(pictures(), 0)[-1], rtol=1e-4, atol=1e-5)


def test_a_single_bin_may_come_as_an_array_of_no_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Brain-Score's own benchmarks hand it over."""
    pair = np.empty((), dtype=object)
    pair[()] = (70, 170)
    asked = []
    subject = brain()
    monkeypatch.setattr(subject, "_assembly", lambda *given: asked.append(given[-1]))
    subject.start_recording("V1", [pair])
    subject.look_at([])
    assert asked == [[(70.0, 170.0)]]


def test_what_the_interface_does_not_have_is_refused() -> None:
    subject = brain()
    with pytest.raises(ConfigError, match="start_recording"):
        subject.look_at(["x.png"])
    with pytest.raises(ConfigError, match="did you mean V1"):
        subject.start_recording("V11", [(50, 100)])
    for bins in ([(100, 50)], [50, 60, 70], [], [(50, float("nan"))]):
        with pytest.raises(ConfigError, match="each end after its start"):
            subject.start_recording("V1", bins)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ConfigError, match="each end after its start"):
            subject.record(pictures(), "V1", bins)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="unknown recording target 'V4'"):
        subject.record(pictures(), "V4", [(50, 60)])
    for wrong in (torch.rand(1, 3, 20, 20), torch.rand(3, 12, 12), torch.rand(1, 1, 12, 12)):
        with pytest.raises(ConfigError, match=r"expected \(batch, 3, 12, 12\)"):
            subject.record(wrong, "V1", [(50, 60)])
    with pytest.raises(ConfigError, match=r"expected luminances in \[0, 1\]"):
        subject.record(255 * pictures(), "V1", [(50, 60)])
    with pytest.raises(ConfigError, match="fits no other readout"):
        subject.start_task("probabilities", ["cat"])
    with pytest.raises(ConfigError, match="blocks without a time"):
        ContinuousBrain(create_model("resnet_blocks", channels=(4,), norm_groups=2), {"V1": 0})
    with pytest.raises(ConfigError, match=r"0 … 1"):
        ContinuousBrain(subject.net, {"V1": 7})
    assert (subject.identifier, subject.visual_degrees()) == ("dcn_ode", 8)
    subject.start_task("passive")
    assert subject.look_at([]) is None


def test_brain_score_gets_the_assembly_it_asks_for(files: list[str]) -> None:
    """In an environment that has Brain-Score; NumPy < 2 keeps it out of ours."""
    stimuli = pytest.importorskip("brainscore_core.supported_data_standards.brainio.stimuli", reason="Brain-Score is not installed")
    interface = pytest.importorskip("brainscore_vision.model_interface")
    subject, bins = brain(labels=[str(place) for place in range(10)]), [(50, 60), (70, 170)]
    asked = {name for name in vars(interface.BrainModel) if not name.startswith("_") and name not in ("Task", "RecordingTarget")}
    assert all(hasattr(subject, name) for name in asked)
    shown = stimuli.StimulusSet({"stimulus_id": ["a", "b", "c"], "object_name": ["dog", "cat", "dog"]})
    shown.stimulus_paths = dict(zip("abc", files, strict=True))
    shown.identifier = "synthetic"
    subject.start_recording(interface.BrainModel.RecordingTarget.V1, bins)
    recorded = subject.look_at(shown, number_of_trials=10)
    assert type(recorded).__name__ == "NeuroidAssembly"
    assert recorded.dims == ("presentation", "neuroid", "time_bin")
    assert recorded["stimulus_id"].values.tolist() == ["a", "b", "c"]
    assert recorded["object_name"].values.tolist() == ["dog", "cat", "dog"]
    assert recorded["time_bin_start"].values.tolist() == [50, 70]
    assert len(set(recorded["neuroid_id"].values)) == recorded.sizes["neuroid"]
    direct = subject.record(pictures().mul(255).byte().float() / 255, "V1", bins).flatten(2).transpose(1, 2)
    torch.testing.assert_close(torch.as_tensor(recorded.values), direct, rtol=1e-4, atol=1e-5)
    assert subject.look_at(files)["stimulus_id"].values.tolist() == [f"stimulus {place}" for place in range(3)]
    subject.start_task(interface.BrainModel.Task.label, ["3", "7"])
    named = subject.look_at(shown)
    assert named.dims == ("presentation", "choice")
    assert set(named.values.ravel()) <= {"3", "7"}


def test_a_benchmark_of_brain_score_runs_from_beginning_to_end(tmp_path: Path) -> None:
    """Its own `NeuralBenchmark` and PLS metric on synthetic recordings: mixtures of V1's units are predicted, noise is not."""
    neural = pytest.importorskip("brainscore_vision.benchmark_helpers.neural_common", reason="Brain-Score is not installed")
    metric = pytest.importorskip("brainscore_vision.metrics.regression_correlation.metric")
    brainio = pytest.importorskip("brainscore_core.supported_data_standards.brainio")
    core = pytest.importorskip("brainscore_core")
    count, random = 40, torch.Generator().manual_seed(4)
    shown = brainio.stimuli.StimulusSet({"stimulus_id": [f"s{k}" for k in range(count)], "object_name": ["a", "b"] * (count // 2)})
    shown.stimulus_paths = {}
    for k in range(count):
        path = tmp_path / f"s{k}.png"
        Image.fromarray(torch.randint(0, 256, (12, 12, 3), dtype=torch.uint8, generator=random).numpy()).save(path)
        shown.stimulus_paths[f"s{k}"] = str(path)
    shown.identifier = "synthetic"
    subject, bins = brain(), [(70, 170)]
    subject.start_recording("V1", bins)
    own = torch.as_tensor(subject.look_at(shown).values)[:, :, 0]
    mixed = own @ torch.randn(own.shape[1], 6, generator=random)
    scores = {}
    for name, rates in (("mixed", mixed), ("noise", torch.randn(count, 6, generator=random))):
        assembly = brainio.assemblies.NeuroidAssembly(
            rates.numpy(),
            coords={
                "stimulus_id": ("presentation", shown["stimulus_id"].values),
                "object_name": ("presentation", shown["object_name"].values),
                "neuroid_id": ("neuroid", list(range(6))),
                "region": ("neuroid", ["V1"] * 6),
            },
            dims=["presentation", "neuroid"],
        )
        assembly = assembly.expand_dims("time_bin", axis=2)
        assembly["time_bin_start"], assembly["time_bin_end"] = ("time_bin", [70]), ("time_bin", [170])
        assembly = brainio.assemblies.NeuroidAssembly(assembly).squeeze("time_bin")
        assembly.attrs["stimulus_set"] = shown
        benchmark = neural.NeuralBenchmark(
            identifier=f"synthetic-{name}",
            version=1,
            assembly=assembly,
            similarity_metric=metric.CrossRegressedCorrelation(
                regression=metric.pls_regression(),
                correlation=metric.pearsonr_correlation(),
                crossvalidation_kwargs=dict(splits=2, stratification_coord="object_name"),
            ),
            visual_degrees=8,
            number_of_trials=1,
            ceiling_func=lambda: core.Score(1.0),
            parent="V1",
            bibtex="",
        )
        scores[name] = float(benchmark(subject).attrs["raw"])
    assert scores["mixed"] > 0.5
    assert abs(scores["noise"]) < 0.35
