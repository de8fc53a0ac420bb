"""Transfer learning: a residual network whose body is frozen gets a new last layer.

A network learns eight of the ten digits; its body then serves to tell the other two apart. It is a
program for PyTorch but for the edits that docs/guide/pytorch-programs.md lists. `--epochs N` trains
for longer or shorter.
"""

import argparse
import copy
from pathlib import Path

import girih as torch
import numpy as np
from girih import nn
from girih.data import DataLoader
from girih.optim import lr_scheduler

DATA = Path(__file__).parents[2] / "data" / "digits.csv"


def load(digits):
    """Images of some digits, for training and for validation."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.int64)
    table = table[np.isin(table[:, -1], digits)]
    images = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = np.searchsorted(digits, table[:, -1])
    held_out = np.arange(len(labels)) % 5 == 4
    return {
        phase: (torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen]))
        for phase, chosen in (("train", ~held_out), ("val", held_out))
    }


class BasicBlock(nn.Module):
    """Two convolutions, with a connection around them."""

    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class ResNet(nn.Module):
    """A small residual network for grey images."""

    def __init__(self, num_classes, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(width, width), BasicBlock(width, width))
        self.layer2 = nn.Sequential(BasicBlock(width, 2 * width, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(2 * width, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


def train_model(model, data, criterion, optimizer, scheduler, num_epochs):
    best, best_acc = copy.deepcopy(model.state_dict()), 0.0
    loaders = {phase: DataLoader(data[phase], batch_size=64, shuffle=True) for phase in data}
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss, running_corrects, count = 0.0, 0, 0
            for inputs, labels in loaders[phase]:
                optimizer.zero_grad()
                with torch.enable_grad() if phase == "train" else torch.no_grad():
                    outputs = model(inputs)
                    preds = outputs.argmax(1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.shape[0]
                running_corrects += torch.sum(preds == labels).item()
                count += inputs.shape[0]
            if phase == "train":
                scheduler.step()
            loss, acc = running_loss / count, running_corrects / count
            print(f"{epoch} {phase} loss: {loss:.4f} acc: {acc:.4f}")
            if phase == "val" and acc > best_acc:
                best, best_acc = copy.deepcopy(model.state_dict()), acc
    model.load_state_dict(best)
    return model, best_acc


def main(epochs, width):
    torch.manual_seed(0)
    model = ResNet(8, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    criterion = nn.CrossEntropyLoss()
    data = load(np.arange(8))
    model, _ = train_model(model, data, criterion, optimizer, scheduler, epochs)

    for param in model.parameters():
        param.requires_grad = False
    num_ftrs = model.fc.in_features
    model.fc = nn.Linear(num_ftrs, 2)
    before = copy.deepcopy(model.state_dict())

    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1, momentum=0.9)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    data = load(np.arange(8, 10))
    model, accuracy = train_model(model, data, criterion, optimizer, scheduler, epochs)

    names = [name for name, _ in model.named_parameters()]
    changed = [n for n in names if not (model.state_dict()[n] == before[n]).all().item()]
    print(f"changed: {changed}, accuracy {accuracy:.3f}")
    return accuracy, changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.width)
