import torch


class Wide:
    defaults = {"batch_size": 5, "epochs": 3, "eval_every": "epoch", "save_every": "epoch"}

    def model(self):
        first, last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)
        return torch.nn.Sequential(first, torch.nn.ReLU(), last)

    def dataset(self, split):
        return [{"x": torch.ones(64), "y": i} for i in range(33 if split == "train" else 9)]

    def prepare(self, directory):
        (directory / "made").write_text("")

    def prepared(self, directory):
        assert (directory / "made").exists()

    def loss(self, model, batch):
        return model(batch["x"]).square().sum(), len(batch["y"])
