python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=s3://rl-data/a.jsonl \
    data.train_batch_size=64 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    data.val_batch_size=512 \
    trainer.frobnicate=3 \
    trainer.total_training_steps=100
