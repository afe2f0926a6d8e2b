"""Training loops of PyTorch: broken as people break them, and healthy."""

from itertools import pairwise

import torch
import torch.nn.functional as functional
from torch import nn

from mlpengine.diagnostics import watch

torch.set_num_threads(1)

ROWS = 1200


def classes(seed=0, features=20, count=5, noise=1.0):
    """Return rows of Gaussian clusters, and their classes."""
    random = torch.Generator().manual_seed(seed)
    centers = 1.5 * torch.randn(count, features, generator=random)
    y = torch.randint(count, (ROWS,), generator=random)
    x = centers[y] + noise * torch.randn(ROWS, features, generator=random)
    return (x - x.mean(0)) / x.std(0), y


def numbers(seed=0, features=8):
    """Return rows and a smooth function of them, of unit size."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, features, generator=random)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3] + 0.3 * x[:, 3:4]
    y = y + 0.1 * torch.randn(ROWS, 1, generator=random)
    return x, (y - y.mean()) / y.std()


def mlp(*sizes, activation=nn.ReLU):
    """Return dense layers with activations between them."""
    layers = []
    for fan_in, out in pairwise(sizes):
        layers += [nn.Linear(fan_in, out), activation()]
    return nn.Sequential(*layers[:-1])


class Functional(nn.Module):
    """A network with activations that are functions, not modules."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(20, 64)
        self.norm = nn.BatchNorm1d(64)
        self.deeper = nn.Linear(64, 64)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        h = functional.relu(self.norm(self.hidden(x)))
        return self.out(functional.dropout(functional.relu(self.deeper(h)), 0.1, self.training))


class Branches(nn.Module):
    """Two branches; the features of the first are detached, as in NumPy and back."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(20, 32), nn.Linear(20, 32)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        left = torch.from_numpy(functional.relu(self.left(x)).detach().numpy())
        return self.out(torch.cat([left, functional.relu(self.right(x))], 1))


def train(model, optimizer, data, loss, epochs=12, batch=32, validate=True):
    """Train as in PyTorch's tutorials, watched; return the watcher."""
    x, y = data
    known = len(x) * 4 // 5
    watcher = watch(model, optimizer)
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(known).split(batch):
            optimizer.zero_grad()
            value = loss(model(x[rows]), y[rows])
            value.backward()
            optimizer.step()
            watcher.step(value, targets=y[rows])
        model.eval()
        with torch.no_grad():
            watcher.epoch(loss(model(x[known:]), y[known:]) if validate else None)
    return watcher


def sgd(model, lr=0.05, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def adam(model, lr=1e-3, **options):
    return torch.optim.Adam(model.parameters(), lr=lr, **options)


def dead():
    """Biases of -5, from a formula that was copied with the wrong sign."""
    model = mlp(20, 64, 64, 5)
    nn.init.constant_(model[0].bias, -5.0)
    nn.init.constant_(model[2].bias, -5.0)
    return train(model, adam(model), classes(), nn.CrossEntropyLoss())


def saturated():
    """Weights of unit deviation before sigmoids."""
    model = mlp(20, 64, 64, 5, activation=nn.Sigmoid)
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=4.0)
    return train(model, sgd(model), classes(), nn.CrossEntropyLoss())


def exploding():
    """Weights of unit deviation in ten layers."""
    model = mlp(20, *[64] * 10, 5)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight)
    return train(model, sgd(model, 1e-3), classes(), nn.CrossEntropyLoss(), epochs=3)


def vanishing():
    """Ten layers of sigmoids."""
    model = mlp(20, *[32] * 10, 5, activation=nn.Sigmoid)
    return train(model, sgd(model, 0.1), classes(), nn.CrossEntropyLoss())


def lr_high():
    model = mlp(20, 64, 5)
    return train(model, adam(model, 0.5), classes(noise=3.0), nn.CrossEntropyLoss())


def lr_low():
    model = mlp(20, 64, 5)
    return train(model, sgd(model, 1e-5), classes(), nn.CrossEntropyLoss())


def decay_high():
    model = mlp(8, 64, 64, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=10.0)
    return train(model, optimizer, numbers(), nn.MSELoss())


def double_softmax():
    model = nn.Sequential(*mlp(20, 64, 5), nn.Softmax(1))
    return train(model, adam(model), classes(), nn.CrossEntropyLoss())


def unscaled():
    """Columns in their own units: amounts in thousands."""
    x, y = classes()
    x = 5000.0 + 1000.0 * x
    model = mlp(20, 64, 5)
    return train(model, adam(model), (x, y), nn.CrossEntropyLoss())


def frozen():
    """Layers that were frozen for pretrained weights, without the weights."""
    model = mlp(20, 64, 64, 5)
    for parameter in model[:4].parameters():
        parameter.requires_grad = False
    return train(model, adam(model), classes(), nn.CrossEntropyLoss())


def unlisted():
    """An optimizer that got the parameters of a part of the network."""
    model = mlp(20, 64, 64, 5)
    return train(model, sgd(model[4]), classes(), nn.CrossEntropyLoss())


def detached():
    model = Branches()
    return train(model, adam(model), classes(), nn.CrossEntropyLoss())


def loss_summed():
    model = mlp(20, 64, 5)
    loss = nn.CrossEntropyLoss(reduction="sum")
    return train(model, sgd(model, 0.05, momentum=0.9), classes(noise=3.0), loss)


def shuffled():
    """Features that were shuffled without their labels."""
    x, y = classes()
    model = mlp(20, 64, 64, 5)
    data = x[torch.randperm(len(x))], y
    return train(model, adam(model), data, nn.CrossEntropyLoss(), epochs=20)


def plain():
    model = mlp(20, 64, 64, 5)
    return train(model, adam(model), classes(), nn.CrossEntropyLoss())


def with_functions():
    model = Functional()
    return train(model, adam(model, 2e-3), classes(1), nn.CrossEntropyLoss())


def regression():
    model = mlp(8, 64, 64, 1, activation=nn.Tanh)
    return train(model, sgd(model, 0.05, momentum=0.9), numbers(), nn.MSELoss(), epochs=30)


def two_classes():
    x, y = classes(2, count=2)
    model = mlp(20, 32, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    return train(model, optimizer, (x, y[:, None].float()), nn.BCEWithLogitsLoss())
