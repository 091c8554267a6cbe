import os
import time
from pathlib import Path

from spawnlaunch.train.tasks.language import Language


class Slow(Language):
    # Where it is slow it says so, and there it is interrupted, if at all.
    def loss(self, model, batch):
        begun = Path("cut/config.toml").exists()  # before, the first batch is only looked at
        where = "train" if model.training else "validate" if begun else "look"
        if os.environ.get("SLOW") == where and os.environ.get("RANK", "0") == "0":
            Path("slow-now").touch()
            time.sleep(0.5 if where == "train" else 0.05)
        return super().loss(model, batch)
