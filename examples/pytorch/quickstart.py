"""PyTorch's first training program, on handwritten digits: data, a network, training, saving.

It is a program for PyTorch but for the edits that docs/guide/pytorch-programs.md lists.
`--epochs N` trains for longer or shorter; `--out DIR` has the saved model.
"""

import argparse
from pathlib import Path

import girih as torch
import numpy as np
from girih import nn
from girih.data import DataLoader

DATA = Path(__file__).parents[2] / "data" / "digits.csv"


def load():
    table = np.loadtxt(DATA, delimiter=",", dtype=np.int64)
    images = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 8, 8)
    labels = table[:, -1]
    held_out = np.arange(len(labels)) % 5 == 4
    return [
        (torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen]))
        for chosen in (~held_out, held_out)
    ]


class NeuralNetwork(nn.Module):
    """Three linear layers."""

    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(8 * 8, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, x):
        x = self.flatten(x)
        return self.linear_relu_stack(x)


def train(dataloader, model, loss_fn, optimizer, device):
    model.train()
    total, batches = 0.0, 0
    for x, y in dataloader:
        x, y = x.to(device), y.to(device)

        pred = model(x)
        loss = loss_fn(pred, y)

        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

        total += loss.item()
        batches += 1
    print(f"loss: {total / batches:>7f}")


def test(dataloader, model, loss_fn, device):
    model.eval()
    test_loss, correct, size, batches = 0.0, 0, 0, 0
    with torch.no_grad():
        for x, y in dataloader:
            x, y = x.to(device), y.to(device)
            pred = model(x)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).sum().item()
            size += len(x)
            batches += 1
    accuracy = correct / size
    print(f"Accuracy: {100 * accuracy:>0.1f}%, Avg loss: {test_loss / batches:>8f}")
    return accuracy


def main(epochs, out):
    torch.manual_seed(0)
    device = "cpu"
    training, testing = load()
    train_dataloader = DataLoader(training, batch_size=32, shuffle=True)
    test_dataloader = DataLoader(testing, batch_size=32)

    model = NeuralNetwork().to(device)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accuracy = 0.0
    for t in range(epochs):
        print(f"Epoch {t + 1}")
        train(train_dataloader, model, loss_fn, optimizer, device)
        accuracy = test(test_dataloader, model, loss_fn, device)

    out.mkdir(parents=True, exist_ok=True)
    torch.save(out / "model.safetensors", model.state_dict())
    model = NeuralNetwork().to(device)
    model.load_state_dict(torch.load(out / "model.safetensors"))
    again = test(test_dataloader, model, loss_fn, device)
    print(f"Saved and loaded: {again == accuracy}")

    x, y = testing[0][0], testing[1][0]
    with torch.no_grad():
        pred = model(x.unsqueeze(0))
        print(f"Predicted: {pred[0].argmax(0).item()}, actual: {y.item()}")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("quickstart-out"))
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.out)
