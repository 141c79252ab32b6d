QUICK_MODE=true python examples/train_with_trl_grpo.py
