"""Every quantity the slow way: one row at a time, each row's gradient written out, in float64."""

from dataclasses import dataclass

import numpy as np

ACTIVATIONS = {
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2),
}


def softmax_cross_entropy(output, target):
    chance = np.exp(output - output.max())
    chance /= chance.sum()
    slope = chance.copy()
    slope[target] -= 1
    return -np.log(chance[target]), slope


def bce(output, target):
    chance = 1 / (1 + np.exp(-output))
    loss = -(target * np.log(chance) + (1 - target) * np.log(1 - chance))
    return loss.mean(), (chance - target) / len(output)


def mse(output, target):
    return ((output - target) ** 2).mean(), 2 * (output - target) / len(output)


LOSSES = {"softmax_cross_entropy": softmax_cross_entropy, "bce_with_logits": bce, "mse": mse}


@dataclass
class Explicit:
    """What a batch shows, by quantity; `rows` holds each row's whole gradient."""

    net: dict
    layers: list
    norms: np.ndarray
    loss: float


def explicit(weights, biases, activation, loss, x, y, row_weights, after, batch_gradient=None):
    """Compute all quantities of a step that took `weights` to `after`, from the definitions."""
    value, slope_of = ACTIVATIONS[activation]
    count, batch = len(weights), len(x)
    per_row = [[] for _ in range(count)]
    pre, post = [[] for _ in range(count)], [[] for _ in range(count)]
    norms, loss_sum = [], 0.0
    for i in range(batch):
        inputs, a = [], x[i].astype(float)
        for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
            inputs.append(a)
            z = w @ a + b
            a = value(z) if layer < count - 1 else z
            pre[layer].append(z)
            post[layer].append(a)
        entry, delta = LOSSES[loss](a, y[i])
        factor = 1.0 if row_weights is None else float(row_weights[i])
        loss_sum += factor * entry
        delta = factor * delta
        square = 0.0
        for layer in reversed(range(count)):
            d_weight, d_bias = np.outer(delta, inputs[layer]), delta
            per_row[layer].append((d_weight, d_bias))
            square += (d_weight**2).sum() + (d_bias**2).sum()
            if layer:
                delta = (weights[layer].T @ delta) * slope_of(pre[layer - 1][i])
        norms.append(np.sqrt(square))
    mean = [
        tuple(np.mean([row[part] for row in rows], axis=0) for part in (0, 1)) for rows in per_row
    ]
    flat = np.concatenate([np.concatenate([w.ravel(), b]) for w, b in mean])
    rows = np.stack(
        [
            np.concatenate(
                [np.r_[per_row[n][i][0].ravel(), per_row[n][i][1]] for n in range(count)]
            )
            for i in range(batch)
        ]
    )
    variance = ((rows - flat) ** 2).sum() / (batch - 1)
    norms, square = np.array(norms), (flat**2).sum()
    rms = [np.sqrt((w**2).mean()) for w, _ in mean]
    net = {
        "gradient_norm": np.sqrt(square),
        "depth_slope": np.log10(rms[0] / rms[-1]),
        "input_mean": x.astype(float).mean(),
        "input_std": x.astype(float).std(),
        "example_norm_median": np.median(norms),
        "example_norm_max": norms.max(),
        "hardest_row": norms.argmax(),
        "gradient_variance": variance,
        "squared_gradient_norm": square - variance / batch,
    }
    layers = []
    for n in range(count):
        step = after[n].astype(float) - weights[n]
        y_all, z_all = np.array(post[n]), np.array(pre[n])
        name = activation if n < count - 1 else "identity"
        largest = z_all.max() if name == "relu" else np.abs(z_all).max()
        found = {
            "gradient_rms": rms[n],
            "update_ratio": np.linalg.norm(step) / np.linalg.norm(weights[n]),
            "update_cosine": -(step * mean[n][0]).sum()
            / (np.linalg.norm(step) * np.linalg.norm(mean[n][0])),
            "activation_mean": y_all.mean(),
            "activation_std": y_all.std(),
            "pre_activation_max": max(largest, 0) if name == "relu" else largest,
        }
        if name == "tanh":
            found["saturated_share"] = (np.abs(y_all) > 0.97).mean()
        if name == "sigmoid":
            found["saturated_share"] = (np.abs(2 * y_all - 1) > 0.97).mean()
        layers.append(found)
    return Explicit(net, layers, norms, loss_sum / batch)
