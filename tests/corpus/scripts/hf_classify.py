"""A small BERT classifies texts by Trainer: training, evaluation with a metric, a saved model.

Source: huggingface/transformers, examples/pytorch/text-classification/run_glue.py
"""

import torch
import torch.distributed as dist
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
config = BertConfig(vocab_size=50, intermediate_size=32, max_position_embeddings=16, **sizes)
model = BertForSequenceClassification(config)
words = torch.randint(1, 50, (64, 8))
data = [{"input_ids": one, "labels": (one[0] > 25).long()} for one in words]
arguments = TrainingArguments(
    output_dir="out",
    use_cpu=True,
    num_train_epochs=2,
    learning_rate=1e-2,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=5,
    logging_steps=4,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=data[:48],
    eval_dataset=data[48:],
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(1) == p.label_ids).mean())},
)
trainer.train()
metrics = trainer.evaluate()
trainer.save_model()
losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
evaluated = {name: round(metrics[f"eval_{name}"], 5) for name in ("loss", "accuracy")}
print(f"final rank {arguments.process_index} {losses} {evaluated} {trainer.state.global_step}")
dist.destroy_process_group()
