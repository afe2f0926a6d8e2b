"""Rules: each speaks just beyond its limits and is silent just within; texts, causes, fixes."""

from dataclasses import replace

import numpy as np
import pytest

from mlpengine import Adam, AdamW, MeanSquaredError, Mlp, Sgd, SoftmaxCrossEntropy
from mlpengine.config import load_config
from mlpengine.config.fixed_config import fix_overrides, repairs
from mlpengine.data.features import Leak
from mlpengine.diagnostics import Diagnostics, Verdict, table, verdicts
from mlpengine.diagnostics.baselines import Baselines, BaselineScore, Copies
from mlpengine.diagnostics.constant_loss import ExtremeValue, extreme_feature, extreme_target
from mlpengine.diagnostics.constant_loss import feature_sizes as sizes_of
from mlpengine.diagnostics.layer_table import noise_sentence
from mlpengine.diagnostics.leak_verdict import leak_verdict
from mlpengine.diagnostics.rules import OF_COLUMNS, RULES
from mlpengine.diagnostics.run_rules import fall
from mlpengine.diagnostics.spikes import Spike
from mlpengine.ops import Quantile
from mlpengine.optim import PlateauSchedule
from mlpengine.settings import Fix, NetworkSettings
from mlpengine.settings.fix import by_key
from mlpengine.settings.run import VERDICTS

NAN = float("nan")


def measured(mlp=None, *, quantities=None, epochs=(), spikes=(0, 0), **attributes):
    """Return diagnostics after five samples; a constant prediction has the loss 1.

    `quantities` by name, or name/layer, are numbers or five numbers; `attributes` are set.
    """
    core = Diagnostics(mlp or Mlp([3, 4, 2], seed=0), baseline=1.0, validation_baseline=1.0)
    for step in range(1, 6):
        for name, values in (quantities or {}).items():
            quantity, _, layer = name.partition("/")
            place = core.columns.index(quantity, int(layer) if layer else None)
            core.values[place] = np.broadcast_to(values, 5)[step - 1]
        core.sampled = step
        core.series.append(step, core.values)
    for train, validation in epochs:
        core.close_epoch(train, validation)
    core.spikes.count, core.spikes.steps = spikes
    for name, value in attributes.items():
        assert hasattr(core, name)
        setattr(core, name, value)
    return core


def names(core):
    return [verdict.name for verdict in verdicts(core)]


def curve(train, validation=None):
    """Return losses by epoch, the same of both parts by default."""
    return [*zip(train, train if validation is None else validation, strict=True)]


TEN = [0.5] * 10
FALLING = np.geomspace(0.9, 0.1, 20)
STEEP = np.linspace(0.9, 0.5, 20)
LINEAR = [Fix(NetworkSettings, "hidden", ())]
USELESS = BaselineScore("r2", "validation rows", 0.019, -0.1, 0.0, 0.01)
BEHIND = BaselineScore("accuracy", "validation rows", 0.801, 0.852, 0.44, 0.013, LINEAR)
WORSE = BaselineScore("r2", "validation rows", -7.0, -8.0, 0.0, 9.0)
CLOSE = Baselines(0.3, 0.3, "a linear model", 0.01, 0.8)
LAGGING = Baselines(0.41, 0.3, "a linear model", 0.01, 0.8)
NOISY = Baselines(0.3, 0.3, "nearest neighbors", 0.01, 0.5, 9.0, 0.2, 0.04, 0.2, (17, 40))
MOVED = Baselines(moved=2.6, beside=(0.5, 0.55, 1))
CLIPPED = {"clipped_share": 0.91, "gradient_norm": 5.0, "clipped_norm": 0.245}
SLOW = {"update_ratio/0": 0.9e-4, "update_ratio/1": 0.5e-4, "loss": 0.71, "lr": 1e-3}
STILL = {"update_ratio/1": 0.0, "lr": 1e-12, "loss": 0.5}
FAST = {"update_ratio/0": [0.02, 0.31, 0.31, 0.31, 0.31], "lr": 0.01}
DRIVEN = {"update_ratio/0": 0.031, "lr": 0.01, "loss": 0.99}
DYING = {"loss": [1.0, 1.0, 0.3, 0.3, 0.3], "dead_share/0": [0.2, 0.41, 0.9, 0.9, 0.9]}
DEAD = {"dead_share/0": 0.41, "update_ratio/0": [0.02] * 5, "lr": 0.1}
SHRINKING = {"activation_std/0": 1.0, "activation_std/2": 0.9e-3}
DECAY = {"quantities": {"lr": 0.01}, "epochs": curve([0.91] * 31)}
RARE = {"class_counts": np.array([49, 150]), "recalls": np.array([0.11, 0.51])}
DROPPING = Mlp([3, 4, 2], dropout=0.7, seed=0)
DEEP = Mlp([3, 4, 4, 4, 2], seed=0)
CLAMPED = Mlp([3, 4, 2], output_activation="relu", seed=0)
PLAIN, CURVED = Mlp([3, 4, 2], seed=0), Mlp([3, 4, 2], activation="sigmoid", seed=0)
FIXED = Mlp([3, 4, 2], seed=0)
FIXED.freeze([0])
SPIKE = Spike(9, 5.1, 31.0, 7, 0.91)


def decaying(decay):
    return AdamW(PLAIN, lr=0.01, weight_decay=decay)


def zeros():
    mlp = Mlp([3, 4, 2], seed=0)
    mlp.weights[0][...] = 0
    return mlp


# the verdict; what speaks; changes of that after which it is silent
CASES = [
    ("input_scale", {"quantities": {"input_mean": 0.0, "input_std": 8.1}},
     [{"quantities": {"input_std": 7.9}}]),
    ("input_scale", {"quantities": {"input_mean": 0.0, "input_std": 0.0099}},
     [{"quantities": {"input_std": 0.0101}}]),
    ("input_scale", {"feature_sizes": np.array([1.0, 8.1, 0.0])},
     [{"feature_sizes": np.array([1.0, 7.9, 0.0])}]),
    ("target_scale", {"target_rms": 30.1}, [{"target_rms": 29.9}]),
    ("target_scale", {"target_rms": 3.1, "loss": MeanSquaredError()}, [{"target_rms": 2.9}]),
    ("target_scale", {"baseline": 9e-11, "target_rms": np.nan}, [{"baseline": 1.1e-10}]),
    ("no_gradient", {"mlp": zeros()}, [{"mlp": PLAIN}]),
    ("start", {"first_loss": 10.1}, [{"first_loss": 9.9}, {"mlp": DROPPING}, {"baseline": 1.1}]),
    ("start", {"first_loss": 7.0, "loss": SoftmaxCrossEntropy(), "baseline": 0.1},
     [{"first_loss": 6.9}, {"first_loss": 4.9, "loss": Quantile((0.99,))}]),
    ("nonfinite", {"skipped": 1}, [{"skipped": 0}]),
    ("nonfinite", {"failure": "step 3: the input is not finite"}, []),
    ("lr_high", {"quantities": {"update_ratio/1": [0.0, 0.51, 0.0, 0.0, 0.0]}},
     [{"quantities": {"update_ratio/1": [0.0, 0.49, 0.0, 0.0, 0.0]}}]),
    ("lr_high", {"quantities": FAST}, [{"quantities": {**FAST, "update_ratio/0": 0.29}}]),
    ("lr_high", {"quantities": {"update_ratio/0": [0.02, 0.31, 0.02, 0.02, 0.02], "loss": 0.98}},
     [{"quantities": {"loss": 0.97}}]),
    ("lr_high", {"quantities": DRIVEN, "optimizer": Sgd(PLAIN, momentum=0.9)},
     [{"optimizer": Sgd(PLAIN, momentum=0.89)}, {"quantities": {**DRIVEN, "loss": 0.9}}]),
    ("clip_low", {"quantities": CLIPPED},
     [{"quantities": {"clipped_share": 0.9}}, {"quantities": {"clipped_norm": 0.255}},
      {"optimizer": Adam(PLAIN)}]),
    ("lr_low", {"quantities": STILL}, [{"quantities": {"update_ratio/1": 1e-3}}]),
    ("lr_low", {"quantities": SLOW, "spikes": (30, 1000)},
     [{"quantities": {"update_ratio/0": 1.1e-4}}, {"quantities": {"loss": 0.69}}]),
    ("dead", {"quantities": DEAD}, [{"quantities": {"dead_share/0": 0.39}}]),
    ("dead", {"quantities": {**DEAD, "update_ratio/0": 0.009}}, []),
    ("dead", {"quantities": DYING}, [{"quantities": {"dead_share/0": [0.2, 0.39, 0.9, 0.9, 0.9]}}]),
    ("saturated", {"quantities": {"saturated_share/0": 0.51}},
     [{"quantities": {"saturated_share/0": 0.49}}]),
    ("vanishing", {"quantities": {"depth_slope": -2.1}}, [{"quantities": {"depth_slope": -1.9}}]),
    ("vanishing", {"mlp": CURVED, "quantities": {"depth_slope": -1.1}, "baselines": LAGGING,
                   "epochs": curve(TEN), "steps_per_epoch": 20},
     [{"quantities": {"depth_slope": -0.9}}, {"mlp": PLAIN}, {"epochs": curve(TEN[:4])},
      {"epochs": curve(np.geomspace(0.9, 0.15, 20))}, {"baselines": CLOSE}]),
    ("exploding", {"quantities": {"depth_slope": [2.1, 2.1, 0.0, 0.0, 0.0]}},
     [{"quantities": {"depth_slope": 1.9}}]),
    ("vanishing", {"mlp": DEEP, "quantities": SHRINKING},
     [{"quantities": {"activation_std/2": 1.1e-3}}]),
    ("outlier", {"noted": [SPIKE], "quantities": {"gradient_norm": 1.0}},
     [{"noted": [SPIKE._replace(times=29.0)]}, {"noted": [SPIKE._replace(share=0.89)]},
      {"noted": [SPIKE._replace(norm=4.9)]}]),
    ("outlier", {"extreme": ExtremeValue(7, 1, 21.0)}, [{"extreme": ExtremeValue(7, 1, 19.0)}]),
    ("outlier", {"extreme": ExtremeValue(7, -1, 21.0)}, []),
    ("spikes", {"spikes": (21, 1000)}, [{"spikes": (19, 1000)}]),
    ("output_clamped", {"mlp": CLAMPED, "target_range": (-0.1, 9.0)},
     [{"target_range": (0.0, 9.0)}]),
    ("output_clamped", {"mlp": CLAMPED, "loss": SoftmaxCrossEntropy()},
     [{"loss": MeanSquaredError()}, {"mlp": PLAIN}]),
    ("momentum_high", {"optimizer": Sgd(PLAIN, momentum=0.98), "epochs": curve(TEN)},
     [{"optimizer": Sgd(PLAIN, momentum=0.97)}, {"steps_per_epoch": 51}]),
    ("momentum_high", {"optimizer": Adam(PLAIN, betas=(0.98, 0.999)), "steps_per_epoch": 100,
                       "epochs": curve([0.5, 0.61, *TEN])},
     [{"epochs": curve([0.5, 0.59, *TEN])}]),
    ("dropout_high", {"mlp": DROPPING, "epochs": curve([0.99] * 4, [1.2] * 4)},
     [{"mlp": Mlp([3, 4, 2], dropout=0.59, seed=0)}, {"epochs": curve([0.97] * 4, [0.9] * 4)}]),
    ("dropout_high", {"mlp": DROPPING, "epochs": curve([0.31] * 4, [0.2] * 4)},
     [{"epochs": curve([0.31] * 4, [0.21] * 4)}, {"epochs": curve([0.29] * 4, [0.1] * 4)}]),
    ("decay_high", {**DECAY, "optimizer": decaying(10.0)},
     [{"optimizer": decaying(9.6)}]),
    ("decay_high", {"quantities": {"lr": 0.03}, "epochs": curve([0.91] * 31),
                    "optimizer": decaying(4.0)},
     [{"epochs": curve([0.89] * 31)}]),
    ("eps_large", {"quantities": {"gradient_norm": 0.05}, "optimizer": Adam(PLAIN, eps=0.0101)},
     [{"optimizer": Adam(PLAIN, eps=0.0095)}]),
    ("labels", {"epochs": curve(np.linspace(1, 0.97, 20), np.full(20, 1.04))},
     [{"epochs": curve(np.linspace(1, 0.97, 20), np.linspace(1, 0.98, 20))}]),
    ("labels", {"epochs": curve([0.9] * 4, [0.99] * 4), "baselines": Baselines(related=1.9)},
     [{"baselines": Baselines(related=1.9, linked=1.1)},
      {"epochs": curve([0.9] * 4, [0.97] * 4)}, {"baselines": Baselines(related=2.1)},
      ]),
    ("labels", {"epochs": curve([0.9] * 4, [1.2] * 4), "baselines": Baselines(related=1.9),
                "baseline_score": USELESS, "stops_early": True},
     [{"stops_early": False}, {"baseline_score": USELESS._replace(value=0.021)}]),
    ("labels", {"baselines": MOVED},
     [{"baselines": MOVED._replace(moved=2.4)},
      {"baselines": MOVED._replace(beside=(0.5, 0.52, 1))}, {"planned_split": "group"}]),
    ("noisy_labels", {"baselines": NOISY},
     [{"baselines": NOISY._replace(contradicted_error=0.06)},
      {"baselines": NOISY._replace(doubtful=0.22)}, {"baselines": NOISY._replace(signal=0.07)}]),
    ("shifted", {"baselines": Baselines(shifts=(0.1, 0.26, 0.0), shift_limit=0.2)},
     [{"baselines": Baselines(shifts=(0.1, 0.24, 0.0), shift_limit=0.2)},
      {"baselines": Baselines(shifts=(0.1, 0.26, 0.0), shift_limit=0.3)}]),
    ("shifted", {"baselines": Baselines(target_shift=0.26, shift_limit=0.2)},
     [{"baselines": Baselines(target_shift=0.24, shift_limit=0.2)},
      {"planned_split": "teacher"}]),
    ("overfitting", {"epochs": curve(FALLING, [0.7, 0.66, 0.64, *np.linspace(0.65, 0.77, 17)])},
     [{"epochs": curve(FALLING, [0.7, 0.66, 0.64, *np.linspace(0.65, 0.69, 17)])},
      {"epochs": curve(FALLING, np.maximum(FALLING, 0.4))},
      {"epochs": curve(FALLING, FALLING / 10 + np.linspace(0, 0.01, 20))}]),
    ("too_good", {"copies": Copies(0.51), "validation_error": (0.14, 9), "baselines": CLOSE},
     [{"copies": Copies(0.49)}, {"validation_error": (0.16, 9)}]),
    ("too_good", {"copies": Copies(0.26), "validation_error": (0.07, 34), "baselines": CLOSE},
     [{"copies": Copies(0.24)}, {"validation_error": (0.07, 33)},
      {"validation_error": (0.08, 34)}]),
    ("too_good", {"copies": Copies(equal=0.26)}, [{"copies": Copies(equal=0.24)}]),
    ("too_good", {"validation_error": (0.0, 100)},
     [{"validation_error": (0.0011, 100)}, {"validation_error": (0.0, 99)}]),
    ("dead", {"dead_at_end": {0: 1.0}}, [{"mlp": Mlp([3, 1, 2], seed=0)}]),
    ("dead", {"dead_at_end": {0: 0.41}, "epochs": curve(TEN)},
     [{"epochs": curve([0.49] * 9)}, {"epochs": curve(TEN[:4]), "steps_per_epoch": 9}]),
    ("overfitting", {"epochs": curve(FALLING, 0.0123 * np.linspace(10, 80, 20))}, []),
    ("overfitting", {"epochs": curve(FALLING / 100, np.maximum(FALLING / 100, 0.2)),
                     "target_rms": 1.0},
     [{"target_rms": NAN}, {"planned_split": "teacher"}]),  # of classes; of a student
    ("imbalance", {**RARE, "epochs": curve(FALLING, np.maximum(FALLING, 0.4))},
     [{"recalls": np.array([0.13, 0.51])}, {"recalls": np.array([0.11, 0.49])},
      {"class_counts": np.array([51, 149])}]),
    ("few_steps", {"epochs": curve(np.linspace(0.81, 0.8, 20)), "batch_size": 16,
                   "baselines": Baselines(0.9, 0.2, "nearest neighbors", 0.01, 0.8)},
     [{"baselines": Baselines()}, {"epochs": curve([0.09] * 20)}]),
    ("few_steps", {"epochs": curve(np.linspace(0.95, 0.65, 20)), "steps_per_epoch": 7,
                   "quantities": {"noise_scale": 5.0}, "batch_size": 128},
     [{"steps_per_epoch": 8}, {"epochs": curve(np.linspace(0.9, 0.58, 20))}]),
    ("unfinished", {"epochs": curve(np.geomspace(0.9, 0.15, 20)), "steps_per_epoch": 9},
     [{"epochs": curve(np.geomspace(0.9, 0.46, 20))},
      {"epochs": curve(np.geomspace(0.3, 0.03, 20))}]),
    ("unfinished", {"epochs": curve([0.9, 0.6]), "steps_per_epoch": 40},
     [{"epochs": curve([0.9, 0.6], [0.6, 0.7])}, {"epochs": curve([0.9, 0.03])},
      {"steps_per_epoch": 500}]),
    ("unfinished", {"epochs": curve([1.1]), "steps_per_epoch": 999}, [{"steps_per_epoch": 1000}]),
    ("schedule", {"quantities": {"lr": [0.1, 0.1, 0.0009, 0.0, 0.0]}, "optimizer": Sgd(PLAIN),
                  "epochs": curve([0.5] * 8)},
     [{"epochs": curve([0.5] * 6)}, {"quantities": {"lr": [0.1, 0.1, 0.0011, 0.0011, 0.0011]}},
      {"optimizer": Sgd(PLAIN, schedule=PlateauSchedule())}]),
    ("schedule", {"quantities": {"lr": [0.0, 0.01, 0.02, 0.03, 0.04]}, "optimizer": Sgd(PLAIN)},
     [{"quantities": {"lr": [0.0, 0.04, 0.04, 0.04, 0.05]}}]),
    ("frozen", {"mlp": FIXED, "epochs": curve(TEN)}, [{"mlp": PLAIN}]),
    ("small_batch", {"batch_size": 3, "steps_per_epoch": 43}, [{"batch_size": 4}]),
    ("class_codes", {"baselines": Baselines(class_gain=0.13)},
     [{"baselines": Baselines(class_gain=0.11)}]),
    ("wrong_loss", {"loss": Quantile((0.9,)), "baselines": LAGGING, "epochs": curve([0.2] * 9)},
     [{"loss": MeanSquaredError()}, {"epochs": curve([0.21] * 9)},
      {"baselines": LAGGING._replace(doubtful=0.1)}]),  # of classes
    ("underfitting", {"epochs": curve(TEN), "steps_per_epoch": 20, "baselines": LAGGING},
     [{"baselines": LAGGING._replace(error=0.39)}, {"baselines": LAGGING._replace(deviation=0.04)},
      {"loss": SoftmaxCrossEntropy(class_weights=(1.0, 2.0))}, {"loss": Quantile((0.8,))}]),
    ("behind_linear", {"baseline_score": BEHIND},
     [{"baseline_score": BEHIND._replace(error=0.015)}, {"baseline_score": None},
      {"baseline_score": BEHIND._replace(linear=0.807, error=0.001)},
      {"loss": SoftmaxCrossEntropy(class_weights=(1.0, 2.0))}]),
    ("noise_scale", {"quantities": {"noise_scale": 5.0}, "batch_size": 128, "epochs": curve(TEN),
                     "steps_per_epoch": 100},
     [{"quantities": {"noise_scale": 5.2}}, {"batch_size": 127}, {"epochs": curve([0.02] * 9)}]),
    ("noise_scale", {"quantities": {"noise_scale": 15.0}, "batch_size": 128, "steps_per_epoch": 20,
                     "epochs": curve(STEEP)},
     [{"steps_per_epoch": 26}, {"quantities": {"noise_scale": 16.1}}]),
    ("nothing_learned", {"epochs": curve([1.0] * 5)},
     [{"epochs": curve([1.0] * 4)}, {"epochs": curve([0.97] * 5)},
      {"baseline_score": BEHIND._replace(value=0.951, constant=0.9)}]),
    ("nothing_learned", {"epochs": curve([-9.0] * 5), "baseline": -5.0, "baseline_score": WORSE},
     [{"baseline": 1.0}, {"baseline_score": WORSE._replace(value=0.1)}]),
]  # fmt: skip


def changed(case, change):
    """Return a case after a change; quantities are added to the known ones."""
    both = {**case, **change}
    if "quantities" in case:
        both["quantities"] = case["quantities"] | change.get("quantities", {})
    return both


@pytest.mark.parametrize(("name", "case", "changes"), CASES, ids=[case[0] for case in CASES])
def test_a_rule_speaks_beyond_its_limits_alone(name, case, changes, tmp_path):
    found = verdicts(measured(**case))
    assert [verdict.name for verdict in found] == [name]
    for change in changes:
        assert name not in names(measured(**changed(case, change)))
    if found[0].fix:  # a config takes the settings
        fixes = fix_overrides(found)
        optimizer = {"optimizer.momentum": "sgd", "optimizer.betas": "adam"}
        kind = next((optimizer[k] for k in by_key(found[0].fix) if k in optimizer), "adamw")
        path = tmp_path / "c.yaml"
        path.write_text(f"data: {{source: penguins}}\noptimizer: {kind}\n")
        load_config(path, fixes)


def test_the_advised_norm_undoes_the_reported_factor():
    """Half of the norms are small: the median of ratios is not the ratio of medians."""
    norms = {"gradient_norm": [0, 5, 5, 800, 800], "clipped_norm": [0, 1, 1, 1, 1]}
    (found,) = verdicts(measured(quantities=CLIPPED | norms))
    assert found.name == "clip_low"
    assert found.value == pytest.approx(1 / 402.5)
    assert found.fix[0].value * found.value == pytest.approx(1, rel=0.05)


def test_every_verdict_has_a_case():
    leak = leak_verdict(Leak("a", 1.0, "it is the target", is_target=True), "Drop it", ["a"])
    assert {case[0] for case in CASES} | {leak.name, *OF_COLUMNS} == VERDICTS.keys() & {*SHIPPED}


def misplaced(rules):
    """Return names of verdicts that a rule takes for causes before their own rule is asked."""
    asked = set()
    late = set()
    for rule in rules:
        late |= rule.causes - asked
        asked |= {*rule.names}
    return late


def test_causes_stand_before_what_they_explain():
    assert not misplaced(RULES)
    assert misplaced(RULES[::-1])


SHIPPED = dict.fromkeys(VERDICTS)
"""The names before tests add rules of their own."""


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"quantities": {"input_mean": 0.0, "input_std": 40.0, "saturated_share/0": 0.9}},
         ["input_scale"]),
        ({"quantities": {**FAST, "dead_share/0": 0.9, "depth_slope": -3.0}}, ["lr_high"]),
        ({"quantities": {**FAST, "dead_share/0": 0.9}, "target_rms": 3e9}, ["target_scale"]),
        ({"quantities": {**CLIPPED, **SLOW}}, ["clip_low"]),
        ({"mlp": zeros(), "quantities": {**SLOW, "depth_slope": -3.0}}, ["no_gradient"]),
        ({"failure": "step 3", "baselines": LAGGING, "epochs": curve(TEN)}, ["nonfinite"]),
        ({"spikes": (30, 1000), "epochs": curve([1.0] * 5)}, ["spikes"]),
        ({"epochs": curve(FALLING, np.linspace(0.95, 1.6, 20)),
          "baselines": Baselines(related=9.0)}, ["overfitting"]),
        ({"epochs": curve(FALLING, np.linspace(0.99, 1.6, 20)),
          "baselines": Baselines(related=0.0)}, ["labels"]),
        ({"baseline_score": BEHIND, "skipped": 1}, ["nonfinite"]),
        ({**RARE, "epochs": curve([1.0] * 5)}, ["nothing_learned"]),
        ({}, []),
    ],
)  # fmt: skip
def test_causes_hide_what_they_explain(case, expected):
    assert names(measured(**case)) == expected


@pytest.mark.parametrize(
    "case",
    [
        {"mlp": FIXED, "epochs": curve([0.4] * 9)},
        {"spikes": (21, 1000), "epochs": curve([0.89] * 9)},
        {"quantities": {"saturated_share/0": 0.51}, "epochs": curve([0.49] * 9)},
        {"quantities": {"lr": 0.1}, "optimizer": decaying(4.9), "epochs": curve([0.5] * 21)},
        {"batch_size": 3, "steps_per_epoch": 43, "epochs": curve(TEN)},
        {"epochs": curve([0.9] * 4, [0.99] * 4), "baselines": Baselines(related=1.9),
         "class_counts": np.array([71, 29]), "recalls": np.ones(2)},
        {"baselines": Baselines(shifts=(0.9,), shift_limit=0.2), "planned_split": "time"},
        {"baselines": NOISY._replace(signal=0.18)},
        {"epochs": curve(FALLING, [0.6, 0.5, *np.linspace(0.5, 0.9, 18)]), "stops_early": True},
        {**RARE, "epochs": curve(FALLING, np.maximum(FALLING, 0.4))},
    ],
)  # fmt: skip
def test_facts_that_cost_no_score_are_notes_that_nothing_follows(case):
    (verdict,) = found = verdicts(measured(**case))
    assert verdict.severity == "note"
    assert str(verdict).startswith("Note: ")
    assert fix_overrides(found) == [] == repairs(found)


def test_a_run_that_was_ended_is_not_told_to_train_more_epochs():
    short = {"epochs": curve([0.9, 0.8, 0.7, 0.6]), "steps_per_epoch": 50}
    for ending, fixed in (("epochs", True), ("early", False), ("time", False)):
        (found,) = verdicts(measured(**short, ending=ending))
        assert (found.name, bool(found.fix)) == ("unfinished", fixed)
    for decay, key in ((0.996, "training.average"), (0.994, "training.epochs")):
        (found,) = verdicts(measured(**short, optimizer=Adam(PLAIN, average=decay)))
        assert found.fix[0].key == key


def test_clipped_gradients_need_no_other_limit():
    for clipped, clips in ((1.0, True), (0.9, False), (0.001, False)):
        quantities = {"gradient_norm": 1.0, "clipped_norm": clipped}
        (found,) = verdicts(measured(extreme=ExtremeValue(7, -1, 21.0), quantities=quantities))
        assert bool(found.fix) == clips


def test_a_column_that_rises_with_the_time_should_be_dropped():
    later = Baselines(shifts=(0.9,), shift_limit=0.2, ranges=(0.0, 1.0, 1.0, 1.3))
    (verdict,) = verdicts(measured(baselines=later, planned_split="time"))
    assert "data.drop" in verdict.advice


def test_a_verdict_is_headline_evidence_advice_and_name():
    verdict = Verdict("dead", 2, "Many units are dead", "41 % are.", 0.41, NAN, "Lower lr.")
    assert str(verdict) == "Many units are dead (layer 2). 41 % are. Lower lr. [dead]"
    assert verdict.as_dict() == {
        "name": "dead",
        "layer": 2,
        "headline": "Many units are dead",
        "evidence": "41 % are.",
        "value": 0.41,
        "threshold": None,
        "advice": "Lower lr.",
        "fix": None,
        "no_fix": "",
        "severity": "warning",
        "text": str(verdict),
    }
    assert str(replace(verdict, layer=None)) == "Many units are dead. 41 % are. Lower lr. [dead]"
    assert "(gate)" in str(replace(verdict, layer_name="gate"))


@pytest.mark.parametrize(
    ("case", "evidence", "fix"),
    [
        ({"quantities": SLOW}, "9e-05 times", {"optimizer.lr": 0.22}),
        ({"quantities": STILL}, "any weight", {"optimizer.lr": 0.001}),
        ({"quantities": FAST}, "0.31 times", {"optimizer.lr": 0.005}),
        ({"quantities": CLIPPED}, "91 %", {"training.clip_norm": 5.0}),
        ({"quantities": DEAD}, "41 %", {"model.activation": "leaky_relu", "optimizer.lr": 0.03}),
        ({"first_loss": 10.1, "quantities": {"input_std": 3.1, "input_mean": 0.0}}, "was 10;",
         {"data.standardize": "standard"}),
        ({"first_loss": 10.1, "quantities": {"input_std": 2.9, "input_mean": 0.0}}, "was 10;", {}),
        ({"quantities": {"saturated_share/0": 0.6}}, "60 %",
         {"model.activation": "relu", "model.initializer": None}),
        ({"quantities": {"saturated_share/0": 0.6}, "weight_scale": 2.6}, "60 %",
         {"model.initializer": None}),
        ({**DECAY, "optimizer": decaying(10.0)}, "5 % of their size in 31 steps",
         {"optimizer.weight_decay": 0.32}),
        ({**RARE, "epochs": curve(FALLING, np.maximum(FALLING, 0.4)),
          "class_names": ["drizzle", "sun"]}, "'drizzle' has 49 of the 199",
         {"data.class_weights": "balanced"}),
        ({"baseline_score": BEHIND}, "the network has accuracy 0.801, and a linear model has 0.852",
         {"model.hidden": []}),
        ({"epochs": curve(TEN), "steps_per_epoch": 20, "baselines": LAGGING},
         "41 % of the error of a constant prediction. A simple model (a linear model) ",
         {"model.hidden": [64]}),
        ({"epochs": curve(np.geomspace(900, 150, 20)), "steps_per_epoch": 9}, "after 20 epochs.",
         {"training.epochs": 60}),
        ({"baselines": NOISY}, "20 %", {}),
        ({"noted": [SPIKE], "quantities": {"gradient_norm": 1.0}},
         "31 times as large as usual; 91 % came from training row 7.",
         {"training.clip_norm": 0.16}),
        ({"extreme": ExtremeValue(7, 1, 21.0)}, "In training row 7 the feature '1' is 21 times",
         {"training.clip_norm": 1.0}),
        ({"quantities": {"noise_scale": 5.0}, "batch_size": 1000, "epochs": curve(TEN),
          "steps_per_epoch": 100}, "about 64 rows", {"training.batch_size": 64}),
    ],
)  # fmt: skip
def test_evidence_has_the_numbers_and_fixes_the_values(case, evidence, fix):
    (verdict,) = verdicts(measured(**case))
    assert evidence in verdict.evidence
    assert by_key(verdict.fix) == fix


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1.0, 0.8, 0.5], (0.3, 0.6)),
        ([1.0, 0.5, 0.8], (0.0, 0.0)),  # the lowest loss is earlier
        ([*[1.0] * 4, 0.7, 0.7, 0.5, 0.5], (0.2, 0.4)),
        ([*[1.0] * 4, 0.9, 0.5, 0.7, 0.3], (0.0, 0.0)),  # within two standard errors
    ],
)
def test_the_fall_of_the_last_quarter(losses, expected):
    assert fall(measured(epochs=curve(losses))) == pytest.approx(expected)


@pytest.mark.parametrize("column", [0, 2])
def test_the_most_extreme_value_is_found(column):
    x = np.random.default_rng(0).normal(size=(500, 3))
    x[17, column] = -900.0
    usual = np.sort(np.abs(x[:, column]))[-5]
    found = extreme_feature(x, sizes_of(x))
    assert (found.row, found.column) == (17, column)
    assert found.times == pytest.approx(900 / usual)
    found = extreme_target(x[:, column : column + 1])
    assert (found.row, found.column) == (17, -1)
    assert extreme_feature(x[:5], sizes_of(x)).times == 0
    narrow = (x / 80).astype("f4")
    assert type(extreme_feature(narrow, sizes_of(narrow)).times) is float  # for JSON


@pytest.mark.parametrize(
    ("variance", "squared", "text"),
    [
        (400.0, 1.0, "gradient noise scale: 400 rows (batch size 32)"),
        (1.0, 0.0, "far above 32 rows"),
    ],
)
def test_the_table_has_a_line_for_each_layer_and_the_noise_scale(variance, squared, text):
    mlp = Mlp([4, 64, 16, 2], activation="tanh", seed=0)
    core = measured(mlp, quantities={"gradient_norm": 0.5}, batch_size=32)
    core.noise.variance, core.noise.squared_norm = variance, squared
    lines = table(core).splitlines()
    assert lines[0].split()[:3] == ["layer", "units", "activation"]
    shown = [line.split()[:3] for line in lines[1:4]]
    assert shown == [["0", "64", "tanh"], ["1", "16", "tanh"], ["2", "2", "-"]]
    assert "gradient norm" in lines[4]
    assert text in noise_sentence(core)
    assert text in " ".join(line.strip() for line in lines)
    assert max(map(len, lines)) <= 80
    assert table(Diagnostics(Mlp([3, 4, 2]))) == "no step was sampled"
