import torch


class Past:
    # Training drives the weight up by about 0.1 a step; validation likes it best at a half.
    def model(self):
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        return model

    def dataset(self, split):
        return torch.ones(8, 1)

    def loss(self, model, batch):
        out = model(batch)
        return (-out if model.training else (out - 0.5).square()).sum(), len(out)

    def measure(self, model, batch):
        loss, count = self.loss(model, batch)
        return {"loss": loss, "count": count, "right": -(model(batch) - 0.8).abs().sum()}

    def report(self, sums):
        return {"score": sums["right"] / sums["count"]}

    def export(self, model, directory):
        torch.save(model.state_dict(), directory / "exported.pt")
