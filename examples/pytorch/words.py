"""A character-level recurrent network that tells the language of a word.

It is a program for PyTorch but for the edits that docs/guide/pytorch-programs.md lists.
`--epochs N` trains for longer or shorter.
"""

import argparse
import random

import girih as torch
from girih import nn

WORDS = {
    "English": "one two three four five six seven eight nine ten eleven twelve monday tuesday "
    "wednesday thursday friday saturday sunday january february march may june july august "
    "september october november december water fire earth night morning bread brother sister",
    "German": "eins zwei drei vier fuenf sechs sieben acht neun zehn elf zwoelf montag dienstag "
    "mittwoch donnerstag freitag samstag sonntag januar februar maerz mai juni juli august "
    "september oktober november dezember wasser feuer erde nacht morgen brot bruder schwester",
    "French": "un deux trois quatre cinq six sept huit neuf dix onze douze lundi mardi mercredi "
    "jeudi vendredi samedi dimanche janvier fevrier mars mai juin juillet aout septembre octobre "
    "novembre decembre eau feu terre nuit matin pain frere soeur",
    "Italian": "uno due tre quattro cinque sei sette otto nove dieci undici dodici lunedi martedi "
    "mercoledi giovedi venerdi sabato domenica gennaio febbraio marzo maggio giugno luglio agosto "
    "settembre ottobre novembre dicembre acqua fuoco terra notte mattina pane fratello sorella",
}
CATEGORIES = list(WORDS)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def line_to_tensor(line):
    """One row per letter, each with a batch of one: [letters, 1, 26]."""
    tensor = torch.zeros(len(line), 1, len(LETTERS))
    for i, letter in enumerate(line):
        tensor[i, 0, LETTERS.index(letter)] = 1
    return tensor


class CharRNN(nn.Module):
    """A recurrent layer, and scores from its last state."""

    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.rnn = nn.RNN(input_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, line_tensor):
        _, hidden = self.rnn(line_tensor)
        output = self.h2o(hidden[0])
        return self.softmax(output)


def label_from_output(output):
    return CATEGORIES[output.argmax(1).item()]


def train(rnn, data, n_epoch, n_batch_size=16, learning_rate=0.15):
    losses = []
    rnn.train()
    optimizer = torch.optim.SGD(rnn.parameters(), lr=learning_rate)
    criterion = nn.NLLLoss()
    for _ in range(n_epoch):
        current_loss = 0.0
        random.shuffle(data)
        for start in range(0, len(data), n_batch_size):
            batch = data[start : start + n_batch_size]
            batch_loss = 0
            for category, line_tensor in batch:
                output = rnn(line_tensor)
                label = torch.tensor([CATEGORIES.index(category)])
                batch_loss += criterion(output, label)

            batch_loss = batch_loss / len(batch)
            batch_loss.backward()
            nn.utils.clip_grad_norm_(rnn.parameters(), 3)
            optimizer.step()
            optimizer.zero_grad()

            current_loss += batch_loss.item() * len(batch)
        losses.append(current_loss / len(data))
    return losses


def evaluate(rnn, data):
    rnn.eval()
    with torch.no_grad():
        right = sum(label_from_output(rnn(line)) == category for category, line in data)
    return right / len(data)


def main(epochs, words):
    random.seed(0)
    torch.manual_seed(0)
    data = [
        (category, line_to_tensor(word))
        for category, line in WORDS.items()
        for word in line.split()[:words]
    ]
    rnn = CharRNN(len(LETTERS), 64, len(CATEGORIES))
    print(rnn)
    losses = train(rnn, data, epochs)
    accuracy = evaluate(rnn, data)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, accuracy {accuracy:.3f}")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--words", type=int, default=100, help="of each language")
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.words)
