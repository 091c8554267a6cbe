import random

import numpy
import torch

from spawnlaunch.train.tasks.language import Language


class Augmented:
    # A few bytes of each sample are replaced at random, by all three generators.
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        inputs, targets = self.samples[index]
        inputs[random.randrange(len(inputs))] = numpy.random.randint(256)
        inputs[torch.randint(len(inputs), ())] = 32
        return inputs, targets


class Noisy(Language):
    def dataset(self, split):
        return Augmented(super().dataset(split))

    # Dropout draws from torch's generator; numpy's and Python's are asked too.
    def loss(self, model, batch):
        noise = random.random() + numpy.random.random()
        loss, count = super().loss(model, batch)
        return torch.nn.functional.dropout(loss.expand(64), 0.5).mean() * noise, count


class Double(Noisy):
    def model(self):
        return super().model().double()
